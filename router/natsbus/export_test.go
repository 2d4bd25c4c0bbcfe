package natsbus

import (
	"context"
	"net"
	"time"
)

// SetWriteTime sets the time that the server has to take a piece, before the transport is used.
func (c *Transport) SetWriteTime(d time.Duration) { c.writeTime = d }

// Socket wraps a connection with the server as the transport does.
func Socket(conn net.Conn, d time.Duration) net.Conn { return socket{conn, d} }

// Limit lowers what may wait in the client for the transport's connections.
func (c *Transport) Limit(messages, bytes int) error {
	c.mu.Lock()
	sub := c.sub
	c.mu.Unlock()
	return sub.SetPendingLimits(messages, bytes)
}

// Block publishes through the transport's client, until the server takes nothing more for a while. It returns where the end of
// the last call comes.
func (c *Transport) Block(ctx context.Context) <-chan error {
	ended, step := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		junk := make([]byte, 64<<10)
		for {
			if err := c.nc.Publish(c.prefix+"nowhere", junk); err != nil {
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

// Subject is the part of a subject for a job's id.
func Subject(job string) string { return token(job) }

// Window is that of each of the transport's connections.
func (c *Transport) Window() int { return c.window() }
