package redisbus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	renewEvery  = 2 * time.Second
	inboxExpiry = 30 * time.Second
	wordExpiry  = 10 * time.Second
	// blockTime is how long one read waits for entries. It is short so that a
	// server that has vanished is noticed within answerTime.
	blockTime = time.Second
	// lingerTime bounds how long the last Close waits for the server.
	lingerTime = 2 * time.Second

	readEntries = 64        // in one answer
	entryBytes  = 128 << 10 // of data in one entry
	batchBytes  = 1 << 20   // from which on a pipeline is sent
)

// endpoint is a carrier's place at the server, as long as it has a listener or a
// connection: an inbox, and the goroutines that read it, write to others' and
// keep it from expiring. shutdown waits for all three.
type endpoint struct {
	*Carrier
	rdb    *redis.Client
	server string
	inbox  string
	log    *slog.Logger

	ctx    context.Context //nolint:containedctx // the endpoint's life
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	wrote  chan struct{} // closed when the writer has ended
	end    chan struct{} // closed when nobody uses the endpoint any more
	kick   chan struct{} // the keeper is to look at once

	renewing sync.Mutex // held by who makes or deletes words

	nextID atomic.Uint64

	mu        sync.Mutex
	wake      sync.Cond
	refs      int // listeners, connections, and calls that make one
	ended     bool
	ready     []*conn // have something to send
	strays    []entry // to connections that are none of ours
	conns     map[uint64]*conn
	callers   map[caller]*conn // those that dialled us
	listeners map[string]*listener
}

// caller is the other end of a connection that it has dialled.
type caller struct {
	inbox string
	id    uint64
}

// entry is what waits to be added to an inbox.
type entry struct {
	inbox string
	bytes []byte
	c     *conn // nil for an answer to a stranger
}

// open connects to the server and makes an inbox.
func open(ctx context.Context, c *Carrier) (*endpoint, error) {
	var id [inboxBytes / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	e := &endpoint{
		Carrier: c, server: c.opt.Addr, inbox: hex.EncodeToString(id[:]), log: c.cfg.Logger, refs: 1,
		wrote: make(chan struct{}), end: make(chan struct{}), kick: make(chan struct{}, 1),
		conns: map[uint64]*conn{}, callers: map[caller]*conn{}, listeners: map[string]*listener{},
	}
	e.wake.L = &e.mu
	e.nextID.Store(mrand.Uint64() >> 1)
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	opt := *c.opt
	opt.Dialer = dialer(e.ctx, opt.TLSConfig)
	e.rdb = redis.NewClient(&opt)
	err := checkVersion(ctx, e.rdb)
	if err == nil {
		err = e.makeInbox(ctx)
	}
	if err != nil {
		e.cancel(err)
		_ = e.rdb.Close()
		return nil, explain(e.server, err)
	}
	e.wg.Add(3)
	go e.read()
	go e.write()
	go e.keep()
	return e, nil
}

// retain counts one more user, unless the last one has gone.
func (e *endpoint) retain() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refs == 0 {
		return false
	}
	e.refs++
	return true
}

// release takes back what retain counted. The last one closes the endpoint.
func (e *endpoint) release() {
	e.mu.Lock()
	e.refs--
	last := e.refs == 0
	if last {
		e.ended = true
		close(e.end)
		e.wake.Broadcast()
	}
	e.mu.Unlock()
	if last {
		e.shutdown()
	}
}

// shutdown waits until the writer has sent what there is and the others have
// ended, and deletes the inbox. The server may be gone: it does not wait for it
// long.
func (e *endpoint) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), lingerTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		e.cancel(net.ErrClosed)
		_ = e.rdb.Close()
	})
	defer stop()
	<-e.wrote
	key := e.key("in", e.inbox)
	none := &redis.XAddArgs{Stream: key, NoMkStream: true, Values: []any{"f", appendHead(nil, head{kind: kindNone})}}
	_ = e.rdb.XAdd(ctx, none).Err() // the reader wakes up
	e.wg.Wait()
	_ = e.rdb.Del(ctx, key).Err() // else it expires
	e.cancel(net.ErrClosed)
	_ = e.rdb.Close()
}

