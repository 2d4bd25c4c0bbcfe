package metrics

// Type is Prometheus' type of a metric.
type Type string

// The types that there are.
const (
	Counter Type = "counter" // only grows, until the process is restarted
	Gauge   Type = "gauge"
	// Histogram is for tables of a program's own: it has the label le, and the samples NAME_bucket, NAME_sum and NAME_count.
	Histogram Type = "histogram"
)

// Desc describes one metric.
type Desc struct {
	Name   string
	Type   Type
	Labels []string // its own, besides job, node and role, which all have
	Help   string
}

// The names of the metrics. [Table] has their meanings.
const (
	NodeUp       = "ditask_node_up"
	NodeAnswered = "ditask_node_answered"
	NodeRestarts = "ditask_node_restarts_total"

	TaskSteps     = "ditask_task_steps_total"
	TaskLag       = "ditask_task_lag_versions"
	TaskEmitted   = "ditask_task_events_emitted_total"
	TaskDelivered = "ditask_task_events_delivered_total"
	TaskDropped   = "ditask_task_events_dropped_total"
	TaskSkipped   = "ditask_task_versions_skipped_total"
	TaskQueued    = "ditask_task_events_queued"
	TaskListeners = "ditask_task_listeners"
	TaskBusy      = "ditask_task_listener_seconds_total"

	EventsSent           = "ditask_events_sent_total"
	EventsSentBytes      = "ditask_events_sent_bytes_total"
	EventsDelivered      = "ditask_events_delivered_total"
	EventsDeliveredBytes = "ditask_events_delivered_bytes_total"
	EventsDropped        = "ditask_events_dropped_total"
	EventsLost           = "ditask_events_lost_total"
	EventsQueued         = "ditask_events_queued"
	EventsInFlight       = "ditask_events_in_flight"
	EventsInFlightBytes  = "ditask_events_in_flight_bytes"
	EventsConsumed       = "ditask_events_consumed_total"
	EventsConsumedBytes  = "ditask_events_consumed_bytes_total"
	EventsUnsubscribed   = "ditask_events_unsubscribed_total"
	EventsStale          = "ditask_events_stale_total"

	PeerUp         = "ditask_peer_up"
	PeerRTT        = "ditask_peer_rtt_seconds"
	PeerSilent     = "ditask_peer_silent_seconds"
	PeerReconnects = "ditask_peer_reconnects_total"
	PeerJoins      = "ditask_peer_joins_total"
	PeerSent       = "ditask_peer_sent_bytes_total"
	PeerReceived   = "ditask_peer_received_bytes_total"
	PeerUnwritten  = "ditask_peer_unwritten_bytes"

	SharedSent          = "ditask_shared_memory_sent_total"
	SharedSentBytes     = "ditask_shared_memory_sent_bytes_total"
	SharedReceived      = "ditask_shared_memory_received_total"
	SharedReceivedBytes = "ditask_shared_memory_received_bytes_total"
	SharedFallbacks     = "ditask_shared_memory_fallbacks_total"
	SharedUsed          = "ditask_shared_memory_used_bytes"
	SharedKept          = "ditask_shared_memory_kept_bytes"
	SharedWithheld      = "ditask_shared_memory_withheld_bytes"

	ConnsDialed   = "ditask_connections_dialed_total"
	ConnsAccepted = "ditask_connections_accepted_total"
	ConnsFailed   = "ditask_dials_failed_total"
	ConnsRefused  = "ditask_connections_refused_total"
	Transport     = "ditask_transport"

	ProcessMemory = "process_resident_memory_bytes"
	ProcessCPU    = "process_cpu_seconds_total"
	ProcessStart  = "process_start_time_seconds"
	ProcessFiles  = "process_open_fds"
	Goroutines    = "go_goroutines"
	HeapAlloc     = "go_memstats_heap_alloc_bytes"
	GCCycles      = "ditask_gc_cycles_total"
	GCSeconds     = "ditask_gc_cpu_seconds_total"
)

