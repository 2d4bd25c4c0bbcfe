//go:build linux

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ditask/ditask/internal/faultlab"
)

// lines are tcp proxies between the nodes of a job: one for each that a node
// dials, and one for each announced node.
type lines struct {
	shape  faultlab.Shape
	routes []string
	wg     sync.WaitGroup
	ctx    context.Context // ends with close

	mu        sync.Mutex
	rnd       *rand.Rand
	listeners []net.Listener
	open      map[*faultlab.Line][2]int // the dialing node and its peer; -1: unknown
	down      map[[2]int]int
	stalled   map[[2]int]int
}

const somebody = -1

// newLines puts lines before the ports of nodes.
func newLines(t *testing.T, seed uint64, nodes, port int, shape faultlab.Shape) *lines {
	l := &lines{shape: shape, rnd: rand.New(rand.NewPCG(seed, 5)), open: map[*faultlab.Line][2]int{}, down: map[[2]int]int{},
		stalled: map[[2]int]int{}}
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.close() })
	for to := range nodes {
		for from := somebody; from < nodes; from++ {
			if from > to || from == somebody {
				l.listen(t, from, to, port+to)
			}
		}
	}
	return l
}

func (l *lines) listen(t *testing.T, from, to, port int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.listeners = append(l.listeners, ln)
	who := fmt.Sprint(from)
	if from == somebody {
		who = "*"
	}
	l.routes = append(l.routes, fmt.Sprintf("%s>tcp://127.0.0.1:%d=tcp://%v", who, port, ln.Addr()))
	l.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.connect(conn, from, to, port) })
		}
	})
}

// connect makes a line of a call.
func (l *lines) connect(near net.Conn, from, to, port int) {
	var d net.Dialer
	far, err := d.DialContext(l.ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		_ = near.Close()
		return
	}
	l.mu.Lock()
	line := faultlab.NewLine(near, far, l.shape, l.rnd.Uint64())
	l.open[line] = [2]int{from, to}
	if l.isDown(from, to) {
		line.Cut(faultlab.Break)
	}
	l.gate(line, from, to)
	l.mu.Unlock()
	select {
	case <-line.Ended():
	case <-l.ctx.Done():
		line.Cut(faultlab.Close)
	}
	line.Wait()
	l.mu.Lock()
	delete(l.open, line)
	l.mu.Unlock()
}

// isDown reports whether a line between the two would be cut at once. A connection
// that a node dials is cut with any line of the dialled node. The mutex is held.
func (l *lines) isDown(from, to int) bool {
	for pair, n := range l.down {
		if n > 0 && (pair == pairOf(from, to) || from == somebody && (pair[0] == to || pair[1] == to)) {
			return true
		}
	}
	return false
}

// gate holds back a line's directions or releases them. The mutex is held.
func (l *lines) gate(line *faultlab.Line, from, to int) {
	for direction, way := range [][2]int{faultlab.Forth: {from, to}, faultlab.Back: {to, from}} {
		held := l.stalled[way] > 0
		for other, n := range l.stalled {
			held = held || n > 0 && from == somebody && (direction == faultlab.Forth && other[1] == to || direction == faultlab.Back &&
				other[0] == to)
		}
		if held {
			line.Stall(direction)
		} else {
			line.Resume(direction)
		}
	}
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// touches reports whether a line is between the two, or may be.
func touches(who [2]int, a, b int) bool {
	return pairOf(who[0], who[1]) == pairOf(a, b) || who[0] == somebody && (who[1] == a || who[1] == b)
}

func (l *lines) flick(a, b int, how faultlab.How) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, who := range l.open {
		if touches(who, a, b) {
			line.Cut(how)
		}
	}
}

func (l *lines) cut(a, b int, how faultlab.How) {
	l.mu.Lock()
	l.down[pairOf(a, b)]++
	l.mu.Unlock()
	l.flick(a, b, how)
}

func (l *lines) mend(a, b int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down[pairOf(a, b)]--
}

func (l *lines) stall(a, b int, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled[[2]int{a, b}] += by
	for line, who := range l.open {
		l.gate(line, who[0], who[1])
	}
}

func (l *lines) close() {
	for _, ln := range l.listeners {
		_ = ln.Close()
	}
	l.wg.Wait()
}

// nets are their own networks, one for each node, on a bridge.
type nets struct {
	prefix string
	n      int
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// newNets makes n networks. prefix is that of their names.
func newNets(t *testing.T, prefix string, n int) (*nets, error) {
	s := &nets{prefix: prefix, n: n}
	t.Cleanup(s.close)
	steps := [][]string{
		{"link", "add", s.bridge(), "type", "bridge"},
		{"link", "set", s.bridge(), "up"},
	}
	for k := range n {
		ns, outer := s.name(k), s.outer(k)
		steps = append(steps,
			[]string{"netns", "add", ns},
			[]string{"link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", ns},
			[]string{"link", "set", outer, "master", s.bridge()},
			[]string{"link", "set", outer, "up"},
			[]string{"-n", ns, "addr", "add", s.addr(k) + "/24", "dev", "eth0"},
			[]string{"-n", ns, "link", "set", "eth0", "up"},
			[]string{"-n", ns, "link", "set", "lo", "up"},
		)
	}
	for _, args := range steps {
		if err := ip(args...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *nets) bridge() string     { return s.prefix + "br" }
func (s *nets) name(k int) string  { return fmt.Sprint(s.prefix, "ns", k) }
func (s *nets) outer(k int) string { return fmt.Sprint(s.prefix, "v", k) }
func (s *nets) addr(k int) string  { return fmt.Sprint("10.213.97.", k+1) }

// drop discards all that a sends to b, until mend.
func (s *nets) drop(a, b int) error {
	return ip("-n", s.name(a), "neigh", "replace", s.addr(b), "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
}

func (s *nets) mend(a, b int) error {
	return ip("-n", s.name(a), "neigh", "del", s.addr(b), "dev", "eth0")
}

func (s *nets) link(k int, state string) error {
	return ip("link", "set", s.outer(k), state)
}

func (s *nets) close() {
	for k := range s.n {
		_ = ip("link", "del", s.outer(k))
		_ = ip("netns", "del", s.name(k))
	}
	_ = ip("link", "del", s.bridge())
}
