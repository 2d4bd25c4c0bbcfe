package natsbus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/router/broker"
	"github.com/ditask/ditask/router/natsbus/internal/proof"
)

// These times bound how long the loss of the server stays unnoticed, and how often the transport
// tries to connect again.
const (
	tryTimeout   = 2 * time.Second         // one attempt to connect
	pingInterval = 1500 * time.Millisecond // the connection is lost after two without an answer
	writeTime    = 3 * time.Second         // for the server to take each piece
	waitLeast    = 20 * time.Millisecond
	waitMost     = 500 * time.Millisecond
)

// pendingBytes is the number of bytes that may wait in this client for its subscriptions, which never
// block: the windows of 2000 nodes. It bounds the memory that an unauthenticated client can take.
const pendingBytes = 512 << 20

// CheckURL returns an error if an element of a list with commas is not the URL of a server.
func CheckURL(list string) error {
	if strings.TrimSpace(list) == "" {
		return errors.New("the server's URL is missing: want nats://host:port")
	}
	for _, part := range split(list) {
		u, err := url.Parse(part)
		switch {
		case strings.Contains(part, ","): // package nats splits the list there
			return fmt.Errorf("%s: a comma stands before another nats:// or tls:// alone: write %%2C in a name or password", Public(part))
		case err != nil: // err quotes the URL, which may contain a password
			return fmt.Errorf("%s: not a URL: want nats://host:port or tls://host:port", Public(part))
		case u.Scheme != "nats" && u.Scheme != "tls", u.Hostname() == "", u.Path != "" && u.Path != "/":
			return fmt.Errorf("%s: want nats://host:port or tls://host:port", Public(part))
		}
		if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
			return fmt.Errorf("%s: port %s: want a number from 1 to 65535", Public(part), u.Port())
		}
	}
	return nil
}

// split divides a list of URLs. A comma without a scheme after it is a part of a URL, perhaps of
// its password.
func split(list string) []string {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		if n := len(out); n > 0 && !strings.Contains(part, "://") {
			out[n-1] += "," + part
		} else {
			out = append(out, part)
		}
	}
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// Public returns a list of URLs without their secrets, for messages.
func Public(list string) string {
	parts := split(list)
	for i, part := range parts {
		scheme, rest, ok := strings.Cut(part, "://")
		if !ok {
			scheme, rest = "", part
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = rest[at+1:]
		}
		if parts[i] = rest; ok {
			parts[i] = scheme + "://" + rest
		}
	}
	return strings.Join(parts, ",")
}

// open returns the hub and the connection with the server. The first call makes them. While the
// connection is lost, open waits.
func (c *Transport) open(ctx context.Context) (*broker.Hub, *nats.Conn, error) {
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return nil, nil, c.unreachable(context.Cause(ctx))
	}
	c.mu.Lock()
	nc, closed := c.nc, c.closed
	c.mu.Unlock()
	if closed {
		return nil, nil, net.ErrClosed
	}
	if nc == nil {
		var err error
		if nc, err = c.connect(ctx); err != nil {
			return nil, nil, err
		}
	}
	up := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(up)
	for !nc.IsConnected() {
		if nc.IsClosed() {
			return nil, nil, net.ErrClosed
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, nil, c.unreachable(errors.Join(context.Cause(ctx), nc.LastError()))
		}
	}
	return c.hub, nc, nil
}

// connect connects with the server. It tries for Config.ConnectTimeout if the server is
// unreachable.
func (c *Transport) connect(ctx context.Context) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	began, told := time.Now(), false
	for wait := waitLeast; ; wait = min(2*wait, waitMost) {
		nc, err := c.try()
		if err == nil {
			return nc, nil
		}
		if !errors.As(err, new(*downError)) {
			return nil, c.fault(err)
		}
		if !told && time.Since(began) > time.Second {
			told = true
			c.log.Info("waiting for the NATS server", "url", Public(c.cfg.URL), "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, c.unreachable(err)
		}
	}
}

// downError means that the server is not reachable, or not yet.
type downError struct{ err error }

func (e *downError) Error() string { return e.err.Error() }
func (e *downError) Unwrap() error { return e.err }

