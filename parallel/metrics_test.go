package parallel

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
	"github.com/google/go-cmp/cmp"
)

// lines are samples as text, in order.
func lines(samples []metrics.Sample) []string {
	out := make([]string, 0, len(samples))
	for _, s := range samples {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%s%v %v", s.Name, s.Labels, s.Value), "ditask_"))
	}
	slices.Sort(out)
	return out
}

// differ compares the samples of l with the lines of want.
func differ(t *testing.T, l list, want string) {
	t.Helper()
	sorted := strings.Split(strings.Trim(want, "\n"), "\n")
	slices.Sort(sorted)
	if diff := cmp.Diff(sorted, lines(l)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestMetricsOfATask(t *testing.T) {
	var l list
	l.task(task.Snapshot{Steps: 3, Lag: 0.5, Events: []task.EventStats{{
		Event: "e", Emitted: 1, Delivered: 2, Skipped: 3, Queued: 4, Listeners: 5, Busy: 1500 * time.Millisecond,
		Dropped: map[string]uint64{task.DropReasonOldest: 6, task.DropReasonNewest: 0},
	}}})
	differ(t, l, `
task_steps_total[] 3
task_lag_versions[] 0.5
task_events_emitted_total[event e] 1
task_events_delivered_total[event e] 2
task_versions_skipped_total[event e] 3
task_events_queued[event e] 4
task_listeners[event e] 5
task_listener_seconds_total[event e] 1.5
task_events_dropped_total[event e reason oldest] 6`)
}

// Only nodes that have shared memory report it.
func TestMetricsOfSharedMemory(t *testing.T) {
	var l list
	l.shared(router.SharedStats{})
	if len(l) != 0 {
		t.Errorf("samples of nothing: %v", lines(l))
	}
	l.shared(router.SharedStats{
		Segments: 1, Used: 2, Kept: 3, Withheld: 4, Sent: 5, SentBytes: 6, Received: 7, ReceivedBytes: 8,
		Full: 9, Over: 10, Refused: 11,
	})
	differ(t, l, `
shared_memory_used_bytes[] 2
shared_memory_kept_bytes[] 3
shared_memory_withheld_bytes[] 4
shared_memory_sent_total[] 5
shared_memory_sent_bytes_total[] 6
shared_memory_received_total[] 7
shared_memory_received_bytes_total[] 8
shared_memory_fallbacks_total[reason full] 9
shared_memory_fallbacks_total[reason over] 10
shared_memory_fallbacks_total[reason refused] 11`)
}

func TestMetricsOfATaskAreOfItsFirstEvents(t *testing.T) {
	var s task.Snapshot
	for i := range maxEvents + 1 {
		s.Events = append(s.Events, task.EventStats{Event: fmt.Sprint("e", i)})
	}
	var l list
	l.task(s)
	last := l[len(l)-1]
	if want := fmt.Sprint("e", maxEvents-1); last.Label("event") != want {
		t.Errorf("the last event is %s, want %s", last.Label("event"), want)
	}
}

func TestMetricsOfEvents(t *testing.T) {
	var l list
	l.streams(bounded([]router.StreamStats{
		{
			Event: "a", Peer: 1, Sent: 1, SentBytes: 2, Delivered: 3, DeliveredBytes: 4, Replaced: 5, Oldest: 6, Newest: 7, Abandoned: 8, Lost: 9,
			Queued: 10, InFlight: 11, InFlightBytes: 12,
		},
		{Event: "a", Peer: 2, Consumed: 13, ConsumedBytes: 14, Unsubscribed: 15, Stale: 16},
		{Event: "b", Peer: 1, Sent: 1},
	}, false))
	l.streams(bounded([]router.StreamStats{{Peer: router.Forgotten, Consumed: 17}}, false))
	differ(t, l, `
events_sent_total[event a peer 1] 1
events_sent_bytes_total[event a peer 1] 2
events_delivered_total[event a peer 1] 3
events_delivered_bytes_total[event a peer 1] 4
events_dropped_total[event a peer 1 reason replaced] 5
events_dropped_total[event a peer 1 reason oldest] 6
events_dropped_total[event a peer 1 reason newest] 7
events_dropped_total[event a peer 1 reason peer_gone] 8
events_lost_total[event a peer 1] 9
events_queued[event a peer 1] 10
events_in_flight[event a peer 1] 11
events_in_flight_bytes[event a peer 1] 12
events_consumed_total[event a peer 2] 13
events_consumed_bytes_total[event a peer 2] 14
events_unsubscribed_total[event a peer 2] 15
events_stale_total[event a peer 2] 16
events_sent_total[event b peer 1] 1
events_sent_bytes_total[event b peer 1] 0
events_delivered_total[event b peer 1] 0
events_delivered_bytes_total[event b peer 1] 0
events_lost_total[event b peer 1] 0
events_queued[event b peer 1] 0
events_in_flight[event b peer 1] 0
events_in_flight_bytes[event b peer 1] 0
events_consumed_total[event (undeclared) peer former] 17
events_consumed_bytes_total[event (undeclared) peer former] 0
events_unsubscribed_total[event (undeclared) peer former] 0
events_stale_total[event (undeclared) peer former] 0`)
}

// Events beyond the bound, and in large jobs the peers of each event, are summed.
func TestStreamsAreSummedBeyondTheBounds(t *testing.T) {
	var all []router.StreamStats
	for e := range maxEvents + 2 {
		for peer := 1; peer <= 2; peer++ {
			all = append(all, router.StreamStats{Event: fmt.Sprintf("e%03d", e), Peer: peer, Sent: uint64(peer)})
		}
	}
	for _, c := range []struct {
		sumPeers bool
		last     []string
	}{
		{false, []string{"e099 1 1", "e099 2 2", "(more) 1 2", "(more) 2 4"}},
		{true, []string{"e099 all 3", "(more) all 6"}},
	} {
		var got []string
		for _, s := range bounded(all, c.sumPeers) {
			got = append(got, fmt.Sprint(s.Event, " ", s.peer, " ", s.Sent))
		}
		perEvent := len(c.last) / 2
		if len(got) != (maxEvents+1)*perEvent || !slices.Equal(got[len(got)-len(c.last):], c.last) {
			t.Errorf("sum over peers %v: %d streams, the last are %v", c.sumPeers, len(got), got[len(got)-len(c.last):])
		}
	}
}

// linkStats has a peer in each state.
func linkStats() router.Stats {
	return router.Stats{
		Peers: []router.PeerStats{
			{Node: 1, State: router.LinkUp, RTT: 2 * time.Second, Silent: time.Second, Reconnects: 3, Joins: 4, WireOut: 5, WireIn: 6, LogBytes: 7},
			{Node: 2, State: router.LinkDown, Silent: 8 * time.Second, Reconnects: 1},
			{Node: 3, State: router.LinkLost, RTT: 9 * time.Second},
			{Node: 4, State: router.LinkUp, RTT: 2 * time.Second},
		},
		Streams: []router.StreamStats{{Oldest: 1, Newest: 10, Abandoned: 100, Lost: 1000, Replaced: 1e6}, {Lost: 2000}},
		Dialed:  1, Accepted: 2, DialsFailed: 3, Refused: map[string]int{"token": 4}, Transport: map[string]int64{"open_connections": 5},
	}
}

func TestMetricsOfPeersAndConnections(t *testing.T) {
	var l list
	l.router(linkStats())
	differ(t, l, `
peer_up[peer 1] 1
peer_reconnects_total[peer 1] 3
peer_joins_total[peer 1] 4
peer_sent_bytes_total[peer 1] 5
peer_received_bytes_total[peer 1] 6
peer_unwritten_bytes[peer 1] 7
peer_rtt_seconds[peer 1] 2
peer_silent_seconds[peer 1] 1
peer_up[peer 2] 0
peer_reconnects_total[peer 2] 1
peer_joins_total[peer 2] 0
peer_sent_bytes_total[peer 2] 0
peer_received_bytes_total[peer 2] 0
peer_unwritten_bytes[peer 2] 0
peer_silent_seconds[peer 2] 8
peer_up[peer 3] 0
peer_reconnects_total[peer 3] 0
peer_joins_total[peer 3] 0
peer_sent_bytes_total[peer 3] 0
peer_received_bytes_total[peer 3] 0
peer_unwritten_bytes[peer 3] 0
peer_rtt_seconds[peer 3] 9
peer_up[peer 4] 1
peer_reconnects_total[peer 4] 0
peer_joins_total[peer 4] 0
peer_sent_bytes_total[peer 4] 0
peer_received_bytes_total[peer 4] 0
peer_unwritten_bytes[peer 4] 0
peer_rtt_seconds[peer 4] 2
peer_silent_seconds[peer 4] 0
connections_dialed_total[] 1
connections_accepted_total[] 2
dials_failed_total[] 3
connections_refused_total[reason token] 4
transport[what open_connections] 5`)
}

// The status names the slowest of the connected peers; of equally slow ones the first.
func TestStatusOfTheConnections(t *testing.T) {
	s := control.Status{Drops: 5}
	network(&s, linkStats())
	want := control.Status{Drops: 3116, Peers: 2, Reconnects: 4, RTT: 2 * time.Second, RTTPeer: 1}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusOfTheTask(t *testing.T) {
	n := newNode(control.Env{}, nil, slog.New(slog.DiscardHandler))
	n.Observe(func() task.Snapshot {
		dropped := map[string]uint64{task.DropReasonOldest: 1, task.DropReasonNewest: 10, task.DropReasonNoOne: 100}
		return task.Snapshot{Role: "learner", Steps: 2, Queued: 3, Lag: 4, Events: []task.EventStats{{Dropped: dropped}, {Dropped: dropped}}}
	})
	want := control.Status{Role: "learner", Step: 2, Queue: 3, Lag: 4, Drops: 22}
	if diff := cmp.Diff(want, n.status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// value is the value of the only sample with a name.
func value(t *testing.T, samples []metrics.Sample, name string) float64 {
	t.Helper()
	var found []float64
	for _, s := range samples {
		if s.Name == name {
			found = append(found, s.Value)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s: %v", name, found)
	}
	return found[0]
}

func TestMetricsOfTheProcess(t *testing.T) {
	before := time.Now()
	n := newNode(control.Env{}, nil, slog.New(slog.DiscardHandler))
	n.Observe(func() task.Snapshot { return task.Snapshot{Steps: 7} })
	runtime.GC()
	samples := n.Metrics()
	if got := value(t, samples, metrics.TaskSteps); got != 7 {
		t.Errorf("%v steps", got)
	}
	start := value(t, samples, metrics.ProcessStart)
	if seconds := float64(before.Unix()); start < seconds || start > seconds+60 {
		t.Errorf("started at %v, want about %v", start, seconds)
	}
	for _, name := range []string{metrics.Goroutines, metrics.HeapAlloc, metrics.GCCycles} {
		if got := value(t, samples, name); got < 1 {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got := value(t, samples, metrics.GCSeconds); got < 0 {
		t.Errorf("the collector took %v", got)
	}
}
