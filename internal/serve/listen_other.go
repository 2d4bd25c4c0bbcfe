//go:build !unix

package serve

// refused reports whether the error means that no process listens on a socket.
func refused(error) bool { return false }