// Table lists every metric, in the order in which they are written. Event and peer metrics exist only
// for events and peers that have carried messages.
func Table() []Desc { //nolint:funlen // one line for each metric
	perEvent, perPeer, stream := []string{"event"}, []string{"peer"}, []string{"event", "peer"}
	return []Desc{
		{NodeUp, Gauge, nil, "1 if the node is connected to those that it expects, 0 if it starts, waits for its restart, or has ended."},
		{NodeAnswered, Gauge, nil,
			"1 if the node has answered this scrape; without an answer, the scrape has only the launcher's metrics of it."},
		{NodeRestarts, Counter, nil, "Restarts of the node by its launcher."},

		{TaskSteps, Counter, nil, "Steps of the task that were completed."},
		{TaskLag, Gauge, nil, "How many versions the data that this node works with is behind the newest, as passed to Task.ReportLag."},
		{TaskEmitted, Counter, perEvent, "Calls of Emit on this node."},
		{TaskDelivered, Counter, perEvent, "Messages of this and other nodes that were handed to listeners here."},
		{TaskDropped, Counter, []string{"event", "reason"},
			"Messages dropped in this node's mailbox; reason is oldest, newest, no listener or isolated."},
		{TaskSkipped, Counter, perEvent,
			"Versions of a Latest event that this node never received: a newer one came first, or they were for other nodes."},
		{TaskQueued, Gauge, perEvent, "Messages that wait for a listener of this node."},
		{TaskListeners, Gauge, perEvent, "Listeners of the event on this node."},
		{TaskBusy, Counter, perEvent,
			"Time that listeners of this node have taken, waits included; a running call counts when it ends."},

		{EventsSent, Counter, stream, "Messages for the peer: delivered, dropped, lost, queued or in flight."},
		{EventsSentBytes, Counter, stream, "Payload bytes of the messages that went on their way to the peer."},
		{EventsDelivered, Counter, stream, "Messages that the peer's listeners have processed. The peer reports at least once a second."},
		{EventsDeliveredBytes, Counter, stream, "Payload bytes of them."},
		{EventsDropped, Counter, []string{"event", "peer", "reason"},
			"Messages for the peer that were dropped by the event's policy; reason is replaced (Latest), oldest, newest, or peer_gone."},
		{EventsLost, Counter, stream,
			"Messages that were on their way when the peer was gone, delivered or not, or that were emitted while it was lost."},
		{EventsQueued, Gauge, stream, "Messages that wait for room at the peer."},
		{EventsInFlight, Gauge, stream, "Messages on their way to the peer's listeners, or in its mailbox."},
		{EventsInFlightBytes, Gauge, stream, "Payload bytes of them."},
		{EventsConsumed, Counter, stream, "Messages of the peer that this node has delivered or dropped."},
		{EventsConsumedBytes, Counter, stream, "Payload bytes of them."},
		{EventsUnsubscribed, Counter, stream, "Messages of the peer that arrived while this node did not listen."},
		{EventsStale, Counter, stream, "Values of a Latest event of the peer's that came after a newer one."},

		{PeerUp, Gauge, perPeer, "1 while there is a connection to the peer, 0 after it broke, or the peer left or was given up."},
		{PeerRTT, Gauge, perPeer, "Round trip of the newest ping, queues included."},
		{PeerSilent, Gauge, perPeer, "Time since anything came from the peer."},
		{PeerReconnects, Counter, perPeer, "Connections to the peer that took over from a broken one."},
		{PeerJoins, Counter, perPeer, "Incarnations of the peer that have joined: more than 1 if it was restarted."},
		{PeerSent, Counter, perPeer, "Bytes written to the peer, frames and all."},
		{PeerReceived, Counter, perPeer, "Bytes read from the peer."},
		{PeerUnwritten, Gauge, perPeer, "Bytes that wait to be written to the peer."},

		{SharedSent, Counter, nil, "Messages that peers of this host read in the node's memory, counted for each peer."},
		{SharedSentBytes, Counter, nil, "Payload bytes of them."},
		{SharedReceived, Counter, nil, "Messages that this node has read in the memory of peers."},
		{SharedReceivedBytes, Counter, nil, "Payload bytes of them."},
		{SharedFallbacks, Counter, []string{"reason"},
			"Messages of 64 KiB or more that were sent through the socket to a peer that shares memory; reason is full, over " +
				"(the peer has half of the memory) or refused (by the system)."},
		{SharedUsed, Gauge, nil, "Bytes of the node's shared memory that hold payloads now."},
		{SharedKept, Gauge, nil, "Bytes of shared memory that the node has taken and keeps."},
		{SharedWithheld, Gauge, nil, "Bytes of payloads that peers had when they were lost, and whose processes may still read them."},

		{ConnsDialed, Counter, nil, "Connections that this node has made."},
		{ConnsAccepted, Counter, nil, "Connections that other processes have opened to this node, unauthenticated ones included."},
		{ConnsFailed, Counter, nil, "Calls of this node that no connection came of."},
		{ConnsRefused, Counter, []string{"reason"},
			"Connections that were refused; reason is one of the codes in docs/wire.md, garbage, silence, no proof or hung up."},
		{Transport, Gauge, []string{"what"}, "The transport's own counters."},

		{ProcessMemory, Gauge, nil, "Resident memory of the node's process."},
		{ProcessCPU, Counter, nil, "User and system time of the node's process."},
		{ProcessStart, Gauge, nil, "When the node's process was started, in seconds since 1970."},
		{ProcessFiles, Gauge, nil, "Open file descriptors of the node's process."},
		{Goroutines, Gauge, nil, "Goroutines of the node's process."},
		{HeapAlloc, Gauge, nil, "Bytes of heap objects, live or not yet swept."},
		{GCCycles, Counter, nil, "Garbage collections."},
		{GCSeconds, Counter, nil, "Processor time that the garbage collector has taken, by the runtime's estimate."},
	}
}
