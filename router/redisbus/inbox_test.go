package redisbus

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/internal/redistest"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// These tests look into an endpoint: most of them without a server.

// alone is an endpoint without a server, and what it logs.
func alone() (*endpoint, *logtest.Buffer) {
	log := &logtest.Buffer{}
	e := loose(1, strings.Repeat("1", inboxBytes), hello{2, window, strings.Repeat("2", inboxBytes)}).e
	e.log, e.listeners, e.refs = slog.New(slog.NewTextHandler(log, nil)), map[string]*listener{}, 1
	e.end, e.kick = make(chan struct{}), make(chan struct{}, 1)
	return e, log
}

func (e *endpoint) listenAlone(w string, room int) *listener {
	l := &listener{e: e, word: w, conns: make(chan *conn, room), done: make(chan struct{}), gone: make(chan struct{})}
	e.listeners[w] = l
	return l
}

// come lets an entry come into the inbox.
func come(e *endpoint, h head, body string) {
	e.dispatch(redis.XMessage{ID: "1-1", Values: map[string]any{"f": string(appendHead(nil, h)) + body}})
}

// call is the body of a syn.
func call(id uint64, size uint32, w string) string {
	return string(appendHello(nil, hello{id, size, strings.Repeat("3", inboxBytes)})) + w
}

// fins are the connections of others that are to be told of their end.
func fins(t *testing.T, e *endpoint) []uint64 {
	t.Helper()
	var ids []uint64
	for _, en := range e.strays {
		h, body, err := parseEntry(string(en.bytes))
		if h.kind != kindFin || h.offset != 0 || body != "" || err != nil || en.c != nil || en.inbox != strings.Repeat("3", inboxBytes) {
			t.Errorf("%+v to %s, %q, %v", h, en.inbox, body, err)
		}
		ids = append(ids, h.to)
	}
	e.strays = nil
	return ids
}

// A call comes to who listens on its word, once, and everybody else's is refused.
func TestInboxCalls(t *testing.T) {
	e, log := alone()
	l := e.listenAlone("x", 2)
	for _, size := range []uint32{minWindow, maxWindow} {
		for range 2 { // the second time it is the same entry again
			come(e, head{kind: kindSyn}, call(uint64(size), size, "x"))
		}
		c := <-l.conns
		if c.peer != (hello{uint64(size), size, strings.Repeat("3", inboxBytes)}) || !c.answer || c.local != "bus://x" || c.remote != addr("bus://inbox."+c.peer.inbox) {
			t.Errorf("%+v", c.peer)
		}
		batch := e.gather(nil)
		if h, body, err := parseEntry(string(batch[0].bytes)); len(batch) != 1 || h.kind != kindAccept || h.to != uint64(size) || err != nil || batch[0].inbox != c.peer.inbox {
			t.Errorf("answered by %d entries: %+v, %v", len(batch), h, err)
		} else if me, _, err := parseHello(body); me != (hello{c.id, window, e.inbox}) || err != nil {
			t.Errorf("answered by %+v, %v", me, err)
		}
	}
	if len(l.conns) != 0 || e.refs != 3 || len(e.conns) != 3 || len(e.callers) != 2 || log.String() != "" {
		t.Errorf("%d more, %d uses, %d connections, %d callers, logged %q", len(l.conns), e.refs, len(e.conns), len(e.callers), log)
	}
	come(e, head{kind: kindSyn}, call(3, minWindow, "y"))
	for id := range uint64(3) { // there is room for two
		come(e, head{kind: kindSyn}, call(10+id, minWindow, "x"))
	}
	e.ended = true
	<-l.conns
	come(e, head{kind: kindSyn}, call(4, minWindow, "x"))
	if diff := cmp.Diff([]uint64{3, 12, 4}, fins(t, e)); diff != "" || log.String() != "" || e.refs != 5 {
		t.Errorf("refused (-want +got):\n%s%d uses, logged %q", diff, e.refs, log)
	}
}

// Who accepts a connection may close it at once: it is answered nevertheless.
func TestInboxCallClosedAtOnce(t *testing.T) {
	e, _ := alone()
	l := e.listenAlone("x", 1)
	closed := make(chan error, 1) // one connection
	go func() { closed <- (<-l.conns).Close() }()
	come(e, head{kind: kindSyn}, call(5, minWindow, "x"))
	if err := <-closed; err != nil {
		t.Error(err)
	}
	var kinds []kind
	for _, en := range e.gather(nil) {
		kinds = append(kinds, kind(en.bytes[0]))
	}
	if diff := cmp.Diff([]kind{kindAccept, kindFin}, kinds); diff != "" || e.refs != 1 || len(e.callers) != 0 {
		t.Errorf("answers (-want +got):\n%s%d uses, %d callers", diff, e.refs, len(e.callers))
	}
}

