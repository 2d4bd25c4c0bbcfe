package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A declaration has the event's schema up to a bound, and whether this node listens.
func TestDeclarationOfAnEvent(t *testing.T) {
	most := strings.Repeat("x", 8<<10)
	for schema, want := range map[string]string{"int64": "int64", most: most, most + "x": most[:len(most)-3] + "..."} {
		for _, listens := range []bool{false, true} {
			s := newSession(openRouter(t, Config{}), Peer{ID: 1}, nil)
			c := &channel{id: 3, spec: Spec{Name: "e", Delivery: DropOldest, Queue: 7, Fingerprint: 9, Schema: schema}}
			c.listens.Store(listens)
			s.declare(c)
			var d declaration
			buf := s.log.segs[0].buf
			if err := json.Unmarshal(buf[headerBytes:], &d); err != nil || d != (declaration{"e", "drop-oldest", 7, 9, want}) {
				t.Errorf("%v, %+v", err, d)
			}
			if h, err := parseHeader(buf, 0); err != nil || h.typ != frameDeclare || h.channel != 3 || (h.flags == flagOn) != listens {
				t.Errorf("%+v, %v", h, err)
			}
		}
	}
}

// The number and the bytes of a peer's declarations are bounded.
func TestR7DeclarationsAreBounded(t *testing.T) {
	r := openRouter(t, Config{})
	s := newSession(r, Peer{ID: 1}, nil)
	s.ins = make([]*inStream, maxChannels)
	if err := r.declared(s, maxChannels, declaration{Name: "e"}, true); !errors.Is(err, errBadFrame) {
		t.Error(err)
	}
	s.ins = s.ins[:maxChannels-1]
	if err := r.declared(s, maxChannels-1, declaration{Name: "e"}, true); err != nil {
		t.Error(err)
	}
	s.ins = nil
	body := []byte(`{"name":"f","delivery":"reliable","fingerprint":"0"}`)
	s.declared = maxDeclared - len(body)
	if err := s.receiveControl(header{typ: frameDeclare}, body); err != nil {
		t.Error(err)
	}
	err := s.receiveControl(header{typ: frameDeclare, channel: 1}, body)
	if !errors.Is(err, errBadFrame) || !strings.Contains(err.Error(), "more than 16777216 bytes") {
		t.Error(err)
	}
}

// Two nodes have an event in common if its policy and its type are the same.
func TestEventsThatTwoNodesHaveInCommon(t *testing.T) {
	for name, c := range map[string]struct {
		d    declaration
		same bool
	}{
		"same":           {declaration{"e", "latest", 3, 5, "other words"}, true},
		"another policy": {declaration{"e", "reliable", 0, 5, "int64"}, false},
		"another type":   {declaration{"e", "latest", 0, 6, "int32"}, false},
	} {
		r := openRouter(t, Config{Node: 2})
		ch := event(t, r, Spec{Name: "e", Delivery: Latest, Fingerprint: 5, Schema: "int64"})
		s, err := r.admit(hello{Node: 1, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		in := &inStream{s: s, decl: c.d}
		r.mu.Lock()
		err = r.join(ch.c, in)
		r.mu.Unlock()
		if (err == nil) != c.same || (in.ch.Load() == ch.c) != c.same || (in.out == s.outs[0]) != c.same {
			t.Errorf("%s: %v", name, err)
		}
		want := fmt.Sprintf("node.2 has latest int64 (%016x), node.1 has %s %s (%016x)", 5, c.d.Delivery, c.d.Schema, c.d.Fingerprint)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The answer to Listen is for an event that this node has.
func TestR7AnswerForTheEventAfterTheLast(t *testing.T) {
	r := openRouter(t, Config{})
	event(t, r, Spec{Name: "e"})
	s := listener(t, r, 1, 1)
	for id, bad := range []bool{false, true} {
		if err := s.answered(uint16(id), 7); errors.Is(err, errBadFrame) != bad {
			t.Errorf("event %d: %v", id, err)
		}
	}
	if s.answered(0, 3) != nil || s.ins[0].floor != 7 {
		t.Errorf("received from message %d on", s.ins[0].floor)
	}
}

// A pong has the round-trip time of its ping, at least 1 ns, and one frame is as good as any.
func TestPongHasTheRoundTripTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(openRouter(t, Config{}), Peer{ID: 1}, nil)
		at := s.r.clock()
		for _, took := range []time.Duration{0, 5 * time.Millisecond} {
			<-time.After(took)
			if err := s.receiveTotals(&link{}, header{typ: framePong}, le.AppendUint64(nil, uint64(at))); err != nil {
				t.Error(err)
			}
			if got := time.Duration(s.rtt.Load()); got != max(took, 1) {
				t.Errorf("%v, want %v", got, took)
			}
		}
	})
}

// A hub asks only leaves of its star to call back.
func TestR7HubIsNotAskedToCallBack(t *testing.T) {
	for name, cfg := range map[string]Config{"hub": {Topology: Star}, "mesh": {Attach: []string{"a"}}} {
		if err := openRouter(t, cfg).receiveRelay([]byte("{}")); !errors.Is(err, errBadFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A header is sent beside a message to a peer that understands it, of an event that has headers, if it
// is within bounds.
func TestHeadersThatAreSent(t *testing.T) {
	for name, c := range map[string]struct {
		event, peer bool
		header      int
		frames      uint64
	}{
		"sent": {true, true, MaxHeaderBytes, 2}, "too long": {true, true, MaxHeaderBytes + 1, 1}, "none": {true, true, 0, 1},
		"of the event": {false, true, 5, 1}, "of an older peer": {true, false, 5, 1},
	} {
		o := streamOf(t, Spec{Headers: c.event}, Config{})
		o.s.headers = c.peer
		if o.put(1, longHeaded(c.header)); o.s.log.sent != c.frames {
			t.Errorf("%s: %d frames", name, o.s.log.sent)
		}
	}
}

// longHeaded is an empty payload with a header of that many bytes.
type longHeaded int

func (longHeaded) Bytes() []byte    { return nil }
func (h longHeaded) Header() []byte { return make([]byte, h) }
func (longHeaded) Retain()          {}
func (longHeaded) Release()         {}

// Where each unauthenticated client comes from another address and all places are taken, the next one
// is refused, as no address has more than its share.
func TestUnauthenticatedClientsThatAllComeFromElsewhere(t *testing.T) {
	s := &unauthenticated{limit: 2}
	enter := func(ip byte) *unauthenticatedConn {
		return s.enter(&caller{from: &net.TCPAddr{IP: net.IPv4(10, 0, 0, ip)}}, time.Now())
	}
	if a, b, c := enter(1), enter(2), enter(3); a == nil || b == nil || c != nil || len(s.all) != 2 {
		t.Errorf("%v, %v, %v", a, b, c)
	}
}
