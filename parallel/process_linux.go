package parallel

import (
	"fmt"
	"os"
	"syscall"
)

// processNumbers are this process' resident memory in bytes, open files, and user
// and system time in seconds.
func processNumbers() (memory, files, cpu float64, ok bool) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, 0, false
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0, 0, 0, false
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, 0, false
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, 0, false
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Nano()) / 1e9 }
	return float64(resident * os.Getpagesize()), float64(len(fds) - 1), seconds(u.Utime) + seconds(u.Stime), true // less the one that lists them
}
