package natsbus_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

// impostor is a process that has taken the address of a server. It records all received bytes, one
// text a connection.
type impostor struct {
	net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	said  []string
}

// impose listens on address, and talks to each connection by talk until that returns.
func impose(t *testing.T, address string, talk func(c net.Conn, said *bufio.Reader)) *impostor {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f := &impostor{Listener: l}
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			i := len(f.said)
			f.said, f.conns = append(f.said, ""), append(f.conns, c)
			f.mu.Unlock()
			f.wg.Go(func() {
				defer c.Close()
				talk(c, bufio.NewReader(tape{c, func(b []byte) {
					f.mu.Lock()
					f.said[i] += string(b)
					f.mu.Unlock()
				}}))
			})
		}
	})
	t.Cleanup(f.end)
	return f
}

// tape is a reader that reports the bytes read.
type tape struct {
	net.Conn
	tell func(b []byte)
}

func (p tape) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.tell(b[:n])
	return n, err
}

// end frees the address.
func (f *impostor) end() {
	_ = f.Close()
	f.mu.Lock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// received are the texts that the impostor has recorded.
func (f *impostor) received() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.said...)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := soon(t)
	for !ok() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatal("timeout: " + what)
		}
	}
}

// pretend imitates a NATS server: it accepts every login, and sends the answers
// that a client waits for.
func pretend(info string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, said *bufio.Reader) {
		_, _ = io.WriteString(c, "INFO "+info+"\r\n")
		for {
			line, err := said.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "PING") {
				_, _ = io.WriteString(c, "PONG\r\n")
			}
		}
	}
}

const plainInfo = `{"server_id":"x","version":"2.15.2","proto":1,"headers":true,"max_payload":1048576}`

