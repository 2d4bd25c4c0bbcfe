// Package hostile is a hostile node: it has the token of a job, and its certificate where
// the job uses TLS, joins the job, and then sends what no honest node sends.
//
//	result, err := hostile.Run(ctx, hostile.Config{Job: "a7", Token: token, Dialer: transport, Addrs: addrs, Node: len(addrs)}, "credit")
//
// It implements the protocol of docs/wire.md, and shares no code with package router. [Kinds]
// lists its attacks. The chaos laboratory adds it to jobs of real processes, and checks the
// effects on the honest ones.
//
// Run uses as many goroutines as there are honest nodes, and some more; all of them, and
// all connections, have ended when it returns.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config determines which job is attacked. Everything but Barriers, Elsewhere and Seed is needed.
type Config struct {
	Job    string
	Token  []byte
	Dialer Dialer
	Addrs  []string // where honest nodes listen, by id; empty: the node does not listen
	Node   int      // the hostile node's own id; ids above it are free too

	Victim      int    // the honest node about which the hostile one lies to others; it listens
	Incarnation uint64 // of the victim

	Reliable  string   // name of an event of the job that is delivered reliably
	Amplified string   // name of the event that [Bag] describes
	Barriers  []string // names of barriers that honest nodes will enter
	Elsewhere string   // address of a listener outside the job
	Seed      uint64
}

// Bag is the event by which an amplified payload comes: small values of these types have
// large ones in memory.
type Bag struct {
	Lists [][]string
	Any   any
	Maps  []map[string]int64
}

// Forged begins the lines that a hostile node tries to get into logs and terminals.
const Forged = "forged line: the job has finished"

// control is text that clears a screen, forges a line and reverses what follows it.
const control = "\x1b[2J\x1b[H\r\n" + Forged + "\n\u009b2J\u0085\u202e\u2028\x7f\b"

// Kind is something that a hostile node does.
type Kind struct {
	Name string
	Doc  string // what it does, in a few words

	// Costs reports that the victim, and no other honest node, may lose its part in the job:
	// a node of the job is trusted not to do this.
	Costs bool
	// Renews reports that it shows when the victim is killed in the meantime and starts again.
	Renews bool
	// Stays reports that it continues until the job ends.
	Stays bool

	returns bool // it joins again when a connection has ended

	run func(a *attack, ctx context.Context) error
}

// Kinds are all that there are.
func Kinds() []Kind {
	return []Kind{
		{Name: "absent", Doc: "it joins the present nodes, and dials no newcomer", Renews: true, run: (*attack).absent},
		{Name: "ack", Doc: "acknowledgements without credit", run: (*attack).withoutCredit},
		{Name: "amplify", Doc: "payloads that take much more memory than they have bytes", run: (*attack).amplify},
		{Name: "barrier", Doc: "barriers at round 2^64-1", Renews: true, returns: true, run: (*attack).barriers},
		{Name: "credit", Doc: "credit without acknowledgements", run: (*attack).withoutAck},
		{Name: "deaf", Doc: "it pings and reads nothing", run: (*attack).deaf},
		{Name: "declare", Doc: "a flood of declarations", run: (*attack).declare},
		{Name: "depart", Doc: "it declares many events and leaves, again and again under other ids", run: (*attack).departs},
		{Name: "early", Doc: "it tells a newcomer that the job runs, and of no other node", Renews: true, returns: true,
			run: (*attack).absent},
		{Name: "farewell", Doc: "the farewell of a node that lives", Costs: true, returns: true, run: (*attack).farewell},
		{Name: "farewell-future", Doc: "the farewell of a node that has just ended, for incarnation 2^64-1", Renews: true, returns: true,
			run: (*attack).farewellFuture},
		{Name: "frames", Doc: "random frames, frames and handshakes that are cut off", run: (*attack).frames},
		{Name: "id", Doc: "the id of another node, in incarnation 2^64-1", run: (*attack).id},
		{Name: "joins", Doc: "a flood of joins and leaves", run: (*attack).joins},
		{Name: "listen", Doc: "it begins and ceases to listen in a loop, and acknowledges no answer", run: (*attack).listens},
		{Name: "members", Doc: "members that do not exist, and incarnation 2^64-1 of one that does", Renews: true,
			returns: true, run: (*attack).members},
		{Name: "messages", Doc: "more messages than there is room for", run: (*attack).messages},
		{Name: "mute", Doc: "it never says ready, seen or fin", Stays: true, run: (*attack).mute},
		{Name: "refuse", Doc: "it dials a node and refuses it as lost", Costs: true, run: (*attack).refuse},
		{Name: "relay", Doc: "requests for pipes to another node", run: (*attack).relay},
		{Name: "shared", run: (*attack).shares,
			Doc: "shared memory with holes, wrong places, changes while it is read and claims that are kept; other files in its place"},
		{Name: "slow", Doc: "it reads slowly", run: (*attack).slow},
		{Name: "text", Doc: "control characters in all texts", run: (*attack).texts},
		{Name: "undecodable", Doc: "payloads that cannot be decoded", run: (*attack).undecodable},
		{Name: "unfinished", Doc: "announces messages of 1 GiB on many events, and sends the beginning of each", run: (*attack).unfinished},
	}
}

