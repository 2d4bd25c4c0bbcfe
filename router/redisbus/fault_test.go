package redisbus_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/internal/race"
	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/redisbus"
	"github.com/ditask/ditask/router/routertest"
	"github.com/ditask/ditask/router/socket"
)

// pair is a job of two nodes that send to each other until they are stopped.
type pair struct {
	t        testing.TB
	ctx      context.Context
	log      logtest.Buffer
	nodes    [2]*router.Router
	ch       [2]*router.Channel
	sent     [2]atomic.Uint64 // by this node
	received [2]atomic.Uint64 // by this node
	more     chan struct{}
	stop     chan struct{}
	load     sync.WaitGroup
}

func newPair(t testing.TB, s *redistest.Server, edit func(*redisbus.Config)) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	p := &pair{t: t, ctx: ctx, more: make(chan struct{}, 1), stop: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	a, b := two(t, s, func(c *redisbus.Config) {
		c.Logger = log
		if edit != nil {
			edit(c)
		}
	})
	for id, c := range []*redisbus.Transport{a, b} {
		cfg := router.Config{
			Job: "pair", Token: []byte("secret"), Node: id, Expect: 2, Transport: c,
			Listen: fmt.Sprint("bus://node.", id), Logger: log.With("node", id),
		}
		if id > 0 {
			cfg.Attach = []string{"bus://node.0"}
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.nodes[id] = r
		t.Cleanup(func() {
			_ = r.Close()
			if id == 0 && t.Failed() {
				t.Log(p.log.String())
			}
		})
		ch, err := r.Channel(router.Spec{Name: "n"}, func(m *router.Message) error { return p.receive(id, m) })
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
		p.ch[id] = ch
	}
	return p
}

// receive checks that each message is the next one.
func (p *pair) receive(id int, m *router.Message) error {
	want := p.received[id].Load()
	if got := binary.LittleEndian.Uint64(m.Payload); got != want {
		return fmt.Errorf("node.%d received message %d in place of %d", id, got, want)
	}
	p.received[id].Add(1)
	m.Credit.Return(1, len(m.Payload))
	select {
	case p.more <- struct{}{}:
	default:
	}
	return nil
}

func (p *pair) start() {
	p.t.Helper()
	var errs [2]error
	var wg sync.WaitGroup
	for id, r := range p.nodes {
		wg.Go(func() { errs[id] = r.Start(p.ctx, nil) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		p.t.Fatal(err)
	}
	for id := range p.nodes {
		p.load.Go(func() { p.talk(id) })
	}
}

// talk sends messages, one of a hundred in several chunks.
func (p *pair) talk(id int) {
	small, large := make([]byte, 256), make([]byte, 700<<10)
	for i := uint64(0); ; i++ {
		select {
		case <-p.stop:
			return
		default:
		}
		b := small
		if i%100 == 99 {
			b = large
		}
		b = append([]byte(nil), b...)
		binary.LittleEndian.PutUint64(b, i)
		if _, err := p.ch[id].Send(p.ctx, router.Bytes(b), nil); err != nil {
			p.t.Errorf("node.%d: message %d: %v", id, i, err)
			return
		}
		p.sent[id].Add(1)
	}
}

// await waits until both nodes have received so many more messages.
func (p *pair) await(n uint64) {
	p.t.Helper()
	from := [2]uint64{p.received[0].Load(), p.received[1].Load()}
	for p.received[0].Load() < from[0]+n || p.received[1].Load() < from[1]+n {
		select {
		case <-p.more:
		case <-p.ctx.Done():
			p.t.Fatalf("received %d and %d, had %d and wait for %d more", p.received[0].Load(), p.received[1].Load(), from, n)
		}
	}
}

// finish stops the load, drains, and checks that everything was received.
func (p *pair) finish() {
	p.t.Helper()
	close(p.stop)
	p.load.Wait()
	var errs [2]error
	var wg sync.WaitGroup
	for id, r := range p.nodes {
		wg.Go(func() { errs[id] = errors.Join(r.Drain(p.ctx, true), r.Close()) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		p.t.Error(err)
	}
	for id := range p.nodes {
		if sent, received := p.sent[id].Load(), p.received[1-id].Load(); sent != received {
			p.t.Errorf("node.%d sent %d messages, node.%d received %d", id, sent, 1-id, received)
		}
	}
}

func (p *pair) logged(want string) {
	p.t.Helper()
	if !strings.Contains(p.log.String(), want) {
		p.t.Errorf("the log does not have %q", want)
	}
}

// lostLink is the router's message when a connection between nodes has broken.
const lostLink = "lost the connection"

// each runs a test with every kind of server that is installed.
func each(t *testing.T, run func(t *testing.T, s *redistest.Server)) {
	for _, binary := range redistest.Servers(t) {
		t.Run(binary, func(t *testing.T) { run(t, redistest.StartBinary(t, binary)) })
	}
}

func TestServerKilledAndRestarted(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server) {
		for _, down := range []time.Duration{time.Second, 3 * time.Second} {
			p := newPair(t, s, nil)
			p.start()
			p.await(1000)
			s.Kill()
			<-time.After(down) // the fault that is tested
			s.Restart()
			p.await(1000)
			p.finish()
			p.logged("answers again")
		}
	})
}

func TestServerClosesItsConnections(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Admin(t)
		p := newPair(t, s, nil)
		p.start()
		for range 20 {
			p.await(300)
			if n, err := admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Result(); err != nil || n == 0 {
				t.Fatalf("%d connections killed, %v", n, err)
			}
		}
		p.await(300)
		p.finish()
		if strings.Contains(p.log.String(), lostLink) {
			t.Error("a connection between nodes has broken with one to the server")
		}
	})
}

func TestSlowServer(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Admin(t)
		p := newPair(t, s, nil)
		p.start()
		p.await(1000)
		if err := admin.Do(t.Context(), "debug", "sleep", "2").Err(); err != nil {
			t.Fatal(err)
		}
		p.await(1000)
		if err := admin.ClientPause(t.Context(), 2*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		p.await(1000)
		p.finish()
	})
}

