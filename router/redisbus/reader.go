package redisbus

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ditask/ditask/internal/printable"
)

// read takes entries out of the inbox until the endpoint ends. What was read is
// deleted with the next read; that always begins at the oldest entry that there
// is, so no entry is missed whatever clock a new server has, and one that comes
// twice is known by its offset.
func (e *endpoint) read() {
	defer e.wg.Done()
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
				e.breakAll(explain(e.server, err))
			}
			if !trouble && !e.over() {
				e.log.Warn("no answer: trying again", "error", explain(e.server, err))
			}
			trouble = true
			if !e.pause(&wait) {
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

// over reports whether nobody uses the endpoint any more.
func (e *endpoint) over() bool {
	select {
	case <-e.end:
		return true
	default:
		return false
	}
}

// readSome deletes what was read before and waits for more.
func (e *endpoint) readSome(done []string) ([]redis.XMessage, error) {
	key := e.key("in", e.inbox)
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

// dispatch gives an entry to its connection.
func (e *endpoint) dispatch(m redis.XMessage) {
	text, _ := m.Values["f"].(string)
	h, body, err := parseEntry(text)
	if err != nil {
		e.log.Warn("the inbox of this node has been written to by something else", "key", e.key("in", e.inbox), "entry",
			printable.Text(m.ID), "error", err)
		return
	}
	switch h.kind {
	case kindNone:
		return
	case kindSyn:
		err = e.called(body)
	default:
		e.mu.Lock()
		c := e.conns[h.to]
		e.mu.Unlock()
		switch {
		case c != nil:
			c.receive(h, body)
		case h.kind == kindAccept: // who dialled has given up
			var peer hello
			if peer, _, err = parseHello(body); err == nil {
				e.refuse(peer)
			}
		}
	}
	if err != nil {
		e.log.Warn("an entry in the inbox of this node makes no sense", "entry", printable.Text(m.ID), "error", err)
	}
}

// called answers somebody who dials.
func (e *endpoint) called(body string) error {
	peer, w, err := parseHello(body)
	if err != nil {
		return err
	}
	if peer.window < minWindow || peer.window > maxWindow {
		return fmt.Errorf("%w: a window of %d bytes", errBadEntry, peer.window)
	}
	from := caller{peer.inbox, peer.id}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.callers[from] != nil {
		return nil // the same entry again
	}
	l := e.listeners[w]
	if l == nil || e.ended {
		e.refuseLocked(peer)
		return nil
	}
	c := e.newConn(addr(scheme+w), addr(scheme+"inbox."+peer.inbox))
	c.from = from
	c.greet(peer) // before who accepts it can close it
	select {
	case l.conns <- c:
	default:
		e.refuseLocked(peer)
		return nil
	}
	e.refs++
	e.conns[c.id], e.callers[from] = c, c
	e.ready = append(e.ready, c)
	e.wake.Signal()
	return nil
}

// refuse tells a connection that is none of ours that it has ended.
func (e *endpoint) refuse(peer hello) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuseLocked(peer)
}

func (e *endpoint) refuseLocked(peer hello) {
	e.strays = append(e.strays, entry{inbox: peer.inbox, bytes: appendHead(nil, head{kind: kindFin, to: peer.id})})
	e.wake.Signal()
}
