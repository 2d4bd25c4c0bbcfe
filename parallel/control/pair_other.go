//go:build !unix

package control

import (
	"errors"
	"os"
)

// Pair fails: this system has no sockets that a process can inherit.
func Pair() (launcher, node *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}

func inherit(int, string) (*os.File, error) { return nil, errors.ErrUnsupported }

func shutdownWrite(*os.File) error { return errors.ErrUnsupported }

// KillGroup does nothing: this system has no process groups.
func KillGroup() {}
