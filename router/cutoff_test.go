package router

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A node that a caller has lost ends, unless it has lost the caller too and has the lower
// id. Other refusals end no node.
func TestR5CallerThatHasLostThisNode(t *testing.T) {
	for _, c := range []struct {
		node, caller int
		code         string
		mutual, ends bool
	}{
		{2, 1, RefuseLost, false, true}, {1, 2, RefuseLost, false, true}, {2, 1, RefuseStale, false, true},
		{2, 1, RefuseLimits, false, false}, {2, 1, RefuseLost, true, true}, {1, 2, RefuseLost, true, false}, {2, 1, RefuseStale, true, false},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r, caller := partner(t, c.node), partner(t, c.caller)
			if c.mutual {
				r.was[c.caller] = former{incarnation: caller.cfg.Incarnation, err: ErrLost, lostAt: 1}
			}
			mine, theirs := net.Pipe()
			said := make(chan string, 1) // one result
			go func() {
				_, pr, err := caller.callHello(mine, caller.hello(purposeJoin), nil)
				if err != nil {
					t.Error(err)
				}
				_, _ = writeMsg(mine, nil, proof{Proof: pr, Refuse: &refusal{c.code, "given up"}})
				b, _ := io.ReadAll(mine)
				said <- string(b)
			}()
			_ = theirs.SetDeadline(time.Now().Add(10 * time.Second)) // only a fault takes that long
			kept, err := r.answer(theirs, nil)
			_ = theirs.Close()
			if got := <-said; kept || err != nil || strings.Contains(got, `"code":"lost"`) != c.mutual {
				t.Errorf("%v, %v, said %q", kept, err, got)
			}
			if (r.failure != nil) != c.ends || c.ends &&
				!strings.HasPrefix(r.failure.Error(), fmt.Sprintf("cut off from the job: node.%d: refused", c.caller)) {
				t.Error(r.failure)
			}
		})
	}
}

// Of two nodes that have lost each other, the one with the higher id ends when it calls the other.
func TestHigherCallerEndsAfterMutualLoss(t *testing.T) {
	for node, ends := range map[int]bool{3: true, 1: false} {
		r, other := partner(t, node), partner(t, 2)
		r.was[2] = former{incarnation: other.cfg.Incarnation, err: ErrLost, lostAt: 1}
		other.was[node] = former{incarnation: r.cfg.Incarnation, err: ErrLost, lostAt: 1}
		mine, theirs := net.Pipe()
		answered := make(chan struct{})
		go func() { defer close(answered); _, _ = other.answer(theirs, nil); _ = theirs.Close() }()
		l, err := r.callJoin(mine, nil, false)
		_ = mine.Close()
		<-answered
		if l != nil || err == nil || (r.failure != nil) != ends || ends && r.failure.Error() != err.Error() {
			t.Errorf("node.%d: %v, %v", node, err, r.failure)
		}
		if ends && !strings.HasPrefix(err.Error(), "cut off from the job: node.2: refused (lost): ") {
			t.Error(err)
		}
	}
}
