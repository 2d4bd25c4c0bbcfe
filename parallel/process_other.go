//go:build !linux

package parallel

// processNumbers are known on Linux only.
func processNumbers() (memory, files, cpu float64, ok bool) { return 0, 0, 0, false }
