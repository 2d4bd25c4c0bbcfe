package routertest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ditask/ditask/router"
)

// rising checks the versions that one node receives.
type rising struct {
	mu       sync.Mutex
	last     map[string]uint64 // by event and sender
	received map[string]uint64
	wrong    []string
}

func (r *rising) receive(event string, m *router.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%s of node.%d", event, m.From)
	if last := r.last[key]; m.Version <= last || m.Version != last+1 && strings.HasPrefix(event, router.Reliable.String()) {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: version %d after %d", key, m.Version, last))
	}
	r.last[key] = m.Version
	r.received[key]++
	m.Credit.Return(1, len(m.Payload))
	return nil
}

// testVersions has several goroutines of each node send each event at once, in windows
// that fill: at every node the versions of each sender rise, a reliable event's without a
// gap, and another one's with gaps for what was counted as dropped.
func testVersions(t *testing.T, s Setup) {
	const senders, each = 4, 60
	sizes := []int{8, 8, 8, 8, 5000, 300 << 10}
	l := s.lab(t, 4, func(c *router.Config) { c.WindowMessages = 8 })
	receives := make([]*rising, len(l.nodes))
	chs := make([][]*router.Channel, len(l.nodes))
	for i, n := range l.nodes {
		receives[i] = &rising{last: map[string]uint64{}, received: map[string]uint64{}}
		for d := router.Reliable; d <= router.DropNewest; d++ {
			ch, err := n.Channel(router.Spec{Name: d.String(), Delivery: d, Queue: 8},
				func(m *router.Message) error { return receives[i].receive(d.String(), m) })
			if err != nil {
				t.Fatal(err)
			}
			ch.Listen(true)
			chs[i] = append(chs[i], ch)
		}
	}
	l.start()
	l.each(l.nodes[:2], func(n *node) error {
		var all sync.WaitGroup
		errs := make([]error, senders)
		for k := range senders {
			all.Go(func() {
				for i := range each {
					payload := make(router.Bytes, sizes[(i+k)%len(sizes)])
					for _, ch := range chs[n.id] {
						_, err := ch.Send(l.ctx, payload, nil)
						errs[k] = errors.Join(errs[k], err)
					}
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	})
	l.finish()
	for _, n := range l.nodes[:2] {
		for _, st := range n.Stats().Streams {
			if st.Sent == 0 {
				continue
			}
			key := fmt.Sprintf("%s of node.%d", st.Event, n.id)
			if got := receives[st.Peer].received[key]; st.Sent != senders*each || got+st.Dropped() != st.Sent {
				t.Errorf("%s: node.%d has received %d; %+v", key, st.Peer, got, st)
			}
		}
	}
	for id, h := range receives {
		if want := len(chs[id]) * (2 - max(0, 1-id/2)); len(h.received) != want || len(h.wrong) > 0 {
			t.Errorf("node.%d has received %v, want %d; %d faults, the first %q", id, h.received, want, len(h.wrong),
				h.wrong[:min(len(h.wrong), 3)])
		}
	}
}
