package router

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/certtest"
)

// A proof is the hash that docs/wire.md describes: over each text after its length.
func TestProofIsAsDocumented(t *testing.T) {
	r := openRouter(t, Config{Token: []byte("secret")})
	var texts []byte
	for _, s := range []string{"ditask handshake", "dial", "client", "server", "bound"} {
		texts = append(le.AppendUint64(texts, uint64(len(s))), s...)
	}
	want := hmac.New(sha256.New, []byte("secret"))
	want.Write(texts)
	if got := r.prove("dial", conversation{[]byte("client"), []byte("server"), []byte("bound")}); !bytes.Equal(got, want.Sum(nil)) {
		t.Errorf("%x, want %x", got, want.Sum(nil))
	}
}

// A hello has the address of this node, if it listens, and another nonce each time.
func TestHelloOfANode(t *testing.T) {
	r := openRouter(t, Config{Job: "j", Node: 3, Incarnation: 5, Version: "v"})
	r.labels = []string{"actor"}
	h := r.hello(purposeJoin)
	if h.Addrs != nil || h.Job != "j" || h.Node != 3 || h.Incarnation != 5 || h.Version != "v" || h.Labels[0] != "actor" ||
		h.Purpose != purposeJoin {
		t.Errorf("%+v", h)
	}
	if other := r.hello(""); len(h.Nonce) != 32 || bytes.Equal(h.Nonce, other.Nonce) {
		t.Errorf("nonces %x and %x", h.Nonce, other.Nonce)
	}
	if r.advertise = "a"; len(r.hello("").Addrs) != 1 {
		t.Error("the hello does not have the address of the listener")
	}
}

// overTLS makes a connection of two ends, and greets on it unless it is to be raw.
func overTLS(t *testing.T, greet bool) (dialled, accepted *tls.Conn) {
	t.Helper()
	files := certtest.New(t)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	a, b := net.Pipe()
	dialled = tls.Client(a, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13})
	accepted = tls.Server(b, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	if greet {
		done := make(chan error, 1) // one result
		go func() { done <- accepted.Handshake() }()
		if err := errors.Join(dialled.Handshake(), <-done); err != nil {
			t.Fatal(err)
		}
	}
	return dialled, accepted
}

// Both ends of a TLS connection have the same binding, and no other connection has it.
func TestBindingOfATLSConnection(t *testing.T) {
	dialled, accepted := overTLS(t, true)
	a, b := binding(dialled), binding(accepted)
	if len(a) != 32 || !bytes.Equal(a, b) {
		t.Errorf("%x and %x", a, b)
	}
	other, _ := overTLS(t, true)
	if bytes.Equal(a, binding(other)) {
		t.Error("another connection has the same")
	}
	raw, _ := overTLS(t, false)
	if got := binding(raw); got != nil {
		t.Errorf("before the handshake: %x", got)
	}
	if got := explainNoAnswer(dialled, io.EOF); got != io.EOF { //nolint:errorlint // it must be the same
		t.Errorf("over TLS: %v", got)
	}
}

// A proof for one TLS connection is of no use on another one.
func TestR7ProofHoldsForOneTLSConnection(t *testing.T) {
	for _, same := range []bool{true, false} {
		dialled, accepted := overTLS(t, true)
		caller, hub := partner(t, 1), partner(t, 2)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = hub.answer(accepted, &unauthenticatedConn{gone: make(chan struct{})}) // no proof comes
			_ = accepted.NetConn().Close()
		}()
		bound := binding(dialled)
		if !same {
			other, _ := overTLS(t, true)
			bound = binding(other)
		}
		_, _, err := caller.callHello(dialled, caller.hello(purposeJoin), bound)
		_ = dialled.NetConn().Close()
		<-done
		if (err == nil) != same || !same && !strings.Contains(err.Error(), "token") {
			t.Errorf("same connection %v: %v", same, err)
		}
	}
}

// openTLS is a connection that only the other side closes.
type openTLS struct{ *tls.Conn }

func (openTLS) Close() error { return nil }

// Between two leaves of a star, TLS ends at the hub: their proofs are bound to no connection.
func TestLeavesConnectThroughAHubOverTLS(t *testing.T) {
	dialled, accepted := overTLS(t, true)
	hub, leaf := partner(t, 0), partner(t, 3)
	answered := make(chan error, 1) // one result
	go func() {
		welcomes(hub, openTLS{accepted}, false, "\x02\x00\x00\x00{}")
		_, err := leaf.answer(accepted, nil)
		answered <- err
	}()
	r := openRouter(t, Config{
		Job: "j", Token: []byte("secret"), Node: 1, Topology: Star,
		Transport: dialFunc(func(context.Context, string) (net.Conn, error) { return openTLS{dialled}, nil }),
	})
	l, err := r.call(t.Context(), "hub", 3, r.cfg.HandshakeTimeout)
	if l == nil || err != nil || l.s.peer.ID != 3 {
		t.Errorf("%v, %v", l, err)
	}
	_ = dialled.NetConn().Close()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	_ = accepted.NetConn().Close()
}

