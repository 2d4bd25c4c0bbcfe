//go:build unix

package socket

import (
	"io"
	"net"
	"syscall"
)

// conn is a connection that can also write without waiting.
type conn struct {
	net.Conn
	raw    syscall.RawConn
	now    attempt
	coming attempt
}

func wrap(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	if b, ok := c.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	}); ok && c.LocalAddr().Network() == "unix" {
		// The system's default holds less than one chunk. Tcp grows its own.
		_, _ = b.SetReadBuffer(socketBytes), b.SetWriteBuffer(socketBytes)
	}
	k := &conn{Conn: c, raw: raw}
	k.now.call = func(fd uintptr) bool { return k.now.do(fd, syscall.Write) }
	k.coming.call = func(fd uintptr) bool { return k.coming.do(fd, syscall.Read) }
	return k
}

// socketBytes is the requested size of a unix socket's buffers; the system may give less.
const socketBytes = 1 << 20

// TryWrite writes the bytes that the system takes at once, and returns their number, which
// may be 0. Writes must not be concurrent.
func (s *conn) TryWrite(b []byte) (int, error) {
	return s.now.make(s.raw.Write, b)
}

// TryRead reads the bytes that have arrived, perhaps none. Reads must not be concurrent.
func (s *conn) TryRead(b []byte) (int, error) {
	n, err := s.coming.make(s.raw.Read, b)
	if n == 0 && err == nil && s.coming.err == 0 {
		return 0, io.EOF
	}
	return n, err
}

// attempt is the state of a write or read without waiting. It is reused, so that a call allocates nothing.
type attempt struct {
	call func(fd uintptr) bool
	b    []byte
	n    int
	err  syscall.Errno // 0: none
}

// make calls through, a method of the raw connection, once.
func (a *attempt) make(through func(func(fd uintptr) bool) error, b []byte) (int, error) {
	a.b, a.n, a.err = b, 0, 0 // a closed connection makes no attempt
	err := through(a.call)
	n, no := a.n, a.err
	a.b = nil
	switch no {
	case 0:
		return n, err
	case syscall.EAGAIN:
		return 0, err
	}
	return max(n, 0), no
}

func (a *attempt) do(fd uintptr, call func(fd int, b []byte) (int, error)) bool {
	for {
		n, err := call(int(fd), a.b)
		a.n = n
		a.err, _ = err.(syscall.Errno) //nolint:errorlint // it is nothing else, or nil, which gives 0
		if a.err != syscall.EINTR {
			return true
		}
	}
}

// ReadFrom lets io.Copy between two sockets use splice where the system has it.
func (s *conn) ReadFrom(r io.Reader) (int64, error) {
	if o, ok := r.(*conn); ok {
		r = o.Conn
	}
	return io.Copy(s.Conn, r)
}

// WriteBuffers writes all of bufs in as few calls as the system allows.
func (s *conn) WriteBuffers(bufs *net.Buffers) (int64, error) { return bufs.WriteTo(s.Conn) }
