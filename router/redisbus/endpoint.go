package redisbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/router/broker"
)

const (
	renewEvery  = 2 * time.Second
	inboxExpiry = 30 * time.Second
	wordExpiry  = 10 * time.Second
	// blockTime is the time that one read waits for entries. It is short so that a
	// server that has vanished is noticed within answerTime.
	blockTime   = time.Second
	forgetTime  = 2 * time.Second // for the server to delete a word
	readEntries = 64              // in one answer
	entryBytes  = 128 << 10       // of data in one entry, with its cost of the window
)

// endpoint is a transport's inbox at the server while the transport has a listener or a connection,
// and the goroutines that read it, write to other inboxes and keep it from expiring. Close waits
// for all three. It is the hub's broker.
type endpoint struct {
	*Transport
	hub    *broker.Hub
	rdb    *redis.Client
	server string
	inbox  string
	log    *slog.Logger

	ctx    context.Context //nolint:containedctx // the endpoint's life
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	kick   chan struct{} // wakes the keeper at once

	renewing sync.Mutex      // held while words are made or deleted
	taken    map[string]bool // words that another node has taken, and that have been logged
}

// open connects to the server and makes an inbox.
func open(ctx context.Context, c *Transport) (*endpoint, error) {
	e := newEndpoint(c)
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
	e.wg.Go(e.read)
	e.wg.Go(e.hub.Run)
	e.wg.Go(e.keep)
	return e, nil
}

func newEndpoint(c *Transport) *endpoint {
	e := &endpoint{
		Transport: c, server: c.opt.Addr, inbox: broker.NewInbox(), log: c.cfg.Logger,
		kick: make(chan struct{}, 1), taken: map[string]bool{},
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.hub = broker.New(broker.Config{
		Broker: e, Inbox: e.inbox, Window: c.cfg.WindowBytes, MinWindow: minWindow, MaxWindow: maxWindow,
		BodyBytes: entryBytes - broker.CostBytes,
		Loss:      "redis at " + e.server + " was restarted, flushed or replaced, or it evicts keys",
	})
	return e
}

// Close waits until the writer has sent all messages and the other goroutines have ended, and deletes
// the inbox. The server may be unreachable: Close does not wait after ctx has ended.
func (e *endpoint) Close(ctx context.Context, wrote <-chan struct{}) {
	stop := context.AfterFunc(ctx, func() {
		e.cancel(net.ErrClosed)
		_ = e.rdb.Close()
	})
	defer stop()
	<-wrote
	key := e.Place(broker.Peer{Inbox: e.inbox})
	_ = e.rdb.XAdd(ctx, add(key, nil, true)).Err() // the reader wakes up
	e.wg.Wait()
	_ = e.rdb.Del(ctx, key).Err() // else it expires
	e.cancel(net.ErrClosed)
	_ = e.rdb.Close()
}

// Place returns the key of the inbox of an end.
func (e *endpoint) Place(end broker.Peer) string { return e.key("in", end.Inbox) }

// add returns the command that adds an entry to an inbox. An empty entry has no meaning.
func add(key string, b []byte, exists bool) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: key, NoMkStream: exists, Values: []any{"f", b}}
}

// makeInbox creates the stream, which lasts until it expires. Both commands are sent in one write:
// without a transaction, an error names the refused command.
func (e *endpoint) makeInbox(ctx context.Context) error {
	key := e.Place(broker.Peer{Inbox: e.inbox})
	_, err := e.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, add(key, nil, false))
		p.PExpire(ctx, key, inboxExpiry)
		return nil
	})
	return err
}

// keep renews the keys until the endpoint is unused.
func (e *endpoint) keep() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.kick:
		case <-e.hub.Done():
			return
		}
		if err := e.renew(); err != nil {
			if _, ok := refusal(err); ok {
				e.log.Error("the keys of this node are not renewed, and it will not be found", "error", explain(e.server, err))
			} // else the reader reports it
		}
	}
}

// renew extends the expiry of this endpoint's keys, and makes them again if the server has lost them.
func (e *endpoint) renew() error {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	if e.over() {
		return nil
	}
	there, err := e.rdb.PExpire(e.ctx, e.Place(broker.Peer{Inbox: e.inbox}), inboxExpiry).Result()
	if err != nil {
		return err
	}
	if !there {
		err := fmt.Errorf("redis at %s has lost messages under way: it was restarted, flushed or replaced, or it evicts keys", e.server)
		e.hub.BreakAll(err, err.Error())
		if err := e.makeInbox(e.ctx); err != nil {
			return err
		}
	}
	for _, w := range e.hub.Words() {
		if err := e.renewWord(w); err != nil {
			return err
		}
	}
	return nil
}

