package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/routertest"
)

// After Off and On, a node receives all messages of a sender from the first one on that it
// receives: not one that was under way before the sender knew of the Off, and then none that
// was emitted before the sender knew of the On.
func TestE4OffAndOnLeaveNoGap(t *testing.T) {
	for _, delivery := range []router.Delivery{router.Reliable, router.DropOldest, router.DropNewest} {
		t.Run(delivery.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJob(t, 2, nil)
				defer j.close()
				out, in := j.channels(router.Spec{Name: "e", Delivery: delivery})
				j.start()
				number := 0
				send := func() {
					number++
					if _, err := out[0].Send(t.Context(), router.Bytes(fmt.Sprint(number)), nil); err != nil {
						t.Error(err)
					}
					synctest.Wait()
				}
				send()
				for range 2 {
					release := j.gates.hold(0, 1)
					send() // 2 and 5 are under way when the listener goes
					out[1].Listen(false)
					synctest.Wait()
					send() // 3 and 6 are sent to no node
					toSender := j.gates.hold(1, 0)
					out[1].Listen(true)
					release() // 2 and 5 arrive after On
					synctest.Wait()
					toSender()
					synctest.Wait()
					send()
				}
				if got := in[1].all(); got != "1 4 7" {
					t.Errorf("received %q, want 1 4 7", got)
				}
				<-time.After(5 * time.Second) // the sender gets a report of the consumption once a second
				if st := routertest.Total(j.nodes[1], "e"); st.Unsubscribed != 2 {
					t.Errorf("the listener has dropped %d messages, want 2", st.Unsubscribed)
				}
				if st := routertest.Total(j.nodes[0], "e"); st.Sent != 5 || st.Delivered != 5 || st.Queued+st.InFlight != 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// A new listener of an event receives the messages that are emitted after the sender was notified of
// it, also where the sender declares the event later.
func TestOnBeforeTheSenderHasTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		j.start()
		var in inbox
		to, err := j.nodes[1].Channel(router.Spec{Name: "e"}, in.deliver)
		if err != nil {
			t.Fatal(err)
		}
		to.Listen(true)
		to.Listen(false)
		to.Listen(true)
		synctest.Wait()
		from, err := j.nodes[0].Channel(router.Spec{Name: "e"}, in.deliver)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i := range 3 {
			if n, err := from.Send(t.Context(), router.Bytes(fmt.Sprint(i)), nil); n != 1 || err != nil {
				t.Error(n, err)
			}
		}
		synctest.Wait()
		if got := in.all(); got != "0 1 2" {
			t.Errorf("received %q", got)
		}
	})
}

// A connection that breaks between Off and On loses neither.
func TestOffAndOnOverABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		j.start()
		for i := range 20 {
			if i%3 == 0 {
				j.gates.cut(1)
			}
			out[1].Listen(false)
			out[1].Listen(true)
			<-j.after()
			if _, err := out[0].Send(t.Context(), router.Bytes(fmt.Sprint(i)), nil); err != nil {
				t.Error(err)
			}
			<-j.after()
		}
		if got := strings.Fields(in[1].all()); len(got) != 20 {
			t.Errorf("received %q", got)
		}
	})
}

// The newest value that was emitted while a node did not listen is delivered after On.
func TestE11LatestIsThereAfterOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e", Delivery: router.Latest})
		j.start()
		for i := range 3 {
			out[1].Listen(false)
			if _, err := out[0].Send(t.Context(), router.Bytes(fmt.Sprint(i)), nil); err != nil {
				t.Error(err)
			}
			synctest.Wait() // it has arrived, if it was sent
			out[1].Listen(true)
			synctest.Wait()
		}
		if got := in[1].all(); got != "0 1 2" {
			t.Errorf("received %q, want 0 1 2", got)
		}
	})
}

// A message in many chunks that was under way at Off does not come after On.
func TestE4OffAndOnDuringALargeMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.ChunkBytes = 32 << 10 })
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		j.start()
		release := j.gates.hold(0, 1)
		for _, size := range []int{64, 8 << 20} { // the second has not left its sender
			if _, err := out[0].Send(t.Context(), make(router.Bytes, size), nil); err != nil {
				t.Error(err)
			}
		}
		out[1].Listen(false)
		synctest.Wait()
		if n, err := out[0].Send(t.Context(), router.Bytes("missed"), nil); n != 0 || err != nil {
			t.Error(n, err)
		}
		out[1].Listen(true)
		synctest.Wait()
		release()
		<-j.after()
		if _, err := out[0].Send(t.Context(), router.Bytes("first"), nil); err != nil {
			t.Error(err)
		}
		<-j.after()
		if got := in[1].all(); got != "first" {
			t.Errorf("received %d bytes", len(got))
		}
	})
}

// A newest value that a node has received already, and is sent again after On, is dropped and
// takes no room.
func TestE11LatestIsReceivedOnceOverOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e", Delivery: router.Latest})
		j.start()
		for i := range 3 {
			if _, err := out[0].Send(t.Context(), router.Bytes(fmt.Sprint(i)), nil); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			for _, on := range []bool{false, true} {
				out[1].Listen(on)
				<-j.after()
			}
		}
		if got := in[1].all(); got != "0 1 2" {
			t.Errorf("received %q, want 0 1 2", got)
		}
	})
}
