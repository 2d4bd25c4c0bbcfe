package router_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// says counts how often a text is in the log of the job.
func (j *job) says(times int, text string) {
	j.t.Helper()
	if n := strings.Count(j.log.String(), text); n != times {
		j.t.Errorf("%d times, want %d: %s\nin:\n%s", n, times, text, j.log.String())
	}
}

// A node logs a peer that leaves, and a connection that breaks, but not one that ends with
// its node.
func TestLogOfPeersThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		j.leave(2)
		j.says(1, `msg="a node leaves" at=0 peer=node.2`)
		j.says(1, `msg="a node leaves" at=1 peer=node.2`)
		j.says(0, "lost the connection")
		j.gates.cut(1)
		synctest.Wait()
		j.says(1, `level=INFO msg="lost the connection, waiting for a new one" at=0 peer=node.1 err=`)
		j.says(1, `level=INFO msg="lost the connection, waiting for a new one" at=1 peer=node.0 err=`)
		<-j.after()
		j.each(func(_ int, r *router.Router) error { return r.Close() }, 0, 1)
		j.says(2, "lost the connection")
		j.says(0, "versions differ")
		j.says(0, "before it had all")
	})
}

// Each of two nodes of different versions logs the other's.
func TestLogOfVersionsThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.Version = "v" + string(rune('0'+c.Node)) })
		defer j.close()
		j.start()
		j.says(1, `level=WARN msg="versions differ" at=0 node=0 version=v0 peer=1 peerVersion=v1`)
		j.says(1, `level=WARN msg="versions differ" at=1 node=1 version=v1 peer=0 peerVersion=v0`)
	})
}

// The error names a node that ends before it has acknowledged messages, with their number.
func TestErrorNamesANodeThatLeftEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, _ := j.channels(router.Spec{Name: "e"})
		j.start()
		release := j.gates.hold(0, 1)
		for range 3 {
			if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		closed := make(chan error, 1) // one result
		go func() { closed <- j.nodes[1].Close() }()
		synctest.Wait()
		release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		j.says(1, `level=WARN msg="a node has left before it had all" at=0 peer=node.1 unacknowledged=3`)
		if lost, ok := errors.AsType[*router.PeerError](j.nodes[0].Losses()); !ok || lost.Undelivered != 3 {
			t.Errorf("losses: %v", lost)
		}
	})
}

// A waiting node logs every 5 s for which nodes it waits, and a send that waits for room is logged after 10
// s and then after twice the time.
func TestLogOfLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.WindowMessages = 4 })
		defer j.close()
		out, err := j.nodes[0].Channel(router.Spec{Name: "e"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		in, err := j.nodes[1].Channel(router.Spec{Name: "e"}, func(*router.Message) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		in.Listen(true)
		started := make(chan error, 1) // one result
		go func() { started <- j.nodes[0].Start(t.Context(), nil) }()
		<-time.After(12 * time.Second)
		j.says(2, `level=INFO msg="waiting for other nodes" at=0 missing=node.1 for=`)
		j.start(1)
		if err := <-started; err != nil {
			t.Error(err)
		}
		sent := make(chan error, 1) // one result
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			var err error
			for err == nil {
				_, err = out.Send(ctx, router.Bytes("x"), nil)
			}
			sent <- err
		}()
		<-time.After(45 * time.Second)
		for _, waited := range []string{"10s", "20s", "40s"} {
			j.says(1, `level=WARN msg="still waiting for room" at=0 event=e peer=node.1 waited=`+waited)
		}
		j.says(3, "still waiting for room")
		j.says(2, "waiting for other nodes")
		cancel()
		if err := <-sent; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "whose window is full") {
			t.Error(err)
		}
	})
}

// An event that two running nodes declare differently is received by neither, and both continue.
func TestLogOfAnEventThatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		j.start()
		for id, r := range j.nodes {
			ch, err := r.Channel(router.Spec{Name: "f", Fingerprint: uint64(id)}, nil)
			if (err != nil) != (id == 1) || err != nil && !strings.Contains(err.Error(), "differs") { // node.1 knows of the other's
				t.Error(err)
			}
			if err == nil {
				ch.Listen(true)
			}
			synctest.Wait()
		}
		j.says(1, `level=ERROR msg="an event of a peer is not received" at=0 peer=node.1 err="event \"f\" differs: `)
		if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := in[1].all(); got != "x" {
			t.Errorf("received %q", got)
		}
	})
}

// tired is a listener that sometimes cannot accept.
type tired struct {
	net.Listener
	left int // faults to come
}

func (l *tired) Accept() (net.Conn, error) {
	if l.left > 0 {
		l.left--
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

// Accept of a listener is retried after a pause if it fails.
func TestLogOfAListenerThatCannotAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		l, err := j.gates.hosts.Listen(t.Context(), "mem://0")
		if err != nil {
			t.Fatal(err)
		}
		j.edit = func(c *router.Config) { c.Listener = &tired{l, 3} }
		j.make(0, 2)
		began := time.Now()
		j.start()
		j.says(3, `level=WARN msg="cannot accept" at=0 err="too many open files"`)
		if waited := time.Since(began); waited < 150*time.Millisecond { // of virtual time
			t.Errorf("tried three times in %v", waited)
		}
	})
}
