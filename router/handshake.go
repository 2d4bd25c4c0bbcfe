package router

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/router/sharedmem"
)

// Protocol is the version of the handshake and the frames. Nodes of another one
// are refused.
const Protocol = 1

// magic begins every connection, from the side that dialled.
var magic = [8]byte{'d', 'i', 't', 'a', 's', 'k', 0, Protocol}

// Refuse codes.
const (
	RefuseProtocol  = "protocol"  // another protocol
	RefuseJob       = "job"       // another job
	RefuseToken     = "token"     // wrong proof
	RefuseID        = "id"        // the node id is this node's own, or not one
	RefuseStale     = "stale"     // a newer incarnation of the node has joined
	RefuseLost      = "lost"      // one side has given the other up
	RefuseLimits    = "limits"    // other windows or chunks
	RefuseDuplicate = "duplicate" // the two are connected, or about to be
	RefuseRelay     = "relay"     // the hub cannot reach the target
	RefuseClosed    = "closed"    // the node is closing
	RefuseGone      = "gone"      // the process of the other node has ended, as its farewell says
	RefuseClock     = "clock"     // the incarnation is from the far future, by the clock of this side
)

// helloBytes bounds what is read from an unauthenticated connection.
const helloBytes = 16 << 10

// Purposes of a connection.
const (
	purposeJoin     = "join"     // a session between the two
	purposeRelay    = "relay"    // connect me to Target through you
	purposeAnswer   = "answer"   // this is what you asked for with Ticket
	purposeFarewell = "farewell" // the process of the node has ended
)

// hello is the description that each side sends of itself.
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
	Features    []string `json:"features,omitempty"` // what this side understands besides the protocol

	Memory *sharedmem.Ref `json:"memory,omitempty"` // payloads of this side, for processes of its host

	Farewell *Farewell `json:"farewell,omitempty"` // the process of the node has ended, and another one says this hello
}

// limits are what both ends of a connection count by, and must have in common.
type limits struct {
	WindowMessages int `json:"window_messages"`
	WindowBytes    int `json:"window_bytes"`
	ChunkBytes     int `json:"chunk_bytes"`
}

func (l limits) String() string {
	return fmt.Sprintf("WindowMessages %d, WindowBytes %d, ChunkBytes %d", l.WindowMessages, l.WindowBytes, l.ChunkBytes)
}

func (r *Router) limits() limits {
	return limits{r.cfg.WindowMessages, r.cfg.WindowBytes, r.cfg.ChunkBytes}
}

// featureHeader means that a node understands frameMsgHeader. A node without it
// is sent none.
const featureHeader = "header"

// featureLeave means that a node understands frameLeave. A node without it is sent none.
const featureLeave = "leave"

// featureDone means that a node understands frameDone. A node without it is
// sent none.
const featureDone = "done"

// featureListening means that a node answers frameListen with frameListening. A node without it
// neither receives answers nor sends them.
const featureListening = "listening"

// UnmarshalJSON makes the fields that this node prints safe to print. Fields that it only compares
// stay as they are.
func (h *hello) UnmarshalJSON(b []byte) error {
	type plain hello
	if err := json.Unmarshal(b, (*plain)(h)); err != nil {
		return err
	}
	h.Version, h.Purpose = printable.Text(h.Version), printable.Text(h.Purpose)
	makePrintable(h.Addrs)
	makePrintable(h.Labels)
	return nil
}

func makePrintable(texts []string) {
	for i, text := range texts {
		texts[i] = printable.Text(text)
	}
}

// refusal is the answer of a node that refuses a connection.
type refusal struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// bounded is the refusal with texts that are safe to print, and not longer than what is
// read.
func (r refusal) bounded() refusal {
	return refusal{printable.Text(r.Code), printable.Cut(r.Reason, maxReason)}
}

// MarshalJSON bounds the texts: a reason may quote the other side.
func (r refusal) MarshalJSON() ([]byte, error) {
	type plain refusal
	return json.Marshal(plain(r.bounded()))
}

// UnmarshalJSON bounds the texts, and makes them safe to print.
func (r *refusal) UnmarshalJSON(b []byte) error {
	type plain refusal
	if err := json.Unmarshal(b, (*plain)(r)); err != nil {
		return err
	}
	*r = r.bounded()
	return nil
}

