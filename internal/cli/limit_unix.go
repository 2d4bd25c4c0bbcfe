//go:build unix

package cli

import (
	"fmt"
	"syscall"
)

// fileLimit returns how many files a process may have open.
func fileLimit() (uint64, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return uint64(r.Cur), nil //nolint:unconvert // signed on some systems
}
