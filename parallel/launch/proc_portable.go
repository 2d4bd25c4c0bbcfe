//go:build !linux

package launch

import "os/exec"

// reap waits for cmd, and calls before: here, a moment after it was reaped.
func reap(cmd *exec.Cmd, before func()) error {
	err := cmd.Wait()
	before()
	return err
}

// leadersWith finds nothing: this system does not show the environment of a process.
func leadersWith(string) []int { return nil }