// try connects once, and subscribes to the messages for this transport's connections.
func (c *Transport) try() (*nats.Conn, error) {
	dialed := dialer{bus: c}
	opts, err := c.options(&dialed)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(c.cfg.URL, opts...)
	if err != nil {
		if dialed.err != nil && (errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout)) {
			err = dialed.err
		}
		if !refused(err) {
			err = &downError{err}
		}
		return nil, printable.Error(err)
	}
	hub := c.newHub(nc)
	sub, err := nc.Subscribe(c.prefix+"conn."+c.inbox+".*", func(m *nats.Msg) { c.deliver(hub, m) })
	if err == nil {
		err = sub.SetPendingLimits(-1, pendingBytes)
	}
	if err == nil {
		err = settled(c.ctx, nc)
	}
	if err == nil && nc.MaxPayload() < leastPayload {
		err = fmt.Errorf("its max_payload is %d bytes: want at least %d", nc.MaxPayload(), leastPayload)
	}
	c.mu.Lock()
	if err == nil && c.closed {
		err = net.ErrClosed
	}
	if err == nil {
		c.nc, c.sub, c.hub = nc, sub, hub
		go hub.Run() // bus.Close waits for it
	}
	c.mu.Unlock()
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// leastPayload is the smallest max_payload of a server that this transport can use.
const leastPayload = 4096

// dialer makes the connections with the server. It keeps the error of a failed attempt, which
// package nats does not return.
type dialer struct {
	bus *Transport
	err error
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: tryTimeout}).DialContext(context.Background(), network, address)
	if err == nil && d.bus.cfg.Key != "" {
		conn, err = d.bus.prove(conn, address)
	}
	if err != nil {
		d.err = err
		return nil, err
	}
	return socket{conn, d.bus.writeTime}, nil
}

// prove lets the server and this client prove to each other that they know the job's key, over TLS
// if it is configured. The proofs precede all other data, so another process at the server's
// address learns nothing.
func (c *Transport) prove(raw net.Conn, address string) (net.Conn, error) {
	conn, err := raw, raw.SetDeadline(time.Now().Add(tryTimeout))
	if err == nil && c.cfg.TLS != nil {
		cfg := c.cfg.TLS.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(address)
		}
		over := tls.Client(raw, cfg)
		conn, err = over, over.HandshakeContext(context.Background()) // the deadline bounds it
	}
	if err == nil {
		err = proof.Client(conn, []byte(c.cfg.Key))
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = raw.Close()
		err = fmt.Errorf("%s: %w", address, err)
		c.unproved(err)
		return nil, err
	}
	return conn, nil
}

// unproved counts a process at the server's address that did not prove that it knows the key. It
// logs the first one after the start; at the start, Listen and Dial return the error.
func (c *Transport) unproved(err error) {
	if !refused(err) {
		return
	}
	c.mu.Lock()
	c.stats.Unproved++
	first := c.stats.Unproved == 1 && c.nc != nil
	c.mu.Unlock()
	if first {
		c.log.Warn("not the job's NATS server, trying again; further ones are counted only", "err", err)
	}
}

// socket is a connection with the server. Package nats holds the lock of its client while it
// writes, so each write is bounded: a stopped server would otherwise block all calls of the client.
type socket struct {
	net.Conn
	writeTime time.Duration // for each pieceWrite bytes
}

const pieceWrite = 64 << 10

// Write writes all of b, or closes the connection: after a part of a message the
// server would take the next message for the rest.
func (s socket) Write(b []byte) (int, error) {
	total := 0
	for total < len(b) {
		err := s.SetWriteDeadline(time.Now().Add(s.writeTime))
		n := 0
		if err == nil {
			n, err = s.Conn.Write(b[total:min(total+pieceWrite, len(b))])
		}
		total += n
		if err != nil {
			_ = s.Close()
			return total, err
		}
	}
	return total, nil
}

func (c *Transport) options(d *dialer) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.cfg.Name),
		nats.SetCustomDialer(d),
		nats.Timeout(tryTimeout),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), // the session decides when a peer is lost
		nats.ReconnectBufSize(-1),      // the session has already sent late messages again
		nats.IgnoreDiscoveredServers(), // a server must not lead its clients to other addresses
		nats.CustomReconnectDelay(func(attempts int) time.Duration {
			d := min(waitLeast<<min(attempts, 10), waitMost)
			return d/2 + rand.N(d/2)
		}),
		nats.DisconnectErrHandler(c.disconnected),
		nats.ReconnectHandler(c.reconnected),
		nats.ClosedHandler(c.ended),
		nats.ErrorHandler(c.asyncError),
	}
	if c.cfg.Token != "" {
		opts = append(opts, nats.Token(c.cfg.Token))
	}
	if c.cfg.CredsFile != "" {
		if _, err := os.ReadFile(c.cfg.CredsFile); err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
		opts = append(opts, nats.UserCredentials(c.cfg.CredsFile))
	}
	if c.cfg.NKeyFile != "" {
		opt, err := nats.NkeyOptionFromSeed(c.cfg.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey seed %s: %w", c.cfg.NKeyFile, err)
		}
		opts = append(opts, opt)
	}
	if c.cfg.TLS != nil && c.cfg.Key == "" { // with a key, the TLS handshake precedes the proofs
		opts = append(opts, nats.Secure(c.cfg.TLS))
	}
	return opts, nil
}

