package natsbus

import (
	"context"
	"net"
	"time"
)

type connType = conn

// SetWriteTime says how long the server has to take a piece, before the carrier is
// used.
func (c *Carrier) SetWriteTime(d time.Duration) { c.writeTime = d }

// Socket is what the carrier makes of a connection with the server.
func Socket(conn net.Conn, d time.Duration) net.Conn { return socket{conn, d} }

// Limit lowers what may wait in the client for the carrier's connections.
func (c *Carrier) Limit(messages, bytes int) error {
	c.mu.Lock()
	sub := c.sub
	c.mu.Unlock()
	return sub.SetPendingLimits(messages, bytes)
}

// Inject publishes raw bytes to the other end of a connection, or to this one.
func Inject(conn any, here bool, raw []byte) error {
	k := conn.(*connType)
	to := k.peer
	if here {
		to = k.own
	}
	return k.nc.Publish(to, raw)
}

// Quiet ends what a young connection sends of itself.
func Quiet(conn any) {
	k := conn.(*connType)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.probe.Stop()
}

// DataMessage is a data message with that number.
func DataMessage(number uint64, body string) []byte {
	return append(appendHead(nil, head{kind: kindData, number: number}), body...)
}

// Block publishes through the connection's client, until the server takes nothing
// more for a while. It returns where the end of the last call comes.
func Block(ctx context.Context, conn any) <-chan error {
	k := conn.(*connType)
	ended, step := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		junk := make([]byte, 64<<10)
		for {
			k.sending.Lock()
			err := k.nc.Publish(k.own+".nowhere", junk)
			k.sending.Unlock()
			if err != nil {
				ended <- err
				return
			}
			select {
			case step <- struct{}{}:
			default:
			}
		}
	}()
	for {
		t := time.NewTimer(300 * time.Millisecond)
		select {
		case <-step:
			t.Stop()
		case <-t.C:
			return ended
		case <-ctx.Done():
			return ended
		}
	}
}

// ResetMessage is a reset.
func ResetMessage() []byte { return appendHead(nil, head{kind: kindReset}) }

// IsAck reports whether a message is an ack.
func IsAck(raw []byte) bool {
	h, _, err := parse(raw)
	return err == nil && h.kind == kindAck
}

// Backlog is how many connections wait for Accept.
const Backlog = backlog

// AcceptMessage is the answer to a dial.
func AcceptMessage() []byte {
	return appendHello(appendHead(nil, head{kind: kindAccept}), minWindow, "")
}
