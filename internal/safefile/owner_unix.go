//go:build unix

package safefile

import (
	"io/fs"
	"syscall"
)

// hasOwners reports whether files have owners.
const hasOwners = true

// owner returns the user to whom a file belongs.
func owner(info fs.FileInfo) (int, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