// makeInbox makes the stream, which lasts until it expires. Both commands go out
// in one piece: without a transaction, a refusal says what was refused.
func (e *endpoint) makeInbox(ctx context.Context) error {
	key := e.key("in", e.inbox)
	_, err := e.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"f", appendHead(nil, head{kind: kindNone})}})
		p.PExpire(ctx, key, inboxExpiry)
		return nil
	})
	return err
}

// keep renews the keys until nobody uses the endpoint any more.
func (e *endpoint) keep() {
	defer e.wg.Done()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.kick:
		case <-e.end:
			return
		}
		if err := e.renew(); err != nil {
			if _, ok := refusal(err); ok {
				e.log.Error("the keys of this node are not renewed, and it will not be found", "error", explain(e.server, err))
			} // else the reader tells
		}
	}
}

// renew lets the keys of this endpoint live on, and makes them anew if the server
// has lost them.
func (e *endpoint) renew() error {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	e.mu.Lock()
	ended := e.ended
	words := make([]*listener, 0, len(e.listeners))
	for _, l := range e.listeners {
		words = append(words, l)
	}
	e.mu.Unlock()
	if ended {
		return nil
	}
	there, err := e.rdb.PExpire(e.ctx, e.key("in", e.inbox), inboxExpiry).Result()
	if err != nil {
		return err
	}
	if !there {
		e.breakAll(fmt.Errorf("redis at %s has lost what was under way: it was restarted, flushed or replaced, or it evicts keys", e.server))
		if err := e.makeInbox(e.ctx); err != nil {
			return err
		}
	}
	for _, l := range words {
		if err := e.renewWord(l); err != nil {
			return err
		}
	}
	return nil
}

// renewWord lets others find l. It leaves the word to somebody who has taken it.
func (e *endpoint) renewWord(l *listener) error {
	key := e.key("at", l.word)
	switch holder, err := e.rdb.Get(e.ctx, key).Result(); {
	case errors.Is(err, redis.Nil):
		return ignoreNil(e.rdb.SetArgs(e.ctx, key, e.inbox, redis.SetArgs{Mode: "NX", TTL: wordExpiry}).Err())
	case err != nil:
		return err
	case holder == e.inbox:
		return e.rdb.PExpire(e.ctx, key, wordExpiry).Err()
	case !l.taken.Swap(true):
		e.log.Warn("somebody else listens here now: was this node started twice?", "address", l.Addr().String(), "job", e.cfg.Job)
	}
	return nil
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// breakAll breaks every connection.
func (e *endpoint) breakAll(err error) {
	e.mu.Lock()
	all := make([]*conn, 0, len(e.conns))
	for _, c := range e.conns {
		all = append(all, c)
	}
	e.mu.Unlock()
	for _, c := range all {
		c.fail(err)
	}
}

// listen makes a listener; it takes over the caller's use of the endpoint.
func (e *endpoint) listen(ctx context.Context, w string) (*listener, error) {
	l := &listener{e: e, word: w, conns: make(chan *conn, backlog), done: make(chan struct{}), gone: make(chan struct{})}
	e.mu.Lock()
	taken := e.listeners[w] != nil
	if !taken {
		e.listeners[w] = l
	}
	e.mu.Unlock()
	if taken {
		return nil, errors.New("address in use")
	}
	e.renewing.Lock()
	err := e.rdb.Set(ctx, e.key("at", w), e.inbox, wordExpiry).Err()
	e.renewing.Unlock()
	if err != nil {
		e.unlisten(l)
		return nil, explain(e.server, err)
	}
	return l, nil
}

// unlisten lets no more connections come to l.
func (e *endpoint) unlisten(l *listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, l.word)
}

// forgetWord deletes the word of l, if it still is its own.
func (e *endpoint) forgetWord(l *listener) {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	ctx, cancel := context.WithTimeout(e.ctx, lingerTime)
	defer cancel()
	key := e.key("at", l.word)
	if holder, err := e.rdb.Get(ctx, key).Result(); err == nil && holder == e.inbox {
		_ = e.rdb.Del(ctx, key).Err() // else it expires
	}
}

// pause waits a little before something is tried again. It reports false at the
// end.
func (e *endpoint) pause(wait *time.Duration) bool {
	*wait = min(max(2**wait, 10*time.Millisecond), 250*time.Millisecond)
	t := time.NewTimer(*wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.end:
		return false
	}
}
