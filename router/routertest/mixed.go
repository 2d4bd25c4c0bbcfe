package routertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/ditask/ditask/router"
)

// pattern fills a payload so that it can be checked whole: a number, and bytes
// that follow from it.
func pattern(b []byte, number uint64) {
	binary.LittleEndian.PutUint64(b, number)
	for i := range b[8:] {
		b[8+i] = b[0] + byte(i&0xff)
	}
}

// mixed has the messages that the nodes of testMixed have received.
type mixed struct {
	mu   sync.Mutex
	next map[string]uint64 // the number that may come next, by receiver, sender and policy
}

// listen declares one event of each policy on the node.
func (x *mixed) listen(t *testing.T, n *node) (chs []*router.Channel) {
	t.Helper()
	for d := router.Reliable; d <= router.DropNewest; d++ {
		ch, err := n.Channel(router.Spec{Name: d.String(), Delivery: d, Queue: 16}, func(m *router.Message) error { return x.receive(n, d, m) })
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
		chs = append(chs, ch)
	}
	return chs
}

func (x *mixed) receive(n *node, d router.Delivery, m *router.Message) error {
	want := make([]byte, len(m.Payload))
	number := binary.LittleEndian.Uint64(m.Payload)
	pattern(want, number)
	if !bytes.Equal(want, m.Payload) {
		return fmt.Errorf("version %d from node.%d is damaged", m.Version, m.From)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	key := fmt.Sprint(n.id, m.From, d)
	if number < x.next[key] || d == router.Reliable && number != x.next[key] {
		return fmt.Errorf("%s: message %d from node.%d where %d belongs", d, number, m.From, x.next[key])
	}
	x.next[key] = number + 1
	m.Credit.Return(1, len(m.Payload))
	return nil
}

// testMixed sends messages of all sizes and policies from every node to every
// other at once, while they are consumed: every byte of each received message is the
// one that was sent, and reliable ones all come, in order.
func testMixed(t *testing.T, s Setup) {
	const each = 150
	sizes := []int{16, 16, 16, 16, 100, 3000, 40 << 10, 300 << 10}
	l := s.lab(t, 3, func(c *router.Config) { c.WindowMessages = 16 })
	x := &mixed{next: map[string]uint64{}}
	events := make([][]*router.Channel, len(l.nodes))
	for i, n := range l.nodes {
		events[i] = x.listen(t, n)
	}
	l.start()
	l.each(l.nodes, func(n *node) error {
		for i := range each {
			for _, ch := range events[n.id] {
				b := make([]byte, sizes[rand.IntN(len(sizes))])
				pattern(b, uint64(i))
				if _, err := ch.Send(l.ctx, router.Bytes(b), nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
	l.finish()
	for key, n := range x.next {
		if strings.HasSuffix(key, router.Reliable.String()) && n != each {
			t.Errorf("%s: %d of %d messages received", key, n, each)
		}
	}
}
