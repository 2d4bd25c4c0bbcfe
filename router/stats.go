package router

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// Stats has the counters of a router since New, at one moment. Counters only grow:
// what was counted with a peer that is gone, or with an older incarnation of one,
// stays in.
//
// Of peers that are gone, 1024 are remembered beyond the first Config.Expect ids. The counts
// of older ones are in the sums of the node id [Forgotten].
type Stats struct {
	Peers   []PeerStats   // every peer that there was, by node id
	Streams []StreamStats // by event and peer: only those that have carried something

	Dialed      uint64 // connections that this node has made
	DialsFailed uint64 // calls that no connection came of
	Accepted    uint64 // connections of others, before it was known whose
	// Refused counts the connections that were refused, by reason, as
	// [Router.Refused] does.
	Refused map[string]int
	// Transport has the counters of the transport, by its own names; nil if it has
	// nothing.
	Transport map[string]int64
	Shared    SharedStats // messages in shared memory
}

// Counter is an optional interface of a transport: it counts what the router cannot see.
type Counter interface {
	// Counters are the transport's present numbers by name, in the words
	// "open_connections" or "server_reconnects". They are few.
	Counters() map[string]int64
}

// LinkState is the state of a peer's connection.
type LinkState string

// The states of a link.
const (
	LinkUp   LinkState = "up"   // connected
	LinkDown LinkState = "down" // the connection is broken; the peer is not given up
	LinkLeft LinkState = "left" // took leave in order
	LinkLost LinkState = "lost" // given up
)

// PeerStats counts what passes between this node and one other.
type PeerStats struct {
	Node       int
	State      LinkState
	RTT        time.Duration // of the newest ping, queues included; 0: none was answered yet
	Silent     time.Duration // since anything was read; 0 for a peer that is gone
	Reconnects uint64        // connections that took over from a broken one
	Joins      uint64        // incarnations of the peer that have joined
	WireOut    uint64        // bytes written, frames and all
	WireIn     uint64        // bytes read
	LogBytes   int           // bytes that wait for the writer
}

// StreamStats counts what passes of one event between this node and one peer. At
// any moment Sent = Delivered + Replaced + Oldest + Newest + Abandoned + Lost + Away +
// Queued + InFlight.
type StreamStats struct {
	Event string // empty: all events of the peer's that this node has not declared
	Peer  int

	Sent, SentBytes           uint64 // messages for the peer; the bytes are those that were written
	Delivered, DeliveredBytes uint64 // processed by the peer's listeners; the peer reports that once a second at least
	Replaced                  uint64 // a newer value of a Latest event took its place
	Oldest                    uint64 // dropped under DropOldest
	Newest                    uint64 // dropped under DropNewest
	Abandoned                 uint64 // waited for room under a policy that may drop, when the peer was gone
	Lost                      uint64 // on their way when the peer was gone, delivered or not; or sent while it was lost
	Away                      uint64 // sent after the peer had left, and before it was back
	Queued                    int    // wait for room
	InFlight, InFlightBytes   int    // on their way to the peer's listeners

	Consumed, ConsumedBytes uint64 // messages of the peer that are done with here: received, or dropped
	Unsubscribed            uint64 // of them: this node did not listen
	Stale                   uint64 // of them: a newer value of a Latest event was here already
}

// Dropped is the number of messages dropped under the event's policy.
func (s *StreamStats) Dropped() uint64 { return s.Replaced + s.Oldest + s.Newest + s.Abandoned }

// calls counts connections.
type calls struct{ dialed, failed, accepted atomic.Uint64 }

type streamKey struct {
	event string
	peer  int
}

// undeclared is the name, in statistics, of all events that a peer has declared and this node has not.
// No event has this name.
const undeclared = ""

// Stats counts. It takes a lock of each peer for a moment.
func (r *Router) Stats() Stats {
	st := Stats{
		Dialed: r.calls.dialed.Load(), DialsFailed: r.calls.failed.Load(), Accepted: r.calls.accepted.Load(),
		Refused: r.Refused(), Shared: r.sharedStats(),
	}
	if c, ok := r.cfg.Transport.(Counter); ok {
		st.Transport = c.Counters()
	}
	r.mu.Lock()
	streams := maps.Clone(r.gone)
	peers := map[int]PeerStats{}
	for id, p := range r.past {
		peers[id] = *p
	}
	for id, s := range r.peers {
		p, now := peers[id], s.stats(streams)
		p.add(now)
		peers[id] = p
	}
	for _, c := range r.channels {
		c.missing(streams)
	}
	r.mu.Unlock()
	st.Peers = slices.SortedFunc(maps.Values(peers), func(a, b PeerStats) int { return cmp.Compare(a.Node, b.Node) })
	for _, s := range streams {
		if s.Sent > 0 || s.Consumed > 0 {
			st.Streams = append(st.Streams, s)
		}
	}
	slices.SortFunc(st.Streams, func(a, b StreamStats) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Peer, b.Peer))
	})
	return st
}

