// Package socket connects nodes by unix sockets and tcp, with TLS if asked.
//
//	c := socket.New(socket.Config{})
//	r, err := router.New(router.Config{Transport: c, Listen: "tcp://127.0.0.1:0"})
//
// Addresses are "unix:///path/to/socket" and "tcp://host:port". Port 0 takes a
// free port. A socket file without a listener is replaced; one that
// is in use, like a busy port, causes an error that names it. The listener removes
// its socket file when it is closed.
//
// A [Transport] holds no state and is safe for concurrent use.
package socket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Config configures a [Transport]. The zero value works: no TLS.
type Config struct {
	// TLS is used for tcp on both sides: it holds this node's certificate, and
	// the authorities for the others'. Give it ClientAuth:
	// tls.RequireAndVerifyClientCert for mutual TLS; [LoadTLS] does. It is not
	// used for unix sockets, which their folder protects.
	TLS *tls.Config
}

// Transport satisfies router.Transport.
type Transport struct{ cfg Config }

// New returns a transport.
func New(cfg Config) *Transport { return &Transport{cfg} }

// Split returns the network and address of addr for package net: "unix" and a
// path, or "tcp" and host:port.
func Split(addr string) (network, address string, err error) {
	network, address, _ = strings.Cut(addr, "://")
	switch {
	case network == "unix" && address != "":
		return network, address, nil
	case network == "tcp":
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", "", fmt.Errorf("address %q: %w", addr, err)
		}
		return network, address, nil
	}
	return "", "", fmt.Errorf("address %q: want unix:///path or tcp://host:port", addr)
}

// maxSocketPath is the length of a socket's path in bytes that all systems allow.
const maxSocketPath = 100

// Listen binds addr.
func (c *Transport) Listen(ctx context.Context, addr string) (net.Listener, error) {
	network, address, err := Split(addr)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if len(address) > maxSocketPath {
			return nil, fmt.Errorf("socket path %q has %d bytes, the system takes %d: choose a shorter folder", address, len(address),
				maxSocketPath)
		}
		if err := removeStale(ctx, address); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c.Wrap(l), nil
}

// Wrap returns a listener of this transport for one that was bound elsewhere, for example by the
// launcher.
func (c *Transport) Wrap(l net.Listener) net.Listener {
	if c.cfg.TLS != nil && l.Addr().Network() == "tcp" {
		return tls.NewListener(l, c.cfg.TLS)
	}
	return &listener{l}
}

// removeStale removes a socket file without a listener.
func removeStale(ctx context.Context, path string) error {
	if fi, err := os.Lstat(path); err != nil || fi.Mode()&os.ModeSocket == 0 {
		return nil //nolint:nilerr // no file exists that could be stale
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("socket %s is in use", path)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}

// Advertise returns the address at which other nodes can dial l. For a listener on all
// interfaces that is the machine's host name.
func (c *Transport) Advertise(l net.Listener) string {
	a := l.Addr()
	if a.Network() != "tcp" {
		return "unix://" + a.String()
	}
	host, port, _ := net.SplitHostPort(a.String()) // no host if it fails
	if net.ParseIP(host).IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			return "tcp://" + net.JoinHostPort(name, port)
		}
	}
	return "tcp://" + a.String()
}

// Dial connects to addr.
func (c *Transport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	network, address, err := Split(addr)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{KeepAlive: 15 * time.Second}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if c.cfg.TLS != nil && network == "tcp" {
		cfg := c.cfg.TLS.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(address)
		}
		t := tls.Client(conn, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				err = fmt.Errorf("it closed the connection, and perhaps does not use TLS: start all nodes with a certificate, or none: %w", err)
			}
			return nil, fmt.Errorf("tls with %s: %w", address, err)
		}
		return t, nil
	}
	return wrap(conn), nil
}

type listener struct{ net.Listener }

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrap(c), nil
}
