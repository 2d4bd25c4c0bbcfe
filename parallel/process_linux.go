package parallel

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// processNumbers are this process' resident memory in bytes, open files, and user
// and system time in seconds.
func processNumbers() (memory, files, cpu float64, ok bool) {
	b, readErr := os.ReadFile("/proc/self/statm")
	var size, resident int
	_, scanErr := fmt.Sscan(string(b), &size, &resident)
	fds, dirErr := os.ReadDir("/proc/self/fd")
	var u syscall.Rusage
	usageErr := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	if errors.Join(readErr, scanErr, dirErr, usageErr) != nil {
		return 0, 0, 0, false
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Nano()) / 1e9 }
	open := len(fds) - 1 // without the descriptor that lists them
	return float64(resident * os.Getpagesize()), float64(open), seconds(u.Utime) + seconds(u.Stime), true
}