// settled waits until the server has processed the subscriptions, and returns its error for them.
func settled(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 2*tryTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// disconnected breaks all connections: messages under way may or may not be lost, and the sessions
// detect which.
func (c *Transport) disconnected(nc *nats.Conn, err error) {
	c.mu.Lock()
	if c.nc != nc {
		c.mu.Unlock()
		return
	}
	closed, hub := c.closed, c.hub
	c.stats.Disconnects++
	c.mu.Unlock()
	if err == nil {
		err = errors.New("it closed the connection")
	}
	err = printable.Error(err)
	hub.BreakAll(fmt.Errorf("the NATS server %s is gone: %w", Public(c.cfg.URL), err),
		"the other side lost its connection with the NATS server")
	if !closed {
		c.log.Warn("the NATS server is gone, trying again", "url", Public(c.cfg.URL), "err", err)
	}
}

// reconnected logs the new connection. The hub then notifies the other ends that their connections are broken.
func (c *Transport) reconnected(nc *nats.Conn) {
	c.log.Info("connected with NATS again", "url", printable.Text(Public(nc.ConnectedUrl())))
}

// ended is called when nc has been closed and its goroutines have ended.
func (c *Transport) ended(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nc == nc {
		close(c.gone)
	}
}

// asyncError receives all other errors of the server and the client.
func (c *Transport) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrSlowConsumer) {
		c.log.Warn("NATS", "err", printable.Error(err))
		return
	}
	c.mu.Lock()
	c.stats.Dropped++
	first := c.stats.Dropped == 1
	c.mu.Unlock()
	if first {
		c.log.Warn("this client was too slow for NATS, which dropped messages: connections break and are made again; counted from now on",
			"subject", sub.Subject)
	}
}

// refused reports whether the server answers and refuses this client.
func refused(err error) bool {
	for _, e := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrPermissionViolation,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported, nats.ErrMaxConnectionsExceeded,
		proof.ErrKey, proof.ErrTLS, proof.ErrForeign,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return certificateFault(err)
}

// certificateFault reports whether one side refuses the other's certificate.
func certificateFault(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "tls: ") || strings.Contains(text, "x509: ")
}

// fault describes the reason why a server refuses this client, and the remedy.
func (c *Transport) fault(err error) error {
	advice := "see the server's log"
	switch {
	case errors.Is(err, proof.ErrKey), errors.Is(err, proof.ErrForeign):
		advice = "check that the job's launchers have the same token, and which process has this address"
	case errors.Is(err, nats.ErrPermissionViolation):
		advice = fmt.Sprintf("allow this user to publish and subscribe to %s>", c.prefix)
	case certificateFault(err), errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		advice = "check the certificates, and whether both sides use TLS"
	case refused(err):
		advice = "check the token, user, credentials or nkey"
	case errors.Is(err, os.ErrNotExist), errors.Is(err, net.ErrClosed), errors.Is(err, nats.ErrInvalidConnection):
		return err
	}
	return fmt.Errorf("the NATS server %s: %w: %s", Public(c.cfg.URL), printable.Error(err), advice)
}

// unreachable describes a server that cannot be reached, and the remedy.
func (c *Transport) unreachable(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		err = op.Err
	}
	return fmt.Errorf("no NATS server at %s: %w: start one there, or correct the URL", Public(c.cfg.URL), printable.Error(err))
}

// Info is the result of [Check].
type Info struct {
	Server     string // its version
	URL        string // of the one that answered, without secrets
	RoundTrip  time.Duration
	MaxPayload int64 // bytes
}

// Check connects with the server that cfg names, once, and describes its answer.
func Check(ctx context.Context, cfg Config) (Info, error) {
	c, err := New(cfg)
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = c.Close() }()
	_, nc, err := c.open(ctx)
	if err != nil {
		return Info{}, err
	}
	rtt, err := nc.RTT()
	if err != nil {
		return Info{}, c.fault(err)
	}
	return Info{printable.Text(nc.ConnectedServerVersion()), printable.Text(Public(nc.ConnectedUrl())), rtt, nc.MaxPayload()}, nil
}
