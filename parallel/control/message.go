package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/metrics"
)

// MaxLine is the longest line in bytes, its newline included. A longer one is
// skipped by a Reader; a Client shortens its texts to stay below it.
const MaxLine = 64 << 10

// maxText bounds each text in a message, so that even if JSON needs six bytes
// for each of theirs, a line stays below MaxLine.
const maxText = 8 << 10

// ErrMalformed is in the error of Reader.Next for a line that is too long or
// not a message. The next call continues with the next line.
var ErrMalformed = errors.New("malformed control line")

// The types of message.
const (
	TypeHello    = "hello"
	TypeReady    = "ready"
	TypeAlive    = "alive"
	TypeStatus   = "status"
	TypeOutcome  = "outcome"
	TypeInterval = "interval"
	TypeBye      = "bye"
	TypeMetrics  = "metrics"
	TypeLost     = "lost"
)

// Message is one line on the control socket.
type Message struct {
	Type     string        `json:"type"`
	Status   *Status       `json:"status,omitempty"`      // with TypeStatus
	Outcome  *Outcome      `json:"outcome,omitempty"`     // with TypeOutcome
	Interval time.Duration `json:"interval_ns,omitempty"` // with TypeInterval
	Metrics  *Metrics      `json:"metrics,omitempty"`     // with TypeMetrics
	Lost     *Lost         `json:"lost,omitempty"`        // with TypeLost
}

// Lost means that the process of a node has ended without leaving the job: to the other nodes of its
// launcher, and to the process that sends the node's farewell.
type Lost struct {
	Node        int    `json:"node"`
	Incarnation uint64 `json:"incarnation,string"` // of the process
	Reason      string `json:"reason"`             // such as "killed by signal: killed"
	Final       bool   `json:"final,omitempty"`    // the node is not started again: the job has failed
}

// Metrics is a launcher's request for what a node counts, without samples, or a
// part of the node's answer, which has the number of its request.
type Metrics struct {
	Seq     uint64           `json:"seq"`
	Samples []metrics.Sample `json:"samples,omitempty"`
	Last    bool             `json:"last,omitempty"` // nothing more comes
}

// Status is the state of a node.
type Status struct {
	Role  string  `json:"role,omitempty"`  // its roles, such as "learner"
	Step  int64   `json:"step"`            // steps of its task so far
	Rate  float64 `json:"rate"`            // steps per second of late
	Queue int     `json:"queue"`           // messages that wait for a listener
	Lag   float64 `json:"lag"`             // policy versions behind the newest, mean of late
	Peers int     `json:"peers,omitempty"` // other nodes connected
	Note  string  `json:"note,omitempty"`  // for the user: "waiting for node 2"

	Drops      uint64        `json:"drops,omitempty"`      // events dropped or lost so far, here and on the way from here
	Reconnects uint64        `json:"reconnects,omitempty"` // connections so far that took over from broken ones
	RTT        time.Duration `json:"rtt_ns,omitempty"`     // longest round trip to a peer; 0: not known
	RTTPeer    int           `json:"rtt_peer,omitempty"`   // which
}

// Kind describes how a node ended.
type Kind string

// The ways in which a node ends.
const (
	Success   Kind = "success"   // done, by max steps or finish
	Failure   Kind = "failure"   // an error or a panic, its own or another node's
	Preempted Kind = "preempted" // stopped: drained and checkpointed, may be resumed
)

// Outcome describes how a node ended, in its last message.
type Outcome struct {
	Kind  Kind   `json:"kind"`
	Node  int    `json:"node"`            // the node that caused it; its own id unless another failed
	Error string `json:"error,omitempty"` // for Failure
	Over  bool   `json:"over,omitempty"`  // the job has failed, and not this node alone, and the other nodes know
	All   bool   `json:"all,omitempty"`   // with Success: the job ends when all nodes are done, and not with this one
}

// Reader reads messages from one end of a control socket, in bounded memory.
// It is for one goroutine.
type Reader struct {
	r *bufio.Reader
}

// NewReader returns a Reader of the lines of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, MaxLine)}
}

// Next returns the next message. At the end its error is io.EOF, or what
// reading failed with; a line that is not a message is an ErrMalformed, after
// which Next may be called again. A last line without a newline was torn by
// the death of its writer and counts as the end.
func (r *Reader) Next() (Message, error) {
	line, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.r.ReadSlice('\n')
		}
		if err != nil {
			return Message{}, err
		}
		return Message{}, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, MaxLine)
	}
	if err != nil {
		return Message{}, err
	}
	return decode(line)
}

func decode(line []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, printable.Error(err))
	}
	if err := m.check(); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	m.makePrintable()
	return m, nil
}

// makePrintable bounds the texts of a message that was read, and makes them safe to print, as a node
// or a launcher may quote text from other sources. The bounds leave room for what Append adds to texts
// that it cuts.
func (m *Message) makePrintable() {
	if s := m.Status; s != nil {
		s.Role, s.Note = printable.Cut(s.Role, maxText/4), printable.Cut(s.Note, maxText/4)
	}
	if o := m.Outcome; o != nil {
		o.Error = printable.Block(o.Error, 2*maxText)
	}
	if l := m.Lost; l != nil {
		l.Reason = printable.Cut(l.Reason, 2*maxText)
	}
}

// check refuses a message that lacks the content of its type.
func (m Message) check() error {
	switch m.Type {
	case "":
		return errors.New("no type")
	case TypeStatus:
		if m.Status == nil {
			return errors.New("no status")
		}
	case TypeInterval:
		if m.Interval <= 0 {
			return fmt.Errorf("interval %v", m.Interval)
		}
	case TypeMetrics:
		if m.Metrics == nil {
			return errors.New("no metrics")
		}
	case TypeLost:
		if m.Lost == nil {
			return errors.New("no lost node")
		}
	case TypeOutcome:
		if m.Outcome == nil {
			return errors.New("no outcome")
		}
		switch m.Outcome.Kind {
		case Success, Failure, Preempted:
		default:
			return fmt.Errorf("outcome %q", printable.Text(string(m.Outcome.Kind)))
		}
	}
	return nil
}

// Append appends m to dst as one line. Texts that are too long are cut. It
// fails for a number that JSON does not have, such as NaN.
func (m Message) Append(dst []byte) ([]byte, error) {
	if m.Status != nil {
		s := *m.Status
		s.Role, s.Note = cut(s.Role, maxText/8), cut(s.Note, maxText/8)
		m.Status = &s
	}
	if m.Outcome != nil {
		o := *m.Outcome
		o.Error = cut(o.Error, maxText)
		m.Outcome = &o
	}
	if m.Lost != nil {
		l := *m.Lost
		l.Reason = cut(l.Reason, maxText)
		m.Lost = &l
	}
	b, err := json.Marshal(m)
	if err != nil {
		return dst, fmt.Errorf("encode control line: %w", err)
	}
	dst = append(dst, bytes.TrimSpace(b)...)
	return append(dst, '\n'), nil
}

// cut shortens s to about limit bytes, and marks the cut.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return fmt.Sprintf("%s... (%d bytes more)", s[:limit], len(s)-limit)
}
