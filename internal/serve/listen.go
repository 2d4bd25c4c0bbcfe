package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrInUse is in the error of ListenUnix for a socket on which another server answers.
var ErrInUse = errors.New("another server answers on it")

// ErrNoSocket is in the error of ListenUnix for a path where something else than a socket is.
var ErrNoSocket = errors.New("it exists and is no socket")

// ListenUnix listens on a unix socket that only this user can open, mode 0600. It replaces the socket of a server
// that is dead, and nothing else. Closing the listener removes the socket.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := free(ctx, path); err != nil {
		return nil, err
	}
	// It is made in a folder that others cannot enter, so that at no moment they can connect, and then moved.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made := filepath.Join(dir, "s")
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	var own fs.FileInfo
	if err == nil {
		own, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{Listener: l, path: path, own: own}, nil
}

// free reports whether a socket can be made at a path: the path does not exist, or is the socket of a dead server.
func free(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s: %w", path, ErrNoSocket)
	}
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%s: %w", path, ErrInUse)
	}
	if !refused(err) { // such as a full backlog, or a socket of another user
		return fmt.Errorf("%s: %w", path, errors.Join(ErrInUse, err))
	}
	return nil
}

// socket is a unix socket that is removed when it is closed.
type socket struct {
	net.Listener
	path string
	own  fs.FileInfo
	once sync.Once
}

// Close closes the socket and removes its file, unless another socket has replaced it.
func (s *socket) Close() error {
	s.once.Do(func() {
		if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.own) {
			_ = os.Remove(s.path)
		}
	})
	return s.Listener.Close()
}