func TestServerFlushed(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Admin(t)
		p := newPair(t, s, nil)
		p.start()
		for range 3 {
			p.await(500)
			if err := admin.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		p.await(500)
		p.finish()
		p.logged(lostLink)
		if log := p.log.String(); !strings.Contains(log, "restarted, flushed or replaced") && !strings.Contains(log, "inbox is gone") {
			t.Error("the log does not have the reason")
		}
	})
}

// Keys that are deleted one by one, as by eviction, break connections at most.
func TestKeysDeleted(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Admin(t)
	p := newPair(t, s, nil)
	p.start()
	p.await(500)
	keys := admin.Keys(t.Context(), "*").Val()
	if len(keys) != 4 {
		t.Errorf("keys of two nodes: %v", keys)
	}
	for _, k := range keys {
		if ttl := admin.PTTL(t.Context(), k).Val(); ttl <= 0 {
			t.Errorf("%s expires in %v", k, ttl)
		}
		if err := admin.Del(t.Context(), k).Err(); err != nil {
			t.Fatal(err)
		}
		p.await(500)
	}
	p.finish()
	if left := admin.Keys(t.Context(), "*").Val(); len(left) > 0 {
		t.Errorf("left on the server: %v", left)
	}
}

func TestServerOutOfMemoryForAWhile(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Admin(t)
	p := newPair(t, s, nil)
	p.start()
	p.await(1000)
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(p.log.String(), lostLink) {
		if text := listenError(t, s, nil); !strings.Contains(text, "maxmemory") || !strings.Contains(text, s.Addr()) {
			t.Fatal(text)
		}
	}
	p.logged("raise its maxmemory")
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	p.await(1000)
	p.finish()
}

