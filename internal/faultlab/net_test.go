package faultlab_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// cable is a network in memory whose connections are faulty lines.
type cable struct {
	hosts *memory.Network // where the nodes listen
	pipes *memory.Network // the near halves of the lines
	shape faultlab.Shape
	torn  int // one of that many writes without waiting takes only a part; 0: none

	mu      sync.Mutex
	rnd     *rand.Rand
	dials   uint64
	lines   map[*faultlab.Line][2]int // the dialling and the dialled node
	down    map[[2]int]int            // pairs that cannot connect, lower id first: by how many faults
	stalled map[[2]int]int            // from, to
}

func newCable(seed uint64, shape faultlab.Shape, torn int) *cable {
	return &cable{
		hosts: memory.New(), pipes: memory.New(), shape: shape, torn: torn, rnd: rand.New(rand.NewPCG(seed, 3)),
		lines: map[*faultlab.Line][2]int{}, down: map[[2]int]int{}, stalled: map[[2]int]int{},
	}
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// plug is the cable of one node.
type plug struct {
	*cable
	node int
}

func (p plug) Advertise(l net.Listener) string { return p.hosts.Advertise(l) }

func (p plug) Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := p.hosts.Listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	return tornListener{l, p.cable}, nil
}

func (p plug) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := strconv.Atoi(strings.TrimPrefix(addr, "mem://"))
	if err != nil {
		return nil, err
	}
	if p.isDown(p.node, to) {
		return nil, fmt.Errorf("%s: the cable is cut", addr)
	}
	far, err := p.hosts.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	near, end, err := p.pipe(ctx)
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	line := faultlab.NewLine(end, far, p.shape, p.rnd.Uint64())
	p.lines[line] = [2]int{p.node, to}
	if p.down[pairOf(p.node, to)] > 0 {
		line.Cut(faultlab.Break)
	}
	if p.stalled[[2]int{p.node, to}] > 0 {
		line.Stall(faultlab.Forth)
	}
	if p.stalled[[2]int{to, p.node}] > 0 {
		line.Stall(faultlab.Back)
	}
	return &tornConn{near, p.cable}, nil
}

// pipe returns a connection in memory, with both its ends.
func (c *cable) pipe(ctx context.Context) (near, end net.Conn, err error) {
	c.mu.Lock()
	c.dials++
	name := fmt.Sprint("mem://pipe", c.dials)
	c.mu.Unlock()
	l, err := c.pipes.Listen(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1) // one connection
	go func() {
		conn, _ := l.Accept()
		accepted <- conn
	}()
	if near, err = c.pipes.Dial(ctx, name); err != nil {
		return nil, nil, err
	}
	return near, <-accepted, nil
}

func (c *cable) isDown(a, b int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down[pairOf(a, b)] > 0
}

// cut breaks the connections between a and b, and allows no new ones until mend.
func (c *cable) cut(a, b int, how faultlab.How) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[pairOf(a, b)]++
	c.drop(a, b, how)
}

// drop breaks the connections between a and b. The mutex is held.
func (c *cable) drop(a, b int, how faultlab.How) {
	for line, who := range c.lines {
		if pairOf(who[0], who[1]) == pairOf(a, b) {
			line.Cut(how)
			if how != faultlab.Half {
				delete(c.lines, line)
			}
		}
	}
}

// flick breaks the connections between a and b, once.
func (c *cable) flick(a, b int, how faultlab.How) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(a, b, how)
}

func (c *cable) mend(a, b int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[pairOf(a, b)]--
}

// stall holds back the bytes from a to b.
func (c *cable) stall(a, b int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled[[2]int{a, b}]++; !on {
		c.stalled[[2]int{a, b}] -= 2
	}
	for line, who := range c.lines {
		direction := faultlab.Forth
		switch who {
		case [2]int{a, b}:
		case [2]int{b, a}:
			direction = faultlab.Back
		default:
			continue
		}
		if c.stalled[[2]int{a, b}] > 0 {
			line.Stall(direction)
		} else {
			line.Resume(direction)
		}
	}
}

// close ends all lines and waits for them.
func (c *cable) close() {
	c.mu.Lock()
	var lines []*faultlab.Line
	for line := range c.lines {
		line.Cut(faultlab.Break)
		lines = append(lines, line)
	}
	c.mu.Unlock()
	for _, line := range lines {
		line.Wait()
	}
}

// part returns how many of n bytes a write without waiting takes.
func (c *cable) part(n int) int {
	if c.torn == 0 || n == 0 {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rnd.IntN(c.torn) > 0 {
		return n
	}
	return c.rnd.IntN(n)
}

type tornListener struct {
	net.Listener
	c *cable
}

func (l tornListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tornConn{conn, l.c}, nil
}

// tornConn is a connection that sometimes accepts only a part of a write
// without waiting.
type tornConn struct {
	net.Conn
	c *cable
}

func (t *tornConn) TryWrite(b []byte) (int, error) {
	k := t.c.part(len(b))
	if k == 0 {
		return 0, nil
	}
	return t.Conn.(interface{ TryWrite(b []byte) (int, error) }).TryWrite(b[:k])
}

var _ router.Transport = plug{}
