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

// relay is the hub's side of callRelay.
func (r *Router) relay(conn net.Conn, h hello) (bool, error) {
	r.mu.Lock()
	if len(r.tickets) >= maxTickets {
		r.mu.Unlock()
		return r.say(conn, &refusal{RefuseRelay, "the hub connects as many as it can just now"})
	}
	s := r.peers[h.Target]
	ticket := rand.Text()
	back := make(chan net.Conn) // a hand-over: the other side waits
	r.tickets[ticket] = back
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.tickets, ticket)
		r.mu.Unlock()
	}()
	if s == nil {
		return r.say(conn, &refusal{RefuseRelay, fmt.Sprintf("node.%d is not connected to the hub, node.%d", h.Target, r.cfg.Node)})
	}
	s.controlJSON(frameRelay, 0, relayMsg{ticket, h.Node})
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.HandshakeTimeout)
	defer cancel()
	select {
	case other := <-back:
		return r.splice(conn, other)
	case <-ctx.Done():
		return r.say(conn, &refusal{RefuseRelay, fmt.Sprintf("node.%d did not call back", h.Target)})
	}
}

// relayed is the hub's side of answerRelay.
func (r *Router) relayed(conn net.Conn, h hello) (bool, error) {
	r.mu.Lock()
	back := r.tickets[h.Ticket]
	r.mu.Unlock()
	if back == nil {
		return r.say(conn, &refusal{RefuseRelay, "the ticket has expired"})
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.HandshakeTimeout)
	defer cancel()
	select {
	case back <- conn:
		return true, nil
	case <-ctx.Done():
		return r.say(conn, &refusal{RefuseRelay, "the ticket has expired"})
	}
}

// splice copies bytes between two calls until one of them ends.
func (r *Router) splice(a, b net.Conn) (bool, error) {
	for _, c := range []net.Conn{b, a} {
		_ = c.SetDeadline(time.Time{})
		if _, err := writeMsg(c, nil, welcome{}); err != nil {
			_ = b.Close()
			return false, err
		}
	}
	stop := context.AfterFunc(r.ctx, func() { _, _ = a.Close(), b.Close() })
	r.wg.Go(func() {
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

// answerRelay calls the hub back, and serves the leaf at the other end. A call that
// breaks is made again for as long as the leaf waits for it: nobody tells the leaf
// that it was in vain.
func (r *Router) answerRelay(m relayMsg) {
	if r.answering.Add(1) > maxTickets { // the hub sees that nobody calls back
		r.answering.Add(-1)
		return
	}
	r.wg.Go(func() {
		defer r.answering.Add(-1)
		ctx, cancel := context.WithTimeout(r.ctx, r.cfg.HandshakeTimeout)
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
