//go:build !linux

package job

// availableMemory is not known: nodes share no memory on this system.
func availableMemory() uint64 { return 0 }
