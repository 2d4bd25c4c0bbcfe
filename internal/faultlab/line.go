package faultlab

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Shape is how a line carries bytes when nothing is wrong. The zero value carries
// them as they come.
type Shape struct {
	Delay  time.Duration // of what is read at once, each way
	Jitter time.Duration // added to it at random, and now and then before a piece
	Piece  int           // the most bytes that are handed on at once; 0: all
	Read   int           // the most bytes that are read at once, and so a line's rate; 0: 32 KiB
}

// Line carries bytes between two connections, and can fail. It has two
// goroutines, one a direction, which end when either connection does; Wait waits
// for them.
type Line struct {
	ends  [2]net.Conn
	shape Shape
	wg    sync.WaitGroup
	done  chan struct{}
	once  sync.Once

	mu    sync.Mutex
	rnd   *rand.Rand
	gates [2]chan struct{} // closed when the direction may continue; nil: it may
}

// The directions of a line.
const (
	Forth = 0 // from the first connection to the second
	Back  = 1
)

// How a line is cut.
type How int

// The ways to cut a line.
const (
	Break How = iota // both ends at once; what is in progress is lost, if the connections can lose it
	Close            // both ends at once; what has been handed on can still be read
	Half             // one direction ends in order, the other is left to its owner
)

// NewLine begins to carry bytes between a and b, and owns both.
func NewLine(a, b net.Conn, shape Shape, seed uint64) *Line {
	l := &Line{ends: [2]net.Conn{a, b}, shape: shape, done: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, 11))}
	l.wg.Go(func() { l.carry(Forth) })
	l.wg.Go(func() { l.carry(Back) })
	return l
}

// Stall holds the bytes of one direction back: its sender notices nothing until
// the buffers are full.
func (l *Line) Stall(direction int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[direction] == nil {
		l.gates[direction] = make(chan struct{})
	}
}

// Resume lets the bytes of one direction continue.
func (l *Line) Resume(direction int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gates[direction]; g != nil {
		close(g)
		l.gates[direction] = nil
	}
}

// Cut ends the line.
func (l *Line) Cut(how How) {
	if how == Half {
		if c, ok := l.ends[1].(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
			return
		}
	}
	for _, c := range l.ends {
		if how == Break {
			breakConn(c)
		}
		_ = c.Close()
	}
	l.once.Do(func() { close(l.done) })
}

// breakConn makes what c has in progress be lost.
func breakConn(c net.Conn) {
	switch c := c.(type) {
	case interface{ Break() }:
		c.Break()
	case interface{ SetLinger(sec int) error }:
		_ = c.SetLinger(0) // a reset instead of an end
	}
}

// Wait returns when the line has ended.
func (l *Line) Wait() { l.wg.Wait() }

// Ended is closed when the line has been cut, or has ended by itself.
func (l *Line) Ended() <-chan struct{} { return l.done }

func (l *Line) carry(direction int) {
	src, dst := l.ends[direction], l.ends[1-direction]
	defer l.Cut(Close)
	buf := make([]byte, cmp.Or(l.shape.Read, 32<<10))
	for {
		n, err := src.Read(buf)
		for at, pieces := 0, 0; at < n; pieces++ {
			piece, delay := l.next(n-at, pieces)
			if !l.pass(direction, delay) {
				return
			}
			if _, err := dst.Write(buf[at : at+piece]); err != nil {
				return
			}
			at += piece
		}
		if err == io.EOF && n == 0 { //nolint:errorlint // by contract, not wrapped
			if c, ok := dst.(interface{ CloseWrite() error }); ok && direction == Forth {
				_ = c.CloseWrite()
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// maxPieces bounds the pieces that are made of what is read at once; the rest
// continues whole.
const maxPieces = 64

// next returns how many of n bytes continue next, and how much later.
func (l *Line) next(n, pieces int) (piece int, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shape.Piece > 0 && pieces < maxPieces {
		n = min(n, 1+l.rnd.IntN(l.shape.Piece))
	}
	if pieces == 0 {
		delay = l.shape.Delay
	}
	if l.shape.Jitter > 0 && (pieces == 0 || l.rnd.IntN(16<<10/max(n, 1)+1) == 0) {
		delay += time.Duration(l.rnd.Int64N(int64(l.shape.Jitter)))
	}
	return n, delay
}

// pass waits until a piece may continue. It reports false when the line was cut.
func (l *Line) pass(direction int, delay time.Duration) bool {
	l.mu.Lock()
	gate := l.gates[direction]
	l.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-l.done:
			return false
		}
	}
	if delay == 0 {
		return true
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.done:
		return false
	}
}
