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
	raw syscall.RawConn
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
	return &socket{c, raw}
}

// socketBytes is asked for as a unix socket's buffer; the system gives what it
// allows.
const socketBytes = 1 << 20

// TryWrite writes what the system takes at once. It returns the bytes written,
// which may be none.
func (s *socket) TryWrite(b []byte) (int, error) {
	var n int
	var werr error
	err := s.raw.Write(func(fd uintptr) bool {
		for {
			n, werr = syscall.Write(int(fd), b)
			if werr != syscall.EINTR {
				return true
			}
		}
	})
	if werr == syscall.EAGAIN {
		return 0, err
	}
	if werr != nil {
		return max(n, 0), werr
	}
	return n, err
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
