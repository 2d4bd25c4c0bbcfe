package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// socket is the listening socket of one node, kept over its restarts.
type socket struct {
	addr string // as in the plan
	file *os.File
}

// listen binds the sockets of all local nodes, by node id, and returns the plan
// with the ports that were found free. The error joins all faults.
func listen(ctx context.Context, plan placement.Plan) (map[int]*socket, placement.Plan, error) {
	sockets := make(map[int]*socket)
	ports := make(map[int]int)
	var faults []error
	for _, n := range plan.Local() {
		if n.Listen == "" || strings.HasPrefix(n.Listen, "bus://") {
			continue
		}
		s, port, err := bind(ctx, n.Listen)
		if err != nil {
			faults = append(faults, fmt.Errorf("node %d: listen on %s: %w", n.ID, n.Listen, Advise(err)))
			continue
		}
		sockets[n.ID] = s
		if port != 0 {
			ports[n.ID] = port
		}
	}
	if len(faults) > 0 {
		for _, s := range sockets {
			s.close()
		}
		return nil, plan, errors.Join(faults...)
	}
	return sockets, plan.Bind(ports), nil
}

// bind opens one socket, and returns its port if that was left open.
func bind(ctx context.Context, addr string) (*socket, int, error) {
	a, err := placement.ParseAddress(addr)
	if err != nil {
		return nil, 0, err
	}
	var cfg net.ListenConfig
	if a.Scheme == "unix" {
		l, err := cfg.Listen(ctx, "unix", a.Path)
		if err != nil {
			return nil, 0, err
		}
		ul := l.(*net.UnixListener) // what network "unix" listens with
		ul.SetUnlinkOnClose(false)
		return keep(addr, ul, 0)
	}
	l, err := cfg.Listen(ctx, "tcp", a.HostPort())
	if err != nil {
		return nil, 0, err
	}
	tl := l.(*net.TCPListener) // what network "tcp" listens with
	port := 0
	if a.Port == 0 {
		port = tl.Addr().(*net.TCPAddr).Port
	}
	return keep(addr, tl, port)
}

// keep turns a listener into a file that can be inherited.
func keep(addr string, l interface {
	File() (*os.File, error)
	Close() error
}, port int) (*socket, int, error) {
	file, err := l.File()
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, 0, err
	}
	return &socket{addr: addr, file: file}, port, nil
}

// close frees the socket: later dials are refused.
func (s *socket) close() {
	_ = s.file.Close()
	control.RemoveSocket(s.addr)
}

// Advise reduces an error of listening, of package net, to its cause, and adds what the
// user of a launcher can do.
func Advise(err error) error {
	cause := err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		cause = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](cause); ok {
		cause = sys.Err
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: choose other --ports, or end the process that has it", cause)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: choose a port or a folder that you may use", cause)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: --address is not one of this machine", cause)
	case strings.Contains(err.Error(), "no such file"):
		return fmt.Errorf("%w: the folder of the socket is missing", cause)
	}
	return cause
}
