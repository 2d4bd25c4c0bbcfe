package router_test

import (
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/router"
)

// A message goes to the nodes that listen and no other, and the sender knows whether any node listens
// or has listened.
func TestMessagesGoToListeners(t *testing.T) {
	for _, delivery := range []router.Delivery{router.Reliable, router.Latest, router.DropOldest} {
		t.Run(delivery.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJob(t, 3, nil)
				defer j.close()
				var out []*router.Channel
				var in [3]inbox
				for id, r := range j.nodes {
					ch, err := r.Channel(router.Spec{Name: "e", Delivery: delivery}, in[id].deliver)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, ch)
				}
				j.start()
				send := func(text string, want int) {
					t.Helper()
					synctest.Wait()
					if n, err := out[0].Send(t.Context(), router.Bytes(text), nil); n != want || err != nil {
						t.Errorf("%s: %d, %v, want %d", text, n, err, want)
					}
					if got := out[0].Listened(); got != (want > 0 || delivery == router.Latest) {
						t.Errorf("%s: listened %v", text, got)
					}
					synctest.Wait()
				}
				send("a", 0)
				if out[0].EverListened() {
					t.Error("a peer has listened")
				}
				out[2].Listen(true)
				send("b", 1)
				out[1].Listen(true)
				send("c", 2)
				out[2].Listen(false)
				send("d", 1)
				out[1].Listen(false)
				send("e", 0)
				if !out[0].EverListened() {
					t.Error("no peer has listened")
				}
				before := ""
				if delivery == router.Latest { // the newest value is kept for nodes that join late
					before = "a "
				}
				late := map[bool]string{true: "b c d", false: "c d"}[delivery == router.Latest]
				if got := in[1].all(); got != late {
					t.Errorf("node.1 has received %q, want %q", got, late)
				}
				if got := in[2].all(); got != before+"b c" {
					t.Errorf("node.2 has received %q, want %q", got, before+"b c")
				}
			})
		})
	}
}

// Only a value for all is kept for nodes that join late, and of several the newest.
func TestLateJoinerHasTheNewestValueForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		spec := router.Spec{Name: "e", Delivery: router.Latest}
		out, err := j.nodes[0].Channel(spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		var in inbox
		to, err := j.nodes[1].Channel(spec, in.deliver)
		if err != nil {
			t.Fatal(err)
		}
		j.start()
		for _, text := range []string{"a", "b"} {
			if _, err := out.Send(t.Context(), router.Bytes(text), nil); err != nil {
				t.Error(err)
			}
		}
		if _, err := out.Send(t.Context(), router.Bytes("c"), func(router.Peer) bool { return true }); err != nil {
			t.Error(err)
		}
		to.Listen(true)
		synctest.Wait()
		if got := in.all(); got != "b" {
			t.Errorf("received %q, want b", got)
		}
	})
}
