//go:build unix

package socket

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Passes reports whether files can be passed to the other end: the connection is a unix socket.
func (s *conn) Passes() bool {
	_, ok := s.Conn.(*net.UnixConn)
	return ok
}

// Pass writes one byte, and with it f, if that is not nil.
func (s *conn) Pass(b byte, f *os.File) error {
	c, ok := s.Conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("pass a file: %w", syscall.EOPNOTSUPP)
	}
	if f == nil {
		_, err := c.Write([]byte{b})
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("pass a file: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { // the file is not closed meanwhile
		_, _, failed = c.WriteMsgUnix([]byte{b}, syscall.UnixRights(int(fd)), nil)
	})
	if err == nil {
		err = failed
	}
	return err
}

// Receive reads one byte, and the file that came with it. The file is nil if none came, or several.
// The system closes files that are passed at any other time, as no other read asks for them.
func (s *conn) Receive() (byte, *os.File, error) {
	c, ok := s.Conn.(*net.UnixConn)
	if !ok {
		return 0, nil, fmt.Errorf("receive a file: %w", syscall.EOPNOTSUPP)
	}
	var b [1]byte
	side := make([]byte, syscall.CmsgSpace(4)) // for one file; the system closes what is more
	n, k, _, _, err := c.ReadMsgUnix(b[:], side)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return b[0], only(side[:k]), nil
}

// only returns the file in the ancillary data of one message. If there are several, it closes them.
func only(side []byte) *os.File {
	var all []int
	messages, _ := syscall.ParseSocketControlMessage(side) // none if it fails
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i]) // the same
		all = append(all, fds...)
	}
	if len(all) == 1 {
		return os.NewFile(uintptr(all[0]), "passed")
	}
	for _, fd := range all {
		_ = syscall.Close(fd)
	}
	return nil
}
