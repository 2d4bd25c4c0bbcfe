package parallel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ditask/ditask/parallel/trace"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// replayer is a bus without other nodes: their messages to this node come from a record, in its order
// and, unless fast, with its pauses. Messages of this node are encoded and dropped.
type replayer struct {
	n    *Node
	path string
	fast bool
	log  *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutine that feeds
	given  chan struct{}  // closed when the task has been given the whole record

	mu       sync.Mutex
	channels map[string]*replayChannel
	watchers []func(task.PeerChange)
	peers    map[int]task.Peer
}

// replayChannel is one event of a replayer.
type replayChannel struct {
	r       *replayer
	spec    task.ChannelSpec
	deliver func(*task.Inbound) error
	limit   int // messages that may be in the mailbox, as when they were recorded
	limitB  int

	mu              sync.Mutex
	listens         bool
	messages, bytes int
	room            chan struct{} // closed when something was consumed; nil: nothing waits
}

func newReplayer(n *Node, path string, fast bool, log *slog.Logger) *replayer {
	r := &replayer{
		n: n, path: path, fast: fast, log: log,
		given: make(chan struct{}), channels: map[string]*replayChannel{}, peers: map[int]task.Peer{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *replayer) Channel(spec task.ChannelSpec, deliver func(*task.Inbound) error) (task.Channel, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.channels[spec.Name] != nil {
		return nil, fmt.Errorf("event %q is declared twice", spec.Name)
	}
	c := &replayChannel{r: r, spec: spec, deliver: deliver, limit: 16384, limitB: 8 << 20}
	switch spec.Delivery {
	case task.DeliverLatest:
		c.limit = 1
	case task.DeliverDropOldest, task.DeliverDropNewest:
		c.limit = max(spec.Queue, 1)
	}
	r.channels[spec.Name] = c
	return c, nil
}

// Start gives the task what had come before it was ready, and returns; the rest
// follows.
func (r *replayer) Start(ctx context.Context, labels []string) error {
	r.n.announce(labels)
	file, err := os.Open(r.path)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	f := &feed{r: r, in: trace.NewReader(file)}
	f.in.Payloads = true
	done, err := f.run(ctx, true)
	if err != nil || done {
		_ = file.Close()
	}
	if err != nil {
		return fmt.Errorf("replay %s: %w", r.path, err)
	}
	close(r.n.ready)
	if done {
		close(r.given)
		return nil
	}
	r.wg.Go(func() {
		defer close(r.given)
		defer func() { _ = file.Close() }()
		if _, err := f.run(r.ctx, false); err != nil && r.ctx.Err() == nil {
			r.notify(task.PeerChange{Event: task.BusFailed, Err: fmt.Errorf("replay %s: %w", r.path, err), Fatal: true})
		}
	})
	return nil
}

// feed gives the records of a file to the task.
type feed struct {
	r            *replayer
	in           *trace.Reader
	head         trace.Head
	offset       time.Duration // between the record's clock and this one's
	received     int
	unsubscribed int
	limit        bool // the record is not whole
}

// run feeds until the node was ready, or to the end. It reports the latter.
func (f *feed) run(ctx context.Context, untilReady bool) (done bool, err error) {
	for {
		rec, err := f.in.Next()
		if errors.Is(err, io.EOF) {
			f.said()
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if err := f.pause(ctx, rec.Time); err != nil {
			return false, err
		}
		switch rec.Kind {
		case trace.KindHead:
			f.head = *rec.Head
		case trace.KindEvent:
			err = f.r.same(*rec.Event)
		case trace.KindPeer:
			f.peer(*rec.Peer)
		case trace.KindReceived:
			err = f.give(ctx, rec)
		case trace.KindEnd:
			f.limit = rec.End.Reason == trace.EndLimit
		case trace.KindReady:
			if untilReady {
				return false, nil
			}
		case trace.KindSent:
		}
		if err != nil {
			return false, err
		}
	}
}

// said logs that all inputs were replayed.
func (f *feed) said() {
	why := "the record ends here"
	switch {
	case f.limit:
		why = "the record had reached its limit: more came that is not in it"
	case f.in.Torn():
		why = "the record ends within a message: the node was killed"
	}
	f.r.log.Info("replay: all inputs have been given", "given", f.received, "not listened to", f.unsubscribed, "why", why)
}

// pause waits until the record of that time is due.
func (f *feed) pause(ctx context.Context, at time.Time) error {
	if f.r.fast {
		return ctx.Err()
	}
	if f.offset == 0 {
		f.offset = time.Since(at)
	}
	wait := time.NewTimer(time.Until(at.Add(f.offset)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// same checks that an event of the record is that of the program.
func (r *replayer) same(e trace.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.channels[e.Name]
	if c == nil || c.spec.Fingerprint == e.Fingerprint {
		return nil
	}
	return fmt.Errorf("event %q differs: the record has %s (%016x), the program %s (%016x): replay with the program that was recorded",
		e.Name, e.Schema, e.Fingerprint, c.spec.Schema, c.spec.Fingerprint)
}

func (f *feed) peer(p trace.Peer) {
	c := task.PeerChange{Peer: task.Peer{ID: p.Node, Incarnation: p.Incarnation, Labels: p.Labels}}
	if p.Error != "" {
		c.Err = errors.New(p.Error)
	}
	f.r.mu.Lock()
	switch p.Change {
	case trace.PeerJoined:
		c.Event = task.PeerJoined
		f.r.peers[p.Node] = c.Peer
	case trace.PeerLeft:
		c.Event = task.PeerLeft
		delete(f.r.peers, p.Node)
	default:
		c.Event, c.Fatal = task.PeerLost, !f.head.Recover
		delete(f.r.peers, p.Node)
	}
	f.r.mu.Unlock()
	f.r.notify(c)
}

// give hands one message to the task, when there is room for it.
func (f *feed) give(ctx context.Context, rec trace.Record) error {
	f.r.mu.Lock()
	c := f.r.channels[rec.Event.Name]
	f.r.mu.Unlock()
	if c == nil {
		f.unsubscribed++
		return nil
	}
	listens, err := c.enter(ctx, rec.Bytes)
	if err != nil {
		return err
	}
	if !listens {
		f.unsubscribed++
		return nil
	}
	f.received++
	return c.deliver(&task.Inbound{
		From: rec.Node, Version: rec.Version, Payload: rec.Payload, Takable: true, Credit: c, Header: rec.Header,
	})
}

// enter waits for room for one more message. It reports whether any listener exists.
func (c *replayChannel) enter(ctx context.Context, bytes int) (bool, error) {
	for {
		c.mu.Lock()
		if !c.listens {
			c.mu.Unlock()
			return false, nil
		}
		if c.messages < c.limit && c.bytes < c.limitB {
			c.messages++
			c.bytes += bytes
			c.mu.Unlock()
			return true, nil
		}
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

func (c *replayChannel) Return(messages, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages -= messages
	c.bytes -= bytes
	c.wake()
}

// wake lets the feed look again. The mutex is held.
func (c *replayChannel) wake() {
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

func (c *replayChannel) Recycle([]byte) {}

func (c *replayChannel) Listen(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listens = on
	c.wake()
}

// Listened is true, so that what the node emits is encoded as it was.
func (c *replayChannel) Listened() bool { return true }

func (c *replayChannel) EverListened() bool { return true }

// Send counts the peers that the message would go to.
func (c *replayChannel) Send(ctx context.Context, _ task.Buffer, match func(task.Peer) bool) (int, error) {
	n := 0
	for _, p := range c.r.Peers() {
		if match == nil || match(p) {
			n++
		}
	}
	return n, ctx.Err()
}

func (r *replayer) Peers() []task.Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]task.Peer, 0, len(r.peers))
	for _, p := range r.peers {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b task.Peer) int { return a.ID - b.ID })
	return out
}

func (r *replayer) Watch(fn func(task.PeerChange)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, fn)
}

func (r *replayer) notify(c task.PeerChange) {
	r.mu.Lock()
	watchers := r.watchers
	r.mu.Unlock()
	for _, fn := range watchers {
		fn(c)
	}
}

// Drain has no peers to wait for.
func (r *replayer) Drain(context.Context, bool) error { return nil }
func (r *replayer) Elastic() bool                     { return false }
func (r *replayer) Grace() time.Duration              { return 0 }
func (r *replayer) Leave(context.Context) error       { return nil }

// Done waits for the end of the record.
func (r *replayer) Done(ctx context.Context) error {
	select {
	case <-r.given:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the feeding.
func (r *replayer) Close() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

// Recovers is false: a node that is replayed is not started again.
func (r *replayer) Recovers() bool { return false }

// Abandon is Close.
func (r *replayer) Abandon() error { return r.Close() }

var _ task.Bus = (*replayer)(nil)

// topologyOf is env's topology as a label.
func topologyOf(name string) string {
	if name == "" {
		return router.Mesh.String()
	}
	return name
}
