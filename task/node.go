package task

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/ditask/ditask/messaging"
)

// Node is the interface of the process of a task. parallel.Node
// satisfies it; [Alone] is a node without peers.
type Node interface {
	// ID is the node id, 0..N-1 over the whole job.
	ID() int
	// Labels are the words given to this node: "standalone", or "distributed"
	// and "node.<id>", then the router's and the user's own.
	Labels() []string
	// Logger logs errors that the task cannot return.
	Logger() *slog.Logger
	// Codec turns payloads into bytes. It is nil only where Bus is nil.
	Codec() Codec
	// Bus reaches the other nodes. It is nil for a node without peers.
	Bus() Bus
}

// Snapshot is the state of a task.
type Snapshot struct {
	Role   string  // the node's roles, joined by "+"; empty for all
	Steps  int64   // steps completed
	Queued int     // messages that wait for a listener of this node
	Lag    float64 // set by [Task.ReportLag]; see there
	Events []EventStats
}

// Observer is an optional interface of a Node: a task gives it a function that returns the task's
// status, for the life of the task.
type Observer interface {
	Observe(fn func() Snapshot)
}

// Claimer is an optional interface of a Node: [New] claims the node for its task, and
// panics if it was claimed before. A node carries one task in its life, as the other
// nodes leave each other at the end of the run.
type Claimer interface {
	// Claim reports whether it is the first call.
	Claim() bool
}

// Exiter is an optional interface of a Node: it takes the error of a Run that does not return,
// as a step or a hook has ended its goroutine by runtime.Goexit.
type Exiter interface {
	// RunExited takes the error. If it reports false, the task logs the error.
	RunExited(err error) bool
}

// Codec prepares the encoding of payload types.
type Codec interface {
	// Payload prepares the encoding of one type. It fails for a type that
	// cannot travel, such as a channel or a function.
	Payload(t reflect.Type) (PayloadCodec, error)
}

// PayloadCodec encodes and decodes the values of one type T. It is safe for
// concurrent use.
type PayloadCodec interface {
	// Append appends the encoding of the value that v points to (v is a *T).
	Append(dst []byte, v any) ([]byte, error)
	// Decode parses src into the value that v points to (v is a *T). Only if
	// owned is true may the result alias src.
	Decode(src []byte, v any, owned bool) error
	// Fingerprint is equal for two types if and only if a value of one can be
	// decoded as the other.
	Fingerprint() uint64
	// Schema is the shape of T in words, for error messages.
	Schema() string
}

// Bus carries encoded events between the nodes of a job. All methods are safe
// for concurrent use.
type Bus interface { //nolint:interfacebloat // the part of the other nodes that a task needs
	// Channel declares an event. deliver is called for every message of it that
	// arrives from another node: in order per sender, never concurrently for
	// one sender. deliver must not block, nor keep the Inbound. A [PayloadError]
	// from deliver is the fault of the sender, which the bus gives up as lost. Any
	// other error is fatal to the task and is reported by the caller of deliver
	// through Watch. A name that was declared before is an error.
	Channel(spec ChannelSpec, deliver func(*Inbound) error) (Channel, error)
	// Start connects to the other nodes of the job, announces labels and what
	// this node listens to, and returns when every expected node is ready: each
	// of them knows what this node listens to, and the newest value of every
	// Latest event that they emitted before has been delivered here.
	Start(ctx context.Context, labels []string) error
	// Peers are the other nodes that are connected now.
	Peers() []Peer
	// Watch registers fn, which is called for every change of a peer. fn must
	// not block.
	Watch(fn func(PeerChange))
	// Drain announces that this node will send nothing more, and returns when the other nodes have
	// received all its messages. With waitPeers it also waits until they have announced the same and all
	// their messages have been delivered here. When ctx ends first, the error names the messages that
	// were not received, and the nodes.
	Drain(ctx context.Context, waitPeers bool) error
	// Close leaves the other nodes and frees everything. Messages that
	// were not received are reported in the error.
	Close() error
	// Grace is the time that this node has to end after SIGTERM before it is killed;
	// 0: it is not known.
	Grace() time.Duration
	// Elastic reports whether the others continue when this node is stopped.
	Elastic() bool
	// Leave asks the other nodes to send nothing more to this one, and returns when all messages that
	// they had sent are delivered. Events that are emitted here are still sent. When ctx ends first, the
	// error names the nodes that may still send.
	Leave(ctx context.Context) error
	// Done announces to the other nodes that this one has done its part of the job, and returns when all
	// of them have announced the same or have left. Both sides may emit meanwhile. When ctx ends first,
	// the error names the nodes that are not done.
	Done(ctx context.Context) error
	// Recovers reports whether this node is started again if it fails. The
	// others then do not learn of its failure, and wait for its return.
	Recovers() bool
	// Abandon is Close for that case: this node does not take leave.
	Abandon() error
}

