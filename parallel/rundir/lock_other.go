//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package rundir

import "os"

// lock locks nothing: this system has other locks.
func lock(*os.File) error { return nil }

// held cannot tell.
func held(*os.File) (bool, error) { return false, ErrNoLock }
