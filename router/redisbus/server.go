package redisbus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/router/broker"
)

const (
	// answerTime is the time in which the server must answer; otherwise the connection to it is
	// made again. It is less than a session's LinkTimeout.
	answerTime = 4 * time.Second
	dialTime   = 4 * time.Second
	// poolSize is for the reader, the writer, the keeper, and dials.
	poolSize = 4
)

// options are go-redis's options for cfg, without the dialer.
func options(cfg Config) (*redis.Options, error) {
	if err := checkURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("%s: %w", Public(cfg.URL), err)
	}
	opt, err := redis.ParseURL(cfg.URL)
	if err != nil { // caused by an option after the question mark
		return nil, fmt.Errorf("%s: %s", Public(cfg.URL), strings.TrimPrefix(err.Error(), "redis: "))
	}
	if cfg.TLS != nil {
		if opt.TLSConfig == nil {
			return nil, errors.New("the Config has TLS and the URL does not: want rediss://")
		}
		name := opt.TLSConfig.ServerName
		opt.TLSConfig = cfg.TLS.Clone()
		if opt.TLSConfig.ServerName == "" {
			opt.TLSConfig.ServerName = name
		}
	}
	opt.Protocol = 2
	opt.DisableIdentity = true // it would need one more permission
	opt.MaxRetries = -1        // this package knows which commands may be repeated
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = dialTime, answerTime, answerTime, answerTime
	opt.DialerRetries = 1
	opt.PoolSize, opt.PipelinePoolSize, opt.MinIdleConns = poolSize, -1, 0
	opt.ReadBufferSize, opt.WriteBufferSize = 64<<10, 64<<10
	return opt, nil
}

// checkURL returns an error for a malformed URL; it does not check the options. The error contains
// no part of the URL that may belong to the password.
func checkURL(s string) error {
	const form = "want redis://user:password@host:port/database, or rediss:// for TLS"
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("not a URL: " + form + " (in a password, characters such as / @ : # % are written as %2F and so on)")
	case u.Scheme != "redis" && u.Scheme != "rediss", u.Opaque != "":
		return errors.New(form)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return fmt.Errorf("port %s: want a number from 1 to 65535", u.Port())
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if _, err := strconv.ParseUint(db, 10, 31); err != nil {
			return fmt.Errorf("database %q: want a number", db)
		}
	}
	return nil
}

// dialer connects to the server until ctx ends. Its function never fails: go-redis prints every
// failed dial to stderr instead of the logger, so go-redis receives a connection that returns the
// error.
func dialer(life context.Context, cfg *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		d := net.Dialer{KeepAlive: 15 * time.Second}
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return failedConn{err}, nil
		}
		if cfg == nil {
			return c, nil
		}
		t := tls.Client(c, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer, does the server speak TLS at this port? (%w)", err)
			}
			return failedConn{fmt.Errorf("tls: %w", err)}, nil
		}
		return t, nil
	}
}

// failedConn is a connection that could not be made.
type failedConn struct{ err error }

func (c failedConn) Read([]byte) (int, error)       { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)      { return 0, c.err }
func (failedConn) Close() error                     { return nil }
func (failedConn) LocalAddr() net.Addr              { return broker.Addr("") }
func (failedConn) RemoteAddr() net.Addr             { return broker.Addr("") }
func (failedConn) SetDeadline(time.Time) error      { return nil }
func (failedConn) SetReadDeadline(time.Time) error  { return nil }
func (failedConn) SetWriteDeadline(time.Time) error { return nil }