// stats counts one session, and adds its streams to those. The router's mutex is
// held.
func (s *session) stats(streams map[streamKey]StreamStats) PeerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := PeerStats{
		Node: s.peer.ID, State: LinkUp, RTT: time.Duration(s.rtt.Load()), Silent: time.Duration(s.r.clock() - s.lastReceived.Load()),
		Reconnects: max(s.links, 1) - 1, Joins: 1, WireOut: s.wireOut, WireIn: s.wireIn.Load(), LogBytes: s.log.todo,
	}
	if s.link == nil {
		p.State = LinkDown
	}
	for _, o := range s.outs {
		k := streamKey{o.ch.spec.Name, s.peer.ID}
		sum := streams[k]
		sum.Event, sum.Peer = k.event, k.peer
		sum.Add(o.stats())
		streams[k] = sum
	}
	var others StreamStats
	for _, in := range s.remote {
		now := in.stats()
		c := in.ch.Load()
		if c == nil {
			others.Add(now)
			continue
		}
		if in.before != nil {
			others.Add(*in.before)
			now = now.since(*in.before)
		}
		k := streamKey{c.spec.Name, s.peer.ID}
		sum := streams[k]
		sum.Event, sum.Peer = k.event, k.peer
		sum.Add(now)
		streams[k] = sum
	}
	if others.Consumed > 0 {
		k := streamKey{undeclared, s.peer.ID}
		sum := streams[k]
		sum.Peer = k.peer
		sum.Add(others)
		streams[k] = sum
	}
	return p
}

// stats counts what came of one event.
func (in *inStream) stats() StreamStats {
	return StreamStats{
		Consumed: in.consumed[0].Load(), ConsumedBytes: in.consumed[1].Load(),
		Unsubscribed: in.unsubscribed.Load(), Stale: in.stale.Load(),
	}
}

// since returns the counts after an earlier count.
func (s StreamStats) since(before StreamStats) StreamStats {
	s.Consumed -= before.Consumed
	s.ConsumedBytes -= before.ConsumedBytes
	s.Unsubscribed -= before.Unsubscribed
	s.Stale -= before.Stale
	return s
}

// stats counts one stream. The session's mutex is held.
func (o *outStream) stats() StreamStats {
	st := StreamStats{
		Sent: o.sent[0] + o.dropped + uint64(len(o.queue)), SentBytes: o.sent[1],
		Delivered: o.consumed[0], DeliveredBytes: o.consumed[1], Abandoned: o.abandoned, Lost: o.undelivered,
		Queued: len(o.queue),
	}
	if o.s.err == nil {
		st.InFlight, st.InFlightBytes = o.messages, o.bytes
	}
	dropped := o.dropped - o.abandoned
	switch o.ch.spec.Delivery {
	case Latest:
		st.Replaced = dropped
	case DropOldest:
		st.Oldest = dropped
	case DropNewest:
		st.Newest = dropped
	}
	return st
}

// keepCounts keeps what a session has counted that has ended. The router's mutex is
// held.
func (r *Router) keepCounts(s *session, kind ChangeKind) {
	p := r.past[s.peer.ID]
	if p == nil {
		p = new(PeerStats)
		r.past[s.peer.ID] = p
	}
	now := s.stats(r.gone)
	now.RTT, now.Silent, now.LogBytes, now.State = 0, 0, 0, LinkLost
	if kind == Left {
		now.State = LinkLeft
	}
	p.add(now)
}

// add adds the counters of a later session, whose state is the present one.
func (p *PeerStats) add(now PeerStats) {
	now.Reconnects += p.Reconnects
	now.Joins += p.Joins
	now.WireOut += p.WireOut
	now.WireIn += p.WireIn
	*p = now
}

// Add adds the counts of t.
func (s *StreamStats) Add(t StreamStats) {
	s.Sent += t.Sent
	s.SentBytes += t.SentBytes
	s.Delivered += t.Delivered
	s.DeliveredBytes += t.DeliveredBytes
	s.Replaced += t.Replaced
	s.Oldest += t.Oldest
	s.Newest += t.Newest
	s.Abandoned += t.Abandoned
	s.Lost += t.Lost
	s.Away += t.Away
	s.Queued += t.Queued
	s.InFlight += t.InFlight
	s.InFlightBytes += t.InFlightBytes
	s.Consumed += t.Consumed
	s.ConsumedBytes += t.ConsumedBytes
	s.Unsubscribed += t.Unsubscribed
	s.Stale += t.Stale
}
