package redisbus

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/redistest"
)

func TestServerURLs(t *testing.T) {
	const form = "want redis://user:password@host:port/database"
	for url, want := range map[string]string{
		"redis://h": "", "rediss://h:6379/1": "", "redis://h:1": "", "redis://h:65535": "", "redis://h/": "",
		"redis://h/2147483647": "", "redis://u:p@h/0?client_name=x": "",
		"redis://h:0":          "port 0: want a number from 1 to 65535",
		"redis://h:65536":      "port 65536: want",
		"redis://h/x":          `database "x": want a number`,
		"redis://h/2147483648": "want a number", "redis://h/-1": "want a number",
		"http://h": form, "redis:h": form, "h:1": form, "": form, "redis://%zz": "not a URL",
		"redis://u:hush@h/0?color=red": "redis://h/0?color=red: unexpected option: color",
	} {
		err := CheckURL(url)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
	for url, want := range map[string]string{
		"redis://u:p@h:1/0": "redis://h:1/0", "redis://u:p@q@h": "redis://h", "redis://h": "redis://h", "u:p@h": "h", "h:1": "h:1",
		"": "", "redis://@h": "redis://h",
	} {
		if got := Public(url); got != want {
			t.Errorf("%q is shown as %q, want %q", url, got, want)
		}
	}
}

// The server's certificate is for the host of the URL, or for the name that the configuration asks for.
func TestServerNameOfTLS(t *testing.T) {
	for name, want := range map[string]string{"": "example.com", "other": "other"} {
		cfg := Config{URL: "rediss://example.com:6379", TLS: &tls.Config{ServerName: name, MinVersion: tls.VersionTLS13}}
		opt, err := options(cfg)
		if err != nil || opt.TLSConfig.ServerName != want || opt.TLSConfig.MinVersion != tls.VersionTLS13 || cfg.TLS.ServerName != name {
			t.Errorf("%q: %+v, %v", name, opt, err)
		}
	}
	if opt, err := options(Config{URL: "redis://h"}); err != nil || opt.TLSConfig != nil {
		t.Errorf("without TLS: %v", err)
	}
}

// Calls of a server are bounded by this package's times, not by those of the URL or of go-redis.
func TestServerOptions(t *testing.T) {
	opt, err := options(Config{URL: "redis://h?max_retries=5&pool_size=100&min_idle_conns=3&protocol=3&read_timeout=-1&pool_timeout=1h"})
	if err != nil {
		t.Fatal(err)
	}
	if opt.Protocol != 2 || opt.MaxRetries != -1 || opt.PoolSize != poolSize || opt.MinIdleConns != 0 ||
		opt.DialerRetries != 1 || !opt.DisableIdentity || !opt.ContextTimeoutEnabled {
		t.Errorf("%+v", opt)
	}
	for _, d := range []time.Duration{opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout} {
		if d != answerTime {
			t.Errorf("waits for %v", d)
		}
	}
}

// A connection that cannot be made returns the reason when it is used.
func TestServerConnectionThatFails(t *testing.T) {
	c, err := dialer(t.Context(), nil)(t.Context(), "tcp", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	_, readErr := c.Read(nil)
	n, writeErr := c.Write([]byte("x"))
	if !errors.Is(readErr, syscall.ECONNREFUSED) || !errors.Is(writeErr, syscall.ECONNREFUSED) || n != 0 {
		t.Errorf("%v, %v", readErr, writeErr)
	}
	if err := errors.Join(c.SetDeadline(time.Now()), c.SetReadDeadline(time.Now()), c.SetWriteDeadline(time.Now()), c.Close()); err != nil {
		t.Error(err)
	}
}

func TestServerIsChecked(t *testing.T) {
	s := redistest.Start(t)
	info, err := Check(t.Context(), Config{URL: s.URL(), Job: "j"})
	if err != nil || strings.Count(info.Version, ".") != 2 || info.RoundTrip <= 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := Check(t.Context(), Config{URL: s.URL()}); err == nil || !strings.Contains(err.Error(), "the job's id is missing") {
		t.Error(err)
	}
	if _, err := Check(t.Context(), Config{URL: "redis://127.0.0.1:1", Job: "j"}); !errors.Is(err, syscall.ECONNREFUSED) ||
		!strings.Contains(err.Error(), "redis at 127.0.0.1:1: ") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, Config{URL: s.URL(), Job: "j"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The window is within bounds, which are included.
func TestWindowBounds(t *testing.T) {
	for n, ok := range map[int]bool{0: true, minWindow: true, maxWindow: true, minWindow - 1: false, maxWindow + 1: false, -1: false} {
		c, err := New(Config{URL: "redis://h", Job: "j", WindowBytes: n})
		if (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
		if n == 0 && c.cfg.WindowBytes != 1<<20 || ok && c.cfg.Logger == nil {
			t.Errorf("%d: %+v", n, c.cfg)
		}
	}
}

// The version is the field version of the server's answer.
func TestVersionOfAServer(t *testing.T) {
	rdb := redistest.Start(t).Admin(t)
	version, err := askVersion(t.Context(), rdb)
	if err != nil || version == "" {
		t.Fatal(version, err)
	}
	info, err := rdb.Info(t.Context(), "server").Result()
	if err != nil || !strings.Contains(info, "redis_version:"+version+"\r\n") {
		t.Errorf("version %q: %v\n%s", version, err, info)
	}
}

// A read of an inbox to which nothing comes is no error; one whose entries cannot be deleted is.
func TestReadOfAnEmptyInbox(t *testing.T) {
	e, log := opened(t, redistest.Start(t))
	var done []string
	for {
		msgs, err := e.readSome(done)
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 {
			break
		}
		for _, m := range msgs { // the first entry of an inbox
			done = append(done, m.ID)
		}
	}
	if msgs, err := e.readSome([]string{"no id"}); len(msgs) != 0 || err == nil || !strings.Contains(err.Error(), "Invalid stream ID") {
		t.Error(msgs, err)
	}
	if log.String() != "" {
		t.Error(log)
	}
}
