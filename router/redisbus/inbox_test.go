package redisbus

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router/broker"
	"github.com/redis/go-redis/v9"
)

// These tests look into an endpoint.

// The result for an entry is known unless the server has not answered.
func TestInboxPublishedEntries(t *testing.T) {
	refused := serverError("OOM no memory")
	for name, c := range map[string]struct {
		err, want error
		kick      bool
	}{
		"sent": {nil, nil, false}, "refused": {refused, refused, false}, "no answer": {net.ErrClosed, broker.ErrAgain, false},
		"no inbox": {redis.Nil, broker.ErrInboxGone, true},
	} {
		e := &endpoint{server: "host:1", kick: make(chan struct{}, 1)}
		for range 2 { // the second time the keeper is already woken
			err := e.published(c.err)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || len(e.kick) == 1 != c.kick {
				t.Errorf("%s: %v, the keeper is woken: %v", name, err, len(e.kick) == 1)
			}
			if err != nil && !strings.Contains(err.Error(), "host:1") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The reader creates the inbox again as soon as a server answers again, and logs that once.
func TestInboxReaderAfterARestart(t *testing.T) {
	s := redistest.Start(t)
	log := &logtest.Buffer{}
	transport, err := New(Config{URL: s.URL(), Job: "j", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(transport) // which only the reader renews
	opt, err := options(Config{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	opt.Dialer = dialer(t.Context(), nil)
	e.rdb = redis.NewClient(opt)
	defer func() { _ = e.rdb.Close() }()
	if err := e.makeInbox(e.ctx); err != nil {
		t.Fatal(err)
	}
	e.wg.Go(e.read)
	e.wg.Go(e.hub.Run)
	c, err := e.hub.Dial(e.ctx, "x")
	if err == nil || c != nil {
		t.Errorf("a dial without a listener: %v", err)
	}
	l, err := e.hub.Listen(e.ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = e.hub.Dial(e.ctx, "x"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for !strings.Contains(log.String(), "no answer: trying again") {
		runtime.Gosched()
	}
	s.Restart()
	for !strings.Contains(log.String(), "answers again") {
		runtime.Gosched()
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "has lost messages under way") {
		t.Error(err)
	}
	entry := add(e.Place(broker.Peer{Inbox: e.inbox}), []byte("x"), true)
	if err := e.rdb.XAdd(t.Context(), entry).Err(); err != nil {
		t.Errorf("an entry after the restart: %v", err)
	}
	for !strings.Contains(log.String(), "is malformed") {
		runtime.Gosched()
	}
	_ = c.Close()
	_ = l.Close()
	e.hub.Release()
	select {
	case <-e.hub.Done():
	default:
		t.Error("the endpoint is still used")
	}
	if n, m := strings.Count(log.String(), "no answer"), strings.Count(log.String(), "answers again"); n != 1 || m != 1 {
		t.Errorf("logged %d and %d times:\n%s", n, m, log)
	}
}

// opened is an endpoint at a server, and its log.
func opened(t *testing.T, s *redistest.Server) (*endpoint, *logtest.Buffer) {
	t.Helper()
	log := &logtest.Buffer{}
	c, err := New(Config{URL: s.URL(), Job: "j", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	e, err := open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.hub.Release)
	return e, log
}

// Keys are renewed and created again. A word that another transport has taken is not changed.
func TestInboxKeysAreRenewed(t *testing.T) {
	s := redistest.Start(t)
	e, log := opened(t, s)
	admin, ctx := s.Admin(t), t.Context()
	l, err := e.hub.Listen(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := e.hub.Dial(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	unbroken := func(what string) {
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("a connection is broken %s: %v", what, err)
		}
	}
	const word = "ditask:{j}:at:x"
	inbox := "ditask:{j}:in:" + e.inbox
	renewed := func(what string) {
		t.Helper()
		if err := e.renew(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if at, in := admin.PTTL(ctx, word).Val(), admin.PTTL(ctx, inbox).Val(); at <= wordExpiry/2 || at > wordExpiry ||
			in <= inboxExpiry/2 || in > inboxExpiry {
			t.Errorf("%s: they expire in %v and %v", what, at, in)
		}
		if holder := admin.Get(ctx, word).Val(); holder != e.inbox {
			t.Errorf("%s: the word leads to %q", what, holder)
		}
	}
	renewed("at first")
	admin.PExpire(ctx, word, time.Second)
	admin.PExpire(ctx, inbox, time.Second)
	renewed("soon expiring")
	unbroken("with all keys there")
	admin.Del(ctx, word)
	renewed("without the word")
	unbroken("for a word")
	admin.Del(ctx, inbox)
	renewed("without the inbox")
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "has lost messages under way") {
		t.Errorf("a connection whose inbox was lost: %v", err)
	}

	admin.Set(ctx, word, "somebody", time.Minute)
	for range 2 {
		if err := e.renew(); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "another process listens here now"); n != 1 {
		t.Errorf("logged %d times that the word was taken:\n%s", n, log)
	}
	_ = l.Close()
	if holder := admin.Get(ctx, word).Val(); holder != "somebody" {
		t.Errorf("the word of another transport leads to %q", holder)
	}
}

// A refusal by the server while keys are renewed is an error, for every command.
func TestInboxKeysAreNotRenewed(t *testing.T) {
	s := redistest.Start(t)
	e, _ := opened(t, s)
	admin, ctx := s.Admin(t), t.Context()
	l, err := e.hub.Listen(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const word = "ditask:{j}:at:x"
	for _, c := range []struct {
		command string
		lost    string // meanwhile
	}{{"pexpire", ""}, {"get", ""}, {"xadd", "ditask:{j}:in:" + e.inbox}, {"set", word}} {
		if err := admin.Do(ctx, "acl", "setuser", "default", "-"+c.command).Err(); err != nil {
			t.Fatal(err)
		}
		if c.lost != "" {
			admin.Del(ctx, c.lost)
		}
		err := e.renew()
		if text, ok := refusal(err); !ok || !strings.HasPrefix(text, "NOPERM") {
			t.Errorf("without %s: %v", c.command, err)
		}
		if err := admin.Do(ctx, "acl", "setuser", "default", "+"+c.command).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.renew(); err != nil {
		t.Error(err)
	}
}

// The last user of an endpoint ends it, and an ended one is not used again.
func TestInboxEndsWithItsLastUser(t *testing.T) {
	s := redistest.Start(t)
	c, err := New(Config{URL: s.URL(), Job: "j", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.acquire(t.Context())
	if a != b || err != nil {
		t.Errorf("a second endpoint, %v", err)
	}
	a.hub.Release()
	if a.over() || a.ctx.Err() != nil {
		t.Error("ended with a user left")
	}
	b.hub.Release()
	if !a.over() || a.ctx.Err() == nil || a.hub.Retain() || a.renew() != nil {
		t.Error("not ended, or used again")
	}
	if left := s.Admin(t).Keys(t.Context(), "*").Val(); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
	d, err := c.acquire(t.Context())
	if d == a || err != nil {
		t.Fatalf("the same endpoint, %v", err)
	}
	d.hub.Release()
	busy, cancel := context.WithCancel(t.Context())
	cancel()
	c.opening <- struct{}{}
	if e, err := c.acquire(busy); e != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("while another one opens it: %v", err)
	}
	<-c.opening
}
