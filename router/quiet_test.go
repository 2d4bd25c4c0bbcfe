package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// Both ends of a connection count the same bytes, and heartbeats keep an idle one from
// falling silent.
func TestStatsOfAnIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, memory.New(), nil)
		d.deliver = func(m *router.Message) error { m.Credit.Return(1, len(m.Payload)); return nil }
		out := d.event(router.Spec{Name: "n"})
		d.start()
		for range 100 {
			if _, err := out.Send(t.Context(), router.Bytes("x"), nil); err != nil {
				t.Error(err)
			}
		}
		<-time.After(time.Minute + time.Millisecond) // between two ticks
		synctest.Wait()
		here, there := d.nodes[0].Stats().Peers[0], d.nodes[1].Stats().Peers[0]
		if here.WireOut != there.WireIn || here.WireIn != there.WireOut || here.WireOut == 0 || here.LogBytes != 0 {
			t.Errorf("%+v and %+v", here, there)
		}
		if here.Silent > 2*time.Second || here.Silent <= 0 {
			t.Errorf("silent for %v", here.Silent)
		}
		d.close()
	})
}
