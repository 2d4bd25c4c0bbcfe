package hostile

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// The protocol as docs/wire.md describes it. Nothing here is shared with package router: a
// hostile node is not bound by what that package can express.

// Types of frames.
const (
	frameData     = 1
	frameChunk    = 2
	frameDeclare  = 3
	frameListen   = 4
	frameMembers  = 5
	frameReady    = 6
	frameSeen     = 7
	frameBarrier  = 8
	frameFin      = 9
	frameFarewell = 15
	frameAck      = 75
	frameCredit   = 76
	framePing     = 77
	framePong     = 78
	frameBye      = 79
)

// lastSequenced is the last type of the frames that both sides count.
const lastSequenced = frameRelease

const (
	headBytes  = 8
	chunkBytes = 256 << 10 // the largest piece of a message
	chunkHead  = 24
	// mostBody is the longest body that an honest node sends.
	mostBody = chunkBytes + chunkHead
	// mostHandshake is the longest message of a handshake.
	mostHandshake = 16 << 10
)

// handshakeTime bounds one handshake, and one write.
const handshakeTime = 5 * time.Second

var le = binary.LittleEndian

// magic begins a connection.
var magic = []byte("ditask\x00\x01")

type limits struct {
	WindowMessages int `json:"window_messages"`
	WindowBytes    int `json:"window_bytes"`
	ChunkBytes     int `json:"chunk_bytes"`
}

// hello is the first message of each side.
type hello struct {
	Protocol    int      `json:"protocol"`
	Version     string   `json:"version,omitempty"`
	Job         string   `json:"job"`
	Node        int      `json:"node"`
	Incarnation uint64   `json:"incarnation,string"`
	Addrs       []string `json:"addrs,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	Nonce       []byte   `json:"nonce"`
	Purpose     string   `json:"purpose,omitempty"`
	Target      int      `json:"target,omitempty"`
	Ticket      string   `json:"ticket,omitempty"`
	Limits      limits   `json:"limits"`
	Features    []string `json:"features,omitempty"`

	Memory *memory `json:"memory,omitempty"`

	Farewell *farewell `json:"farewell,omitempty"`
}

// memory is how another process of the host opens the memory of a node.
type memory struct {
	PID  int    `json:"pid"`
	FD   int    `json:"fd"`
	Name string `json:"name"`
}

// farewell is the farewell of a node, in a hello without the node.
type farewell struct {
	Node        int    `json:"node"`
	Incarnation uint64 `json:"incarnation,string"`
	Reason      string `json:"reason"`
	Final       bool   `json:"final,omitempty"`
}

type refusal struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

type answer struct {
	Hello  json.RawMessage `json:"hello"`
	Refuse *refusal        `json:"refuse"`
}

type proof struct {
	Proof  []byte   `json:"proof"`
	Known  bool     `json:"known"`
	Got    uint64   `json:"got,string"`
	Refuse *refusal `json:"refuse,omitempty"`
}

type welcome struct {
	Got    uint64   `json:"got,string"`
	Refuse *refusal `json:"refuse"`
}

type member struct {
	ID          int      `json:"id"`
	Incarnation uint64   `json:"incarnation,string"`
	Addrs       []string `json:"addrs,omitempty"`
}

type declaration struct {
	Name        string `json:"name"`
	Delivery    string `json:"delivery"`
	Queue       int    `json:"queue,omitempty"`
	Fingerprint string `json:"fingerprint"`
	Schema      string `json:"schema,omitempty"`
}

type barrier struct {
	Name  string `json:"name"`
	Round uint64 `json:"round"`
}

func nonce() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

// jsonOf encodes one of the types above, which cannot fail.
func jsonOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// writeText writes a message of the handshake, and returns its text.
func writeText(w io.Writer, before []byte, v any) ([]byte, error) {
	text := jsonOf(v)
	_, err := w.Write(append(le.AppendUint32(append([]byte(nil), before...), uint32(len(text))), text...)) //nolint:gosec // small
	return text, err
}

// readText reads a message of the handshake.
func readText(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := le.Uint32(head[:])
	if n > mostHandshake {
		return fmt.Errorf("a handshake message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// prove returns the proof of the dialling side.
func prove(token, mine, theirs, binding []byte) []byte {
	m := hmac.New(sha256.New, token)
	for _, part := range [][]byte{[]byte("ditask handshake"), []byte("dial"), mine, theirs, binding} {
		m.Write(le.AppendUint64(nil, uint64(len(part))))
		m.Write(part)
	}
	return m.Sum(nil)
}

// binding returns the exporter of a TLS connection, empty for another one.
func binding(conn net.Conn) []byte {
	c, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	b, err := state.ExportKeyingMaterial("EXPORTER-ditask-handshake", nil, 32)
	if err != nil {
		return nil
	}
	return b
}

// greet says h on a connection, with the proof that belongs to it. no is the refusal that
// takes the place of the rest of the handshake; nil: the connection is asked for.
func greet(conn net.Conn, token []byte, h hello, no *refusal) (theirs hello, err error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return hello{}, err
	}
	mine, err := writeText(conn, magic, h)
	if err != nil {
		return hello{}, err
	}
	var a answer
	if err := readText(conn, &a); err != nil {
		return hello{}, err
	}
	if a.Refuse != nil {
		return hello{}, &refusedError{*a.Refuse}
	}
	if err := json.Unmarshal(a.Hello, &theirs); err != nil {
		return hello{}, err
	}
	if _, err := writeText(conn, nil, proof{Proof: prove(token, mine, a.Hello, binding(conn)), Refuse: no}); err != nil {
		return hello{}, err
	}
	var w welcome
	if err := readText(conn, &w); err != nil {
		return hello{}, err
	}
	if w.Refuse != nil {
		return hello{}, &refusedError{*w.Refuse}
	}
	return theirs, conn.SetDeadline(time.Time{})
}

// refusedError is the refusal of an honest node.
type refusedError struct{ refusal }

func (e *refusedError) Error() string { return fmt.Sprintf("refused: %s: %.200q", e.Code, e.Reason) }

// appendFrame appends a frame.
func appendFrame(b []byte, typ, flags byte, event uint16, body []byte) []byte {
	b = append(le.AppendUint32(b, uint32(len(body))), typ, flags) //nolint:gosec // small
	return append(le.AppendUint16(b, event), body...)
}

// numbers returns a body of numbers.
func numbers(n ...uint64) []byte {
	var b []byte
	for _, v := range n {
		b = le.AppendUint64(b, v)
	}
	return b
}

// frame is one that was read. Its body is valid until the next one.
type frame struct {
	typ, flags byte
	event      uint16
	body       []byte
}

// readFrame reads a frame into buf, which it returns.
func readFrame(r io.Reader, buf []byte) (frame, []byte, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, buf, err
	}
	n := le.Uint32(head[:])
	if n > mostBody {
		return frame{}, buf, fmt.Errorf("a frame of %d bytes", n)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	f := frame{typ: head[4], flags: head[5], event: le.Uint16(head[6:]), body: buf[:n]}
	_, err := io.ReadFull(r, f.body)
	return f, buf, err
}

// Dialer makes the connections: a transport of the job.
type Dialer interface {
	Dial(ctx context.Context, addr string) (net.Conn, error)
}