// A listener is slow to consume 100,000 messages of 1 KiB: the server holds little of them at any
// time, and nothing afterwards.
func TestMemoryOfTheServerIsBounded(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server) {
		const messages, size = 100_000, 1 << 10
		admin := s.Admin(t)
		start := redistest.Info(t, admin, "used_memory")
		a, b := two(t, s, nil)
		_, in, out := ends(t, a, b)
		wrote := make(chan error, 1)
		go func() {
			buf := make([]byte, size)
			for range messages {
				if _, err := out.Write(buf); err != nil {
					wrote <- err
					return
				}
			}
			wrote <- nil
		}()
		buf := make([]byte, 64<<10)
		for got := 0; got < messages*size; {
			n, err := in.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if got += n; got%(1<<20) < n { // slower than the writer: a question to the server
				redistest.Info(t, admin, "used_memory")
			}
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		peak := redistest.Info(t, admin, "used_memory_peak") - start
		t.Logf("at most %d KiB", peak>>10)
		if peak > 16<<20 {
			t.Errorf("the server has held %d bytes", peak)
		}
		_, _ = in.Close(), out.Close()
		if now := redistest.Info(t, admin, "used_memory") - start; now > 2<<20 {
			t.Errorf("the server still holds %d bytes", now)
		}
	})
}