// answer is the listening side's hello with its proof, or its refusal.
type answer struct {
	Hello  json.RawMessage `json:"hello,omitempty"`
	Proof  []byte          `json:"proof,omitempty"`
	Refuse *refusal        `json:"refuse,omitempty"`
}

// proof is the dialling side's proof, and what it has received before.
type proof struct {
	Proof  []byte   `json:"proof"`
	Known  bool     `json:"known"` // this side remembers a session
	Got    uint64   `json:"got,string"`
	Refuse *refusal `json:"refuse,omitempty"` // this side has given the other up
}

// welcome ends the handshake: what the listening side has received before.
type welcome struct {
	Got    uint64   `json:"got,string"`
	Refuse *refusal `json:"refuse,omitempty"`
}

type relayMsg struct {
	Ticket string `json:"ticket"`
	From   int    `json:"from"`
}

func (r *Router) hello(purpose string) hello {
	nonce := make([]byte, 32)
	_, _ = rand.Read(nonce) // never fails
	h := hello{
		Protocol: Protocol, Version: r.cfg.Version, Job: r.cfg.Job, Node: r.cfg.Node, Incarnation: r.cfg.Incarnation,
		Labels: r.labels, Nonce: nonce, Purpose: purpose, Limits: r.limits(), Features: r.features, Farewell: r.farewell,
	}
	if r.advertise != "" {
		h.Addrs = []string{r.advertise}
	}
	return h
}

// conversation is the content that both sides' proofs cover: both hellos and, under
// TLS, the connection.
type conversation struct{ client, server, binding []byte }

// prove is the keyed hash over a conversation: it binds the job's token to this
// one, and to this side of it.
func (r *Router) prove(side string, c conversation) []byte {
	m := hmac.New(sha256.New, r.cfg.Token)
	for _, b := range [][]byte{[]byte("ditask handshake"), []byte(side), c.client, c.server, c.binding} {
		var n [8]byte
		le.PutUint64(n[:], uint64(len(b)))
		m.Write(n[:])
		m.Write(b)
	}
	return m.Sum(nil)
}

// binding is a secret of the two ends of a TLS connection (an exporter of RFC 8446, as in RFC 9266).
// The proofs cover it, so that a process in the middle with its own certificate cannot relay them. It
// is empty for any other connection.
func binding(conn net.Conn) []byte {
	c, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	if !state.HandshakeComplete {
		return nil
	}
	b, _ := state.ExportKeyingMaterial("EXPORTER-ditask-handshake", nil, 32) // nil before TLS 1.3, not for all
	return b
}

func writeMsg(w io.Writer, prefix []byte, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := append(le.AppendUint32(prefix, uint32(len(body))), body...) //nolint:gosec // small
	_, err = w.Write(out)
	return body, err
}

func readMsg(rd io.Reader, v any) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(rd, n[:]); err != nil {
		return nil, err
	}
	size := le.Uint32(n[:])
	if size > helloBytes {
		if startsTLS(n[:]) {
			return nil, errSpeaksTLS
		}
		return nil, fmt.Errorf("%w: a handshake message of %d bytes", errBadFrame, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(rd, b); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadFrame, printable.Error(err))
	}
	return b, nil
}

// callHello is the dialling side's handshake up to its proof: it returns what
// the other side says of itself, and what the proof is. bound is the binding of
// the connection, if the other side is at its end.
func (r *Router) callHello(conn net.Conn, h hello, bound []byte) (hello, []byte, error) {
	mine, err := writeMsg(conn, magic[:], h)
	if err != nil {
		return hello{}, nil, err
	}
	var a answer
	if _, err := readMsg(conn, &a); err != nil {
		return hello{}, nil, explainNoAnswer(conn, err)
	}
	addr := conn.RemoteAddr().String()
	if a.Refuse != nil {
		return hello{}, nil, &unauthenticatedError{&RefusedError{a.Refuse.Code, a.Refuse.Reason, addr}}
	}
	both := conversation{mine, a.Hello, bound}
	if !hmac.Equal(a.Proof, r.prove("listen", both)) {
		return hello{}, nil, &unauthenticatedError{&RefusedError{RefuseToken, "it does not know this job's token", addr}}
	}
	var other hello
	if err := json.Unmarshal(a.Hello, &other); err != nil {
		return hello{}, nil, fmt.Errorf("%w: %w", errBadFrame, printable.Error(err))
	}
	if err := r.acceptable(other); err != nil {
		return hello{}, nil, &unauthenticatedError{&RefusedError{err.Code, err.Reason, addr}}
	}
	pr := r.prove("dial", both)
	if other.Farewell != nil {
		r.applyFarewell(other.Farewell.of(other), other.Node)
		_, _ = writeMsg(conn, nil, proof{Proof: pr, Refuse: &refusal{RefuseGone, "the farewell was received"}})
		return hello{}, nil, fmt.Errorf("node.%d: %w", other.Node, errFarewellAnswered)
	}
	return other, pr, nil
}

