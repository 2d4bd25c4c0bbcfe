package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Record is one record of a file. Which fields are set follows from Kind.
type Record struct {
	Kind Kind
	Time time.Time

	Head  *Head
	Event *Event // of KindEvent, KindSent and KindReceived
	Peer  *Peer
	End   *End

	Node    int // the other one, of KindSent and KindReceived
	Version uint64
	Bytes   int    // of the payload
	Header  []byte // of KindReceived
	Payload []byte // of KindReceived, if the Reader keeps payloads
}

// ErrFormat is wrapped by the error for a file that is no trace.
var ErrFormat = errors.New("not a ditask trace")

// maxRecord bounds a record: a message of 1 GiB, and a little.
const maxRecord = 1<<30 + 1<<20

// Reader reads one file, in memory for one record.
type Reader struct {
	// Payloads are kept only if it is set before the first Next.
	Payloads bool

	r      *bufio.Reader
	begun  bool
	torn   bool
	events map[uint16]*Event
}

// NewReader returns a Reader of a file's bytes.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), events: map[uint16]*Event{}}
}

// Torn reports whether the file ended within a record.
func (r *Reader) Torn() bool { return r.torn }

// Next returns the next record. Its error is io.EOF at the end, which may be torn,
// and wraps ErrFormat for what is no trace.
func (r *Reader) Next() (Record, error) {
	if !r.begun {
		var m [len(magic)]byte
		if _, err := io.ReadFull(r.r, m[:]); err != nil || string(m[:]) != magic {
			return Record{}, fmt.Errorf("%w: it does not begin with %q", ErrFormat, magic)
		}
		r.begun = true
	}
	for {
		rec, known, err := r.next()
		if err != nil || known {
			return rec, err
		}
	}
}

func (r *Reader) next() (rec Record, known bool, err error) {
	var head [headBytes]byte
	if n, err := io.ReadFull(r.r, head[:]); err != nil {
		r.torn = n > 0
		return rec, false, atEnd(err)
	}
	size := int(le.Uint32(head[:])) - (headBytes - 4)
	if size < 0 || size > maxRecord {
		return rec, false, fmt.Errorf("%w: a record of %d bytes", ErrFormat, size)
	}
	rec.Kind, rec.Time = Kind(head[4]), time.Unix(0, int64(le.Uint64(head[5:]))) //nolint:gosec // what was written
	keep := size
	if rec.Kind == KindReceived && !r.Payloads {
		keep = min(size, receivedHead)
	}
	var body bytes.Buffer // it grows with the data that arrives, not with the announced length
	if _, err := io.CopyN(&body, r.r, int64(keep)); err != nil {
		r.torn = true
		return rec, false, atEnd(err)
	}
	known, err = r.parse(&rec, body.Bytes(), size)
	if err == nil && size > keep {
		if _, err := r.r.Discard(size - keep); err != nil {
			r.torn = true
			return rec, false, atEnd(err)
		}
	}
	return rec, known, err
}

// The bytes of a body before the payload; those of a message received without its
// header.
const (
	messageHead  = 2 + 4 + 8
	receivedHead = messageHead + 2
)

// parse reads a body of size bytes, the first of which are b.
func (r *Reader) parse(rec *Record, b []byte, size int) (known bool, err error) {
	short := func(n int) bool { return len(b) < n }
	switch rec.Kind {
	case KindHead:
		rec.Head = new(Head)
		err = json.Unmarshal(b, rec.Head)
	case KindEvent:
		if short(2) {
			return false, fmt.Errorf("%w: a short record", ErrFormat)
		}
		rec.Event = new(Event)
		if err = json.Unmarshal(b[2:], rec.Event); err == nil {
			r.events[le.Uint16(b)] = rec.Event
		}
	case KindSent:
		if short(messageHead + 8) {
			return false, fmt.Errorf("%w: a short record", ErrFormat)
		}
		rec.Bytes = int(le.Uint64(b[messageHead:])) //nolint:gosec // a size
		return r.message(rec, b)
	case KindReceived:
		if short(receivedHead) {
			return false, fmt.Errorf("%w: a short record", ErrFormat)
		}
		n := int(le.Uint16(b[messageHead:]))
		if rec.Bytes = size - receivedHead - n; rec.Bytes < 0 {
			return false, fmt.Errorf("%w: a header of %d bytes", ErrFormat, n)
		}
		if r.Payloads {
			rec.Header, rec.Payload = b[receivedHead:receivedHead+n], b[receivedHead+n:]
		}
		return r.message(rec, b)
	case KindPeer:
		rec.Peer = new(Peer)
		err = json.Unmarshal(b, rec.Peer)
	case KindReady:
	case KindEnd:
		rec.End = new(End)
		err = json.Unmarshal(b, rec.End)
	default:
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return true, nil
}

func (r *Reader) message(rec *Record, b []byte) (bool, error) {
	if rec.Event = r.events[le.Uint16(b)]; rec.Event == nil {
		return false, fmt.Errorf("%w: event number %d is not declared", ErrFormat, le.Uint16(b))
	}
	rec.Node, rec.Version = int(le.Uint32(b[2:])), le.Uint64(b[6:])
	return true, nil
}

// atEnd is err, or io.EOF where the file ends within a record.
func atEnd(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}