// A message of a handshake is as long as 16 KiB at most, and one that cannot be written is not.
func TestMessagesOfAHandshakeAreBounded(t *testing.T) {
	var text string
	longest := strings.Repeat("x", helloBytes-2)
	var b bytes.Buffer
	if _, err := writeMsg(&b, nil, longest); err != nil || b.Len() != 4+helloBytes {
		t.Error(b.Len(), err)
	}
	if _, err := readMsg(&b, &text); err != nil || text != longest {
		t.Error(err)
	}
	_, _ = writeMsg(&b, nil, longest+"x")
	if _, err := readMsg(&b, &text); !errors.Is(err, errBadFrame) || !strings.Contains(err.Error(), "a handshake message of 16385 bytes") {
		t.Error(err)
	}
	b.Reset()
	if _, err := writeMsg(&b, nil, json.RawMessage("{")); err == nil || b.Len() != 0 {
		t.Errorf("%d bytes are written: %v", b.Len(), err)
	}
}

// Each part of a hello is checked.
func TestHellosThatAreAcceptable(t *testing.T) {
	r := openRouter(t, Config{Job: "j", Node: 3})
	for name, c := range map[string]struct {
		edit func(h *hello)
		code string
	}{
		"good":          {func(*hello) {}, ""},
		"the first":     {func(h *hello) { h.Node = 0 }, ""},
		"the last":      {func(h *hello) { h.Node = maxNode }, ""},
		"protocol":      {func(h *hello) { h.Protocol++ }, RefuseProtocol},
		"job":           {func(h *hello) { h.Job = "k" }, RefuseJob},
		"no node":       {func(h *hello) { h.Node = -1 }, RefuseID},
		"beyond":        {func(h *hello) { h.Node = maxNode + 1 }, RefuseID},
		"this node":     {func(h *hello) { h.Node = 3 }, RefuseID},
		"other windows": {func(h *hello) { h.Limits.WindowBytes++ }, RefuseLimits},
	} {
		h := hello{Protocol: Protocol, Job: "j", Node: 4, Limits: r.limits()}
		c.edit(&h)
		no := r.acceptable(h)
		if (no != nil) != (c.code != "") || no != nil && no.Code != c.code {
			t.Errorf("%s: %+v", name, no)
		}
	}
}

// Refusals after which the other side tries again are not faults.
func TestRefusalsThatAreNoFaults(t *testing.T) {
	faults := map[string]bool{RefuseDuplicate: false, RefuseRelay: false, RefuseClosed: false, RefuseLost: true, RefuseToken: true}
	for code, fault := range faults {
		r := openRouter(t, Config{})
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		if kept, err := r.refuse(ours, &refusal{code, "why"}); kept || (err != nil) != fault {
			t.Errorf("%s: %v, %v", code, kept, err)
		}
		_ = ours.Close()
	}
}

// A node that is closed closes unauthenticated connections at once, and counts nothing. A node that
// continues counts them when their time is over.
func TestUnauthenticatedClientsOfAClosedNode(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{})
			ours, theirs := net.Pipe()
			if closed {
				time.AfterFunc(time.Second, r.cancel)
			}
			began := time.Now()
			n := r.unauthenticated.enter(ours, began)
			r.serve(ours, n)
			want, silences := 40*time.Second, 1
			if closed {
				want, silences = time.Second, 0
			}
			if took := time.Since(began); took != want || r.Refused()["silence"]+r.Refused()["hung up"] != silences ||
				len(r.unauthenticated.all) != 0 {
				t.Errorf("closed %v: after %v, refused %v", closed, took, r.Refused())
			}
			if _, err := theirs.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection is open: %v", err)
			}
		})
	}
}

// inTheMaking are the connections whose other side has not proved itself yet, and the pipes.
func inTheMaking(r *Router) (connections, pipes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unauthenticated.mu.Lock()
	defer r.unauthenticated.mu.Unlock()
	return len(r.unauthenticated.all), len(r.tickets)
}

// A client that has authenticated frees its place at once, not only after it was served.
func TestAuthenticatedClientTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leaf := partner(t, 2), partner(t, 1)
		hub.cfg.Topology = Star
		for _, h := range []hello{{Node: 1, Incarnation: leaf.cfg.Incarnation}, {Node: 3, Incarnation: 1}} { // node.3 never calls back
			if _, err := hub.admit(h); err != nil {
				t.Fatal(err)
			}
		}
		mine, theirs := net.Pipe()
		hub.wg.Go(func() { hub.serve(theirs, hub.unauthenticated.enter(theirs, time.Now())) })
		asked := make(chan error, 1) // one result
		go func() { asked <- leaf.callRelay(mine, 3) }()
		synctest.Wait()
		if n, pipes := inTheMaking(hub); n != 0 || pipes != 1 {
			t.Errorf("%d unauthenticated connections, %d pipes in the making", n, pipes)
		}
		if err := <-asked; err == nil {
			t.Error("node.3 has called back")
		}
		synctest.Wait()
		if _, pipes := inTheMaking(hub); pipes != 0 {
			t.Errorf("%d pipes in the making", pipes)
		}
		_ = mine.Close()
	})
}
