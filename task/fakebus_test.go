package task

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// fakeWindow is the number of messages that may be under way on one fake channel.
const fakeWindow = 64

// fakeJob is a job of n nodes in one process: a Bus without connections, which delivers
// on the goroutine of the sender.
type fakeJob struct {
	n  int
	mu sync.Mutex
	// The nodes that have started, and those that have announced that they send no more messages.
	nodes   map[int]*fakeNode
	drained map[int]bool
	done    map[int]bool // the nodes that are done
	changed chan struct{}
}

type fakeNode struct {
	job    *fakeJob
	id     int
	extra  []string
	logger *slog.Logger
	labels []string // announced
	// Guarded by job.mu.
	channels map[string]*fakeChannel
	watchers []func(PeerChange)
	left     bool

	recovers  bool // set before the task is made
	elastic   bool
	grace     time.Duration
	onLeave   func()                      // messages that the others still send
	onDrain   func(context.Context) error // Drain waits for it, before the bus accepts no more messages
	unsent    []Unsent
	closeErr  error
	doneErr   error
	leaveErr  error
	abandoned bool
	waited    bool // Drain has waited for the others
}

type fakeChannel struct {
	node    *fakeNode
	spec    ChannelSpec
	deliver func(*Inbound) error
	// Guarded by job.mu.
	on       bool
	ever     bool // it was on
	sent     uint64
	newest   []byte
	inFlight map[int]int  // by receiver
	order    []sync.Mutex // by receiver: never two deliveries of one sender
}

func newFakeJob(n int) *fakeJob {
	return &fakeJob{n: n, nodes: map[int]*fakeNode{}, drained: map[int]bool{}, done: map[int]bool{}, changed: make(chan struct{})}
}

func (j *fakeJob) node(id int, labels ...string) *fakeNode {
	return &fakeNode{job: j, id: id, extra: labels, channels: map[string]*fakeChannel{},
		logger: slog.New(slog.DiscardHandler)}
}

func (j *fakeJob) note() { close(j.changed); j.changed = make(chan struct{}) }

