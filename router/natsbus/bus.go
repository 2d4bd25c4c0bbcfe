package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/router/broker"
)

// bus is a connection with the server as package broker sees it.
type bus struct {
	*Transport
	nc *nats.Conn
}

// pieceBytes is the size of the largest message, with its cost of the window: larger messages would
// delay small ones in the server.
const pieceBytes = 256 << 10

// newHub returns the hub of this transport's inbox.
func (c *Transport) newHub(nc *nats.Conn) *broker.Hub {
	return broker.New(broker.Config{
		Broker: &bus{c, nc}, Inbox: c.inbox, Window: c.window(), MinWindow: minWindow, MaxWindow: maxWindow,
		BodyBytes: pieceBytes - broker.CostBytes, Most: func() int { return int(nc.MaxPayload()) },
		Direct: true, Lossy: true, Name: c.cfg.Name, Broken: c.broken,
		Loss: "NATS has dropped them, for a client that was too slow or a server that went away",
	})
}

// Publish sends messages. Without a connection with the server, their errors are broker.ErrAgain.
func (b *bus) Publish(messages []*broker.Message) {
	for _, m := range messages {
		if m.From == "" {
			m.Err = b.nc.Publish(m.To, m.Bytes)
		} else {
			m.Err = b.nc.PublishRequest(m.To, m.From, m.Bytes)
		}
		if m.Err != nil && !b.nc.IsClosed() && !errors.Is(m.Err, nats.ErrMaxPayload) {
			m.Err = fmt.Errorf("%w: %w", broker.ErrAgain, m.Err)
		}
	}
}

// Place is the subject of an end of a connection.
func (b *bus) Place(end broker.Peer) string {
	return b.prefix + "conn." + end.Inbox + "." + strconv.FormatUint(end.ID, 10)
}

// Find is the subject on which a node receives dials; it may have no subscriber.
func (b *bus) Find(_ context.Context, word string) (string, error) {
	return b.prefix + "dial." + strings.TrimPrefix(word, "node."), nil
}

// Claim subscribes to the dials of a node.
func (b *bus) Claim(ctx context.Context, word string) (release func(), err error) {
	subject, _ := b.Find(ctx, word)
	sub, err := b.nc.Subscribe(subject, b.receive)
	if err != nil {
		return nil, err
	}
	release = func() { _ = sub.Unsubscribe() } // the subscription ends with the connection
	if err := settled(ctx, b.nc); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Close ends the connection with the server. It waits a bounded time for the last messages.
func (b *bus) Close(_ context.Context, wrote <-chan struct{}) {
	<-wrote
	b.nc.Close()
}

// resetHead is the head of a reset in version 1 of the wire, before the reason.
var resetHead = append([]byte{6}, make([]byte, 16)...)

// receive handles a dial.
func (b *bus) receive(m *nats.Msg) {
	_, err := b.hub.Deliver(0, m.Data)
	if _, ok := b.peer(m.Reply); ok && errors.Is(err, broker.ErrVersion) {
		_ = b.nc.Publish(m.Reply, append(slices.Clip(resetHead), "refused: "+err.Error()...)) // without this, the dial would wait for its timeout
	}
}

// deliver handles a message to one end of a connection. It must not wait.
func (c *Transport) deliver(hub *broker.Hub, m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
	if err != nil || id == 0 {
		return
	}
	if m.Header.Get("Status") == "503" {
		hub.Lost(id, errAbsent, errEnded)
		return
	}
	if why, ok := bytes.CutPrefix(m.Data, resetHead); ok { // a reset of version 1
		err := errors.New(printable.Text(string(why)))
		hub.Lost(id, err, err)
		return
	}
	if known, _ := hub.Deliver(id, m.Data); !known {
		if peer, ok := c.peer(m.Reply); ok {
			hub.Reset(peer)
		}
	}
}

var (
	errAbsent = fmt.Errorf("%w: no node has this address: start the node, with the same job id and NATS server", broker.ErrRefused)
	errEnded  = errors.New("the node at the other end has ended, or is no longer connected with the server")
)

// peer returns the end of a connection of this job to which a subject belongs. Subjects of version 1 have another form
// and belong to no end.
func (c *Transport) peer(subject string) (broker.Peer, bool) {
	rest, ok := strings.CutPrefix(subject, c.prefix+"conn.")
	inbox, last, two := strings.Cut(rest, ".")
	if !ok || !two || strings.ContainsAny(rest, "*>") || strings.Contains(last, ".") {
		return broker.Peer{}, false
	}
	id, _ := strconv.ParseUint(last, 10, 64)
	return broker.Peer{Inbox: inbox, ID: id}, true
}
