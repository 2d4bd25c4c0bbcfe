package router

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
)

func newReceivers() *receivers { return &receivers{ids: map[int]bool{}, more: make(chan struct{}, 1)} }

// welcomes is the listening side of a handshake: it sends a welcome in the end, unless it ignores the
// proof of the other side.
func welcomes(r *Router, conn net.Conn, deaf bool, welcome string) {
	defer func() { _ = conn.Close() }()
	if _, err := io.ReadFull(conn, make([]byte, len(magic))); err != nil {
		return
	}
	var h hello
	theirs, err := readMsg(conn, &h)
	if err != nil {
		return
	}
	mine, err := json.Marshal(r.hello(""))
	if err != nil {
		return
	}
	_, _ = writeMsg(conn, nil, answer{Hello: mine, Proof: r.prove("listen", conversation{theirs, mine, binding(conn)})})
	if deaf {
		return
	}
	var p proof
	if _, err := readMsg(conn, &p); err == nil {
		_, _ = conn.Write([]byte(welcome))
	}
}

// A call that ends with a welcome, to the hub of a star or of a farewell, has failed unless the
// welcome has come and refuses nothing.
func TestCallsThatEndWithAWelcome(t *testing.T) {
	framed := func(body string) string { return string(le.AppendUint32(nil, uint32(len(body)))) + body }
	calls := map[string]func(r *Router, conn net.Conn) error{
		"the hub": func(r *Router, conn net.Conn) error { return r.callHub(conn, r.hello(purposeAnswer)) },
		"a farewell": func(r *Router, conn net.Conn) error {
			r.cfg.Transport = dialFunc(func(context.Context, string) (net.Conn, error) { return conn, nil })
			r.receivedBy = newReceivers()
			err := r.sendFarewell("a")
			if n := r.receivedBy.count(); (n == 1) != (err == nil) {
				t.Errorf("received by %d nodes: %v", n, err)
			}
			return err
		},
	}
	for name, c := range map[string]struct {
		token   string
		deaf    bool // it does not read the proof
		welcome string
		want    string // "" for success
	}{
		"welcome":         {"secret", false, framed("{}"), ""},
		"another token":   {"other", false, framed("{}"), "token"},
		"deaf":            {"secret", true, "", io.ErrClosedPipe.Error()},
		"no welcome":      {"secret", false, "", "EOF"},
		"half a welcome":  {"secret", false, "\x05\x00\x00\x00{", "unexpected EOF"},
		"a refusal":       {"secret", false, framed(`{"refuse":{"code":"closed","reason":"abc"}}`), "refused (closed): abc"},
		"no JSON, no end": {"secret", false, framed("{"), "malformed frame"},
	} {
		for whom, call := range calls {
			t.Run(whom+", "+name, func(t *testing.T) {
				hub := openRouter(t, Config{Job: "j", Token: []byte(c.token), Node: 2})
				mine, theirs := net.Pipe()
				ended := make(chan struct{})
				go func() { defer close(ended); welcomes(hub, theirs, c.deaf, c.welcome) }()
				err := call(partner(t, 1), mine)
				_ = mine.Close()
				<-ended
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		}
	}
}

// A node that dials one whose process has ended has received the farewell when it refuses with that
// reason.
func TestFarewellIsReceivedByTheAnsweringNode(t *testing.T) {
	r := openRouter(t, Config{Node: 9})
	r.farewell, r.receivedBy = &Farewell{Node: 9, Reason: "exit code 3"}, newReceivers()
	for i, p := range []proof{{}, {Refuse: &refusal{Code: RefuseLost}}, {Refuse: &refusal{Code: RefuseGone}}} {
		no := r.answerDial(hello{Node: i}, p)
		if no.Code != RefuseClosed || no.Reason != "the process of node.9 has ended: exit code 3" {
			t.Errorf("%+v", no)
		}
		if n := r.receivedBy.count(); (n > 0) != (i == 2) {
			t.Errorf("%+v: received by %d", p.Refuse, n)
		}
	}
}

// A node refuses an empty farewell, and takes none when it is closing.
func TestFarewellsThatAreRefused(t *testing.T) {
	for want, f := range map[string]*Farewell{"a farewell without a reason": nil, "node.2 is closing": {Reason: "x"}} {
		r := openRouter(t, Config{Node: 2})
		r.closed = f != nil
		ours, theirs := net.Pipe()
		received := make(chan string, 1) // one result
		go func() { b, _ := io.ReadAll(theirs); received <- string(b) }()
		kept, err := r.answerFarewell(ours, hello{Node: 1, Incarnation: 1, Farewell: f})
		_ = ours.Close()
		if got := <-received; kept || (err != nil) != (f == nil) || !strings.Contains(got, want) {
			t.Errorf("%v, %v, %q, want %q", kept, err, got, want)
		}
		r.closed = false
	}
}

// A reason has at most 1 KiB, and is cut between characters.
func TestReasonsAreCut(t *testing.T) {
	whole := strings.Repeat("x", maxReason)
	for _, c := range [][2]string{{whole, whole}, {whole + "y", whole[3:] + "..."}, {whole[4:] + "ééé", whole[4:] + "..."}} {
		if got := cutReason(c[0]); got != c[1] {
			t.Errorf("%d bytes: %d bytes, ending with %q", len(c[0]), len(got), got[len(got)-5:])
		}
	}
}

// A call for a farewell that is not answered in time is hung up, and so is one that was received.
func TestFarewellIsHungUp(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			hub := partner(t, 2)
			mine, theirs := net.Pipe()
			r := openRouter(t, Config{
				Job: "j", Token: []byte("secret"), Node: 1,
				Transport: dialFunc(func(context.Context, string) (net.Conn, error) { return mine, nil }),
			})
			r.receivedBy = newReceivers()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if deaf {
					_, _ = io.Copy(io.Discard, theirs)
				} else {
					welcomes(hub, hubConn{theirs}, false, "\x02\x00\x00\x00{}")
				}
			}()
			if err := r.sendFarewell("a"); (err != nil) != deaf {
				t.Error(err)
			}
			if _, err := mine.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("deaf %v: the connection is open: %v", deaf, err)
			}
			_ = theirs.Close()
			<-ended
		})
	}
}
