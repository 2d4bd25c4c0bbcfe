package parallel

import (
	"runtime"
	rtmetrics "runtime/metrics"
	"slices"
	"strconv"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// Bounds of the metrics of one node: a job of more than maxPeers nodes has its event metrics summed
// over peers, and events beyond maxEvents are summed too. So 64 nodes with 20 events make some 60,000
// series.
const (
	maxPeers  = 16
	maxEvents = 100

	allPeers         = "all"
	formerPeers      = "former" // those that the router does not remember one by one
	moreEvents       = "(more)"
	undeclaredEvents = "(undeclared)" // of peers, where this node has not declared them
)

// Metrics returns the counts of this node, as package metrics describes it: its task,
// if it has one, its events by peer, its connections and its process. In a job of
// more than 16 nodes the peer of all event metrics is "all".
func (n *Node) Metrics() []metrics.Sample {
	var out list
	n.mu.Lock()
	observe := n.observe
	n.mu.Unlock()
	if observe != nil {
		out.task(observe())
	}
	if n.bus != nil {
		st := n.bus.r.Stats()
		out.streams(bounded(st.Streams, n.env.Nodes > maxPeers || len(st.Peers) >= maxPeers))
		out.router(st)
	}
	out.process()
	out.add(metrics.ProcessStart, float64(n.began.UnixMilli())/1000)
	return out
}

// list is samples that are gathered.
type list []metrics.Sample

func (l *list) add(name string, v float64, labels ...string) {
	*l = append(*l, metrics.Sample{Name: name, Labels: labels, Value: v})
}

func (l *list) task(s task.Snapshot) {
	l.add(metrics.TaskSteps, float64(s.Steps))
	l.add(metrics.TaskLag, s.Lag)
	for i, e := range s.Events {
		if i >= maxEvents {
			break // Task.Stats has all of them
		}
		l.add(metrics.TaskEmitted, float64(e.Emitted), "event", e.Event)
		l.add(metrics.TaskDelivered, float64(e.Delivered), "event", e.Event)
		l.add(metrics.TaskSkipped, float64(e.Skipped), "event", e.Event)
		l.add(metrics.TaskQueued, float64(e.Queued), "event", e.Event)
		l.add(metrics.TaskListeners, float64(e.Listeners), "event", e.Event)
		l.add(metrics.TaskBusy, e.Busy.Seconds(), "event", e.Event)
		for _, reason := range []string{task.DropReasonOldest, task.DropReasonNewest, task.DropReasonNoOne, task.DropReasonIsolated} {
			if n := e.Dropped[reason]; n > 0 {
				l.add(metrics.TaskDropped, float64(n), "event", e.Event, "reason", reason)
			}
		}
	}
}

// stream has the counters of one event with one peer, or with all.
type stream struct {
	router.StreamStats
	peer string
}

// bounded sums streams up where there are too many. They are in order of event.
func bounded(streams []router.StreamStats, sumPeers bool) []stream {
	var out []stream
	event, events := "", 0
	for _, s := range streams {
		if s.Event != event {
			event = s.Event
			events++
		}
		switch {
		case s.Event == "":
			s.Event = undeclaredEvents
		case events > maxEvents:
			s.Event = moreEvents
		}
		peer := allPeers
		if !sumPeers {
			peer = peerLabel(s.Peer)
		}
		at := -1
		for k := len(out) - 1; k >= 0 && out[k].Event == s.Event; k-- {
			if out[k].peer == peer {
				at = k
			}
		}
		if at < 0 {
			out = append(out, stream{s, peer})
			continue
		}
		out[at].Add(s)
	}
	return out
}

func peerLabel(id int) string {
	if id == router.Forgotten {
		return formerPeers
	}
	return strconv.Itoa(id)
}

// streams adds the counters of each direction that has carried messages.
func (l *list) streams(streams []stream) {
	for _, s := range streams {
		at := []string{"event", s.Event, "peer", s.peer}
		count := func(name string, n uint64, labels ...string) { l.add(name, float64(n), slices.Concat(at, labels)...) }
		if s.Consumed > 0 {
			count(metrics.EventsConsumed, s.Consumed)
			count(metrics.EventsConsumedBytes, s.ConsumedBytes)
			count(metrics.EventsUnsubscribed, s.Unsubscribed)
			count(metrics.EventsStale, s.Stale)
		}
		if s.Sent == 0 {
			continue
		}
		count(metrics.EventsSent, s.Sent)
		count(metrics.EventsSentBytes, s.SentBytes)
		count(metrics.EventsDelivered, s.Delivered)
		count(metrics.EventsDeliveredBytes, s.DeliveredBytes)
		count(metrics.EventsLost, s.Lost)
		count(metrics.EventsQueued, uint64(s.Queued))               //nolint:gosec // not negative
		count(metrics.EventsInFlight, uint64(s.InFlight))           //nolint:gosec // not negative
		count(metrics.EventsInFlightBytes, uint64(s.InFlightBytes)) //nolint:gosec // not negative
		for _, d := range []struct {
			reason string
			n      uint64
		}{{"replaced", s.Replaced}, {"oldest", s.Oldest}, {"newest", s.Newest}, {"peer_gone", s.Abandoned}} {
			if d.n > 0 {
				count(metrics.EventsDropped, d.n, "reason", d.reason)
			}
		}
	}
}

func (l *list) router(st router.Stats) {
	for _, p := range st.Peers {
		peer, up := peerLabel(p.Node), 0.0
		if p.State == router.LinkUp {
			up = 1
		}
		l.add(metrics.PeerUp, up, "peer", peer)
		l.add(metrics.PeerReconnects, float64(p.Reconnects), "peer", peer)
		l.add(metrics.PeerJoins, float64(p.Joins), "peer", peer)
		l.add(metrics.PeerSent, float64(p.WireOut), "peer", peer)
		l.add(metrics.PeerReceived, float64(p.WireIn), "peer", peer)
		l.add(metrics.PeerUnwritten, float64(p.LogBytes), "peer", peer)
		if p.RTT > 0 {
			l.add(metrics.PeerRTT, p.RTT.Seconds(), "peer", peer)
		}
		if p.State == router.LinkUp || p.State == router.LinkDown {
			l.add(metrics.PeerSilent, p.Silent.Seconds(), "peer", peer)
		}
	}
	l.add(metrics.ConnsDialed, float64(st.Dialed))
	l.add(metrics.ConnsAccepted, float64(st.Accepted))
	l.add(metrics.ConnsFailed, float64(st.DialsFailed))
	for reason, n := range st.Refused {
		l.add(metrics.ConnsRefused, float64(n), "reason", reason)
	}
	l.shared(st.Shared)
	for what, n := range st.Transport {
		l.add(metrics.Transport, float64(n), "what", what)
	}
}

// shared adds metrics of messages in shared memory, on a node that has had any.
func (l *list) shared(st router.SharedStats) {
	if st == (router.SharedStats{}) {
		return
	}
	l.add(metrics.SharedSent, float64(st.Sent))
	l.add(metrics.SharedSentBytes, float64(st.SentBytes))
	l.add(metrics.SharedReceived, float64(st.Received))
	l.add(metrics.SharedReceivedBytes, float64(st.ReceivedBytes))
	l.add(metrics.SharedUsed, float64(st.Used))
	l.add(metrics.SharedKept, float64(st.Kept))
	l.add(metrics.SharedWithheld, float64(st.Withheld))
	l.add(metrics.SharedFallbacks, float64(st.Full), "reason", "full")
	l.add(metrics.SharedFallbacks, float64(st.Over), "reason", "over")
	l.add(metrics.SharedFallbacks, float64(st.Refused), "reason", "refused")
}

// process adds metrics of this process and its runtime.
func (l *list) process() {
	l.add(metrics.Goroutines, float64(runtime.NumGoroutine()))
	reads := []rtmetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	rtmetrics.Read(reads)
	for i, name := range []string{metrics.HeapAlloc, metrics.GCCycles, metrics.GCSeconds} {
		switch v := reads[i].Value; v.Kind() {
		case rtmetrics.KindUint64:
			l.add(name, float64(v.Uint64()))
		case rtmetrics.KindFloat64:
			l.add(name, v.Float64())
		}
	}
	if memory, files, cpu, ok := processNumbers(); ok {
		l.add(metrics.ProcessMemory, memory)
		l.add(metrics.ProcessFiles, files)
		l.add(metrics.ProcessCPU, cpu)
	}
}

// network adds to a status the state of the connections to other nodes.
func network(s *control.Status, st router.Stats) {
	for _, p := range st.Peers {
		s.Reconnects += p.Reconnects
		if p.State == router.LinkUp {
			s.Peers++
			if p.RTT > s.RTT {
				s.RTT, s.RTTPeer = p.RTT, p.Node
			}
		}
	}
	for _, e := range st.Streams {
		s.Drops += e.Oldest + e.Newest + e.Abandoned + e.Lost
	}
}
