package natsbus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ditask/ditask/internal/printable"
)

// The kinds of messages.
const (
	kindDial   = 1
	kindAccept = 2
	kindData   = 3
	kindAck    = 4
	kindFin    = 5
	kindReset  = 6
)

const (
	version   = 1
	headBytes = 17
	helloHead = headBytes + 5
	// costBytes is what a message takes of a window besides its body: about what
	// the client keeps of each.
	costBytes = 256
	// pieceBytes is the largest body of a message: larger ones would keep small
	// ones waiting in the server.
	pieceBytes = 256 << 10
	// nameBytes is the longest name that a dialler gives itself.
	nameBytes = 200
)

var le = binary.LittleEndian

// head is the beginning of a message.
type head struct {
	kind     byte
	number   uint64
	consumed uint64
}

func appendHead(b []byte, h head) []byte {
	b = append(b, h.kind)
	b = le.AppendUint64(b, h.number)
	return le.AppendUint64(b, h.consumed)
}

var errMalformed = errors.New("malformed message")

// parse divides a message into its head and its body.
func parse(b []byte) (head, []byte, error) {
	if len(b) < headBytes {
		return head{}, nil, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	h := head{kind: b[0], number: le.Uint64(b[1:]), consumed: le.Uint64(b[9:])}
	numbered := h.kind == kindData || h.kind == kindAck || h.kind == kindFin
	switch {
	case h.kind < kindDial || h.kind > kindReset:
		return head{}, nil, fmt.Errorf("%w: kind %d", errMalformed, h.kind)
	case numbered != (h.number > 0):
		return head{}, nil, fmt.Errorf("%w: kind %d with number %d", errMalformed, h.kind, h.number)
	}
	return h, b[headBytes:], nil
}

// appendHello appends the body of a dial or an accept.
func appendHello(b []byte, window int, name string) []byte {
	b = append(b, version)
	b = le.AppendUint32(b, uint32(window)) //nolint:gosec // a few MiB
	return append(b, name[:min(len(name), nameBytes)]...)
}

// parseHello reads the body of a dial or an accept.
func parseHello(b []byte) (window int, name string, err error) {
	if len(b) < helloHead-headBytes || len(b) > helloHead-headBytes+nameBytes {
		return 0, "", fmt.Errorf("%w: a greeting of %d bytes", errMalformed, len(b))
	}
	if b[0] != version {
		return 0, "", fmt.Errorf("%w: version %d, this is %d", errMalformed, b[0], version)
	}
	if window = int(le.Uint32(b[1:])); window < minWindow || window > maxWindow {
		return 0, "", fmt.Errorf("%w: a window of %d bytes", errMalformed, window)
	}
	return window, printable.Cut(string(b[5:]), nameBytes), nil
}

// token makes s a part of a subject.
func token(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "~%02x", c)
		}
	}
	return b.String()
}

// Node is the id in an address of the form "bus://node.<id>".
func Node(addr string) (int, error) {
	if digits, ok := strings.CutPrefix(addr, "bus://node."); ok {
		if id, err := strconv.Atoi(digits); err == nil && id >= 0 && strconv.Itoa(id) == digits {
			return id, nil
		}
	}
	return 0, fmt.Errorf("address %q: want bus://node.<id>", addr)
}
