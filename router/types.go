package router

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/messaging"
)

// Delivery is the treatment of messages for a receiver that is too slow for them.
type Delivery = messaging.Delivery

// The delivery policies.
const (
	Reliable   = messaging.Reliable   // the sender blocks, nothing is lost
	Latest     = messaging.Latest     // only the newest is kept; a node that joins late receives it
	DropOldest = messaging.DropOldest // the newest Queue messages are kept, the others counted
	DropNewest = messaging.DropNewest // the oldest Queue messages are kept, the others counted
)

// Spec declares an event: nodes that declare one name with different
// fingerprints or policies refuse each other.
type Spec = messaging.Spec

// Buffer is a payload that a session may keep until it is acknowledged. A Header of more
// than MaxHeaderBytes is left out.
type Buffer = messaging.Buffer

// Credit gives a sender its room back.
type Credit = messaging.Credit

// Message is one message from another node. It is valid during the call of
// deliver, and so is Payload, unless deliver takes it.
type Message = messaging.Inbound

// Peer is another node of the job.
type Peer = messaging.Peer

// Bytes is a Buffer that the garbage collector owns.
type Bytes []byte

// Bytes returns b.
func (b Bytes) Bytes() []byte { return b }

// Header returns nil.
func (b Bytes) Header() []byte { return nil }

// Retain does nothing.
func (b Bytes) Retain() {}

// Release does nothing.
func (b Bytes) Release() {}

// Tap sees every message as it passes, to record it. Its methods are
// called by senders and readers, at once for different events and peers, and may take their
// time at the price of the messages' own. The arguments are valid during the call.
type Tap interface {
	// Sent is called for each peer that a message is addressed to, before it goes,
	// or waits, or is dropped. Calls for one event follow each other in the order of versions.
	Sent(event string, peer int, version uint64, payload []byte)
	// Received is called for a message that this node listens to, before it is
	// delivered.
	Received(event string, m *Message)
}

// ChangeKind is the kind of a change of a peer.
type ChangeKind uint8

// The changes of a peer.
const (
	Joined ChangeKind = iota // connected and ready, or back as a new incarnation
	Left                     // took leave in order
	Lost                     // silent for longer than the bound, or replaced
	Failed                   // Err ends this node's part in the job
)

// Change is one change of one peer.
type Change struct {
	Kind ChangeKind
	Peer Peer
	Err  error
}

// Transport makes connections between nodes. A connection delivers all bytes in
// order or breaks; Close unblocks Read and Write.
type Transport interface {
	// Listen binds addr. The returned listener's Addr().String() need not be an
	// address to dial: Advertise makes that of it.
	Listen(ctx context.Context, addr string) (net.Listener, error)
	// Advertise is the address at which others can dial l.
	Advertise(l net.Listener) string
	// Dial connects to addr.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Topology is the set of connections between nodes.
type Topology uint8

// The topologies.
const (
	Mesh  Topology = iota // everyone to everyone
	Star                  // everyone to node 0, which relays
	Alone                 // only to the attach list
)

// ParseTopology turns a name into a Topology.
func ParseTopology(s string) (Topology, error) {
	switch s {
	case "", "mesh":
		return Mesh, nil
	case "star":
		return Star, nil
	case "alone":
		return Alone, nil
	}
	return 0, fmt.Errorf("topology %q: want mesh, star or alone", s)
}

// String is the topology's name.
func (t Topology) String() string {
	switch t {
	case Mesh:
		return "mesh"
	case Star:
		return "star"
	case Alone:
		return "alone"
	}
	return fmt.Sprintf("topology(%d)", uint8(t))
}

// Errors that callers test for.
var (
	// ErrClosed is returned for a call after Drain or Close.
	ErrClosed = errors.New("the router is closed")
	// ErrNotStarted is returned for a Send before Start.
	ErrNotStarted = errors.New("the router has not started")
	// ErrLost is wrapped by a PeerError for a peer that stayed away too long.
	ErrLost = errors.New("lost")
	// ErrReplaced is wrapped by a PeerError for a peer that came back as a new incarnation: the messages
	// that the old one had not acknowledged are lost with it.
	ErrReplaced = errors.New("restarted")
)

// ErrPayload is wrapped by what the deliver function of a [Router.Channel] returns for a message
// whose payload is not of the event's type. That is the sender's fault, and the sender is lost.
var ErrPayload = errors.New("the payload does not decode")

// FailedError is wrapped by a PeerError for a peer that is lost and not started again, so
// that the job has failed: see [Farewell]. It wraps ErrLost.
type FailedError struct {
	Reason string // that of the farewell
}

// Error means that the peer is lost, and the reason.
func (e *FailedError) Error() string { return fmt.Sprintf("%v: %s", ErrLost, e.Reason) }

// Unwrap returns [ErrLost].
func (*FailedError) Unwrap() error { return ErrLost }

// PeerError describes the messages that were not delivered to one peer, and the reason.
type PeerError struct {
	Node        int // or Forgotten
	Incarnation uint64
	Undelivered int // messages that the peer did not acknowledge
	Err         error
}

// Error names the node, the reason and the loss.
func (e *PeerError) Error() string {
	if e.Node == Forgotten {
		return fmt.Sprintf("further losses: %d messages not acknowledged", e.Undelivered)
	}
	if e.Undelivered == 0 {
		return fmt.Sprintf("node.%d: %v", e.Node, e.Err)
	}
	return fmt.Sprintf("node.%d: %v: %d messages not acknowledged", e.Node, e.Err, e.Undelivered)
}

// Unwrap returns the reason.
func (e *PeerError) Unwrap() error { return e.Err }

// RefusedError is the error of a refused handshake.
type RefusedError struct {
	Code   string // one of the Refuse codes in docs/wire.md
	Reason string
	Addr   string
}

// Error names the address and the reason, in one printable line.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: refused (%s): %s", printable.Text(e.Addr), printable.Text(e.Code), printable.Cut(e.Reason, maxReason))
}
