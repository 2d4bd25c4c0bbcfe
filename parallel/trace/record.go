package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ditask/ditask/internal/safefile"
)

const magic = "ditrace1"

// Kind is the kind of a record.
type Kind uint8

// The kinds of record.
const (
	KindHead Kind = 1 + iota
	KindEvent
	KindSent
	KindReceived
	KindPeer
	KindReady
	KindEnd
)

// Head describes the recorded node: the part of its launcher's environment that
// it takes to start it alone.
type Head struct {
	Job         string   `json:"job"`
	Node        int      `json:"node"`
	LocalID     int      `json:"local_id"`
	Nodes       int      `json:"nodes"`
	Topology    string   `json:"topology,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	Attempt     int      `json:"attempt"`
	Incarnation uint64   `json:"incarnation,string"`
	Seed        int64    `json:"seed,string"`
	Resume      bool     `json:"resume,omitempty"`
	Recover     bool     `json:"recover,omitempty"`
	Main        string   `json:"main,omitempty"`
	Args        []string `json:"args,omitempty"` // of the program, without its name
}

// Event is the declaration of an event.
type Event struct {
	Name        string `json:"name"`
	Delivery    string `json:"delivery"`
	Queue       int    `json:"queue,omitempty"`
	Fingerprint uint64 `json:"fingerprint,string"`
	Schema      string `json:"schema,omitempty"`
}

// The changes of a peer.
const (
	PeerJoined = "joined"
	PeerLeft   = "left"
	PeerLost   = "lost"
)

// Peer is a change of a peer.
type Peer struct {
	Node        int      `json:"node"`
	Change      string   `json:"change"`
	Incarnation uint64   `json:"incarnation,string"`
	Labels      []string `json:"labels,omitempty"`
	Error       string   `json:"error,omitempty"`
}

// End gives the reason why the file ends.
type End struct {
	Reason string `json:"reason"` // EndClosed or EndLimit
}

// The reasons for the end of a file. A node that was killed gives none.
const (
	EndClosed = "closed" // the node has ended
	EndLimit  = "limit"  // the file has reached its limit: later events are missing
)

// Path returns the path of the file of one start of a node.
func Path(dir string, node, attempt int) string {
	return filepath.Join(dir, fmt.Sprintf("node-%d-%d.trace", node, attempt))
}

// Pattern matches the names that Path makes.
const Pattern = "node-*-*.trace"

// DefaultLimit is the default limit of a file in bytes.
const DefaultLimit = 256 << 20

// endRoom is kept for the end record.
const endRoom = 64

// headBytes is a record's head: length, kind and time.
const headBytes = 4 + 1 + 8

var le = binary.LittleEndian

// Recorder writes one file. A record that it cannot write ends the recording, not the caller: Close
// returns the error.
type Recorder struct {
	limit int64

	mu     sync.Mutex
	file   *os.File
	size   int64
	events map[string]uint16
	buf    []byte
	over   bool // nothing more is written
	full   bool // because of the limit
	err    error
}

// Create makes the file again, and its folder if that is missing, so that only this user
// can read them: the file holds what events carry. limit bounds its size in bytes; 0 means
// DefaultLimit.
func Create(path string, head Head, limit int64) (*Recorder, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	dir := filepath.Dir(path)
	err := safefile.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = safefile.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("trace folder: %w", err)
	}
	file, err := safefile.Create(path, 0o600)
	if err != nil {
		return nil, fmt.Errorf("trace file: %w", err)
	}
	r := &Recorder{limit: limit, file: file, events: map[string]uint16{}}
	if _, err := file.WriteString(magic); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("trace file: %w", err)
	}
	r.size = int64(len(magic))
	r.json(KindHead, nil, head)
	return r, nil
}

// Full reports whether the limit was reached.
func (r *Recorder) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// Close ends the file. It returns the first error of the recording.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	if !r.over {
		r.end(EndClosed)
	}
	if err := r.file.Close(); r.err == nil && err != nil {
		r.err = err
	}
	r.file = nil
	if r.err != nil {
		return fmt.Errorf("trace file: %w", r.err)
	}
	return nil
}

// Declare describes an event. It comes before the event's first message.
func (r *Recorder) Declare(e Event) {
	r.mu.Lock()
	n := len(r.events)
	if _, ok := r.events[e.Name]; !ok {
		r.events[e.Name] = uint16(n) //nolint:gosec // a router has 1<<14 at most
	}
	n = int(r.events[e.Name])
	r.mu.Unlock()
	r.json(KindEvent, le.AppendUint16(nil, uint16(n)), e) //nolint:gosec // as above
}

// Sent notes a message for a peer.
func (r *Recorder) Sent(event string, peer int, version uint64, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(KindSent)
	r.message(event, peer, version)
	r.buf = le.AppendUint64(r.buf, uint64(bytes)) //nolint:gosec // not negative
	r.write(nil)
}

// Received notes a message of a peer.
func (r *Recorder) Received(event string, peer int, version uint64, header, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(KindReceived)
	r.message(event, peer, version)
	r.buf = le.AppendUint16(r.buf, uint16(len(header))) //nolint:gosec // router.MaxHeaderBytes
	r.buf = append(r.buf, header...)
	r.write(payload)
}

// Peer notes a change of a peer.
func (r *Recorder) Peer(p Peer) { r.json(KindPeer, nil, p) }

// Ready notes that the node is connected to those that it expects.
func (r *Recorder) Ready() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(KindReady)
	r.write(nil)
}

func (r *Recorder) json(kind Kind, prefix []byte, v any) {
	b, err := json.Marshal(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.fail(err)
		return
	}
	r.begin(kind)
	r.buf = append(append(r.buf, prefix...), b...)
	r.write(nil)
}

// The mutex is held by all below.

func (r *Recorder) begin(kind Kind) {
	r.buf = append(r.buf[:0], 0, 0, 0, 0, byte(kind))
	r.buf = le.AppendUint64(r.buf, uint64(time.Now().UnixNano()))
}

func (r *Recorder) message(event string, peer int, version uint64) {
	r.buf = le.AppendUint16(r.buf, r.events[event])
	r.buf = le.AppendUint32(r.buf, uint32(peer)) //nolint:gosec // a node id
	r.buf = le.AppendUint64(r.buf, version)
}

// write writes the record in buf and the rest of its body, or the end.
func (r *Recorder) write(payload []byte) {
	if r.over {
		return
	}
	size := int64(len(r.buf) + len(payload))
	if r.size+size > r.limit-endRoom {
		r.full = true
		r.end(EndLimit)
		return
	}
	le.PutUint32(r.buf, uint32(size-4)) //nolint:gosec // a message has at most 1 GiB
	if len(payload) < 64<<10 {          // one write: a record is in the file, or it is not
		r.buf = append(r.buf, payload...)
		payload = nil
	}
	if _, err := r.file.Write(r.buf); err != nil {
		r.fail(err)
		return
	}
	if len(payload) > 0 {
		if _, err := r.file.Write(payload); err != nil {
			r.fail(err)
			return
		}
	}
	r.size += size
}

func (r *Recorder) end(reason string) {
	r.begin(KindEnd)
	r.buf = fmt.Appendf(r.buf, `{"reason":%q}`, reason) // an End
	le.PutUint32(r.buf, uint32(len(r.buf)-4))           //nolint:gosec // some bytes
	r.over = true
	if _, err := r.file.Write(r.buf); err != nil {
		r.fail(err)
	}
}

func (r *Recorder) fail(err error) {
	r.over = true
	if r.err == nil {
		r.err = err
	}
}
