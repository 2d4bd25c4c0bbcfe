//go:build unix

package build

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/ditask/ditask/internal/safefile"
)

// lock waits for a lock that all builds of one package take.
func lock(path string) (unlock func(), err error) {
	f, err := safefile.Update(path, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cache folder: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil && !errors.Is(err, syscall.ENOTSUP) && !errors.Is(err, syscall.ENOLCK) {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// alive reports whether a process with that pid may exist.
func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err != nil || !errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}