// Counter is an optional interface of a Bus: it counts messages that the task cannot see.
type Counter interface {
	// Unsent counts the messages of this node that were given up before they were on
	// their way to a peer, by event and peer. It may be called after Close.
	Unsent() []Unsent
}

// Channel is one declared event on a Bus.
type Channel interface {
	// Listen announces to the other nodes whether this node listens to the event.
	Listen(on bool)
	// Listened reports whether any other node listens to the event now. It is
	// cheap: a caller asks before it encodes.
	Listened() bool
	// EverListened reports whether any other node has listened to the event while this one was connected
	// with it.
	EverListened() bool
	// Send hands payload to every listening peer that match accepts (nil
	// accepts all) and returns the number of peers addressed. A bus that keeps
	// payload beyond the call retains it. On a Reliable channel Send blocks
	// while a peer's window is full; the error joins what went wrong for each
	// peer, and wraps [ErrClosed] if the bus takes nothing more, from Drain on.
	Send(ctx context.Context, payload Buffer, match func(Peer) bool) (int, error)
}

// Delivery is the treatment of messages for a listener that is too slow for them.
type Delivery = messaging.Delivery

// The delivery policies of an event.
const (
	// DeliverReliable blocks the emitter; nothing is lost.
	DeliverReliable = messaging.Reliable
	// DeliverLatest keeps only the newest value; a node that joins late receives it.
	DeliverLatest = messaging.Latest
	// DeliverDropOldest keeps the newest Queue messages and counts the others.
	DeliverDropOldest = messaging.DropOldest
	// DeliverDropNewest keeps the oldest Queue messages and counts the others.
	DeliverDropNewest = messaging.DropNewest
)

// Lender is an optional interface of a Channel: payloads can be encoded into memory that other processes of the
// host read, and come in such memory.
type Lender interface {
	// Lend returns memory for a payload of n bytes that goes out with the next Send; nil if there is
	// none, or no use for it.
	Lend(n int) Memory
	// Borrow reports whether all listeners of the event only borrow its payloads. While that is so, an
	// Inbound may be Lent.
	Borrow(on bool)
}

// Memory is a place for a payload.
type Memory = messaging.Memory

// ChannelSpec declares an event to a Bus.
type ChannelSpec = messaging.Spec

// Buffer is an encoded payload. It is reference-counted, so that a bus can keep it
// until the other nodes have it, and its memory can be used again afterwards.
type Buffer = messaging.Buffer

// Inbound is one message from another node. It is valid during the call of
// deliver, and so is its payload, unless deliver takes it.
type Inbound = messaging.Inbound

// Credit gives a sender its room back.
type Credit = messaging.Credit

// Peer is another node of the job.
type Peer = messaging.Peer

// PeerEvent is the kind of a change of a peer.
type PeerEvent uint8

// The changes of a peer.
const (
	PeerJoined PeerEvent = iota // connected and ready, or back as a new incarnation
	PeerLeft                    // took leave in order
	PeerLost                    // silent for longer than the bound, or replaced by a new incarnation
	BusFailed                   // not a peer's fault alone: Err is the reason why the job ends
)

// PeerChange is one change of one peer.
type PeerChange struct {
	Peer  Peer
	Event PeerEvent
	// Err is the reason, for PeerLost and BusFailed; it names the peer. A [RemoteError] of PeerLost
	// is the failure of that peer, of which all nodes know.
	Err error
	// Fatal means that the job does not continue without this peer: the task fails,
	// unless the job has succeeded already.
	Fatal bool
}
