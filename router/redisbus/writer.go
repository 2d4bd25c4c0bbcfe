package redisbus

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// buffers are entries that hold as much data as one may.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, headBytes+entryBytes)
	return &b
}}

func newEntry(h head) []byte { return appendHead((*buffers.Get().(*[]byte))[:0], h) }

// recycle gives back an entry that has been sent.
func recycle(b []byte) {
	if cap(b) == headBytes+entryBytes {
		buffers.Put(&b)
	}
}

// write adds what connections have to send to the inboxes of others, many entries
// at once, until the endpoint ends and nothing is left.
func (e *endpoint) write() {
	defer e.wg.Done()
	defer close(e.wrote)
	var batch []entry
	for {
		batch = e.gather(batch[:0])
		if len(batch) == 0 {
			return
		}
		e.send(batch)
	}
}

// gather waits for entries to send. There are none at the end.
func (e *endpoint) gather(batch []entry) []entry {
	size := 0
	for len(batch) == 0 {
		e.mu.Lock()
		for len(e.ready) == 0 && len(e.strays) == 0 && !e.ended {
			e.wake.Wait()
		}
		batch = append(batch, e.strays...)
		clear(e.strays)
		e.strays = e.strays[:0]
		over := len(e.ready) == 0 && len(batch) == 0
		e.mu.Unlock()
		if over {
			return nil
		}
		for size < batchBytes {
			c := e.nextReady()
			if c == nil {
				break
			}
			var n int
			batch, n = c.take(batch)
			size += n
		}
	}
	return batch
}

// nextReady is the connection that has waited longest.
func (e *endpoint) nextReady() *conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ready) == 0 {
		return nil
	}
	c := e.ready[0]
	n := copy(e.ready, e.ready[1:])
	e.ready[n] = nil
	e.ready = e.ready[:n]
	return c
}

// send adds the entries to their inboxes, in their order. What may or may not have
// arrived when the connection to the server broke is sent again: who reads knows
// it by its offset.
func (e *endpoint) send(batch []entry) {
	var wait time.Duration
	for {
		p := e.rdb.Pipeline()
		for _, en := range batch {
			p.XAdd(e.ctx, &redis.XAddArgs{Stream: e.key("in", en.inbox), NoMkStream: true, Values: []any{"f", en.bytes}})
		}
		cmds, err := p.Exec(e.ctx)
		rest := batch[:0]
		for i, en := range batch {
			if !e.sent(en, cmds[i].Err()) {
				rest = append(rest, en)
			}
		}
		if len(rest) == 0 {
			return
		}
		if !e.pause(&wait) {
			for _, en := range rest {
				en.c.lost(explain(e.server, err))
			}
			return
		}
		batch = rest[:0]
		for _, en := range rest {
			if !en.c.broken() {
				batch = append(batch, en)
			}
		}
		if len(batch) == 0 {
			return
		}
	}
}

// sent takes note of what the server says of an entry. It reports whether that is
// settled.
func (e *endpoint) sent(en entry, err error) bool {
	_, refused := refusal(err)
	switch {
	case err == nil:
	case errors.Is(err, redis.Nil):
		en.c.gone(fmt.Errorf("redis at %s: the other side's inbox is gone", e.server))
		select {
		case e.kick <- struct{}{}: // ours may be, too
		default:
		}
	case refused:
		en.c.lost(explain(e.server, err))
	default:
		return false
	}
	recycle(en.bytes)
	return true
}
