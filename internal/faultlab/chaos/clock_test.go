//go:build linux && clockjump

package chaos_test

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// The time of day of a node or a launcher jumps at a signal, and back at the next.
func init() {
	everyFaults = append(everyFaults, "clock", "launcher-clock")
	jump, err := strconv.ParseInt(os.Getenv(varJump), 10, 64)
	if err != nil {
		return // the laboratory itself
	}
	told := make(chan os.Signal, 2)
	signal.Notify(told, syscall.SIGUSR2)
	go func() {
		for range told {
			time.Jump(jump)
			jump = -jump
		}
	}()
}
