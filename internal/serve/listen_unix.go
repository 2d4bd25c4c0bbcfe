//go:build unix

package serve

import (
	"errors"
	"syscall"
)

// refused reports whether err means that no process listens on a socket.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
