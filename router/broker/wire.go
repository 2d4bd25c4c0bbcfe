package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// The kinds of messages.
const (
	kindDial = iota + 1
	kindAccept
	kindData
	kindAck
	kindFin
	kindReset
)

const (
	// Version is the number of this protocol.
	Version = 2
	// CostBytes is the part of a window that a message takes besides its body: about the memory that clients and servers use for each.
	CostBytes = 256
	// HeadBytes is the length of the header of every message.
	HeadBytes = 25
	// InboxBytes is the length of the name of an inbox, in hexadecimal digits.
	InboxBytes = 16

	helloBytes = 8 + 4 + InboxBytes
	nameBytes  = 100 // of a dialler
	wordBytes  = 200
)

var (
	// ErrMalformed is the error of a message that this protocol does not allow.
	ErrMalformed = errors.New("malformed message")
	// ErrVersion is the error of a node that speaks another version of the protocol.
	ErrVersion = errors.New("another version of ditask")
)

var le = binary.LittleEndian

// head is the header of every message.
type head struct {
	kind     byte
	to       uint64 // the connection's id at the receiver
	offset   uint64 // bytes of data that went before it
	consumed uint64 // what the sender has returned of its window; the version in a dial and an accept
}

// Peer is one end of a connection.
type Peer struct {
	Inbox string
	ID    uint64
}

// hello is the description that one end of a connection sends of itself.
type hello struct {
	Peer
	window int
}

func appendHead(b []byte, h head) []byte {
	b = append(b, h.kind)
	b = le.AppendUint64(b, h.to)
	b = le.AppendUint64(b, h.offset)
	return le.AppendUint64(b, h.consumed)
}

// setConsumed writes the newest total into a message that waits to be sent.
func setConsumed(b []byte, total uint64) { le.PutUint64(b[17:], total) }

func appendHello(b []byte, h hello) []byte {
	b = le.AppendUint64(b, h.ID)
	b = le.AppendUint32(b, uint32(h.window)) //nolint:gosec // New bounds it
	return append(b, h.Inbox...)
}

// parse divides a message into its head and its body, which is a part of it.
func parse(b []byte) (head, []byte, error) {
	if len(b) < HeadBytes {
		return head{}, nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	h := head{b[0], le.Uint64(b[1:]), le.Uint64(b[9:]), le.Uint64(b[17:])}
	if h.kind < kindDial || h.kind > kindReset {
		return head{}, nil, fmt.Errorf("%w: kind %d", ErrMalformed, h.kind)
	}
	return h, b[HeadBytes:], nil
}

// parseHello takes a hello off the body of a dial or an accept.
func parseHello(body []byte) (hello, []byte, error) {
	if len(body) < helloBytes || len(body) > helloBytes+wordBytes+nameBytes+1 {
		return hello{}, nil, fmt.Errorf("%w: a greeting of %d bytes", ErrMalformed, len(body))
	}
	h := hello{Peer{string(body[12:helloBytes]), le.Uint64(body)}, int(le.Uint32(body[8:]))}
	for _, c := range h.Inbox {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return hello{}, nil, fmt.Errorf("%w: inbox %q", ErrMalformed, h.Inbox)
		}
	}
	return h, body[helloBytes:], nil
}

// checkVersion compares the version in a dial or an accept with this one.
func checkVersion(h head) error {
	// Version 1 had zeros here over Redis, and a byte with its number over NATS.
	if v := h.consumed & 0xff; v != Version {
		return fmt.Errorf("%w: the other node speaks version %s of the broker protocol, and this node version %d: "+
			"start all nodes with the same ditask",
			ErrVersion, strconv.FormatUint(max(v, 1), 10), Version)
	}
	return nil
}
