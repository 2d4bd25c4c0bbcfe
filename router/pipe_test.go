package router

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
)

// A pipe between two leaves of which one has gone does not begin, and the hub closes the
// connection that it was handed.
func TestPipeToALeafThatHasGone(t *testing.T) {
	for _, gone := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			hub := openRouter(t, Config{Topology: Star})
			var near, far [2]net.Conn
			for i := range near {
				near[i], far[i] = net.Pipe()
			}
			_ = far[gone].Close()
			ended := make(chan struct{})
			go func() { _, _ = io.Copy(io.Discard, far[1]); close(ended) }() // of the call that was handed over
			if kept, err := hub.splice(&pipe{ctx: hub.ctx, end: func() {}}, near[0], near[1]); kept || !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%v, %v", kept, err)
			}
			synctest.Wait()
			select {
			case <-ended:
			default:
				t.Error("the connection is open")
			}
			for i := range near {
				_, _ = near[i].Close(), far[i].Close()
			}
		})
	}
}

// A leaf that calls the hub back too late is refused with that reason.
func TestHubThatDoesNotWaitAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := openRouter(t, Config{Topology: Star})
		hub.tickets["t"] = make(chan net.Conn)
		ours, theirs := net.Pipe()
		received := make(chan string, 1) // one result
		go func() { b, _ := io.ReadAll(theirs); received <- string(b) }()
		kept, err := hub.relayed(ours, hello{Node: 1, Ticket: "t"})
		_ = ours.Close()
		if got := <-received; kept || err != nil || !strings.Contains(got, "the ticket has expired") {
			t.Errorf("%v, %v, %q", kept, err, got)
		}
	})
}
