package routertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ditask/ditask/router"
)

// testMixed sends messages of all sizes and policies from every node to every
// other at once, while they are consumed: every byte of each that comes is the
// one that was sent, and reliable ones all come, in order.
func testMixed(t *testing.T, s Setup) {
	const each = 150
	sizes := []int{16, 16, 16, 16, 100, 3000, 40 << 10, 300 << 10}
	fill := func(b []byte, seed uint64) {
		binary.LittleEndian.PutUint64(b, seed)
		for i := range b[8:] {
			b[8+i] = byte(seed) + byte(i)
		}
	}
	for round := range uint64(1) {
		l := s.lab(t, 3, func(c *router.Config) { c.WindowMessages = 16 })
		var mu sync.Mutex
		next := map[string]uint64{}
		var events [][]*router.Channel
		for _, n := range l.nodes {
			var chs []*router.Channel
			for d := router.Reliable; d <= router.DropNewest; d++ {
				ch, err := n.Channel(router.Spec{Name: d.String(), Delivery: d, Queue: 16}, func(m *router.Message) error {
					want := make([]byte, len(m.Payload))
					seed := binary.LittleEndian.Uint64(m.Payload)
					fill(want, seed)
					if !bytes.Equal(want, m.Payload) {
						return fmt.Errorf("version %d from node.%d is damaged", m.Version, m.From)
					}
					mu.Lock()
					defer mu.Unlock()
					key := fmt.Sprint(n.id, m.From, d)
					if seed < next[key] || d == router.Reliable && seed != next[key] {
						return fmt.Errorf("message %d from node.%d where %d belongs", seed, m.From, next[key])
					}
					next[key] = seed + 1
					m.Credit.Return(1, len(m.Payload))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				ch.Listen(true)
				chs = append(chs, ch)
			}
			events = append(events, chs)
		}
		l.start()
		l.each(l.nodes, func(n *node) error {
			rnd := rand.New(rand.NewPCG(round, uint64(n.id)))
			for i := range uint64(each) {
				for _, ch := range events[n.id] {
					b := make([]byte, sizes[rnd.IntN(len(sizes))])
					fill(b, i)
					if _, err := ch.Send(l.ctx, router.Bytes(b), nil); err != nil {
						return err
					}
				}
			}
			return nil
		})
		l.finish()
		for key, n := range next {
			if key[len(key)-len("reliable"):] == "reliable" && n != each {
				t.Errorf("%s: %d of %d messages came", key, n, each)
			}
		}
	}
}
