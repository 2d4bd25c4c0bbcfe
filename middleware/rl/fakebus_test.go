package rl_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"reflect"
	"strconv"
	"sync"

	"github.com/ditask/ditask/task"
)

// fakeWindow is how many messages may be on their way on one fake channel.
const fakeWindow = 64

// fakeJob is a job of n nodes in one process: a Bus without a wire, that delivers
// on the goroutine of the sender.
type fakeJob struct {
	n  int
	mu sync.Mutex
	// All nodes that have started, and all that have said that they send no more.
	nodes   map[int]*fakeNode
	drained map[int]bool
	changed chan struct{}
}

type fakeNode struct {
	job    *fakeJob
	id     int
	logger *slog.Logger
	labels []string // announced
	// Guarded by job.mu.
	channels map[string]*fakeChannel
	watchers []func(task.PeerChange)
	left     bool
}

type fakeChannel struct {
	node    *fakeNode
	spec    task.ChannelSpec
	deliver func(*task.Inbound) error
	// Guarded by job.mu.
	on       bool
	sent     uint64
	newest   []byte
	inFlight map[int]int  // by receiver
	order    []sync.Mutex // by receiver: never two deliveries of one sender
}

func newFakeJob(n int) *fakeJob {
	return &fakeJob{n: n, nodes: map[int]*fakeNode{}, drained: map[int]bool{}, changed: make(chan struct{})}
}

func (j *fakeJob) node(id int) *fakeNode {
	return &fakeNode{job: j, id: id, channels: map[string]*fakeChannel{},
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
	return []string{"distributed", "node." + strconv.Itoa(n.id)}
}
func (n *fakeNode) Logger() *slog.Logger { return n.logger }
func (n *fakeNode) Codec() task.Codec    { return fakeCodec{} }
func (n *fakeNode) Bus() task.Bus        { return n }

func (n *fakeNode) Channel(spec task.ChannelSpec, deliver func(*task.Inbound) error) (task.Channel, error) {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	if n.channels[spec.Name] != nil {
		return nil, errors.New("declared before")
	}
	for _, p := range n.job.nodes {
		if c := p.channels[spec.Name]; c != nil && c.spec.Fingerprint != spec.Fingerprint {
			return nil, fmt.Errorf("node %d has %s (%x), node %d %s (%x)", p.id, c.spec.Schema, c.spec.Fingerprint, n.id, spec.Schema, spec.Fingerprint)
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
					return mine.deliver(&task.Inbound{From: p.id, Version: c.sent, Payload: c.newest})
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
	for _, p := range j.others(n) {
		p.tell(task.PeerChange{Peer: task.Peer{ID: n.id, Incarnation: 1, Labels: labels}, Event: task.PeerJoined})
	}
	return j.await(ctx, func() bool { return len(j.nodes) >= j.n })
}

// others are the nodes besides n that have not left.
func (j *fakeJob) others(n *fakeNode) []*fakeNode {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ps []*fakeNode
	for _, p := range j.nodes {
		if p != n && !p.left {
			ps = append(ps, p)
		}
	}
	return ps
}

func (n *fakeNode) Peers() []task.Peer {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	return n.peersLocked()
}

func (n *fakeNode) peersLocked() []task.Peer {
	var ps []task.Peer
	for id := range 64 {
		if p := n.job.nodes[id]; p != nil && p != n && !p.left {
			ps = append(ps, task.Peer{ID: id, Incarnation: 1, Labels: p.labels})
		}
	}
	return ps
}

func (n *fakeNode) Watch(fn func(task.PeerChange)) {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	n.watchers = append(n.watchers, fn)
}

func (n *fakeNode) tell(c task.PeerChange) {
	n.job.mu.Lock()
	ws := n.watchers
	n.job.mu.Unlock()
	for _, w := range ws {
		w(c)
	}
}

func (n *fakeNode) Drain(ctx context.Context, waitPeers bool) error {
	j := n.job
	j.mu.Lock()
	j.drained[n.id] = true
	j.note()
	j.mu.Unlock()
	if !waitPeers {
		return nil
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

func (n *fakeNode) Close() error {
	n.job.mu.Lock()
	defer n.job.mu.Unlock()
	n.left = true
	n.job.note()
	return nil
}

func (c *fakeChannel) Listen(on bool) {
	c.node.job.mu.Lock()
	defer c.node.job.mu.Unlock()
	c.on = on
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
	return c.spec.Delivery == task.DeliverLatest || len(c.listenersLocked()) > 0
}

func (c *fakeChannel) Send(ctx context.Context, buf *task.Buffer, match func(task.Peer) bool) (int, error) {
	payload := buf.Bytes()
	j := c.node.job
	j.mu.Lock()
	if c.node.left {
		j.mu.Unlock()
		return 0, errors.New("this node is gone")
	}
	c.sent++
	version := c.sent
	if c.spec.Delivery == task.DeliverLatest {
		c.newest = append([]byte(nil), payload...)
	}
	tos := c.listenersLocked()
	j.mu.Unlock()
	n := 0
	for _, to := range tos {
		id := to.node.id
		if match != nil && !match(task.Peer{ID: id, Labels: to.node.labels}) {
			continue
		}
		err := j.await(ctx, func() bool {
			ok := c.inFlight[id] < fakeWindow || c.spec.Delivery != task.DeliverReliable
			if ok {
				c.inFlight[id]++
			}
			return ok
		})
		if err != nil {
			return n, fmt.Errorf("node %d: %w", id, err)
		}
		c.order[id].Lock()
		err = to.deliver(&task.Inbound{From: c.node.id, Version: version, Payload: payload, Credit: &fakeCredit{c, id}})
		c.order[id].Unlock()
		if err != nil {
			to.node.tell(task.PeerChange{Event: task.BusFailed, Err: err, Fatal: true})
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

// fakeCodec writes gob.
type fakeCodec struct{}

type fakePayload struct{ t reflect.Type }

func (fakeCodec) Payload(t reflect.Type) (task.PayloadCodec, error) { return fakePayload{t}, nil }

func (fakePayload) Append(dst []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	err := gob.NewEncoder(b).Encode(v)
	return b.Bytes(), err
}

func (fakePayload) Decode(src []byte, v any, _ bool) error {
	return gob.NewDecoder(bytes.NewReader(src)).Decode(v)
}

func (p fakePayload) Schema() string { return p.t.String() }

func (p fakePayload) Fingerprint() uint64 {
	h := fnv.New64()
	_, _ = io.WriteString(h, p.t.String())
	return h.Sum64()
}

// crash makes the node vanish without a word: the others are told that it is lost.
func (n *fakeNode) crash() {
	j := n.job
	j.mu.Lock()
	n.left = true
	j.note()
	j.mu.Unlock()
	for _, p := range j.others(n) {
		p.tell(task.PeerChange{Peer: task.Peer{ID: n.id, Incarnation: 1}, Event: task.PeerLost, Err: errors.New("killed")})
	}
}