// advice maps the word at the beginning of a server's error to the remedy.
var advice = map[string]string{
	"NOAUTH":      "it wants a password: put it into the URL, redis://user:password@host:port",
	"WRONGPASS":   "it does not take the user and password of the URL",
	"NOPERM":      "the user of the URL may not do that: the documentation of package redisbus lists the commands and keys that it needs",
	"OOM":         "it has no memory left: raise its maxmemory; a job needs some MiB for each node",
	"READONLY":    "it is a replica: put the primary into the URL",
	"LOADING":     "it has just been started: this is tried again",
	"MASTERDOWN":  "it is a replica that has lost its primary: put the primary into the URL",
	"MISCONF":     "it cannot save to disk and takes no writes: make room on its disk, or CONFIG SET stop-writes-on-bgsave-error no",
	"MOVED":       "it is one of a cluster, and the keys of this job are at the server named after the slot: put that one into the URL",
	"ASK":         "it is one of a cluster that is moving the keys of this job: this is tried again",
	"CLUSTERDOWN": "its cluster is down",
	"NOREPLICAS":  "it has fewer replicas than it needs to take writes (min-replicas-to-write)",
}

// explain adds the server's address and the remedy to an error.
func explain(server string, err error) error {
	err = printable.Error(err)
	if text, ok := refusal(err); ok {
		word, _, _ := strings.Cut(text, " ")
		if what := advice[word]; what != "" {
			return fmt.Errorf("redis at %s: %s (%w)", server, what, err)
		}
		if strings.HasPrefix(text, "ERR max number of clients") {
			return fmt.Errorf("redis at %s: every node needs three connections: raise its maxclients (%w)", server, err)
		}
	}
	_, unknown := errors.AsType[*net.DNSError](err)
	if unknown || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ETIMEDOUT) {
		return fmt.Errorf("redis at %s: %w: start a server there, or correct its address", server, err)
	}
	return fmt.Errorf("redis at %s: %w", server, err)
}

// refusal returns the text of an error from the server itself.
func refusal(err error) (string, bool) {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return "", false
	}
	return printable.Text(answer.Error()), true
}

// checkVersion asks the server for its version. HELLO needs no permission.
func checkVersion(ctx context.Context, rdb *redis.Client) error {
	version, err := askVersion(ctx, rdb)
	if err != nil {
		return err
	}
	return requireVersion(version)
}

// askVersion returns the server's version, or "" if the server gives none.
func askVersion(ctx context.Context, rdb *redis.Client) (string, error) {
	reply, err := rdb.Do(ctx, "hello").Slice()
	if err != nil {
		text, ok := refusal(err)
		if ok && strings.HasPrefix(text, "ERR") {
			return "", fmt.Errorf("want Redis 6.2 or later, or Valkey: it does not know HELLO (%w)", err)
		}
		return "", err
	}
	for i := 0; i+1 < len(reply); i += 2 {
		if reply[i] == "version" {
			return printable.Text(fmt.Sprint(reply[i+1])), nil
		}
	}
	return "", nil
}

// requireVersion refuses a server without XADD NOMKSTREAM.
func requireVersion(v string) error {
	parts := strings.Split(v, ".")
	if len(parts) < 2 {
		return nil // an imitation of Redis: its errors for commands will show its version
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 == nil && err2 == nil && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("it is version %s: want Redis 6.2 or later, or Valkey", v)
	}
	return nil
}

// CheckURL reports the faults of a server's URL, without its secrets.
func CheckURL(url string) error {
	_, err := options(Config{URL: url})
	return err
}

// Public returns the URL of a server without its secrets, for messages.
func Public(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		scheme, rest = "", url
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	if !ok {
		return rest
	}
	return scheme + "://" + rest
}

// Info is the result of [Check].
type Info struct {
	Version   string
	RoundTrip time.Duration
}

// Check connects with the server that cfg names, as a node would, and describes its answer.
func Check(ctx context.Context, cfg Config) (Info, error) {
	c, err := New(cfg)
	if err != nil {
		return Info{}, err
	}
	e, err := c.acquire(ctx)
	if err != nil {
		return Info{}, err
	}
	defer e.hub.Release()
	began := time.Now()
	reply, err := askVersion(ctx, e.rdb)
	if err != nil {
		return Info{}, explain(e.server, err)
	}
	return Info{reply, time.Since(began)}, nil
}