// TestImpostorReceivesNoSecret: while the server is away, another process takes its port and answers like
// a server, or like the job's server. It receives neither the login nor a message of NATS, and the
// bytes that it receives are of no use with the server that comes back.
func TestImpostorReceivesNoSecret(t *testing.T) {
	for name, talk := range map[string]func(net.Conn, *bufio.Reader){
		"nats": pretend(plainInfo),
		"proofs": func(c net.Conn, said *bufio.Reader) {
			_, _ = io.WriteString(c, "ditnats\x01"+strings.Repeat("n", 32)+"\x01"+strings.Repeat("p", 32)+"INFO "+plainInfo+"\r\nPONG\r\n")
			_, _ = io.Copy(io.Discard, said)
		},
		"silence": func(_ net.Conn, said *bufio.Reader) { _, _ = io.Copy(io.Discard, said) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := embedded.Config{Key: natsbus.JobKey("secret")}
			s := ours(t, cfg)
			cfg.Port = s.Port()
			var log logtest.Buffer
			c := open(t, natsbus.Config{URL: s.URL(), Key: cfg.Key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if _, err := c.Listen(soon(t), "bus://node.0"); err != nil {
				t.Fatal(err)
			}
			now, cancel := context.WithCancel(t.Context())
			cancel()
			s.Close(now)
			f := impose(t, fmt.Sprintf("127.0.0.1:%d", cfg.Port), talk)
			until(t, "the node tries the impostor again, or talks to it", func() bool {
				received := f.received()
				return len(received) > 2 || len(received) > 1 && name == "silence" || strings.Contains(strings.Join(received, ""), "SUB")
			})
			f.end()
			received := f.received()
			for _, said := range received {
				for _, secret := range []string{cfg.Key, "secret", "CONNECT", "SUB", "ditask", "PING"} {
					if strings.Contains(said, secret) {
						t.Errorf("the impostor has received %q in %q", secret, said)
					}
				}
				if len(said) > 72 {
					t.Errorf("the impostor has received %d bytes: %q", len(said), said)
				}
			}
			s = ours(t, cfg)
			replay, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
			if err != nil {
				t.Fatal(err)
			}
			defer replay.Close()
			longest := ""
			for _, said := range received {
				if len(said) > len(longest) {
					longest = said
				}
			}
			_, _ = io.WriteString(replay, longest+strings.Repeat("x", max(0, 72-len(longest))))
			if answer, _ := io.ReadAll(replay); strings.Contains(string(answer), "INFO") {
				t.Errorf("the bytes that the impostor received are a login: %q", answer)
			}
			if _, err := c.Dial(soon(t), "bus://node.0"); err != nil {
				t.Errorf("the node does not connect with the server again: %v", err)
			}
			n := strings.Count(log.String(), "not the job's NATS server, trying again")
			if unproved := c.Stats().Unproved; name != "silence" && (n != 1 || unproved < 2) || name == "silence" && n != 0 {
				t.Errorf("%d counted, logged %d times:\n%s", unproved, n, log.String())
			}
		})
	}
}

// TestImpostorAtTheStartIsNamed: a node that has not been connected yet ends with that reason.
func TestImpostorAtTheStartIsNamed(t *testing.T) {
	key := natsbus.JobKey("secret")
	f := impose(t, "127.0.0.1:0", pretend(plainInfo))
	const advice = ": check that the job's launchers have the same token, and which process has this address"
	if got := refusal(t, natsbus.Config{URL: "nats://" + f.Addr().String(), Key: key}); !strings.Contains(got,
		"the other side does not speak this protocol") || !strings.HasSuffix(got, advice) {
		t.Error(got)
	}
	other := ours(t, embedded.Config{Key: natsbus.JobKey("another")})
	if got := refusal(t, natsbus.Config{URL: other.URL(), Key: key}); !strings.Contains(got,
		"the other side does not know the job's token") || !strings.HasSuffix(got, advice) {
		t.Error(got)
	}
	if got := refusal(t, natsbus.Config{URL: other.URL(), ConnectTimeout: time.Millisecond}); !strings.Contains(got, other.URL()) {
		t.Error(got)
	}
	files := certtest.New(t)
	mutual, err := certs.Mutual(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	const check = "check the certificates, and whether both sides use TLS"
	if got := refusal(t, natsbus.Config{URL: other.URL(), Key: key, TLS: mutual}); !strings.Contains(got, check) {
		t.Error(got)
	}
	secured := ours(t, embedded.Config{Key: key, TLS: mutual})
	if got := refusal(t, natsbus.Config{URL: secured.URL(), Key: key}); !strings.Contains(got, check) {
		t.Error(got)
	}
	pair(t, natsbus.Config{URL: secured.URL(), Key: key, TLS: mutual})
}

// TestFloodKeepsNoNodeOut: silent connections, each made again as soon as it has ended, also come from
// the address of the nodes. None reaches the server, a node joins meanwhile, and the log stays short.
func TestFloodKeepsNoNodeOut(t *testing.T) {
	const sockets, places = 400, 256
	var log logtest.Buffer
	key := natsbus.JobKey("secret")
	s, err := embedded.Start(soon(t), embedded.Config{Key: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	flood, calm := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range sockets {
		wg.Go(func() {
			for flood.Err() == nil {
				c, err := (&net.Dialer{}).DialContext(flood, "tcp", strings.TrimPrefix(s.URL(), "nats://"))
				if err != nil {
					continue
				}
				stop := context.AfterFunc(flood, func() { _ = c.Close() })
				_, _ = io.Copy(io.Discard, c)
				stop()
				_ = c.Close()
			}
		})
	}
	until(t, "more connections than places", func() bool { return s.Refused()["crowd"] > places })
	pair(t, natsbus.Config{URL: s.URL(), Key: key})
	if n := s.Clients(); n != 2 {
		t.Errorf("%d connections have reached the server, want those of the two nodes", n)
	}
	calm()
	wg.Wait()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(now)
	if text := log.String(); strings.Count(text, "\n") > 4 || !strings.Contains(text, "connections were refused: crowd ") {
		t.Errorf("log:\n%s", text)
	}
}

// TestAnnouncedServersAreNotUsed: the clients do not use the addresses that a server announces, not even when it
// ends or announces its end.
func TestAnnouncedServersAreNotUsed(t *testing.T) {
	foreign := impose(t, "127.0.0.1:0", pretend(plainInfo))
	info := strings.TrimSuffix(plainInfo, "}") + fmt.Sprintf(`,"connect_urls":[%q]`, foreign.Addr())
	f := impose(t, "127.0.0.1:0", func(c net.Conn, said *bufio.Reader) {
		_, _ = io.WriteString(c, "INFO "+info+"}\r\n")
		for pings := 0; pings < 2; {
			line, err := said.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "PING") {
				pings++
				_, _ = io.WriteString(c, "PONG\r\n")
			}
		}
		_, _ = io.WriteString(c, "INFO "+info+`,"ldm":true}`+"\r\n")
	})
	c := open(t, natsbus.Config{URL: "nats://" + f.Addr().String()})
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	_, _ = c.Listen(ctx, "bus://node.0") // it may be received before the server ends
	until(t, "the node connects five times again, with the configured server",
		func() bool { return len(f.received()) > 5 || len(foreign.received()) > 0 })
	if n := len(foreign.received()); n > 0 {
		t.Errorf("%d connections to another server", n)
	}
}

func TestCommasInPasswordsAreNotShown(t *testing.T) {
	for list, want := range map[string]string{
		"nats://u:pa,ss@h:1":                      "nats://h:1",
		"nats://u:p,a,s@h:1, tls://v:w,x@i:2":     "nats://h:1,tls://i:2",
		"nats://a:1,nats://t@b:2":                 "nats://a:1,nats://b:2",
		"nats://u:p,w@a:1,b:2":                    "nats://a:1,b:2",
		"u:p,w@h":                                 "h",
		"nats://u:p%2Cw@h:1,nats://u:p%2Cw@[::1]": "nats://h:1,nats://[::1]",
	} {
		if got := natsbus.Public(list); got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
	for _, list := range []string{"nats://u:pa,ss@h:1", "nats://u:pa,ss@h", "nats://h:1,u:pa@i:2"} {
		err := natsbus.CheckURL(list)
		if err == nil || !strings.Contains(err.Error(), "write %2C in a name or password") || strings.Contains(err.Error(), "pa") &&
			!strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "ss@") {
			t.Errorf("%s: %v", list, err)
		}
	}
	if err := natsbus.CheckURL("nats://u:p%2Cw@h:1, tls://i:2"); err != nil {
		t.Error(err)
	}
}
