package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Router connects one node to the others of its job.
type Router struct {
	cfg   Config
	log   *slog.Logger
	lines *sparse // under log
	began time.Time
	calls calls
	mem   ownMemory
	// features are those in this node's hello.
	features []string
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // every goroutine of this router

	farewell   *Farewell  // the farewell that this router sends, which is no node; nil: it is a node
	receivedBy *receivers // of the farewell; nil without one

	unauthenticated unauthenticated
	labels          []string // set by Start
	advertise       string   // set by Start
	listener        net.Listener

	started   atomic.Bool
	draining  chan struct{} // closed by Drain
	inDrain   atomic.Bool
	together  atomic.Bool  // Drain has returned, and all peers have said that they finish too
	answering atomic.Int32 // calls of the hub that are being answered
	changed   signal

	ahead, spareBytes atomic.Int64 // of all sessions: see nodeAhead and nodeSpares

	mu         sync.Mutex
	membership // mu guards it
	closed     bool
	channels   []*channel
	byName     map[string]*channel
	peers      sessions
	past       map[int]*PeerStats        // what peers had counted that are gone, by node id
	gone       map[streamKey]StreamStats // the same of their streams
	rounds     map[string]uint64         // rounds of barriers that this node has entered
	offers     map[int]map[string]uint64 // those that members had entered when they met this node, a newcomer; nil after Start
	passed     map[string]uint64         // rounds of them that all nodes have entered
	tickets    map[string]chan net.Conn
	pipes      map[pipeKey]*pipe
	noted      map[string]int // refusals by reason
	failure    error
	leaving    bool // Leave was called
	done       bool // Done was called
	watchers   []func(Change)
	changes    []Change
	lost       []error // losses to be reported by Close, maxLosses of them

	furtherLosses *PeerError // the sum of those beyond maxLosses; nil: there are none

	watchMu sync.Mutex // one watcher call at a time, in order
	locksMu sync.Mutex
	locks   map[int]*peerLock // one handshake for a session at a time, by node id
}

// New returns a router that has done nothing yet.
func New(cfg Config) (*Router, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.ensureDefaults()
	lines := newSparse(cfg.Logger.Handler())
	r := &Router{
		cfg: cfg, log: slog.New(lines), lines: lines, began: time.Now(), draining: make(chan struct{}),
		byName: map[string]*channel{}, peers: sessions{}, past: map[int]*PeerStats{}, gone: map[streamKey]StreamStats{},
		features: []string{featureHeader, featureLeave, featureDone, featureListening, featureFarewell},
		rounds:   map[string]uint64{}, passed: map[string]uint64{}, tickets: map[string]chan net.Conn{}, pipes: map[pipeKey]*pipe{},
		noted: map[string]int{}, locks: map[int]*peerLock{},
		unauthenticated: unauthenticated{limit: cfg.MaxHandshakes, patience: cfg.HandshakeTimeout / 4},
	}
	r.membership = newMembership(&r.cfg, r.peers)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// clock is the time since New in ns; it never goes back.
func (r *Router) clock() int64 { return int64(time.Since(r.began)) + 1 }

// Watch registers fn for every change of a peer. fn must not block.
func (r *Router) Watch(fn func(Change)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, fn)
}

// Peers are the nodes that are connected and ready.
func (r *Router) Peers() []Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Peer
	for _, s := range r.peers {
		if s.ready {
			out = append(out, s.peer)
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return a.ID - b.ID })
	return out
}

// Addr is the address at which others can dial this node, after Start.
func (r *Router) Addr() string { return r.advertise }

// Start binds the listener, dials the attach list, announces labels and the
// declared events, and returns when every expected node is ready: each of them
// then knows what this node listens to, and their newest values have been
// delivered here. A node that joins a running job waits only for its current members. For one
// that it does not meet it waits half of Config.JoinTimeout if that is expected, and otherwise
// Config.PeerTimeout. Start logs every few seconds
// which nodes are missing, and gives up after Config.JoinTimeout.
func (r *Router) Start(ctx context.Context, labels []string) error {
	if r.started.Swap(true) {
		return errors.New("router: Start is called twice")
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.wg.Add(1) // Close waits for what begins here
	defer r.wg.Done()
	r.mu.Unlock()
	for _, label := range labels {
		if label != printable.Text(label) {
			return fmt.Errorf("label %q: want at most %d bytes of printable text", printable.Text(label), printable.MaxText)
		}
	}
	r.labels = labels
	if err := r.listen(ctx); err != nil {
		return err
	}
	r.wg.Go(r.tick)
	for _, addr := range r.cfg.Attach {
		r.wg.Go(func() { r.keepCalling(addr) })
	}
	return r.awaitReady(ctx)
}

func (r *Router) listen(ctx context.Context) error {
	r.listener = r.cfg.Listener
	if r.listener == nil && r.cfg.Listen != "" {
		l, err := r.cfg.Transport.Listen(ctx, r.cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", r.cfg.Listen, err)
		}
		r.listener = l
	}
	if r.listener == nil {
		return nil
	}
	r.advertise = r.cfg.Advertise
	if r.advertise == "" {
		r.advertise = r.cfg.Transport.Advertise(r.listener)
	}
	r.wg.Go(func() { // Close waits for it: the address is free then
		<-r.ctx.Done()
		_ = r.listener.Close()
	})
	r.wg.Go(r.accept)
	return nil
}

// accept starts a handshake with each connection; none delays the next.
func (r *Router) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			if r.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				r.log.Warn("cannot accept", "err", err)
				if !r.pause(50 * time.Millisecond) {
					return
				}
				continue
			}
			return
		}
		r.calls.accepted.Add(1)
		n := r.unauthenticated.enter(conn, time.Now())
		if n == nil {
			r.refused(conn.RemoteAddr(), errCrowd)
			closeNow(conn)
			continue
		}
		r.wg.Go(func() { r.serve(conn, n) })
	}
}

