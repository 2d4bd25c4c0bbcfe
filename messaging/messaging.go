// Package messaging has the types that an engine of tasks and a router share: the declaration of an
// event, a message in both directions, the room that a receiver returns, and a peer. Packages task
// and router use them by aliases, so that neither imports the other, and no value is converted
// between them.
//
//	spec := messaging.Spec{Name: "greeting", Delivery: messaging.Latest}
//	fmt.Println(spec.Delivery) // latest
//
// # Concurrency
//
// The types are plain data. [Buffer] and [Credit] are safe for concurrent use.
package messaging

import "fmt"

// Delivery determines what happens to a message when its receiver is too slow.
type Delivery uint8

// The delivery policies.
const (
	Reliable   Delivery = iota // the sender blocks, and nothing is lost
	Latest                     // only the newest value is kept; a node that joins late receives it
	DropOldest                 // the newest Spec.Queue messages are kept, the others counted
	DropNewest                 // the oldest Spec.Queue messages are kept, the others counted
)

// String returns the policy's name on the wire and in messages.
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

// Spec declares an event. Nodes that declare the same name with different fingerprints or policies
// refuse each other.
type Spec struct {
	Name        string   // unique on a node
	Delivery    Delivery // equal on all nodes
	Queue       int      // messages kept for a slow receiver under the policies that drop; 0 means 1024 to a router
	Fingerprint uint64   // identifies the payload's type
	Schema      string   // the payload's type in words, for error messages
	Headers     bool     // messages that this node sends may have a Buffer.Header
}

// Buffer is an encoded payload. It is reference-counted: a router that keeps it until it is
// acknowledged calls Retain, and Release afterwards.
type Buffer interface {
	// Bytes returns the payload. It must not be changed.
	Bytes() []byte
	// Header returns data sent with the payload, such as the context of a trace, or nil. It must
	// not be changed, and is called only if Spec.Headers is true.
	Header() []byte
	// Retain adds a reference.
	Retain()
	// Release removes a reference.
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
	Header []byte // the Buffer.Header of the sender; valid during the call
}

// Credit returns room to a sender.
type Credit interface {
	// Return returns the room of a number of messages and payload bytes that have been consumed or
	// dropped here.
	Return(messages, bytes int)
	// Recycle returns a payload that was taken and has no more references.
	Recycle(payload []byte)
}

// Memory is memory for a payload that other processes of the host can read. A [Buffer] in such memory has a method Memory that
// returns it.
type Memory interface {
	Bytes() []byte // its first bytes are the payload
	Fit(n int)     // releases the bytes after the first n
	Release()      // releases all bytes
}

// Peer is another node of the job.
type Peer struct {
	ID          int
	Incarnation uint64 // grows when the node is restarted
	Labels      []string
}
