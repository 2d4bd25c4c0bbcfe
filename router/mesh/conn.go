//go:build unix

package mesh

import (
	"io"
	"net"
	"syscall"
)

// socket is a connection that can also write without waiting.
type socket struct {
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
	k := &socket{Conn: c, raw: raw}
	k.now.call = func(fd uintptr) bool { return k.now.do(fd, syscall.Write) }
	k.coming.call = func(fd uintptr) bool { return k.coming.do(fd, syscall.Read) }
	return k
}

// socketBytes is asked for as a unix socket's buffer; the system gives what it
// allows.
const socketBytes = 1 << 20

// TryWrite writes what the system takes at once. It returns the bytes written,
// which may be none. One call at a time, and none beside another write.
func (s *socket) TryWrite(b []byte) (int, error) {
	return s.now.make(s.raw.Write, b)
}

// TryRead reads what has come, which may be nothing. One call at a time, and none beside another read.
func (s *socket) TryRead(b []byte) (int, error) {
	n, err := s.coming.make(s.raw.Read, b)
	if n == 0 && err == nil && s.coming.err == 0 {
		return 0, io.EOF
	}
	return n, err
}

// attempt is one write or read without waiting, kept so that none is allocated.
type attempt struct {
	call func(fd uintptr) bool
	b    []byte
	n    int
	err  syscall.Errno // 0: none
}

// make makes the attempt, through a method of the raw connection.
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

// ReadFrom lets io.Copy between two sockets stay in the kernel where it can.
func (s *socket) ReadFrom(r io.Reader) (int64, error) {
	if o, ok := r.(*socket); ok {
		r = o.Conn
	}
	return io.Copy(s.Conn, r)
}

// WriteBuffers writes all of bufs in as few calls as the system allows.
func (s *socket) WriteBuffers(bufs *net.Buffers) (int64, error) { return bufs.WriteTo(s.Conn) }
