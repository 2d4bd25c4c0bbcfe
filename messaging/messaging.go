// Package messaging has the words that an engine of tasks and a router have in common: an
// event as nodes declare it, a message in both directions, the room that a receiver gives
// back, and a peer. Packages task and router name them by aliases, so that neither imports
// the other, and nothing is converted between them.
//
//	spec := messaging.Spec{Name: "greeting", Delivery: messaging.Latest}
//	fmt.Println(spec.Delivery) // latest
//
// # Concurrency
//
// The types are plain data. [Buffer] and [Credit] are safe for concurrent use.
package messaging

import "fmt"

// Delivery is the treatment of a message that its receiver is too slow for.
type Delivery uint8

// The delivery policies.
const (
	Reliable   Delivery = iota // the sender blocks, and nothing is lost
	Latest                     // only the newest value is kept; a node that joins late receives it
	DropOldest                 // the newest Spec.Queue messages are kept, the others counted
	DropNewest                 // the oldest Spec.Queue messages are kept, the others counted
)

// String is the policy's name on the wire and in messages.
func (d Delivery) String() string {
	switch d {
	case Reliable:
		return "reliable"
	case Latest:
		return "latest"
	case DropOldest:
		return "drop-oldest"
	case DropNewest:
		return "drop-newest"
	}
	return fmt.Sprintf("delivery(%d)", uint8(d))
}

// Spec declares an event. Nodes that declare one name with different fingerprints or
// policies refuse each other.
type Spec struct {
	Name        string   // unique on a node
	Delivery    Delivery // equal on all nodes
	Queue       int      // messages kept for a slow receiver under the policies that drop; 0 means 1024 to a router
	Fingerprint uint64   // identifies the payload's type
	Schema      string   // the payload's type in words, for errors
	Headers     bool     // messages that this node sends may have a Buffer.Header
}

// Buffer is an encoded payload. It is reference-counted: a router that keeps it until it is
// acknowledged calls Retain, and Release afterwards.
type Buffer interface {
	// Bytes returns the payload. It must not be changed.
	Bytes() []byte
	// Header is data beside the payload, such as the context of a trace:
	// nil for nothing. It must not change, and is asked for only if Spec.Headers
	// says that there may be one.
	Header() []byte
	// Retain adds a reference.
	Retain()
	// Release gives a reference back.
	Release()
}

// Inbound is one message from another node. It is valid during the call that delivers it,
// and so is Payload, unless that call takes it.
type Inbound struct {
	From    int    // id of the node that sent it
	Version uint64 // its number among the messages of its sender and event, from 1
	Payload []byte
	// Takable permits the receiver to keep Payload, and to alias it. It then sets Taken.
	Takable, Taken bool
	// Lent means that Payload is memory of the sender's process. The receiver does not write to it, and gives it to
	// Credit.Recycle before the message is consumed, if it has taken it.
	Lent   bool
	Credit Credit // to be returned when the message has been consumed
	Header []byte // what the sender's Buffer had beside the payload; valid during the call
}

// Credit gives a sender its room back.
type Credit interface {
	// Return gives back the room of so many messages, of so many payload bytes together,
	// that have been consumed or dropped here.
	Return(messages, bytes int)
	// Recycle gives back a payload that was taken and that nothing refers to any more.
	Recycle(payload []byte)
}

// Memory is a place for a payload that other processes of the host can read. A [Buffer] that is in one has a method Memory that
// returns it.
type Memory interface {
	Bytes() []byte // the place; its first bytes are the payload
	Fit(n int)     // gives back the bytes after the first n
	Release()      // gives back all bytes
}

// Peer is another node of the job.
type Peer struct {
	ID          int
	Incarnation uint64 // grows when the node is restarted
	Labels      []string
}
