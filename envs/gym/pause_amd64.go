package gym

// pause lets a processor wait for some tens of nanoseconds, in a loop that looks at memory.
//
//go:noescape
func pause()
