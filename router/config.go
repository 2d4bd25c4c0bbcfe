package router

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Config describes a node and its connections to the others. The zero value of
// every field but Transport works; [New] fills in the defaults.
type Config struct {
	Job         string   // job id: nodes of another job are refused
	Token       []byte   // job secret, proved in the handshake, never sent
	Node        int      // this node's id
	Incarnation uint64   // grows at each restart; 0 means the time in ns
	Expect      int      // nodes in the job, this one included; 0 means unknown
	Topology    Topology // mesh unless set
	Version     string   // the program's version: a difference is logged only

	// Elastic means that nodes leave the job and come back: a node that has left in order
	// is called again, at the address that it had.
	Elastic bool

	Transport Transport
	Listener  net.Listener // a listener that is bound already, or
	Listen    string       // an address to bind at Start; empty means none
	Advertise string       // the address for other nodes; empty means the bound one
	Attach    []string     // addresses to dial

	// WindowMessages and WindowBytes bound what one sender may have on its way
	// to one receiver's listeners, for each event: 16384 messages, 8 MiB.
	WindowMessages int
	WindowBytes    int
	// ChunkBytes is the largest piece of a message that goes out in one run,
	// 256 KiB. A larger message is interleaved with others.
	ChunkBytes int
	// MaxMessageBytes is the largest payload accepted, 1 GiB.
	MaxMessageBytes int

	// SharedBytes is the memory in bytes that this node may take for payloads of 64 KiB or more that it shares with
	// peers of its host and user, over unix sockets and tcp: a multiple of 4096, 1 GiB at most; 0: it shares none, and uses none of
	// theirs. It uses that of peers that have set no more. The memory is taken as it is needed, and then kept. Payloads for
	// which there is no room go by the sockets.
	SharedBytes int

	// PeerTimeout is the time that a peer may be out of reach before it is lost, 8 s; four
	// times as long, with its connection left in peace, while this node joins the job,
	// and then for as long again as that has taken, 32 s at most.
	// LinkTimeout is the time that a connection may be silent, 5 s, and Heartbeat how
	// often an idle one is tested, 2 s; both are less where PeerTimeout is less.
	// JoinTimeout is the time that Start waits for the others, 60 s.
	Heartbeat, LinkTimeout, PeerTimeout, JoinTimeout time.Duration
	// HandshakeTimeout bounds one call of an address, 5 s. A node that joins the job gives a
	// busy one more time at the next call, up to 40 s, and the listening side waits as long
	// (each 8 x HandshakeTimeout). MaxHandshakes bounds the unauthenticated
	// connections, 256 at once, shared among the addresses that they come from.
	HandshakeTimeout time.Duration
	MaxHandshakes    int

	Logger *slog.Logger // slog.Default() if nil
	Tap    Tap          // sees every message; may be nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// ensureDefaults fills in what is zero.
func (c *Config) ensureDefaults() {
	def(&c.Incarnation, uint64(time.Now().UnixNano()))
	def(&c.WindowMessages, 16384)
	def(&c.WindowBytes, 8<<20)
	def(&c.ChunkBytes, 256<<10)
	def(&c.MaxMessageBytes, 1<<30)
	def(&c.PeerTimeout, 8*time.Second)
	def(&c.Heartbeat, min(2*time.Second, c.PeerTimeout/4))
	def(&c.LinkTimeout, min(5*time.Second, c.PeerTimeout*5/8))
	def(&c.JoinTimeout, time.Minute)
	def(&c.HandshakeTimeout, 5*time.Second)
	def(&c.MaxHandshakes, 256)
	def(&c.Logger, slog.Default())
}

// Validate reports every fault of c at once. It judges c as New would see it,
// with defaults filled in.
func (c Config) Validate() error {
	c.ensureDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Transport == nil {
		bad("Transport is missing")
	}
	if c.Node < 0 || c.Node > maxNode {
		bad("Node %d is not in 0..%d", c.Node, maxNode)
	}
	if c.Expect < 0 || c.Expect > maxNode+1 {
		bad("Expect %d is not in 0..%d", c.Expect, maxNode+1)
	}
	if c.WindowMessages < 4 || c.WindowBytes < inlineBytes {
		bad("a window of %d messages and %d bytes is too small: want at least 4 and %d", c.WindowMessages, c.WindowBytes, inlineBytes)
	}
	if c.ChunkBytes < inlineBytes {
		bad("ChunkBytes %d is too small: want at least %d", c.ChunkBytes, inlineBytes)
	}
	if c.MaxMessageBytes < c.ChunkBytes {
		bad("MaxMessageBytes %d is less than ChunkBytes %d", c.MaxMessageBytes, c.ChunkBytes)
	}
	if !validShared(c.SharedBytes) {
		bad("SharedBytes %d: want a multiple of 4096 up to 1 GiB, or 0 for none", c.SharedBytes)
	}
	if c.Heartbeat < time.Millisecond {
		bad("a heartbeat every %v, with a PeerTimeout of %v, is too often: want at least 1ms", c.Heartbeat, c.PeerTimeout)
	}
	if c.LinkTimeout < 2*c.Heartbeat || c.PeerTimeout < c.LinkTimeout {
		bad("want 2 x Heartbeat (%v) <= LinkTimeout (%v) <= PeerTimeout (%v)", c.Heartbeat, c.LinkTimeout, c.PeerTimeout)
	}
	if len(errs) > 0 {
		return fmt.Errorf("router config: %w", errors.Join(errs...))
	}
	return nil
}