// explainNoAnswer explains an answer that did not come, where that may be because only
// the other side speaks TLS.
func explainNoAnswer(conn net.Conn, err error) error {
	if len(binding(conn)) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		return fmt.Errorf("closed the connection at the hello; if it wants TLS, give this node a certificate: %w", err)
	}
	return err
}

var errSpeaksTLS = fmt.Errorf("%w: the other side speaks TLS, and this node has no certificate: start all nodes with one, or none",
	errBadFrame)

// startsTLS reports whether b, which begins no message of ours, begins a TLS
// record: a handshake or an alert.
func startsTLS(b []byte) bool { return (b[0] == 0x15 || b[0] == 0x16) && b[1] == 3 }

// isTLS reports whether a connection failed for its TLS. Package crypto/tls has no
// type for most of its errors.
func isTLS(err error) bool {
	return errors.Is(err, errSpeaksTLS) || strings.Contains(err.Error(), "tls: ")
}

// unauthenticatedError is a refusal by, or of, a process that need not be of this job.
type unauthenticatedError struct{ *RefusedError }

func (e *unauthenticatedError) Unwrap() error { return e.RefusedError }

// acceptable judges a hello.
func (r *Router) acceptable(h hello) *refusal {
	switch {
	case h.Protocol != Protocol:
		return &refusal{RefuseProtocol, fmt.Sprintf("node.%d (%s) speaks protocol %d, node.%d (%s) speaks %d", h.Node, h.Version,
			h.Protocol, r.cfg.Node, r.cfg.Version, Protocol)}
	case h.Job != r.cfg.Job:
		return &refusal{RefuseJob, fmt.Sprintf("node.%d belongs to job %q, node.%d to another", h.Node, printable.Text(h.Job), r.cfg.Node)}
	case h.Node < 0 || h.Node > maxNode:
		return &refusal{RefuseID, fmt.Sprintf("%d is not a node id", h.Node)}
	case h.Node == r.cfg.Node:
		return &refusal{RefuseID, fmt.Sprintf("node id %d is taken: two nodes were started with it", h.Node)}
	case !r.plausible(h.Incarnation, time.Now()):
		return &refusal{RefuseClock,
			fmt.Sprintf("node.%d was started more than %v ahead of the clock of node.%d: set the clocks of their hosts",
				h.Node, maxAhead, r.cfg.Node)}
	case h.Limits != r.limits():
		return &refusal{RefuseLimits, fmt.Sprintf("node.%d has %v; node.%d has %v: give all nodes the same", h.Node, h.Limits, r.cfg.Node,
			r.limits())}
	}
	return nil
}

var errNoAnswer = errors.New("no answer")

// call makes addr's node a connected peer within that time. It returns the link, or the one
// that there was before.
func (r *Router) call(ctx context.Context, addr string, target int, within time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	l, err := r.callOnce(ctx, addr, target)
	if ctx.Err() != nil { // a link that was made nevertheless has lost its connection
		err = fmt.Errorf("%w within %v: %w", errNoAnswer, within, cmp.Or(err, context.Cause(ctx)))
	}
	return l, err
}

func (r *Router) callOnce(ctx context.Context, addr string, target int) (*link, error) {
	conn, err := r.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	bound := binding(conn)
	if target >= 0 {
		if err := r.callRelay(conn, target); err != nil {
			_ = conn.Close()
			return nil, err
		}
		bound = nil // the connection ends at the hub, the conversation does not
	}
	l, err := r.callJoin(conn, bound, target < 0)
	if err != nil {
		_ = conn.Close() // l, if there is one, has another
	}
	return l, err
}

