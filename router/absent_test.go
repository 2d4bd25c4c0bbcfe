package router_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/routertest"
)

// streamTo is what a node has counted of one event for one peer.
func streamTo(r *router.Router, peer int) router.StreamStats {
	for _, s := range r.Stats().Streams {
		if s.Peer == peer {
			return s
		}
	}
	return router.StreamStats{}
}

// away sums up, by peer, the losses of a node that concern peers which were away.
func away(r *router.Router) map[string]int {
	out := map[string]int{}
	list, _ := r.Losses().(interface{ Unwrap() []error })
	if list == nil {
		return out
	}
	for _, err := range list.Unwrap() {
		if gone, ok := errors.AsType[*router.PeerError](err); ok && errors.Is(err, router.ErrAway) {
			out[fmt.Sprintf("%d/%d", gone.Node, gone.Incarnation)] += gone.Undelivered
		}
	}
	return out
}

// In a job that recovers, messages to a lost node are counted until it is back, and reported with its
// number and incarnation.
func TestR5SendsToALostNodeAreCountedUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Elastic = true })
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		j.start()
		send := func(n int, match func(router.Peer) bool) {
			t.Helper()
			for i := range n {
				if _, err := out[0].Send(t.Context(), router.Bytes(fmt.Sprint(i)), match); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
		}
		send(10, nil)
		for life := uint64(2); life < 4; life++ {
			<-time.After(3 * time.Second) // the sender receives what was consumed
			_ = j.nodes[2].Abandon()
			synctest.Wait()
			send(5, nil)
			<-time.After(20 * time.Second)
			if !out[0].Listened() {
				t.Error("no peer has listened")
			}
			send(7, nil)
			send(3, func(p router.Peer) bool { return p.ID == 2 })
			send(2, func(p router.Peer) bool { return p.ID == 1 })
			r := j.make(2, life)
			ch, err := r.Channel(router.Spec{Name: "e"}, in[2].deliver)
			if err != nil {
				t.Fatal(err)
			}
			ch.Listen(true)
			j.start(2)
			synctest.Wait()
			send(4, nil)
		}
		if got, want := away(j.nodes[0]), map[string]int{"2/1": 10, "2/2": 10}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("reported %v, want %v", got, want)
		}
		if n := strings.Count(j.log.String(), `messages for a node were not sent, as it was lost" at=0 peer=node.2 messages=10`); n != 2 {
			t.Errorf("logged %d times", n)
		}
		<-time.After(5 * time.Second)
		received := uint64(len(strings.Fields(in[2].all())))
		st := streamTo(j.nodes[0], 2)
		if st.Sent != 10+2*(5+7+3+4) || st.Sent != st.Delivered+st.Lost || st.Delivered != 18 || received != 18 {
			t.Errorf("received %d: %+v", received, st)
		}
		if st := routertest.Total(j.nodes[0], "e"); st.Lost != 30 {
			t.Errorf("%+v", st)
		}
	})
}

// Messages to a node that has left, or is leaving, are counted, and are not losses.
func TestSendsToANodeThatLeftAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		out, _ := j.channels(router.Spec{Name: "e"})
		newest, _ := j.channels(router.Spec{Name: "newest", Delivery: router.Latest})
		j.start()
		send := func() {
			for _, ch := range []*router.Channel{out[0], newest[0]} {
				if _, err := ch.Send(t.Context(), router.Bytes("x"), nil); err != nil {
					t.Error(err)
				}
			}
		}
		send()
		if err := j.nodes[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		send()
		j.leave(2)
		send()
		synctest.Wait() // node 0 has received the last of node 2
		if err := j.nodes[0].Losses(); err != nil {
			t.Error(err)
		}
		if st := streamTo(j.nodes[0], 2); st.Event != "e" || st.Sent != 3 || st.Delivered+st.Lost != 1 && st.InFlight != 0 || st.Away != 2 {
			t.Errorf("%+v", st)
		}
		_ = j.nodes[0].Abandon()
		if log := j.log.String(); !strings.Contains(log, `messages for a node were not sent, as it had left" at=0 peer=node.2 messages=2`) {
			t.Error(log)
		}
	})
}

// A node that does not listen when it goes misses nothing.
func TestNodeThatDidNotListenMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, _ := j.channels(router.Spec{Name: "e"})
		j.start()
		out[1].Listen(false)
		synctest.Wait()
		_ = j.nodes[1].Abandon()
		<-time.After(20 * time.Second)
		if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil || out[0].Listened() {
			t.Error(err, out[0].Listened())
		}
		if st := streamTo(j.nodes[0], 1); st.Sent != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Every message for a node that leaves or is lost during many sends is delivered, reported or in
// an error, at any time of the end: sent = delivered + reported.
func TestR5NothingIsUncountedWhileANodeGoes(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		for round := range 20 {
			synctest.Test(t, func(t *testing.T) {
				j := newJob(t, 2, func(c *router.Config) { c.WindowMessages = 16 })
				defer j.close()
				out, in := j.channels(router.Spec{Name: "e"})
				j.start()
				var failed uint64
				var mu sync.Mutex
				var senders sync.WaitGroup
				const each = 50
				for range 4 {
					senders.Go(func() {
						for range each {
							if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil {
								mu.Lock()
								failed++
								mu.Unlock()
							}
							<-time.After(10 * time.Millisecond)
						}
					})
				}
				<-time.After(time.Duration(round*20+7) * time.Millisecond)
				if leaves {
					j.leave(1)
				} else {
					_ = j.nodes[1].Abandon()
				}
				senders.Wait()
				<-time.After(20 * time.Second)
				st := streamTo(j.nodes[0], 1)
				if counted := st.Delivered + st.Lost + st.Away; counted+failed != 4*each || st.Sent+failed != 4*each || leaves && failed+st.Lost > 0 {
					t.Errorf("%d failed, %+v", failed, st)
				}
				if received := uint64(len(strings.Fields(in[1].all()))); received < st.Delivered || leaves && received != st.Delivered {
					t.Errorf("received %d, %+v", received, st)
				}
			})
		}
	}
}