// renewWord extends the expiry of a word, so that other nodes find it. If another node has taken
// the word, renewWord leaves it to that node.
func (e *endpoint) renewWord(w string) error {
	key := e.key("at", w)
	switch holder, err := e.rdb.Get(e.ctx, key).Result(); {
	case errors.Is(err, redis.Nil):
		return ignoreNil(e.rdb.SetArgs(e.ctx, key, e.inbox, redis.SetArgs{Mode: "NX", TTL: wordExpiry}).Err())
	case err != nil:
		return err
	case holder == e.inbox:
		return e.rdb.PExpire(e.ctx, key, wordExpiry).Err()
	case !e.taken[w]:
		e.taken[w] = true
		e.log.Warn("another process listens here now: was this node started twice?", "address", scheme+w, "job", e.cfg.Job)
	}
	return nil
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// Claim lets others find this inbox under a word. Another node that had the word can no longer be found
// under it.
func (e *endpoint) Claim(ctx context.Context, w string) (release func(), err error) {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	delete(e.taken, w)
	if err := e.rdb.Set(ctx, e.key("at", w), e.inbox, wordExpiry).Err(); err != nil {
		return nil, explain(e.server, err)
	}
	return func() { e.forgetWord(w) }, nil
}

// forgetWord deletes a word, if it still leads to this inbox.
func (e *endpoint) forgetWord(w string) {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	ctx, cancel := context.WithTimeout(e.ctx, forgetTime)
	defer cancel()
	key := e.key("at", w)
	if holder, err := e.rdb.Get(ctx, key).Result(); err == nil && holder == e.inbox {
		_ = e.rdb.Del(ctx, key).Err() // else it expires
	}
}

// Find returns the key of the inbox to which a word leads.
func (e *endpoint) Find(ctx context.Context, w string) (string, error) {
	inbox, err := e.rdb.Get(ctx, e.key("at", w)).Result()
	if errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("%w: no node of job %q has this address: start the node, with the same Redis server", broker.ErrRefused,
			e.cfg.Job)
	}
	if err != nil {
		return "", explain(e.server, err)
	}
	return e.Place(broker.Peer{Inbox: inbox}), nil
}

// Publish adds messages to their inboxes. Messages that may or may not have arrived when the
// connection to the server broke must be published again.
func (e *endpoint) Publish(messages []*broker.Message) {
	p := e.rdb.Pipeline()
	for _, m := range messages {
		p.XAdd(e.ctx, add(m.To, m.Bytes, true))
	}
	cmds, _ := p.Exec(e.ctx) // each command has its error
	for i, m := range messages {
		m.Err = e.published(cmds[i].Err())
	}
}

// published returns the result of adding an entry, from the server's reply.
func (e *endpoint) published(err error) error {
	_, refused := refusal(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		select {
		case e.kick <- struct{}{}: // this endpoint's inbox may be gone, too
		default:
		}
		return fmt.Errorf("redis at %s: %w", e.server, broker.ErrInboxGone)
	case refused:
		return explain(e.server, err)
	}
	return fmt.Errorf("%w: %w", broker.ErrAgain, explain(e.server, err))
}

// read takes entries out of the inbox until the endpoint ends. Each read deletes the entries of the
// one before and begins at the oldest entry in the inbox, so it misses no entry whatever the clock of
// a new server; a repeated entry is recognised by its offset.
func (e *endpoint) read() {
	var done []string
	var wait time.Duration
	trouble := false
	for !e.over() {
		var msgs []redis.XMessage
		var err error
		if trouble { // the server may be another one
			err = e.renew()
		}
		if err == nil {
			msgs, err = e.readSome(done)
		}
		if err != nil {
			if _, ok := refusal(err); ok {
				why := explain(e.server, err)
				e.hub.BreakAll(why, "the other side cannot receive")
			}
			if !trouble && !e.over() {
				e.log.Warn("no answer: trying again", "error", explain(e.server, err))
			}
			trouble = true
			if !e.hub.Pause(&wait) {
				return
			}
			continue
		}
		if trouble {
			e.log.Info("redis at " + e.server + " answers again")
		}
		trouble, wait = false, 0
		done = done[:0]
		for _, m := range msgs {
			e.dispatch(m)
			done = append(done, m.ID)
		}
	}
}

// over reports whether the endpoint is unused.
func (e *endpoint) over() bool {
	select {
	case <-e.hub.Done():
		return true
	default:
		return false
	}
}

// readSome deletes the entries of the read before and waits for more.
func (e *endpoint) readSome(done []string) ([]redis.XMessage, error) {
	key := e.Place(broker.Peer{Inbox: e.inbox})
	p := e.rdb.Pipeline()
	if len(done) > 0 {
		p.XDel(e.ctx, key, done...)
	}
	got := p.XRead(e.ctx, &redis.XReadArgs{Streams: []string{key, "0"}, Count: readEntries, Block: blockTime})
	if _, err := p.Exec(e.ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	streams, err := got.Result()
	if err != nil || len(streams) == 0 {
		return nil, ignoreNil(err)
	}
	return streams[0].Messages, nil
}

// dispatch passes an entry to its connection.
func (e *endpoint) dispatch(m redis.XMessage) {
	text, _ := m.Values["f"].(string)
	if text == "" && len(m.Values) == 1 {
		return // it created the stream, or woke the reader
	}
	_, err := e.hub.Deliver(0, unsafe.Slice(unsafe.StringData(text), len(text))) // Deliver only reads it
	if err != nil {
		e.log.Warn("an entry in the inbox of this node is malformed", "key", e.Place(broker.Peer{Inbox: e.inbox}),
			"entry", printable.Text(m.ID), "error", err)
	}
}