// dial makes a connection, and counts it.
func (r *Router) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := r.cfg.Transport.Dial(ctx, addr)
	if err != nil {
		r.calls.failed.Add(1)
		return nil, err
	}
	r.calls.dialed.Add(1)
	return conn, nil
}

var errConnected = errors.New("connected already")

// errNoProof is the error of a client that has read this node's proof and sent none. With a proof, a
// client can test guesses of a weak token.
var errNoProof = errors.New("no proof")

// callJoin is the dialling side's handshake for a session. direct says that no hub is in between.
func (r *Router) callJoin(conn net.Conn, bound []byte, direct bool) (*link, error) {
	mine := r.hello(purposeJoin)
	r.offerMemory(&mine, conn, direct)
	h, pr, err := r.callHello(conn, mine, bound)
	if err != nil {
		return nil, err
	}
	unlock := r.lockPeer(h.Node)
	defer unlock()
	s, refuse := r.find(h)
	if refuse != nil { // a node that this one has given up: the next one may answer here
		var w welcome
		if _, err := writeMsg(conn, nil, proof{Proof: pr, Refuse: refuse}); err == nil && refuse.Code == RefuseLost {
			_, _ = readMsg(conn, &w)
		}
		if w.Refuse != nil && r.makesWay(h.Node, refuse, w.Refuse) {
			err := r.cutOff(w.Refuse, h.Node)
			r.fail(err)
			return nil, err
		}
		return nil, fmt.Errorf("%s: %s", printable.Text(conn.RemoteAddr().String()), refuse.Reason)
	}
	p := proof{Proof: pr}
	if s != nil {
		if l := s.current(); l != nil { // with the proof, or it would be counted as unauthenticated
			_, _ = writeMsg(conn, nil, proof{Proof: pr, Refuse: &refusal{RefuseDuplicate, errConnected.Error()}})
			return l, errConnected
		}
		p.Known, p.Got = true, s.received.Load()
	}
	if _, err := writeMsg(conn, nil, p); err != nil {
		return nil, err
	}
	var w welcome
	if _, err := readMsg(conn, &w); err != nil {
		return nil, err
	}
	if w.Refuse != nil {
		return nil, &RefusedError{w.Refuse.Code, w.Refuse.Reason, conn.RemoteAddr().String()}
	}
	if s == nil {
		if s, err = r.admit(h); err != nil {
			return nil, err
		}
	}
	s.takeMemory(mine, h)
	return s.attach(conn, true, w.Got)
}

// makesWay reports whether this node ends because it and another one have given
// each other up: of two that live, the higher one comes back as a new incarnation.
func (r *Router) makesWay(other int, mine, theirs *refusal) bool {
	return mine != nil && mine.Code == RefuseLost && theirs.Code == RefuseLost && r.cfg.Node > other
}

func (r *Router) cutOff(no *refusal, by int) error {
	return fmt.Errorf("cut off from the job: %w", &RefusedError{no.Code, no.Reason, fmt.Sprintf("node.%d", by)})
}

// serve is the listening side of a connection. n is the unauthenticated connection, or
// nil if the connection is a pipe that the hub has made.
func (r *Router) serve(conn net.Conn, n *unauthenticatedConn) {
	stop := context.AfterFunc(r.ctx, func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(r.listensFor()))
	kept, err := r.answer(conn, n)
	stop()
	if r.unauthenticated.leave(n) {
		err = errCrowd
	}
	if err != nil && r.ctx.Err() == nil {
		r.refused(conn.RemoteAddr(), err)
	}
	if !kept {
		_ = conn.Close() // when it has been counted
	}
}

