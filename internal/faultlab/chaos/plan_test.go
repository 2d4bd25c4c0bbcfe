//go:build linux

package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/internal/faultlab/hostile"
)

// transport is the transport of the messages of a round.
type transport struct {
	name   string
	flags  []string // of ditask
	faults []string // faults besides those of its nodes
	root   bool     // it needs to be set up by root
	own    bool     // each node has a launcher and its own network
	lines  bool     // its nodes dial each other over the laboratory's lines
	server func(t *testing.T) busServer
}

// transports are the transports. A new one needs a line here, and a case in round.inject
// for a fault that only it has.
var transports = []transport{
	{name: "unix"},
	{name: "tcp", flags: []string{"--protocol", "tcp"}, faults: wireFaults, lines: true},
	{name: "tls", flags: []string{"--protocol", "tcp"}, faults: wireFaults, lines: true},
	{name: "nats", faults: serverFaults, server: newNATS},
	{name: "nats in launcher", flags: []string{"--mq-type", "nats"}},
	{name: "redis", faults: serverFaults, server: newRedis},
	{name: "netns", flags: []string{"--protocol", "tcp"}, faults: netFaults, root: true, own: true},
	{name: "pods", faults: netFaults, root: true, own: true}, // as in Kubernetes: the variables of a pod name all hosts
}

// The kinds of faults besides killing and stopping a node.
var (
	wireFaults = []string{"cut", "cut-close", "half-close", "reset", "stall", "stall-one-way", "flap"}
	netFaults  = []string{"drop-one-way", "drop", "link-down"}
	// The server is down for a while, and loses its data.
	serverFaults = []string{"server-restart"}
	// The faults that nodes of every transport can have. Clocks jump where the program is built
	// for it, see make chaos.
	everyFaults = []string{"stop", "reader-pause"}
)

// plan is the part of a round that follows from a seed.
type plan struct {
	seed      uint64
	nodes     int
	transport transport
	star      bool
	recover   bool   // failed nodes are started again
	end       string // stop, preempt, kill-launcher, kill-launcher-early, or kill-node where that ends the job
	full      bool   // the log folder is full
	reader    string // what the reader of the launcher's output does: reads, pauses before the end, or leaves
	slow      int    // the longest time in ms that a node takes before parallel.Main
	shape     faultlab.Shape
	pace      time.Duration
	big       int
	jump      int // seconds by which a clock jumps, and back
	memory    int // MiB that each node shares; below 0: as ditask chooses
	faults    []fault
	hostile   hostile.Kind // the behaviour of a hostile node, instead of other faults; without a name: there is none
}

type fault struct {
	kind  string
	a, b  int
	after time.Duration
	lasts time.Duration
	grave bool
}

// leave is a harmless fault: a node is asked to leave, and started again.
const leave = faultlab.LeaveFault

// slowest is a start that is not over before a round ends, in ms.
const slowest = 60_000

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	have := haveTransports()
	p := plan{
		seed: seed, nodes: []int{4, 4, 4, 4, 4, 2, 8}[r.IntN(7)], transport: have[r.IntN(len(have))],
		star: r.IntN(3) == 0, recover: r.IntN(2) == 0,
		end:  []string{"stop", "stop", "stop", "stop", "preempt", "kill-launcher", "kill-launcher-early"}[r.IntN(7)],
		pace: ms(2, 20), big: []int{1000, 300 << 10, 3 << 20}[r.IntN(3)],
		reader: []string{"reads", "reads", "reads", "pauses", "leaves"}[r.IntN(5)], slow: []int{0, 0, 2000}[r.IntN(3)],
	}
	if !p.recover && r.IntN(4) == 0 {
		p.end = "kill-node"
	}
	if r.IntN(40) == 0 && !have[0].own {
		p.nodes, p.pace, p.big, p.transport, p.recover, p.star = 64, 2*time.Second, 1000, have[0], false, false
	}
	if p.transport.own {
		p.nodes, p.star = min(p.nodes, 4), false
	}
	if p.end == "kill-launcher-early" {
		p.slow = slowest
	}
	p.full = r.IntN(8) == 0 && os.Getuid() == 0 && p.nodes <= 8
	if r.IntN(4) > 0 {
		p.shape = faultlab.Shape{Delay: ms(0, 30), Jitter: ms(1, 10), Piece: []int{0, 1, 1000}[r.IntN(3)], Read: 512 << 10}
		p.big = min(p.big, 300<<10) // what is in progress at the end must arrive within the grace period
	}
	p.jump = []int{-3000, -70, -5, 5, 70, 3000}[r.IntN(6)]
	kinds := slices.Concat(p.transport.faults, everyFaults)
	for range 1 + r.IntN(4) {
		f := fault{kind: kinds[r.IntN(len(kinds))], a: r.IntN(p.nodes), after: ms(0, 800), lasts: ms(100, 2000)}
		f.b = (f.a + 1 + r.IntN(p.nodes-1)) % p.nodes
		if f.kind == "stop" {
			f.lasts = ms(100, 3000)
		}
		switch {
		case !p.recover:
		case p.transport.own && r.IntN(3) == 0:
			f.kind = leave
		case r.IntN(2) == 0:
			f.kind, f.grave = "kill", true
		case (p.transport.lines || p.transport.root) && r.IntN(6) == 0: // for longer than nodes wait for each other
			f.kind, f.grave, f.lasts = p.transport.faults[0], true, ms(9000, 12000)
		}
		p.faults = append(p.faults, f)
		if f.kind == "stop" && p.nodes == 64 {
			break
		}
	}
	p.share()
	p.invite()
	return p
}

// neighbours reports whether the nodes connect by sockets of one host, so that they can share memory.
func (t transport) neighbours() bool { return slices.Contains([]string{"unix", "tcp", "tls"}, t.name) }

// share chooses the shared memory of nodes that can have some, and stops one of them for longer than the others wait for it.
func (p *plan) share() {
	r := rand.New(rand.NewPCG(p.seed, 3))
	p.memory = -1
	if !p.transport.neighbours() {
		return
	}
	p.memory = []int{-1, -1, -1, 0, 1, 16}[r.IntN(6)] // 1: most payloads find no room
	if p.big >= 300<<10 {
		p.big = []int{300 << 10, 1 << 20, 3 << 20}[r.IntN(3)]
	}
	if p.recover && p.nodes <= 8 && r.IntN(4) == 0 {
		f := &p.faults[r.IntN(len(p.faults))]
		f.kind, f.grave, f.lasts = "stop", true, 9*time.Second
	}
}

// haveTransports returns the transports over which there may be rounds.
func haveTransports() (have []transport) {
	for _, c := range transports {
		if (*onlyTransport == "" || *onlyTransport == c.name) && (!c.root || canNets() == nil) {
			have = append(have, c)
		}
	}
	return have
}

// canNets reports whether networks can be made here.
var canNets = sync.OnceValue(func() error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	name := fmt.Sprint("cx", os.Getpid()%10000)
	err := errors.Join(ip("netns", "add", name), ip("link", "add", name+"v", "type", "veth", "peer", "name", "eth0", "netns", name))
	return errors.Join(err, ip("netns", "del", name))
})
