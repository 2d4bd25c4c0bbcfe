package faultlab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
)

// Peer is a node in one of its incarnations.
type Peer struct {
	Node        int    `json:"n"`
	Incarnation uint64 `json:"i"`
}

// String returns the name of the peer in messages, such as node.2/1.
func (p Peer) String() string { return fmt.Sprintf("node.%d/%d", p.Node, p.Incarnation) }

// Kind determines what a Record tells.
type Kind string

// The kinds of records.
const (
	Begin      Kind = "begin"     // Who starts; Founder: it is among those that the job began with
	Ready      Kind = "ready"     // Who has started: what it emits from now on reaches everyone
	Emit       Kind = "emit"      // Who is about to emit
	Sent       Kind = "sent"      // that emit has returned
	Hear       Kind = "hear"      // a listener of Who is called
	Lost       Kind = "lost"      // Who reports Count messages that Peer did not acknowledge
	Counted    Kind = "counted"   // Who's counters of one event, at its end
	BarrierIn  Kind = "in"        // Who comes to a barrier, of name Event and round Number
	BarrierOut Kind = "out"       // Who leaves it
	End        Kind = "end"       // Who has ended: Outcome says how
	Fault      Kind = "fault"     // the laboratory did something, named Event, to Nodes; without a name it is the end of that
	Finishing  Kind = "finishing" // Who emits nothing more
	Leaving    Kind = "leaving"   // Who asks the others to send it nothing more
	// Hostile marks Who, and every node with a higher id, as hostile from now on. With Grave, all other nodes may fail.
	Hostile Kind = "hostile"
)

// The outcomes of an End.
const (
	Success   = "success"
	Failure   = "failure"
	Preempted = "preempted"
	Killed    = "killed" // by the laboratory
)

// LeaveFault is the name of a harmless Fault: its Nodes are asked to leave. Each of
// them may therefore end as preempted, and the others lose nothing.
const LeaveFault = "leave"

// Record is one action of a node, or one event at it. Fields that do not belong to
// its Kind are zero.
type Record struct {
	seq  int   // its place in time, for the checker
	Kind Kind  `json:"k"`
	At   int64 `json:"t"` // ns on a clock that all nodes share
	Who  Peer  `json:"w"`

	Founder bool `json:"founder,omitempty"` // with Begin

	// With Emit, Sent and Hear: the message, which is the Number-th of its
	// sender's Stream and Event, from 1, and the Order-th of its Stream.
	Event  string `json:"e,omitempty"`
	Stream int    `json:"s,omitempty"`
	Number uint64 `json:"x,omitempty"`
	Order  uint64 `json:"o,omitempty"`
	Bytes  int    `json:"b,omitempty"`
	Sum    uint32 `json:"c,omitempty"` // of all its bytes

	To     []int  `json:"to,omitempty"`    // with Emit: the nodes addressed; nil: all others
	Exact  []Peer `json:"exact,omitempty"` // with Sent, in exact records: the addressed peers
	Failed []int  `json:"fail,omitempty"`  // with Sent: the nodes that the error names
	Err    string `json:"err,omitempty"`   // with Sent and End

	From  Peer   `json:"f,omitzero"`      // with Hear: the sender
	Peer  Peer   `json:"peer,omitzero"`   // with Lost: who; incarnation 0: not known
	Count uint64 `json:"count,omitempty"` // with Lost
	Stats Stats  `json:"stats,omitzero"`  // with Counted
	Nodes []int  `json:"nodes,omitempty"` // with Fault
	Grave bool   `json:"grave,omitempty"` // with Fault: it may cost these nodes their part in the job; no nodes: all
	Out   string `json:"out,omitempty"`   // with End: the outcome
}

// Stats are a sender's counters of one event, summed over its peers.
type Stats struct{ Consumed, Dropped, Lost, Queued uint64 }

// Sum returns the checksum that records carry.
func Sum(payload []byte) uint32 { return crc32.ChecksumIEEE(payload) }

// Writer writes each record at once, as one line, so that a killed process leaves all
// its records. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	f  *os.File
}

// NewWriter appends to the file path.
func NewWriter(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{f: f}, nil
}

// Write appends r.
func (w *Writer) Write(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.f.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// ReadFiles reads the records of all files, and puts them in order of time; those
// of one file stay in theirs. A last line that was cut off by the end of its
// process is left out.
func ReadFiles(paths []string) ([]Record, error) {
	var all []Record
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		records, err := read(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i := range records[min(1, len(records)):] { // two goroutines of one process
			records[i+1].At = max(records[i+1].At, records[i].At)
		}
		all = append(all, records...)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return int(min(max(a.At-b.At, -1), 1)) })
	return all, nil
}

func read(r io.Reader) ([]Record, error) {
	var out []Record
	b := bufio.NewReader(r)
	for {
		line, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil // without its end, the line was never finished
		}
		if err != nil {
			return nil, err
		}
		var rec Record
		if err := json.Unmarshal(line, &rec); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
		}
		out = append(out, rec)
	}
}
