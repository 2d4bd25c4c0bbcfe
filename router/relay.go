package router

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// In a star, two leaves speak through a pipe that the hub makes of a connection
// from each: one asks the hub for the other, the hub asks the other to call
// back, and copies bytes between the two calls. The session is between the
// leaves, so it promises what a direct one does.

// callRelay asks the hub at conn for a pipe to target.
func (r *Router) callRelay(conn net.Conn, target int) error {
	h := r.hello(purposeRelay)
	h.Target = target
	return r.callHub(conn, h)
}

func (r *Router) callHub(conn net.Conn, h hello) error {
	_, pr, err := r.callHello(conn, h, binding(conn))
	if err != nil {
		return err
	}
	if _, err := writeMsg(conn, nil, proof{Proof: pr}); err != nil {
		return err
	}
	var w welcome
	if _, err := readMsg(conn, &w); err != nil {
		return err
	}
	if w.Refuse != nil {
		return &RefusedError{w.Refuse.Code, w.Refuse.Reason, conn.RemoteAddr().String()}
	}
	return nil
}

// maxPipes is the number of pipes that the hub of a star makes: each leaf of 362 with each other one.
// Each has two sockets and, where the system cannot copy by itself, two buffers of 32 KiB.
const maxPipes = 1 << 16

// pipeKey is the pair of the node that has asked for a pipe and its target. There is one pipe of a key: a leaf asks
// again when the one before has ended at its side.
type pipeKey struct{ from, to int }

// pipe is one that the hub makes or has made.
type pipe struct {
	key pipeKey
	ctx context.Context // ends with the pipe
	end context.CancelFunc
}

// openPipe registers a pipe in place of the one before, or says why there is none. back is where
// the other leaf's call arrives.
func (r *Router) openPipe(h hello, ticket string, back chan net.Conn) (*pipe, *session, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := pipeKey{h.Node, h.Target}
	from, to, old := r.peers[h.Node], r.peers[h.Target], r.pipes[key]
	switch {
	case to == nil:
		return nil, nil, fmt.Sprintf("node.%d is not connected to the hub, node.%d", h.Target, r.cfg.Node)
	case from == nil || from.peer.Incarnation != h.Incarnation:
		return nil, nil, fmt.Sprintf("node.%d, which asks, is not connected to the hub, node.%d", h.Node, r.cfg.Node)
	case r.cfg.Topology != Star || from == to || r.isHub(h.Target): // the other one would take the call as malformed
		return nil, nil, fmt.Sprintf("node.%d makes no pipe from node.%d to node.%d", r.cfg.Node, h.Node, h.Target)
	case len(r.tickets) >= maxTickets, old == nil && len(r.pipes) >= maxPipes:
		return nil, nil, "the hub connects as many as it can just now"
	}
	if old != nil {
		old.end()
	}
	p := &pipe{key: key}
	p.ctx, p.end = context.WithCancel(r.ctx)
	r.pipes[key] = p
	r.tickets[ticket] = back
	return p, to, ""
}

// endedPipe removes a pipe that has ended.
func (r *Router) endedPipe(p *pipe) {
	p.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pipes[p.key] == p {
		delete(r.pipes, p.key)
	}
}