func (j *fakeJob) await(ctx context.Context, cond func() bool) error {
	for {
		j.mu.Lock()
		ok, changed := cond(), j.changed
		j.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (n *fakeNode) ID() int { return n.id }
func (n *fakeNode) Labels() []string {
	return append([]string{"distributed", "node." + strconv.Itoa(n.id)}, n.extra...)
}
func (n *fakeNode) Logger() *slog.Logger { return n.logger }
func (n *fakeNode) Codec() Codec         { return fakeCodec{} }
func (n *fakeNode) Bus() Bus             { return n }

func (n *fakeNode) Channel(spec ChannelSpec, deliver func(*Inbound) error) (Channel, error) {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	if n.channels[spec.Name] != nil {
		return nil, errors.New("declared before")
	}
	for _, p := range n.job.nodes {
		if c := p.channels[spec.Name]; c != nil && c.spec.Fingerprint != spec.Fingerprint {
			return nil, fmt.Errorf("node %d has %s (%x), node %d %s (%x)",
				p.id, c.spec.Schema, c.spec.Fingerprint, n.id, spec.Schema, spec.Fingerprint)
		}
	}
	c := &fakeChannel{node: n, spec: spec, deliver: deliver, inFlight: map[int]int{}, order: make([]sync.Mutex, 64)}
	n.channels[spec.Name] = c
	return c, nil
}

func (n *fakeNode) Start(ctx context.Context, labels []string) error {
	j := n.job
	j.mu.Lock()
	n.labels = labels
	j.nodes[n.id] = n
	var newest []func() error
	for _, p := range j.nodes {
		for name, c := range p.channels {
			if mine := n.channels[name]; p != n && c.newest != nil && mine != nil && mine.on {
				newest = append(newest, func() error {
					return mine.deliver(&Inbound{From: p.id, Version: c.sent, Payload: c.newest})
				})
			}
		}
	}
	j.note()
	j.mu.Unlock()
	for _, f := range newest {
		if err := f(); err != nil {
			return err
		}
	}
	return j.await(ctx, func() bool { return len(j.nodes) >= j.n })
}

func (n *fakeNode) Peers() []Peer {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	return n.peersLocked()
}

func (n *fakeNode) peersLocked() []Peer {
	var ps []Peer
	for id := range 64 {
		if p := n.job.nodes[id]; p != nil && p != n && !p.left {
			ps = append(ps, Peer{ID: id, Incarnation: 1, Labels: p.labels})
		}
	}
	return ps
}

func (n *fakeNode) Watch(fn func(PeerChange)) {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	n.watchers = append(n.watchers, fn)
}

func (n *fakeNode) tell(c PeerChange) {
	n.job.mu.Lock()
	ws := n.watchers
	n.job.mu.Unlock()
	for _, w := range ws {
		w(c)
	}
}

func (n *fakeNode) Drain(ctx context.Context, waitPeers bool) error {
	j := n.job
	var err error
	if n.onDrain != nil {
		err = n.onDrain(ctx)
	}
	j.mu.Lock()
	j.drained[n.id], n.waited = true, waitPeers
	j.note()
	j.mu.Unlock()
	if n.onDrain != nil || !waitPeers {
		return err
	}
	return j.await(ctx, func() bool {
		for id, p := range j.nodes {
			if !j.drained[id] && !p.left {
				return false
			}
		}
		return true
	})
}

func (n *fakeNode) Done(ctx context.Context) error {
	j := n.job
	if n.doneErr != nil {
		return n.doneErr
	}
	j.mu.Lock()
	j.done[n.id] = true
	j.note()
	j.mu.Unlock()
	return j.await(ctx, func() bool {
		for id, p := range j.nodes {
			if !j.done[id] && !p.left {
				return false
			}
		}
		return true
	})
}

func (n *fakeNode) Recovers() bool { return n.recovers }

func (n *fakeNode) Unsent() []Unsent { return n.unsent }

func (n *fakeNode) Elastic() bool { return n.elastic }

func (n *fakeNode) Grace() time.Duration { return n.grace }

func (n *fakeNode) Leave(ctx context.Context) error {
	if n.onLeave != nil {
		n.onLeave()
	}
	if n.grace > 0 { // a peer does not answer
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return n.leaveErr
}

func (n *fakeNode) Abandon() error {
	n.job.mu.Lock()
	n.abandoned = true
	n.job.mu.Unlock()
	return n.Close()
}

func (n *fakeNode) Close() error {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	n.left = true
	n.job.note()
	return n.closeErr
}

func (c *fakeChannel) Listen(on bool) {
	c.node.job.mu.Lock()
	defer c.node.job.mu.Unlock()
	c.on, c.ever = on, c.ever || on
	c.node.job.note()
}

// listenersLocked are the channels of the nodes that listen.
func (c *fakeChannel) listenersLocked() []*fakeChannel {
	var cs []*fakeChannel
	for _, p := range c.node.peersLocked() {
		if to := c.node.job.nodes[p.ID].channels[c.spec.Name]; to != nil && to.on {
			cs = append(cs, to)
		}
	}
	return cs
}

func (c *fakeChannel) Listened() bool {
	c.node.job.mu.Lock()
	defer c.node.job.mu.Unlock()
	return c.spec.Delivery == DeliverLatest || len(c.listenersLocked()) > 0
}

func (c *fakeChannel) EverListened() bool {
	c.node.job.mu.Lock()
	defer c.node.job.mu.Unlock()
	for _, p := range c.node.peersLocked() {
		if to := c.node.job.nodes[p.ID].channels[c.spec.Name]; to != nil && to.ever {
			return true
		}
	}
	return false
}

func (c *fakeChannel) Send(ctx context.Context, buf Buffer, match func(Peer) bool) (int, error) {
	payload := buf.Bytes()
	j := c.node.job
	j.mu.Lock()
	if j.drained[c.node.id] {
		j.mu.Unlock()
		return 0, ErrClosed
	}
	c.sent++
	version := c.sent
	if c.spec.Delivery == DeliverLatest {
		c.newest = append([]byte(nil), payload...)
	}
	tos := c.listenersLocked()
	j.mu.Unlock()
	n := 0
	for _, to := range tos {
		id := to.node.id
		if match != nil && !match(Peer{ID: id, Labels: to.node.labels}) {
			continue
		}
		err := j.await(ctx, func() bool {
			ok := c.inFlight[id] < fakeWindow || c.spec.Delivery != DeliverReliable
			if ok {
				c.inFlight[id]++
			}
			return ok
		})
		if err != nil {
			return n, fmt.Errorf("node %d: %w", id, err)
		}
		c.order[id].Lock()
		err = to.deliver(&Inbound{From: c.node.id, Version: version, Payload: payload, Credit: &fakeCredit{c, id}, Header: buf.Header()})
		c.order[id].Unlock()
		if _, ok := errors.AsType[*PayloadError](err); ok {
			to.node.tell(PeerChange{Peer: Peer{ID: c.node.id}, Event: PeerLost, Err: err, Fatal: true})
		} else if err != nil {
			to.node.tell(PeerChange{Event: BusFailed, Err: err, Fatal: true})
		}
		n++
	}
	return n, nil
}

type fakeCredit struct {
	c  *fakeChannel
	to int
}

func (f *fakeCredit) Recycle([]byte) {}

func (f *fakeCredit) Return(messages, _ int) {
	j := f.c.node.job
	j.mu.Lock()
	defer j.mu.Unlock()
	f.c.inFlight[f.to] -= messages
	j.note()
}

// fakeCodec writes ints as varints, bytes as they are and all else as JSON.
type fakeCodec struct{}

type fakePayload struct{ t reflect.Type }

func (fakeCodec) Payload(t reflect.Type) (PayloadCodec, error) {
	if k := t.Kind(); k == reflect.Chan || k == reflect.Func {
		return nil, fmt.Errorf("%v cannot travel", t)
	}
	return fakePayload{t}, nil
}

func (p fakePayload) Append(dst []byte, v any) ([]byte, error) {
	if i, ok := v.(*int); ok {
		return binary.AppendVarint(dst, int64(*i)), nil
	}
	if b, ok := v.(*[]byte); ok {
		return append(dst, *b...), nil
	}
	b, err := json.Marshal(v)
	return append(dst, b...), err
}

func (p fakePayload) Decode(src []byte, v any, owned bool) error {
	if b, ok := v.(*[]byte); ok {
		if *b = src; !owned {
			*b = slices.Clone(src)
		}
		return nil
	}
	if i, ok := v.(*int); ok {
		x, n := binary.Varint(src)
		if n <= 0 {
			return errors.New("bad varint")
		}
		*i = int(x)
		return nil
	}
	return json.Unmarshal(src, v)
}

func (p fakePayload) Schema() string { return p.t.String() }
func (p fakePayload) Fingerprint() uint64 {
	h := fnv.New64()
	_, _ = io.WriteString(h, p.t.String())
	return h.Sum64()
}

// jobOf makes n tasks of one job, lets set assemble each, and starts them all.
// They are closed at the end of the test.
func jobOf(t testing.TB, n int, set func(i int, tk *Task[empty])) []*Task[empty] {
	t.Helper()
	job := newFakeJob(n)
	tks := make([]*Task[empty], n)
	for i := range tks {
		tks[i] = New[empty](job.node(i))
		if set != nil {
			set(i, tks[i])
		}
	}
	each(t, tks, func(tk *Task[empty]) error { return tk.Start(t.Context()) })
	t.Cleanup(func() { each(t, tks, func(tk *Task[empty]) error { return tk.Close(context.Background()) }) })
	return tks
}

// each calls fn for all tasks at once and waits for all.
func each(t testing.TB, tks []*Task[empty], fn func(*Task[empty]) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, tk := range tks {
		wg.Go(func() {
			if err := fn(tk); err != nil {
				t.Errorf("node %d: %v", tk.NodeID(), err)
			}
		})
	}
	wg.Wait()
}