// answer performs the handshake with an unauthenticated connection. It reports whether the connection is in use.
func (r *Router) answer(conn net.Conn, n *unauthenticatedConn) (bool, error) {
	var m [8]byte
	if _, err := io.ReadFull(conn, m[:]); err != nil {
		return false, fmt.Errorf("no hello: %w", err)
	}
	if startsTLS(m[:]) {
		return false, errSpeaksTLS
	}
	if string(m[:7]) != string(magic[:7]) {
		return false, fmt.Errorf("%w: not a ditask node", errBadFrame)
	}
	var h hello
	theirs, err := readMsg(conn, &h)
	if err != nil {
		return false, err
	}
	if no := r.acceptable(h); no != nil {
		_, _ = writeMsg(conn, nil, answer{Refuse: no})
		return false, &RefusedError{no.Code, no.Reason, conn.RemoteAddr().String()}
	}
	answering := r.hello("")
	r.offerMemory(&answering, conn, n != nil && h.Memory != nil)
	mine, _ := json.Marshal(answering) //nolint:errchkjson // texts and numbers: it cannot fail
	both := conversation{theirs, mine, nil}
	if n != nil {
		both.binding = binding(conn)
	}
	if _, err := writeMsg(conn, nil, answer{Hello: mine, Proof: r.prove("listen", both)}); err != nil {
		return false, err
	}
	var p proof
	if _, err := readMsg(conn, &p); err != nil {
		return false, fmt.Errorf("%w of node.%d: %w", errNoProof, h.Node, err)
	}
	if !hmac.Equal(p.Proof, r.prove("dial", both)) {
		return r.refuse(conn, &refusal{RefuseToken, "wrong token"})
	}
	r.unauthenticated.leave(n)
	if r.farewell != nil {
		return r.refuse(conn, r.answerDial(h, p))
	}
	switch h.Purpose {
	case purposeJoin:
		return r.answerJoin(conn, h, p, answering)
	case purposeFarewell:
		return r.answerFarewell(conn, h)
	case purposeRelay:
		return r.relay(conn, h)
	case purposeAnswer:
		return r.relayed(conn, h)
	}
	return r.refuse(conn, &refusal{RefuseProtocol, fmt.Sprintf("purpose %q", h.Purpose)})
}

// refuse ends a handshake with a refusal.
func (r *Router) refuse(conn net.Conn, no *refusal) (bool, error) {
	_, _ = writeMsg(conn, nil, welcome{Refuse: no})
	if no.Code == RefuseDuplicate || no.Code == RefuseRelay || no.Code == RefuseClosed {
		return false, nil // it will come again
	}
	return false, &RefusedError{no.Code, no.Reason, conn.RemoteAddr().String()}
}

// remember reports whether the two sides can continue with one session: both have
// it, or the connection broke in the middle of the handshake that made it, so
// that one has it, empty as yet, and the other does not.
func remember(s *session, p proof) bool {
	switch {
	case s == nil:
		return p.Got == 0 // it would have been received in another session
	case p.Known:
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.Got == 0 && s.received.Load() == 0 && s.log.done == 0
}

// answerJoin is the listening side's end of the handshake for a session.
func (r *Router) answerJoin(conn net.Conn, h hello, p proof, mine hello) (bool, error) {
	if p.Refuse != nil && p.Refuse.Code == RefuseDuplicate {
		return false, nil // the caller has ended the handshake: the two are connected
	}
	unlock, ok := r.tryLockPeer(h.Node)
	if !ok {
		if r.cfg.Node > h.Node { // our own call to that node wins
			return r.refuse(conn, &refusal{RefuseDuplicate, "this node is calling already"})
		}
		unlock = r.lockPeer(h.Node)
	}
	defer unlock()
	s, no := r.find(h)
	if p.Refuse != nil {
		if code := p.Refuse.Code; no == nil && (code == RefuseLost || code == RefuseStale) || r.makesWay(h.Node, no, p.Refuse) {
			r.fail(r.cutOff(p.Refuse, h.Node))
		}
		_, _ = writeMsg(conn, nil, welcome{Refuse: no})
		return false, nil
	}
	if no == nil && !remember(s, p) {
		no = &refusal{RefuseLost, fmt.Sprintf("node.%d and node.%d were out of touch for longer than %v, and the job went on", h.Node,
			r.cfg.Node, r.cfg.PeerTimeout)}
	}
	if no != nil {
		return r.refuse(conn, no)
	}
	if s != nil {
		if l := s.current(); l != nil && l.dialed && r.cfg.Node > h.Node {
			return r.refuse(conn, &refusal{RefuseDuplicate, "connected already"})
		}
		s.detach()
	}
	var err error
	if s == nil {
		if s, err = r.admit(h); err != nil {
			return r.refuse(conn, &refusal{RefuseClosed, err.Error()})
		}
	}
	if _, err := writeMsg(conn, nil, welcome{Got: s.received.Load()}); err != nil {
		return false, err
	}
	s.takeMemory(mine, h)
	_ = conn.SetDeadline(time.Time{})
	_, err = s.attach(conn, false, p.Got)
	return err == nil, err
}
