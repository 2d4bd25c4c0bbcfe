//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package rundir

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// maxTries bounds how often lock tries again while others only look whether the file is locked: some seconds.
const maxTries = 2000

// lock locks a file without waiting for a job that has it. A shared lock is that of [Held], which has it for a moment: then
// it tries again.
func lock(f *os.File) error {
	for tries := 1; ; tries++ {
		err := flock(f, syscall.LOCK_EX)
		if !errors.Is(err, errHeld) || tries == maxTries {
			return err
		}
		if shared := flock(f, syscall.LOCK_SH); shared != nil {
			return err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
			return err
		}
		<-time.After(time.Millisecond) // the other process may not be running at the moment
	}
}

// held reports whether a job has locked a file, by a shared lock that it gives back when the file is closed.
func held(f *os.File) (bool, error) {
	err := flock(f, syscall.LOCK_SH)
	if errors.Is(err, errHeld) {
		return true, nil
	}
	return false, err
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errHeld
		default: // such as ENOLCK or ENOTSUP of a network file system
			return fmt.Errorf("%w: %w", ErrNoLock, err)
		}
	}
}