// endPipes ends the pipes of a leaf that is gone, when what it had sent is read. The mutex is
// held.
func (r *Router) endPipes(id int) {
	var all []*pipe
	for key, p := range r.pipes {
		if key.from == id || key.to == id {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return
	}
	r.wg.Go(func() {
		r.pause(hubWithin)
		for _, p := range all {
			p.end()
		}
	})
}

// cutPipes ends this leaf's pipes through a hub that is lost, so that they are made again as soon as
// the next hub answers. Not every transport reports the end of the hub's process: over a broker the
// hub is only silent. The mutex is held.
func (r *Router) cutPipes() {
	if r.cfg.Topology != Star {
		return
	}
	for _, s := range r.peers {
		if l := s.current(); l != nil {
			r.wg.Go(func() { l.cut(errHubLost) })
		}
	}
}

var errHubLost = errors.New("the hub is lost")

// relay is the hub's side of callRelay.
func (r *Router) relay(conn net.Conn, h hello) (bool, error) {
	ticket := rand.Text()
	back := make(chan net.Conn) // a hand-over: the other side waits
	p, s, no := r.openPipe(h, ticket, back)
	if p == nil {
		return r.refuse(conn, &refusal{RefuseRelay, no})
	}
	s.controlJSON(frameRelay, 0, relayMsg{ticket, h.Node})
	other := r.called(p, ticket, back)
	if other == nil {
		r.endedPipe(p)
		return r.refuse(conn, &refusal{RefuseRelay, fmt.Sprintf("node.%d did not call back", h.Target)})
	}
	return r.splice(p, conn, other)
}

// called waits for the other leaf's call, and returns nil if none comes.
func (r *Router) called(p *pipe, ticket string, back chan net.Conn) net.Conn {
	defer func() {
		r.mu.Lock()
		delete(r.tickets, ticket)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(p.ctx, r.listensFor())
	defer cancel()
	select {
	case other := <-back:
		return other
	case <-ctx.Done():
		return nil
	}
}

// relayed is the hub's side of answerRelay.
func (r *Router) relayed(conn net.Conn, h hello) (bool, error) {
	r.mu.Lock()
	back := r.tickets[h.Ticket]
	r.mu.Unlock()
	if back == nil {
		return r.refuse(conn, &refusal{RefuseRelay, "the ticket has expired"})
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.listensFor())
	defer cancel()
	select {
	case back <- conn:
		return true, nil
	case <-ctx.Done():
		return r.refuse(conn, &refusal{RefuseRelay, "the ticket has expired"})
	}
}

// splice copies bytes between two calls until one of them ends, or the pipe.
func (r *Router) splice(p *pipe, a, b net.Conn) (bool, error) {
	for _, c := range []net.Conn{b, a} {
		if _, err := writeMsg(c, nil, welcome{}); err != nil {
			_ = b.Close()
			r.endedPipe(p)
			return false, err
		}
		_ = c.SetDeadline(time.Time{})
	}
	stop := context.AfterFunc(p.ctx, func() { _, _ = a.Close(), b.Close() })
	r.wg.Go(func() {
		defer r.endedPipe(p)
		defer stop()
		var both sync.WaitGroup
		for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
			both.Go(func() {
				_, _ = io.Copy(c[0], c[1])
				_, _ = a.Close(), b.Close()
			})
		}
		both.Wait()
	})
	return true, nil
}

// answerRelay calls the hub back, and serves the leaf at the other end. It repeats a call that breaks
// for as long as the leaf waits for it, as nothing notifies the leaf of the failure.
func (r *Router) answerRelay(m relayMsg) {
	if r.answering.Add(1) > maxTickets { // the hub sees that no call comes back
		r.answering.Add(-1)
		return
	}
	r.wg.Go(func() {
		defer r.answering.Add(-1)
		ctx, cancel := context.WithTimeout(r.ctx, r.listensFor())
		defer cancel()
		var wait backoff
		for {
			conn, err := r.answerHub(ctx, m)
			if err == nil {
				r.serve(conn, nil)
				return
			}
			var no *RefusedError
			refused := errors.As(err, &no)
			if !refused && r.pause(wait.next()) && ctx.Err() == nil {
				continue
			}
			if r.ctx.Err() == nil && (!refused || no.Code != RefuseRelay) {
				r.log.Warn("cannot answer the hub", "for", fmt.Sprintf("node.%d", m.From), "err", err)
			}
			return
		}
	})
}

// answerHub makes one call to the hub, which connects it with the leaf.
func (r *Router) answerHub(ctx context.Context, m relayMsg) (net.Conn, error) {
	conn, err := r.dial(ctx, r.hubAddr())
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	h := r.hello(purposeAnswer)
	h.Ticket = m.Ticket
	if err := r.callHub(conn, h); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
