package router

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A second connection of a peer is refused by the node that dialled the first one, if that has the
// higher id; else it takes the place of the first one. So it is while this node is calling.
func TestSecondConnectionOfAPeer(t *testing.T) {
	for _, lower := range []bool{true, false} {
		for _, calling := range []bool{true, false} {
			t.Run(fmt.Sprintf("lower %v, calling %v", lower, calling), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					node := 8
					if lower {
						node = 6
					}
					r := openRouter(t, Config{Node: 7})
					var first *link
					if calling {
						unlock := r.lockPeer(node)
						time.AfterFunc(time.Second, unlock)
					} else {
						s, err := r.admit(hello{Node: node, Incarnation: 5})
						if err != nil {
							t.Fatal(err)
						}
						ours, theirs := net.Pipe()
						go func() { _, _ = io.Copy(io.Discard, theirs) }()
						if first, err = s.attach(ours, true, 0); err != nil {
							t.Fatal(err)
						}
					}
					ours, theirs := net.Pipe()
					said := make(chan welcome, 1) // one message
					go func() {
						var w welcome
						_, _ = readMsg(theirs, &w)
						said <- w
						_, _ = io.Copy(io.Discard, theirs)
					}()
					began := time.Now()
					kept, err := r.answerJoin(ours, hello{Node: node, Incarnation: 5}, proof{Known: true}, hello{})
					w := <-said
					if kept == lower || err != nil || (w.Refuse != nil) != lower || lower && w.Refuse.Code != RefuseDuplicate {
						t.Errorf("%v, %v, %+v", kept, err, w.Refuse)
					}
					if waited := time.Since(began) == time.Second; waited != (calling && !lower) {
						t.Errorf("answered after %v", time.Since(began))
					}
					if now := r.peers[node]; !lower && (now.current() == nil || now.current().conn != ours || now.current().dialed) {
						t.Error("the second connection is not used")
					} else if lower && !calling && now.current() != first {
						t.Error("the first connection is not kept")
					}
					<-time.After(time.Second)
					_ = ours.Close()
				})
			})
		}
	}
}

// A node that has the largest number of peers refuses the next one for now, whichever side has
// dialled; and an answer that cannot be written is an error.
func TestHandshakesThatEndAtTheLast(t *testing.T) {
	full := func() *Router {
		r := partner(t, 2)
		for id := range maxPeers {
			r.peers[maxNode-id] = newSession(r, Peer{ID: maxNode - id}, nil)
		}
		return r
	}
	ours, theirs := net.Pipe()
	said := make(chan string, 1) // one result
	go func() { b, _ := io.ReadAll(theirs); said <- string(b) }()
	kept, err := full().answerJoin(ours, hello{Node: 1, Incarnation: 5}, proof{}, hello{})
	_ = ours.Close()
	if got := <-said; kept || err != nil || !strings.Contains(got, `"code":"closed","reason":"node.2 has 4096 peers, and takes no more"`) {
		t.Errorf("%v, %v, said %q", kept, err, got)
	}
	mine, others := net.Pipe()
	go welcomes(partner(t, 1), others, false, "\x02\x00\x00\x00{}")
	if l, err := full().callJoin(mine, nil, false); l != nil || err == nil || !strings.Contains(err.Error(), "takes no more") {
		t.Errorf("%v, %v", l, err)
	}
	if kept, err := partner(t, 2).answerJoin(mine, hello{Node: 1, Incarnation: 5}, proof{}, hello{}); kept || err == nil {
		t.Errorf("%v, %v", kept, err)
	}
	if kept, err := partner(t, 2).answerFarewell(mine, hello{Node: 1, Incarnation: 5, Farewell: &Farewell{Reason: "x"}}); kept || err == nil {
		t.Errorf("%v, %v", kept, err)
	}
}
