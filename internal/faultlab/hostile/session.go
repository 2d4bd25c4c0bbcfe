package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// manners are what a hostile node does of what an honest one does.
type manners struct {
	ack, credit bool // of what has come
	ready       bool // it reports that it is ready, and has seen that others are
	fin         bool // it answers the end of the job
}

var (
	polite = manners{ack: true, credit: true, ready: true, fin: true}
	mute   = manners{ack: true, credit: true}
)

// session is a connection with an honest node that has taken the hostile one for a peer. A
// goroutine reads what comes, and answers with its manners. The session declares each
// event that the honest node declares, in the same words and under the same number, and
// listens to it.
type session struct {
	a      *attack
	to     int // the honest node
	conn   net.Conn
	theirs hello
	how    manners

	met   chan struct{} // closed when the honest node has said that it is ready
	ended chan struct{} // closed when nothing more is read

	wmu sync.Mutex // one write at a time

	before atomic.Pointer[func()] // called before each frame is read; nil: nothing

	mu     sync.Mutex
	events []event // by number
	got    uint64  // sequenced frames
	err    error   // why nothing more is read
}

// event is one that the honest node has declared.
type event struct {
	declaration
	number          uint16
	messages, bytes uint64 // that were received, in all
}

// join becomes a peer of the node, as h says.
func (a *attack) join(ctx context.Context, to int, h hello, how manners) (*session, error) {
	conn, theirs, err := a.greet(ctx, to, h, nil)
	if err != nil {
		return nil, err
	}
	s := &session{a: a, to: to, conn: conn, theirs: theirs, how: how, met: make(chan struct{}), ended: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { // in order, as far as that can be
		_ = conn.SetWriteDeadline(time.Now().Add(byeWithin))
		_ = s.bye()
		_ = conn.Close()
	})
	a.mu.Lock()
	a.visits[to] = s
	a.mu.Unlock()
	a.wg.Go(func() {
		s.read()
		stop()
	})
	return s, nil
}

// renewed closes the connections with nodes of which a newer incarnation has joined. Through a
// server they do not end by themselves.
func (a *attack) renewed(members []byte) {
	var list []member
	if json.Unmarshal(members, &list) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range list {
		if s := a.visits[m.ID]; a.returns && s != nil && s.theirs.Incarnation < m.Incarnation {
			_ = s.conn.Close()
		}
	}
}

// byeWithin is how long the last frame of a session may take.
const byeWithin = 500 * time.Millisecond

// greet connects with the node and says h. The connection is closed when ctx ends
// in the meantime.
func (a *attack) greet(ctx context.Context, to int, h hello, no *refusal) (net.Conn, hello, error) {
	conn, err := a.cfg.Dialer.Dial(ctx, a.cfg.Addrs[to])
	if err != nil {
		return nil, hello{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	theirs, err := greet(conn, a.cfg.Token, h, no)
	if err != nil {
		_ = conn.Close()
		a.refused.Add(1)
		return nil, hello{}, err
	}
	a.joined.Add(1)
	return conn, theirs, nil
}

// read takes frames until the connection ends.
func (s *session) read() {
	defer close(s.ended)
	r := bufio.NewReaderSize(s.conn, 64<<10)
	var buf []byte
	for {
		if wait := s.before.Load(); wait != nil {
			(*wait)()
		}
		f, b, err := readFrame(r, buf)
		if buf = b; err == nil {
			err = s.take(f)
		}
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			_ = s.conn.Close()
			return
		}
	}
}

// take does with a frame what the manners say.
func (s *session) take(f frame) error {
	s.a.received.Add(uint64(headBytes + len(f.body)))
	var out []byte
	s.mu.Lock()
	if f.typ <= lastSequenced {
		s.got++
		if s.how.ack {
			out = appendFrame(out, frameAck, 0, 0, numbers(s.got))
		}
	}
	switch f.typ {
	case frameDeclare:
		e := event{number: f.event}
		_ = json.Unmarshal(f.body, &e.declaration) // an honest node's
		s.events = append(s.events, e)
		out = appendFrame(out, frameDeclare, 1, f.event, f.body)
	case frameMembers:
		s.a.renewed(f.body)
	case frameData:
		out = s.count(out, f.event, len(f.body)-8)
	case frameChunk:
		total, end := int(le.Uint64(f.body[8:])), int(le.Uint64(f.body[16:]))+len(f.body)-chunkHead //nolint:gosec // an honest node's
		if end == total {
			out = s.count(out, f.event, total)
		}
	case frameReady:
		if s.how.ready {
			out = appendFrame(appendFrame(out, frameReady, 1, 0, nil), frameSeen, 0, 0, nil)
		}
	case frameShared:
		out = s.count(out, f.event, int(le.Uint64(f.body[8:]))) //nolint:gosec // an honest node's
	case frameFin:
		if s.how.fin {
			out = appendFrame(out, frameFin, 0, 0, nil)
		}
	case framePing:
		out = appendFrame(out, framePong, 0, 0, f.body)
	case frameBye:
		s.mu.Unlock()
		return fmt.Errorf("node.%d has left", s.to)
	}
	s.mu.Unlock()
	if f.typ == frameReady {
		s.meet()
	}
	if len(out) == 0 {
		return nil
	}
	return s.write(out)
}

// meet closes met, once.
func (s *session) meet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.met:
	default:
		close(s.met)
	}
}

// count takes note of a message, and appends the credit for it. The mutex is held.
func (s *session) count(out []byte, number uint16, n int) []byte {
	if int(number) >= len(s.events) {
		return out
	}
	e := &s.events[number]
	e.messages++
	e.bytes += uint64(max(n, 0))
	if s.how.credit {
		out = appendFrame(out, frameCredit, 0, number, numbers(e.messages, e.bytes))
	}
	return out
}

// hold makes the session call wait before it reads a frame.
func (s *session) hold(wait func()) { s.before.Store(&wait) }

// write writes frames.
func (s *session) write(frames []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	n, err := s.conn.Write(frames)
	s.a.sent.Add(uint64(n)) //nolint:gosec // not negative
	return err
}

// declared returns the events of the honest node, after it has said that it is ready.
func (s *session) declared(ctx context.Context) ([]event, error) {
	select {
	case <-s.met:
	case <-s.ended:
		return nil, s.why()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]event(nil), s.events...), nil
}

// find returns the event of that name.
func (s *session) find(ctx context.Context, name string) (event, error) {
	all, err := s.declared(ctx)
	if err != nil {
		return event{}, err
	}
	for _, e := range all {
		if e.Name == name {
			return e, nil
		}
	}
	return event{}, fmt.Errorf("node.%d declares no event %q", s.to, name)
}

// message writes a message of total bytes in chunks, as far as payload goes.
func (s *session) message(number uint16, version, total uint64, payload []byte) error {
	for off := 0; off < len(payload); off += chunkBytes {
		piece := payload[off:min(off+chunkBytes, len(payload))]
		body := append(numbers(version, total, uint64(off)), piece...)
		if err := s.write(appendFrame(nil, frameChunk, 0, number, body)); err != nil {
			return err
		}
	}
	return nil
}

// why is the reason for which the session has ended.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// stay waits until the session or ctx ends.
func (s *session) stay(ctx context.Context) {
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// ping keeps the session alive without reading, until it or ctx ends.
func ping(ctx context.Context, s *session) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		if err := s.write(appendFrame(nil, framePing, 0, 0, numbers(1))); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
