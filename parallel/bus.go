package parallel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// bus gives package task the router.
type bus struct {
	n   *Node
	r   *router.Router
	rec *recorder // nil: what passes is not recorded

	below   func() // closes the transport of the router
	once    sync.Once
	drained atomic.Bool
	ended   atomic.Bool // the task has closed or abandoned it
	all     atomic.Bool // the node was done, and so were all others that it knew
}

func (b *bus) Channel(spec task.ChannelSpec, deliver func(*task.Inbound) error) (task.Channel, error) {
	if b.rec != nil {
		b.rec.declare(spec)
	}
	ch, err := b.r.Channel(spec, func(m *task.Inbound) error {
		err := deliver(m)
		if err == nil {
			return nil
		}
		if bad, ok := errors.AsType[*task.PayloadError](err); ok {
			return fmt.Errorf("%w: %w", router.ErrPayload, bad.Err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return channel{ch}, nil
}

func (b *bus) Start(ctx context.Context, labels []string) error {
	b.n.announce(labels)
	err := b.r.Start(ctx, labels)
	if err == nil {
		if b.rec != nil {
			b.rec.Ready()
		}
		close(b.n.ready)
	}
	return err
}

func (b *bus) Peers() []task.Peer { return b.r.Peers() }

func (b *bus) Watch(fn func(task.PeerChange)) {
	kinds := map[router.ChangeKind]task.PeerEvent{
		router.Joined: task.PeerJoined, router.Left: task.PeerLeft, router.Lost: task.PeerLost, router.Failed: task.BusFailed,
	}
	b.r.Watch(func(c router.Change) {
		ch := task.PeerChange{Peer: c.Peer, Event: kinds[c.Kind], Err: c.Err, Fatal: c.Kind == router.Lost && !b.n.env.AutoRecover}
		if failed, ok := errors.AsType[*router.FailedError](c.Err); ok && c.Kind == router.Lost {
			ch.Err, ch.Fatal = &task.RemoteError{Node: c.Peer.ID, Reason: failed.Reason}, true
		}
		fn(ch)
	})
}

func (b *bus) Drain(ctx context.Context, waitPeers bool) error {
	err := b.r.Drain(ctx, waitPeers)
	b.drained.Store(err == nil)
	return err
}

// Close also reports losses to former peers, unless the job recovers: then they were reported when
// they occurred, and are no failure of this node.
func (b *bus) Close() error { return b.end(b.r.Close) }

// Elastic is false for the hub of a star, through which all others communicate.
func (b *bus) Elastic() bool {
	hub := b.n.env.Topology == router.Star.String() && b.n.env.NodeID == 0
	return b.n.env.AutoRecover && !hub
}

// Grace is the time that the launcher gives its nodes to end.
func (b *bus) Grace() time.Duration { return b.n.env.Grace }

func (b *bus) Leave(ctx context.Context) error { return b.r.Leave(ctx) }

func (b *bus) Done(ctx context.Context) error {
	err := b.r.Done(ctx)
	b.all.Store(err == nil)
	return err
}

func (b *bus) Recovers() bool { return b.n.env.AutoRecover && b.n.env.Retries > 0 }

// hasTold reports whether the others know of this node's failure, as it is the last one and they have
// acknowledged all messages.
func (n *Node) hasTold() bool { return n.bus != nil && !n.bus.Recovers() && n.bus.drained.Load() }

// Unsent returns the router's counters over all peers, also former ones. It makes the
// bus a task.Counter.
func (b *bus) Unsent() []task.Unsent { return unsent(b.r.Stats().Streams) }

// unsent are the streams in which messages were given up, in the terms of package task.
func unsent(streams []router.StreamStats) []task.Unsent {
	var all []task.Unsent
	for _, s := range streams {
		u := task.Unsent{Event: s.Event, Peer: s.Peer, Dropped: map[string]uint64{}, Skipped: s.Replaced}
		drops := map[string]uint64{task.DropReasonOldest: s.Oldest, task.DropReasonNewest: s.Newest, task.DropReasonGone: s.Abandoned}
		for reason, n := range drops {
			if n > 0 {
				u.Dropped[reason] = n
			}
		}
		if len(u.Dropped) > 0 || u.Skipped > 0 {
			all = append(all, u)
		}
	}
	return all
}

func (b *bus) Abandon() error { return b.end(b.r.Abandon) }

func (b *bus) end(leave func() error) error {
	b.ended.Store(true)
	err := leave()
	if b.rec != nil {
		b.rec.done()
	}
	b.once.Do(b.below)
	if !b.n.env.AutoRecover {
		err = errors.Join(err, b.r.Losses())
	}
	return err
}

// peerGone gives up a peer whose process has ended.
func (n *Node) peerGone(l control.Lost) {
	if n.bus != nil {
		n.bus.r.Gone(router.Farewell{Node: l.Node, Incarnation: l.Incarnation, Reason: l.Reason, Final: l.Final})
	}
}

// channel gives package task one event of the router.
type channel struct{ *router.Channel }

func (c channel) Send(ctx context.Context, payload task.Buffer, match func(task.Peer) bool) (int, error) {
	n, err := c.Channel.Send(ctx, payload, match)
	if errors.Is(err, router.ErrClosed) { // a listener that emits while the node drains: for the task no failure
		err = fmt.Errorf("%w: %w", task.ErrClosed, err)
	}
	return n, err
}