// What makes no sense in an inbox is logged, and does nothing else.
func TestInboxEntriesWithoutSense(t *testing.T) {
	for name, c := range map[string]struct {
		h            head
		body, logged string
		fins         []uint64
	}{
		"none":                 {head{kind: kindNone}, "", "", nil},
		"data to nobody":       {head{kind: kindData, to: 77}, "x", "", nil},
		"end of nobody":        {head{kind: kindFin, to: 77}, "", "", nil},
		"answer to nobody":     {head{kind: kindAccept, to: 77}, call(5, window, ""), "", []uint64{5}},
		"bad answer to nobody": {head{kind: kindAccept, to: 77}, "x", "makes no sense", nil},
		"short call":           {head{kind: kindSyn}, "x", "makes no sense", nil},
		"small window":         {head{kind: kindSyn}, call(5, minWindow-1, "x"), "makes no sense", nil},
		"large window":         {head{kind: kindSyn}, call(5, maxWindow+1, "x"), "makes no sense", nil},
		"no kind":              {head{kind: kindNone + 1}, "", "written to by something else", nil},
		"kind 0":               {head{}, "", "written to by something else", nil},
	} {
		e, log := alone()
		l := e.listenAlone("x", 1)
		come(e, c.h, c.body)
		if text := log.String(); (c.logged == "") != (text == "") || !strings.Contains(text, c.logged) {
			t.Errorf("%s: logged %q", name, text)
		}
		if diff := cmp.Diff(c.fins, fins(t, e)); diff != "" {
			t.Errorf("%s: refused (-want +got):\n%s", name, diff)
		}
		if !e.mu.TryLock() {
			t.Fatalf("%s: the mutex is held", name)
		}
		if len(l.conns) != 0 || e.refs != 1 || len(e.conns) != 1 || e.conns[1].broken() {
			t.Errorf("%s: %d connections more, %d uses", name, len(l.conns), e.refs)
		}
	}
}

