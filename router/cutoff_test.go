package router

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A node that a caller has given up ends, unless it has given the caller up as well and has
// the lower id. Other refusals end nobody.
func TestR5CallerThatHasGivenThisNodeUp(t *testing.T) {
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
			if (r.failure != nil) != c.ends || c.ends && !strings.HasPrefix(r.failure.Error(), fmt.Sprintf("cut off from the job: node.%d: refused", c.caller)) {
				t.Error(r.failure)
			}
		})
	}
}