// listenError is the error that a node with such a URL gets.
func listenError(t *testing.T, s *redistest.Server, edit func(*redisbus.Config)) string {
	t.Helper()
	c := transport(t, s, edit)
	if l, err := c.Listen(t.Context(), "bus://node.0"); err != nil {
		return err.Error()
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
	return ""
}

func withUser(user, password string) func(*redisbus.Config) {
	return func(c *redisbus.Config) {
		c.URL = strings.Replace(c.URL, "redis://", "redis://"+user+":"+password+"@", 1)
	}
}

func TestRefusalsOfTheServer(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "right")
	for name, test := range map[string]struct {
		server *redistest.Server
		edit   func(*redisbus.Config)
		want   string
	}{
		"no password":    {s, nil, "wants a password"},
		"wrong password": {s, withUser("", "hush"), "does not take the user and password"},
		"wrong user":     {s, withUser("nobody", "hush"), "does not take the user and password"},
		"right password": {s, withUser("", "right"), ""},
		"no memory":      {redistest.Start(t, "--maxmemory", "1"), nil, "raise its maxmemory"},
		"replica":        {redistest.Start(t, "--replicaof", "127.0.0.1 1"), nil, "primary"},
		"database":       {redistest.Start(t), func(c *redisbus.Config) { c.URL += "/99" }, "DB index"},
		"no server":      {s, func(c *redisbus.Config) { c.URL = "redis://127.0.0.1:1" }, "127.0.0.1:1: connect: connection refused"},
		"no tls there":   {s, func(c *redisbus.Config) { c.URL = strings.Replace(c.URL, "redis:", "rediss:", 1) }, "does the server speak TLS"},
	} {
		got := listenError(t, test.server, test.edit)
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) || strings.Contains(got, "hush") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestDocumentedPermissions runs a job, through a flush of the server, with just the permissions of
// the package doc.
func TestDocumentedPermissions(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`ACL SETUSER ditask (.*)\n//\s+(.*)\n`).FindStringSubmatch(string(doc))
	if rule == nil {
		t.Fatal("the package doc has no ACL rule")
	}
	words := strings.Fields(strings.ReplaceAll(rule[1]+" "+rule[2], "run-7", "run-acl"))
	each(t, func(t *testing.T, s *redistest.Server) {
		admin := s.Admin(t)
		set := func(words ...string) {
			t.Helper()
			args := []any{"acl", "setuser", "ditask"}
			for _, w := range words {
				args = append(args, w)
			}
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set(words...)
		user := func(c *redisbus.Config) {
			c.Job = "run-acl"
			withUser("ditask", "secret")(c)
		}
		p := newPair(t, s, user)
		p.start()
		p.await(500)
		if err := admin.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p.await(500)
		p.finish()
		if denied, err := admin.ACLLog(t.Context(), 10).Result(); err != nil || len(denied) > 0 {
			t.Errorf("refused: %+v, %v", denied, err)
		}
		for _, w := range words {
			command, ok := strings.CutPrefix(w, "+")
			if !ok || command == "del" {
				continue
			}
			set("-" + command)
			err := use(t, transport(t, s, user))
			if err == nil && command != "pexpire" && command != "xdel" {
				t.Errorf("%s is not needed", w)
			} else if err != nil && !strings.Contains(err.Error(), "may not do that") {
				t.Errorf("without %s: %v", w, err)
			}
			set("+" + command)
		}
		if text := listenError(t, s, func(c *redisbus.Config) { user(c); c.Job = "other" }); !strings.Contains(text, "may not do that") {
			t.Errorf("the keys of another job: %s", text)
		}
	})
}

// use makes a connection to itself.
func use(t *testing.T, c *redisbus.Transport) error {
	t.Helper()
	l, err := c.Listen(t.Context(), "bus://x")
	if err != nil {
		return err
	}
	defer l.Close()
	a, err := c.Dial(t.Context(), "bus://x")
	if err != nil {
		return err
	}
	return a.Close()
}

func TestTLS(t *testing.T) {
	f := certtest.New(t)
	s := redistest.Start(t, "--tls-port", "x", "--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-ca-cert-file", f.CA)
	cfg, err := socket.LoadTLS(f.Cert, f.Key, f.CA)
	if err != nil {
		t.Fatal(err)
	}
	p := newPair(t, s, func(c *redisbus.Config) { c.TLS = cfg })
	p.start()
	p.await(500)
	p.finish()
	if text := listenError(t, s, nil); !strings.Contains(text, "certificate") {
		t.Errorf("an authority that this machine does not know: %s", text)
	}
	if _, err := redisbus.New(redisbus.Config{URL: "redis://x", Job: "j", TLS: cfg}); err == nil ||
		!strings.Contains(err.Error(), "rediss://") {
		t.Errorf("TLS and a URL without: %v", err)
	}
}

func TestConfig(t *testing.T) {
	_, err := redisbus.New(redisbus.Config{URL: "http://me:hush@x", WindowBytes: 1})
	for _, want := range []string{"job's id", "WindowBytes 1 ", "redis://"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
	for _, bad := range []string{"", "redis://me:hush@x:port", "unix:///run/redis", "redis://me:hu%zzsh@x", "redis://me:hush@x/y"} {
		if _, err := redisbus.New(redisbus.Config{URL: bad, Job: "j"}); err == nil || strings.Contains(err.Error(), "hush") ||
			strings.Contains(err.Error(), "zz") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestManyNodes is a mesh of 64 nodes, 2016 connections between them, with four to
// the server for each.
func TestManyNodes(t *testing.T) {
	nodes := int64(64)
	if race.Enabled {
		nodes = 16
	}
	s := redistest.Start(t)
	admin := s.Admin(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var entered [3]atomic.Int64
	for id := range int(nodes) {
		c := transport(t, s, func(c *redisbus.Config) { c.Job = "many" })
		cfg := router.Config{
			Job: "many", Node: id, Expect: int(nodes), Transport: c, Listen: fmt.Sprint("bus://node.", id),
			Logger: slog.New(slog.DiscardHandler),
		}
		cfg.LinkTimeout, cfg.PeerTimeout = 20*time.Second, 40*time.Second // the processors may be busy
		for k := range id {
			cfg.Attach = append(cfg.Attach, fmt.Sprint("bus://node.", k))
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer func() { _ = r.Close() }()
			if err := r.Start(ctx, nil); err != nil {
				t.Errorf("node.%d: %v", id, err)
				return
			}
			for round := range entered {
				entered[round].Add(1)
				if err := r.Barrier(ctx, "b"); err != nil || entered[round].Load() != nodes {
					t.Errorf("node.%d: round %d of %d nodes: %v", id, round, entered[round].Load(), err)
					return
				}
			}
			if id == 0 {
				if n := redistest.Info(t, admin, "connected_clients"); n > 4*int(nodes)+1 {
					t.Errorf("%d connections to the server", n)
				}
			}
			_ = r.Drain(ctx, true)
		})
	}
	wg.Wait()
	if left, err := admin.Keys(t.Context(), "*").Result(); err != nil || len(left) > 0 {
		t.Errorf("left on the server: %v, %v", left, err)
	}
}

// TestLossIsReportedWhileTheServerIsGone kills the server: it does not come back.
func TestLossIsReportedWhileTheServerIsGone(t *testing.T) {
	server := redistest.Start(t)
	routertest.RunOutage(t, setup(server, router.Mesh), server.Kill)
	server.Restart() // setup checks at the end whether anything is left on it
}
