//go:build !unix

package safefile

import "io/fs"

// hasOwners reports whether files have owners.
const hasOwners = false

// owner returns false: files have no owners on this system.
func owner(fs.FileInfo) (int, bool) { return 0, false }
