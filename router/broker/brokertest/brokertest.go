// Package brokertest is a broker in memory that drops, delays and repeats messages, and can lose its network,
// for tests of package broker.
//
//	network := brokertest.New()
//	a := network.Hub(brokertest.Kind{Direct: true, Lossy: true})
//	network.Edit(func(m *broker.Message) int { return 2 }) // each message comes twice
//
// A Network is safe for concurrent use. Its goroutines are the writers of its hubs; each ends with the last user of its hub.
package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ditask/ditask/router/broker"
)

// Window is the window of each connection, in bytes, unless its Kind has another.
const Window = 64 << 10

// Kind is the kind of a hub's server.
type Kind struct {
	Direct, Lossy bool // as in broker.Config
	Window        int  // bytes; 0: Window
	Name          string
	Broken        func(with net.Addr, err error)
}

// Network is a server that all of its hubs reach.
type Network struct {
	mu    sync.Mutex
	hubs  map[string]*end
	words map[string]string // to inboxes
	edit  func(m *broker.Message) int
	delay time.Duration
	cut   bool
}

// New returns a network without hubs.
func New() *Network { return &Network{hubs: map[string]*end{}, words: map[string]string{}} }

// end is the broker of one hub.
type end struct {
	*Network
	hub   *broker.Hub
	inbox string
	kind  Kind
}

// Hub opens a hub, which ends with its last user. The caller releases it.
func (n *Network) Hub(kind Kind) *broker.Hub {
	if kind.Window == 0 {
		kind.Window = Window
	}
	e := &end{Network: n, inbox: broker.NewInbox(), kind: kind}
	e.hub = broker.New(broker.Config{
		Broker: e, Inbox: e.inbox, Window: kind.Window, MinWindow: 4 << 10, MaxWindow: 1 << 30, BodyBytes: 32 << 10,
		Direct: kind.Direct, Lossy: kind.Lossy, Loss: "the network is a test", Broken: kind.Broken, Name: kind.Name,
	})
	n.mu.Lock()
	n.hubs[e.inbox] = e
	n.mu.Unlock()
	go e.hub.Run() // end.Close waits for it
	return e.hub
}

// Edit sets a function that is called with each message; it may change Bytes, and returns how often the message
// arrives: 0 drops it.
func (n *Network) Edit(fn func(m *broker.Message) int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.edit = fn
}

// Delay delays each message by d.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Cut makes all messages fail until it is called with false.
func (n *Network) Cut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// Forget removes the inbox that a word leads to, as if its node was killed. The word stays.
func (n *Network) Forget(word string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.hubs, n.words[word])
}

// Publish delivers messages.
func (e *end) Publish(messages []*broker.Message) {
	for _, m := range messages {
		m.Err = e.publish(m)
	}
}

func (e *end) publish(m *broker.Message) error {
	e.mu.Lock()
	inbox, _, _ := strings.Cut(m.To, ".")
	to, edit, delay, cut := e.hubs[inbox], e.edit, e.delay, e.cut
	e.mu.Unlock()
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		<-t.C
	}
	if cut {
		return broker.ErrAgain
	}
	copied, times := &broker.Message{To: m.To, From: m.From, Bytes: bytes.Clone(m.Bytes)}, 1
	if edit != nil {
		times = edit(copied)
	}
	if to == nil {
		return broker.ErrInboxGone
	}
	for range times {
		if known, _ := to.hub.Deliver(0, copied.Bytes); !known && m.From != "" {
			to.hub.Reset(broker.Peer{Inbox: e.inbox, ID: number(m.From)})
		}
	}
	return nil
}

// number returns the id of the connection at a place.
func number(place string) (id uint64) {
	_, digits, _ := strings.Cut(place, ".")
	_, _ = fmt.Sscan(digits, &id) // 0 is no connection
	return id
}

// Claim leads a word to this hub.
func (e *end) Claim(_ context.Context, word string) (func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.words[word] = e.inbox
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.words[word] == e.inbox {
			delete(e.words, word)
		}
	}, nil
}

// Find is the place of the hub to which a word leads.
func (e *end) Find(_ context.Context, word string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	inbox := e.words[word]
	if inbox == "" {
		return "", broker.ErrRefused
	}
	return e.Place(broker.Peer{Inbox: inbox}), nil
}

// Place returns the inbox alone if connections have no places of their own, as for a hub that is not
// lossy.
func (e *end) Place(p broker.Peer) string {
	if e.kind.Lossy {
		return fmt.Sprintf("%s.%d", p.Inbox, p.ID)
	}
	return p.Inbox
}

// Close waits for the writer.
func (e *end) Close(_ context.Context, wrote <-chan struct{}) {
	<-wrote
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.hubs, e.inbox)
}
