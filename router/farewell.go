package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Farewell means that the process of a node has ended without leaving of the job.
type Farewell struct {
	Node        int    `json:"node"`
	Incarnation uint64 `json:"incarnation,string"` // of the process that has ended
	Reason      string `json:"reason"`             // such as "killed by signal: killed"
	Final       bool   `json:"final,omitempty"`    // the node is not started again: the job has failed
}

// featureFarewell means that a node understands frameFarewell. A node without it
// is sent none.
const featureFarewell = "farewell"

const (
	// maxReason bounds in bytes the reason of a farewell, of a refusal and of a bye: a
	// sentence or two for a log, of which each connection has one.
	maxReason = 1 << 10
	// farewellRest is the time that SendFarewell continues after a node has received it: the other
	// ones that call the address of the node do that at once.
	farewellRest = 300 * time.Millisecond
)

// SendFarewell announces to the job that the process of node cfg.Node, in incarnation cfg.Incarnation,
// has ended without leaving. Another process calls it, such as one that the node's supervisor starts:
// it takes the place of the node, with the same Config, dials cfg.Attach, and answers the nodes that
// dial the node again on cfg.Listener or cfg.Listen. Each node that receives the farewell treats the
// node as [Router.Gone] describes, and notifies its own peers, unless it is connected with the node
// and still receives answers from it. A newer incarnation of the node is not concerned.
//
// SendFarewell returns nil when all of cfg.Expect nodes have received the farewell, or 300 ms after
// the last one that did. When ctx ends before any node has, the error lists the attempts.
func SendFarewell(ctx context.Context, cfg Config, reason string, final bool) error {
	r, err := New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = r.Abandon() }() // it has no session
	r.farewell = &Farewell{Node: cfg.Node, Incarnation: cfg.Incarnation, Reason: cutReason(reason), Final: final}
	r.receivedBy = &receivers{ids: map[int]bool{}, more: make(chan struct{}, 1)}
	if err := r.listen(ctx); err != nil && len(cfg.Attach) == 0 {
		return err
	}
	for _, addr := range cfg.Attach {
		r.wg.Go(func() { r.keepSending(addr) })
	}
	for others := cfg.Expect - 1; ; {
		n := r.receivedBy.count()
		if n >= others && others > 0 {
			return nil
		}
		rest := make(<-chan time.Time)
		if n > 0 {
			rest = time.After(farewellRest)
		}
		select {
		case <-r.receivedBy.more:
		case <-rest:
			return nil
		case <-ctx.Done():
			if n > 0 {
				return nil
			}
			return fmt.Errorf("no node has received the farewell of node.%d%s: %w", cfg.Node, r.troubles(), context.Cause(ctx))
		}
	}
}

// receivers are the nodes that have received a farewell.
type receivers struct {
	mu   sync.Mutex
	ids  map[int]bool
	more chan struct{} // 1: a node has been added
}

func (h *receivers) add(id int) {
	h.mu.Lock()
	h.ids[id] = true
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
}

func (h *receivers) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ids)
}

// troubles describes the addresses that cannot be reached.
func (r *Router) troubles() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.membership.troubles()
}

// keepSending sends the farewell to the node at addr until it has received it.
func (r *Router) keepSending(addr string) {
	var wait backoff
	for {
		err := r.sendFarewell(addr)
		if err == nil {
			return
		}
		r.note(func() { r.trouble[addr] = printable.Error(err).Error() })
		if !r.pause(wait.next()) {
			return
		}
	}
}

// sendFarewell sends the farewell once.
func (r *Router) sendFarewell(addr string) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.HandshakeTimeout)
	defer cancel()
	conn, err := r.dial(ctx, addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() { stop(); _ = conn.Close() }()
	h, pr, err := r.callHello(conn, r.hello(purposeFarewell), binding(conn))
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
	r.receivedBy.add(h.Node)
	return nil
}

// answerDial ends the handshake of a node that has dialled the address of the one whose
// farewell this is. A node that understands the farewell refuses to continue.
func (r *Router) answerDial(h hello, p proof) *refusal {
	if p.Refuse != nil && p.Refuse.Code == RefuseGone {
		r.receivedBy.add(h.Node)
	}
	return &refusal{RefuseClosed, fmt.Sprintf("the process of node.%d has ended: %s", r.cfg.Node, r.farewell.Reason)}
}

// errFarewellAnswered means that the farewell of a node has answered, and not the node.
var errFarewellAnswered = errors.New("its process has ended")

// applyFarewell records that the process of another node has ended, as a third one
// reports, and passes that on to all peers except from.
func (r *Router) applyFarewell(f Farewell, from int) {
	f.Reason = cutReason(f.Reason)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	news, effect := r.noteFarewell(f, from, r.clock(), time.Now())
	if effect == ignored {
		r.log.Warn("a farewell is ignored: it comes too often, or its node was started in the future",
			"from", fmt.Sprintf("node.%d", from), "peer", fmt.Sprintf("node.%d", f.Node))
	}
	if news == nil {
		return
	}
	r.remember(f.Node)
	if !news.doubtful {
		r.passOn(news)
	}
	if effect == followed {
		return
	}
	r.wg.Go(func() {
		for next := news; next != nil; next = r.nextReport(f.Node) {
			if r.giveUp(*next) && next.doubtful {
				r.mu.Lock()
				r.passOn(next)
				r.mu.Unlock()
			}
		}
	})
}

// knownFarewell is the newest farewell of a node.
type knownFarewell struct {
	incarnation uint64
	disbelieved int64 // clock at which the node has answered nevertheless; 0: it has not
}

// passOn passes a farewell on to the peers. The mutex is held.
func (r *Router) passOn(f *report) {
	for id, s := range r.peers {
		if id != f.Node && id != f.from && s.takesFarewells {
			s.controlJSON(frameFarewell, 0, f.Farewell)
		}
	}
}

// nextReport returns the farewell of a node that has come meanwhile, or nil.
func (r *Router) nextReport(id int) *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next(id)
}

// answerFarewell is the listening side's end of the handshake for a farewell. It answers first: the
// farewell may end this node, and with it the connection, before an answer to it is written.
func (r *Router) answerFarewell(conn net.Conn, h hello) (bool, error) {
	if h.Farewell == nil {
		return r.refuse(conn, &refusal{RefuseProtocol, "a farewell without a reason"})
	}
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return r.refuse(conn, &refusal{RefuseClosed, fmt.Sprintf("node.%d is closing", r.cfg.Node)})
	}
	_, err := writeMsg(conn, nil, welcome{})
	r.applyFarewell(h.Farewell.of(h), h.Node) // also if the other side does not receive the answer
	return false, err
}

// receiveFarewell takes a farewell that the peer has received.
func (s *session) receiveFarewell(body []byte) error {
	var f Farewell
	if err := json.Unmarshal(body, &f); err != nil {
		return fmt.Errorf("%w: farewell: %w", errBadFrame, printable.Error(err))
	}
	s.r.applyFarewell(f, s.peer.ID)
	return nil
}

// of is the farewell in the hello of its node.
func (f *Farewell) of(h hello) Farewell {
	return Farewell{Node: h.Node, Incarnation: h.Incarnation, Reason: f.Reason, Final: f.Final}
}

func cutReason(s string) string { return printable.Cut(s, maxReason) }
