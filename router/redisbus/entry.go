package redisbus

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// kind is what an entry is.
type kind byte

const (
	kindSyn kind = iota + 1
	kindAccept
	kindData
	kindAck
	kindFin
	kindNone
)

const (
	headBytes  = 25
	inboxBytes = 16
	helloBytes = 8 + 4 + inboxBytes
)

var errBadEntry = errors.New("not an entry of this protocol")

var le = binary.LittleEndian

// head is what every entry begins with.
type head struct {
	kind     kind
	to       uint64
	offset   uint64
	consumed uint64
}

// hello is one side's end of a connection.
type hello struct {
	id     uint64
	window uint32
	inbox  string
}

func appendHead(b []byte, h head) []byte {
	b = append(b, byte(h.kind))
	b = le.AppendUint64(b, h.to)
	b = le.AppendUint64(b, h.offset)
	return le.AppendUint64(b, h.consumed)
}

// setConsumed writes the newest total into an entry that waits to be sent.
func setConsumed(entry []byte, total uint64) { le.PutUint64(entry[17:], total) }

func appendHello(b []byte, h hello) []byte {
	b = le.AppendUint64(b, h.id)
	b = le.AppendUint32(b, h.window)
	return append(b, h.inbox...)
}

// parseEntry divides an entry; the body is a part of it.
func parseEntry(entry string) (head, string, error) {
	if len(entry) < headBytes {
		return head{}, "", fmt.Errorf("%w: %d bytes", errBadEntry, len(entry))
	}
	b := []byte(entry[:headBytes])
	h := head{kind(b[0]), le.Uint64(b[1:]), le.Uint64(b[9:]), le.Uint64(b[17:])}
	if h.kind < kindSyn || h.kind > kindNone {
		return head{}, "", fmt.Errorf("%w: type %d", errBadEntry, h.kind)
	}
	return h, entry[headBytes:], nil
}

// parseHello takes a hello off the body of a syn or an accept.
func parseHello(body string) (hello, string, error) {
	if len(body) < helloBytes {
		return hello{}, "", fmt.Errorf("%w: a greeting of %d bytes", errBadEntry, len(body))
	}
	b := []byte(body[:helloBytes])
	h := hello{le.Uint64(b), le.Uint32(b[8:]), string(b[12:])}
	for _, c := range b[12:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return hello{}, "", fmt.Errorf("%w: inbox %q", errBadEntry, h.inbox)
		}
	}
	return h, body[helloBytes:], nil
}