// Names returns the names of all kinds.
func Names() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// Find returns the kind of that name.
func Find(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("a hostile node knows no %q: want one of %s", name, strings.Join(Names(), ", "))
}

// Result reports how far it came.
type Result struct {
	Joined   uint64 // handshakes that honest nodes have completed
	Refused  uint64 // handshakes that they have not
	Sent     uint64 // bytes in frames
	Received uint64
}

// Run does what the kind says, and returns when that is done or ctx ends. The error has
// what went wrong on the way: mostly that honest nodes have closed a connection.
func (k Kind) Run(ctx context.Context, cfg Config) (Result, error) {
	a := &attack{cfg: cfg, returns: k.returns, visits: map[int]*session{}, rnd: rand.New(rand.NewPCG(cfg.Seed, 11))}
	if cfg.Victim < 0 || cfg.Victim >= len(cfg.Addrs) || cfg.Addrs[cfg.Victim] == "" {
		return Result{}, fmt.Errorf("the victim, node.%d, cannot be dialled", cfg.Victim)
	}
	ctx, cancel := context.WithCancel(ctx)
	err := k.run(a, ctx)
	cancel()
	a.wg.Wait()
	return Result{a.joined.Load(), a.refused.Load(), a.sent.Load(), a.received.Load()}, err
}

// attack is one run.
type attack struct {
	cfg     Config
	returns bool
	wg      sync.WaitGroup // readers of sessions

	joined, refused, sent, received atomic.Uint64

	mu     sync.Mutex
	rnd    *rand.Rand
	visits map[int]*session // the newest one with each honest node
}

// future is an incarnation, or a round, after which there is none.
const future = math.MaxUint64

// hello is how the hostile node introduces itself.
func (a *attack) hello(purpose string) hello {
	return hello{
		Protocol: 1, Job: a.cfg.Job, Node: a.cfg.Node, Incarnation: uint64(time.Now().UnixNano()), Nonce: nonce(), Purpose: purpose,
		Limits: limits{16384, 8 << 20, 256 << 10}, Features: []string{"header", "leave", "done", "listening", "farewell"},
	}
}

// each calls do for each node that listens, at the same time, and waits.
func (a *attack) each(do func(to int) error) error {
	errs := make([]error, len(a.cfg.Addrs))
	var wg sync.WaitGroup
	for to, addr := range a.cfg.Addrs {
		if addr != "" {
			wg.Go(func() { errs[to] = do(to) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// others is each, without the victim; with it, if no other node listens.
func (a *attack) others(do func(to int) error) error {
	alone := !slices.ContainsFunc(a.cfg.Addrs, func(addr string) bool { return addr != "" && addr != a.cfg.Addrs[a.cfg.Victim] })
	return a.each(func(to int) error {
		if to == a.cfg.Victim && !alone {
			return nil
		}
		return do(to)
	})
}

// random returns n random bytes.
func (a *attack) random(n int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = le.AppendUint64(b, a.rnd.Uint64())
	}
	return b[:n]
}

// upTo returns a random number below n.
func (a *attack) upTo(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rnd.IntN(n)
}