// An inbox of a hello has hexadecimal digits only.
func TestInboxNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"0123456789abcdef": true, "/123456789abcdef": false, ":123456789abcdef": false, "`123456789abcdef": false, "0123456789abcdeg": false,
		"0123456789ABCDEF": false, "0123456789abcde": false,
	} {
		if h, rest, err := parseHello(string(appendHello(nil, hello{1, 2, name}))); (err == nil) != ok || ok && (h.inbox != name || rest != "") {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// The writer takes the answers to strangers, then connections in their order, and at most some more than batchBytes.
func TestInboxGather(t *testing.T) {
	e, _ := alone()
	var all []*conn
	for i := range batchBytes/window + 2 {
		c := loose(uint64(10+i), e.inbox, hello{uint64(20 + i), window, "peer"})
		c.e = e
		if n, err := c.TryWrite(make([]byte, window)); n != window || err != nil {
			t.Fatal(n, err)
		}
		all = append(all, c)
	}
	e.refuse(hello{id: 5, inbox: "stranger"})
	batch := e.gather(nil)
	if len(batch) != 1+batchBytes/window || batch[0].inbox != "stranger" || len(e.ready) != 2 || len(e.strays) != 0 {
		t.Errorf("%d entries, %d connections and %d strangers are left", len(batch), len(e.ready), len(e.strays))
	}
	batch = append(batch, e.gather(nil)...)
	for i, en := range batch[1:] {
		if en.c != all[i] {
			t.Errorf("connection %d is not in its place", i)
		}
	}
	e.ended = true
	if batch := e.gather(nil); len(batch) != 0 {
		t.Errorf("%d entries at the end", len(batch))
	}
}

// An entry is settled unless the server has not answered.
func TestInboxSentEntries(t *testing.T) {
	refused := serverError("OOM no memory")
	for name, c := range map[string]struct {
		err, want     error
		settled, kick bool
	}{
		"sent": {nil, nil, true, false}, "refused": {refused, refused, true, false}, "no answer": {net.ErrClosed, nil, false, false},
		"no inbox": {redis.Nil, errUnheard, true, true},
	} {
		e, _ := alone()
		for range 2 { // the second one finds that the keeper is told already
			k := e.conns[1]
			if settled := e.sent(entry{"x", appendHead(nil, head{}), k}, c.err); settled != c.settled || len(e.kick) == 1 != c.kick {
				t.Errorf("%s: settled: %v, the keeper is told: %v", name, settled, len(e.kick) == 1)
			}
			if broken := k.broken(); broken != (c.want != nil) {
				t.Errorf("%s: broken: %v", name, broken)
			}
			switch _, err := k.TryWrite([]byte("x")); {
			case errors.Is(c.want, errUnheard) && (err == nil || !strings.Contains(err.Error(), "the other side's inbox is gone")):
				t.Errorf("%s: %v", name, err)
			case !errors.Is(c.want, errUnheard) && !errors.Is(err, c.want):
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

var errUnheard = errors.New("nobody hears it")

// A pause becomes longer, up to a bound, and ends at the end.
func TestInboxPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{end: make(chan struct{})}
		var wait time.Duration
		for _, want := range []int{10, 20, 40, 80, 160, 250, 250} {
			began := time.Now()
			if !e.pause(&wait) || time.Since(began) != time.Duration(want)*time.Millisecond { // of virtual time
				t.Errorf("%v, want %d ms", time.Since(began), want)
			}
		}
		close(e.end)
		began := time.Now()
		if e.pause(&wait) || time.Since(began) != 0 {
			t.Errorf("at the end: %v", time.Since(began))
		}
	})
}

// The first thing that breaks a connection is what is told.
func TestInboxBreaksAll(t *testing.T) {
	e, _ := alone()
	first, second := errors.New("first"), errors.New("second")
	e.breakAll(first)
	e.breakAll(second)
	if _, err := e.conns[1].Read(make([]byte, 1)); !errors.Is(err, first) {
		t.Error(err)
	}
}

// The reader makes the inbox anew as soon as a server answers again, and says so once.
func TestInboxReaderAfterARestart(t *testing.T) {
	s := redistest.Start(t)
	e, log := alone() // nobody else renews anything
	c := e.conns[1]
	opt, err := options(Config{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	opt.Dialer = dialer(t.Context(), nil)
	e.rdb, e.ctx = redis.NewClient(opt), t.Context()
	defer func() { _ = e.rdb.Close() }()
	if err := e.makeInbox(e.ctx); err != nil {
		t.Fatal(err)
	}
	e.wg.Add(1)
	go e.read()
	s.Kill()
	for !strings.Contains(log.String(), "no answer: trying again") {
		runtime.Gosched()
	}
	s.Restart()
	for !strings.Contains(log.String(), "answers again") {
		runtime.Gosched()
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "has lost what was under way") {
		t.Error(err)
	}
	entry := &redis.XAddArgs{Stream: e.key("in", e.inbox), NoMkStream: true, Values: []any{"f", "x"}}
	if err := e.rdb.XAdd(t.Context(), entry).Err(); err != nil {
		t.Errorf("an entry after the restart: %v", err)
	}
	for !strings.Contains(log.String(), "written to by something else") {
		runtime.Gosched()
	}
	close(e.end)
	_ = e.rdb.XAdd(t.Context(), entry).Err() // the reader wakes up
	e.wg.Wait()
	if n, m := strings.Count(log.String(), "no answer"), strings.Count(log.String(), "answers again"); n != 1 || m != 1 {
		t.Errorf("said %d and %d times:\n%s", n, m, log)
	}
}

// opened is an endpoint at a server, and what it logs.
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
	t.Cleanup(e.release)
	return e, log
}

// Keys are renewed and made anew. A word that somebody else has taken is left alone.
func TestInboxKeysAreRenewed(t *testing.T) {
	s := redistest.Start(t)
	e, log := opened(t, s)
	admin, ctx := s.Admin(t), t.Context()
	if !e.retain() {
		t.Fatal("the endpoint has ended")
	}
	l, err := e.listen(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := e.newConn("here", "there")
	e.mu.Lock()
	e.conns[c.id] = c
	e.mu.Unlock()
	const word = "ditask:{j}:at:x"
	inbox := "ditask:{j}:in:" + e.inbox
	renewed := func(what string) {
		t.Helper()
		if err := e.renew(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if at, in := admin.PTTL(ctx, word).Val(), admin.PTTL(ctx, inbox).Val(); at <= wordExpiry/2 || at > wordExpiry || in <= inboxExpiry/2 || in > inboxExpiry {
			t.Errorf("%s: they expire in %v and %v", what, at, in)
		}
		if holder := admin.Get(ctx, word).Val(); holder != e.inbox {
			t.Errorf("%s: the word is of %q", what, holder)
		}
	}
	renewed("at first")
	admin.PExpire(ctx, word, time.Second)
	admin.PExpire(ctx, inbox, time.Second)
	renewed("soon expiring")
	if c.broken() {
		t.Error("a connection is broken with all keys there")
	}
	admin.Del(ctx, word)
	renewed("without the word")
	if c.broken() {
		t.Error("a connection is broken for a word")
	}
	admin.Del(ctx, inbox)
	renewed("without the inbox")
	c.mu.Lock()
	why := c.err
	c.mu.Unlock()
	if why == nil || !strings.Contains(why.Error(), "has lost what was under way") {
		t.Errorf("a connection whose inbox was lost: %v", why)
	}
	e.forget(c)

	admin.Set(ctx, word, "somebody", time.Minute)
	for range 2 {
		if err := e.renew(); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "somebody else listens here now"); n != 1 {
		t.Errorf("said %d times that the word was taken:\n%s", n, log)
	}
	_ = l.Close()
	if holder := admin.Get(ctx, word).Val(); holder != "somebody" {
		t.Errorf("the word of somebody else is of %q", holder)
	}
}

// What the server refuses while keys are renewed is an error, whichever command it is.
func TestInboxKeysAreNotRenewed(t *testing.T) {
	s := redistest.Start(t)
	e, _ := opened(t, s)
	admin, ctx := s.Admin(t), t.Context()
	if !e.retain() {
		t.Fatal("the endpoint has ended")
	}
	l, err := e.listen(ctx, "x")
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
	a.release()
	if a.over() || a.ctx.Err() != nil {
		t.Error("ended with a user left")
	}
	b.release()
	if !a.over() || a.ctx.Err() == nil || a.retain() || a.renew() != nil {
		t.Error("not ended, or used again")
	}
	if left := s.Admin(t).Keys(t.Context(), "*").Val(); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
	d, err := c.acquire(t.Context())
	if d == a || err != nil {
		t.Fatalf("the same endpoint, %v", err)
	}
	d.release()
	busy, cancel := context.WithCancel(t.Context())
	cancel()
	c.opening <- struct{}{}
	if e, err := c.acquire(busy); e != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("while another one opens it: %v", err)
	}
	<-c.opening
}

// A dial ends with the answer, and with each reason for which there will be none.
func TestInboxDials(t *testing.T) {
	s := redistest.Start(t)
	admin, why := s.Admin(t), errors.New("why")
	e, _ := alone() // nobody sends what is to be sent
	e.rdb = admin
	e.cfg.Job = "j"
	inbox := strings.Repeat("3", inboxBytes)
	for name, c := range map[string]struct {
		then func(c *conn, cancel func())
		err  error
		text string
	}{
		"given up":   {func(_ *conn, cancel func()) { cancel() }, context.Canceled, ""},
		"refused":    {func(c *conn, _ func()) { c.receive(head{kind: kindFin}, "") }, errRefused, "has ended: start it again"},
		"no inbox":   {func(c *conn, _ func()) { c.gone(why) }, why, ""},
		"broken":     {func(c *conn, _ func()) { c.fail(why) }, why, ""},
		"taken over": {func(*conn, func()) { admin.Set(t.Context(), "ditask:{j}:at:x", "other", 0) }, errRefused, "has ended: start it again"},
		"not there":  {func(*conn, func()) { admin.Del(t.Context(), "ditask:{j}:at:x") }, errRefused, "no node of job \"j\" has this address"},
		"answered":   {func(c *conn, _ func()) { c.receive(head{kind: kindAccept}, call(7, window, "")) }, nil, ""},
	} {
		admin.Set(t.Context(), "ditask:{j}:at:x", inbox, 0)
		ctx, cancel := context.WithCancel(t.Context())
		type result struct {
			*conn
			error
		}
		dialled := make(chan result, 1) // one result
		go func() { conn, err := e.dial(ctx, "x"); dialled <- result{conn, err} }()
		e.mu.Lock()
		for len(e.ready) == 0 {
			e.wake.Wait()
		}
		e.mu.Unlock()
		k := e.nextReady()
		batch, _ := k.take(nil)
		if h, body, err := parseEntry(string(batch[0].bytes)); len(batch) != 1 || h.kind != kindSyn || batch[0].inbox != inbox || err != nil {
			t.Errorf("%s: %d entries: %+v, %v", name, len(batch), h, err)
		} else if me, w, err := parseHello(body); me != (hello{k.id, window, e.inbox}) || w != "x" || err != nil {
			t.Errorf("%s: called by %+v for %q, %v", name, me, w, err)
		}
		c.then(k, cancel)
		got := <-dialled
		cancel()
		if !errors.Is(got.error, c.err) || c.text != "" && !strings.Contains(got.Error(), c.text) || (got.conn == k) != (c.err == nil) {
			t.Errorf("%s: %v", name, got.error)
		}
		if kept := e.conns[k.id] == k; kept != (c.err == nil) || k.broken() == kept {
			t.Errorf("%s: kept: %v, broken: %v", name, kept, k.broken())
		}
	}
}