// pause waits, and reports false when the router is closed meanwhile.
func (r *Router) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// refused logs the first refusal for each reason, and counts all.
func (r *Router) refused(from net.Addr, err error) {
	reason := "hung up"
	var no *RefusedError
	switch {
	case errors.As(err, &no):
		reason = no.Code
	case errors.Is(err, errCrowd):
		reason = "crowd"
	case isTLS(err):
		reason = "tls"
	case errors.Is(err, errBadFrame):
		reason = "garbage"
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = "silence"
	case errors.Is(err, errNoProof):
		reason = "no proof"
	}
	r.mu.Lock()
	r.noted[reason]++
	first := r.noted[reason] == 1
	r.mu.Unlock()
	if first && reason != "hung up" {
		r.log.Warn("refused a connection", "from", printable.Text(from.String()), "reason", printable.Text(reason),
			"err", printable.Error(err))
	}
}

// Refused counts the connections that were refused, by reason: one of the
// Refuse codes, "garbage", "tls" (one side speaks TLS and the other does not, or
// trusts another authority), "silence", "crowd" (too many unauthenticated connections
// from one address), "no proof" (closed after it had read this node's proof) or "hung up" (closed before).
func (r *Router) Refused() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.noted))
	maps.Copy(out, r.noted)
	return out
}

// Send is possible between Start and Drain.
func (r *Router) sendable() error {
	if r.inDrain.Load() {
		return ErrClosed
	}
	if !r.started.Load() {
		return ErrNotStarted
	}
	return nil
}

// note changes state under the mutex and wakes all that wait for it.
func (r *Router) note(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	r.changed.broadcast()
}

// acked wakes Drain. A session's mutex is held.
func (r *Router) acked() {
	if r.inDrain.Load() {
		r.changed.broadcast()
	}
}

// fail ends this node's part in the job.
func (r *Router) fail(err error) {
	r.mu.Lock()
	r.failed(err)
	r.mu.Unlock()
	r.changed.broadcast()
	r.notify()
}

// failed records a failure of which the peers must be notified. The mutex is held.
func (r *Router) failed(err error) {
	if r.failure == nil {
		r.failure = err
		r.changes = append(r.changes, Change{Kind: Failed, Err: err})
	}
}

// incompatible handles a peer one of whose events differs from this node's. A node that has not been
// ready ends. A node that has been ready continues without that event of the peer; the peer finds the
// difference too, and ends. The link stays open, as the peer must find it. The mutex is held.
func (r *Router) incompatible(s *session, err error) {
	if r.beenReady {
		r.wg.Go(func() {
			r.log.Error("an event of a peer is not received", "peer", fmt.Sprintf("node.%d", s.peer.ID), "err", err)
		})
		return
	}
	r.failed(err) // now, or Start could return before
	r.wg.Go(func() { r.changed.broadcast(); r.notify() })
}

// notify calls the watchers for each change, in order.
func (r *Router) notify() {
	r.watchMu.Lock()
	defer r.watchMu.Unlock()
	r.mu.Lock()
	changes, watchers := r.changes, r.watchers
	r.changes = nil
	r.mu.Unlock()
	for _, c := range changes {
		for _, fn := range watchers {
			fn(c)
		}
	}
}

// Wait loops of Start, Drain and Barrier: done is called with the mutex held
// after each change; it returns true at the end.
func (r *Router) await(ctx context.Context, done func() (bool, error)) error {
	for {
		c := r.changed.wait()
		ended := ctx.Err() != nil // before done looks: a change before the end of ctx counts
		r.mu.Lock()
		ok, err := done()
		closed := r.closed
		r.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case closed:
			return ErrClosed
		case ended:
			return context.Cause(ctx)
		}
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
}

// awaitReady waits for the other nodes, and logs for which.
func (r *Router) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.JoinTimeout, errJoinTimeout)
	defer cancel()
	report := time.NewTicker(5 * time.Second)
	defer report.Stop()
	stop := make(chan struct{})
	r.wg.Go(func() {
		for {
			select {
			case <-report.C:
				r.log.Info("waiting for other nodes", "missing", strings.Join(r.missing(), "; "),
					"for", time.Since(r.began).Round(time.Second))
			case <-stop:
				return
			}
		}
	})
	defer close(stop)
	err := r.await(ctx, func() (bool, error) {
		if r.failure != nil {
			return false, r.failure
		}
		ok := len(r.lacks(r.clock())) == 0
		if ok && !r.beenReady {
			r.takeOver()
			r.start(r.clock())
		}
		return ok, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waited for %s: %w", strings.Join(r.missing(), "; "), err)
	}
	return err
}

var errJoinTimeout = errors.New("the join timeout has passed")

func (r *Router) missing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lacks(r.clock())
}

// controlJSON appends a control frame with a JSON body.
func (s *session) controlJSON(t frameType, flags uint8, v any) {
	body, err := json.Marshal(v)
	if err != nil || len(body) > maxFrameBody {
		s.r.fail(fmt.Errorf("router: control frame %d of %d bytes: %w", t, len(body), err))
		return
	}
	s.control(t, flags, 0, body)
}

// signal wakes all that wait for a change.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
