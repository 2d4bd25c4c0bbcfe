package faultlab_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/internal/race"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/routertest"
)

var (
	oneSeed = flag.Int64("faultlab.seed", -1, "run the simulation of this seed only")
	forTime = flag.Duration("faultlab.time", 0, "run seeds for so long, beginning at a random one")
)

// simEvents are the events of a simulated job.
var simEvents = []router.Spec{
	{Name: "one"},
	{Name: "two"},
	{Name: "newest", Delivery: router.Latest},
	{Name: "drop-oldest", Delivery: router.DropOldest, Queue: 8},
	{Name: "drop-newest", Delivery: router.DropNewest, Queue: 8},
}

func simRules(chunk int) faultlab.Rules {
	rules := faultlab.Rules{Exact: true, SmallBytes: cmp.Or(chunk, 256<<10), Events: map[string]faultlab.Policy{}}
	for _, e := range simEvents {
		rules.Events[e.Name] = faultlab.Policy(e.Delivery.String())
	}
	return rules
}

// plan is the part of a simulation that follows from a seed alone.
type plan struct {
	seed     uint64
	nodes    int
	topology router.Topology
	members  bool // nodes have one address, and receive the others; the last one starts late
	shape    faultlab.Shape
	torn     int
	window   int
	chunk    int // 0: the router's own
	each     int // emits of a node's first stream
	slow     int // one of that many messages is consumed later; 0: all at once
	barriers int
	faults   []fault
	grave    bool // there may be faults that cost a node its part in the job
	early    bool // nodes finish when they are done, while there are faults
	leaver   int  // this node leaves, and the others continue; 0: none does
	stays    time.Duration
}

// fault is one thing that happens to the network or to a node.
type fault struct {
	kind   string
	a, b   int           // the affected nodes; b for a pair only
	after  time.Duration // the end of the fault before
	lasts  time.Duration
	how    faultlab.How
	twoWay bool
}

// The kinds of faults. The last two may cost a node its part in the job.
var kinds = []string{"cut pair", "cut node", "cut all", "flick", "flap", "half-close", "stall", "restart", "partition"}

func isGrave(kind string) bool { return kind == "restart" || kind == "partition" }

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	ms := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Millisecond }
	p := plan{
		seed: seed, nodes: 2 + r.IntN(4), each: 10 + r.IntN(50), window: []int{4, 16, 16384}[r.IntN(3)],
		chunk: []int{0, 32 << 10, 32 << 10, 32 << 10}[r.IntN(4)], slow: []int{0, 2, 4}[r.IntN(3)], torn: []int{0, 2, 8}[r.IntN(3)],
	}
	if r.IntN(3) > 0 {
		p.shape = faultlab.Shape{Delay: ms(30), Jitter: 1 + ms(20), Piece: []int{0, 7, 1000}[r.IntN(3)]}
	}
	if r.IntN(3) == 0 {
		p.topology = router.Star
	} else if r.IntN(4) == 0 {
		p.members, p.nodes = true, 3+r.IntN(3)
	}
	p.grave = r.IntN(3) == 0 && !p.members
	if !p.grave {
		p.barriers = r.IntN(4)
		p.early = r.IntN(3) == 0 && !p.members
		if p.nodes > 2 && !p.early && !p.members && r.IntN(2) == 0 {
			p.leaver, p.stays, p.barriers = 1+r.IntN(p.nodes-1), ms(5000), 0
		}
	}
	for range r.IntN(6) {
		f := fault{after: ms(2000), lasts: ms(4000), how: faultlab.How(r.IntN(2)), twoWay: r.IntN(2) == 0}
		f.kind = kinds[r.IntN(7)]
		if p.grave && r.IntN(2) == 0 {
			f.kind = kinds[7+r.IntN(2)]
		}
		f.a = r.IntN(p.nodes)
		f.b = (f.a + 1 + r.IntN(p.nodes-1)) % p.nodes
		if f.kind == "partition" {
			f.lasts = 9*time.Second + ms(5000)
		}
		p.faults = append(p.faults, f)
	}
	return p
}

// sim is one simulated job.
type sim struct {
	plan
	t     *testing.T
	cable *cable
	over  chan struct{} // closed when there are no more faults

	mu      sync.Mutex
	rnd     *rand.Rand
	began   time.Time
	records []faultlab.Record
	logs    strings.Builder
	nodes   []*simNode // the present incarnations
	work    sync.WaitGroup
}

func (s *sim) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.logs, "%v ", time.Since(s.began).Round(time.Millisecond))
	return s.logs.Write(b)
}

func (s *sim) record(r faultlab.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.At = int64(time.Since(s.began))
	s.records = append(s.records, r)
}

func (s *sim) chance(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (s *sim) pauseUpTo(ctx context.Context, d time.Duration) {
	pause(ctx, time.Duration(s.chance(int(d))))
}

// simNode is one node in one incarnation.
type simNode struct {
	*router.Router
	s         *sim
	who       faultlab.Peer
	ch        []*router.Channel
	ctx       context.Context // ends when the node is killed, or has no part any more
	cancel    context.CancelCauseFunc
	consumers sync.WaitGroup
	leaves    chan struct{} // closed to make the node leave
	done      chan struct{}
}

var errKilled = errors.New("killed")

func (s *sim) node(id int, incarnation uint64) *simNode {
	n := &simNode{s: s, who: faultlab.Peer{Node: id, Incarnation: incarnation}, done: make(chan struct{}), leaves: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancelCause(s.t.Context())
	cfg := router.Config{
		Job: "sim", Token: []byte("secret"), Node: id, Incarnation: incarnation, Expect: s.plan.nodes, Topology: s.topology,
		Transport: plug{s.cable, id}, Listen: fmt.Sprint("mem://", id), WindowMessages: s.window, ChunkBytes: s.chunk,
		Logger: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})).With("at", n.who),
	}
	lower := id
	if s.topology == router.Star || s.members {
		lower = min(id, 1)
	}
	for k := range lower {
		cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
	}
	if s.members {
		cfg.Expect = 0
	}
	r, err := router.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	n.Router = r
	r.Watch(n.changed)
	for _, spec := range simEvents {
		ch, err := r.Channel(spec, func(m *router.Message) error { return n.hear(spec, m) })
		if err != nil {
			s.t.Fatal(err)
		}
		ch.Listen(true)
		n.ch = append(n.ch, ch)
	}
	return n
}

// changed takes note of the peers that are gone, and of this node's own end.
func (n *simNode) changed(c router.Change) {
	switch c.Kind {
	case router.Failed:
		n.cancel(c.Err)
	case router.Lost, router.Left:
		r := faultlab.Record{Kind: faultlab.Lost, Who: n.who, Peer: faultlab.Peer{Node: c.Peer.ID, Incarnation: c.Peer.Incarnation},
			Err: fmt.Sprint(c.Err)}
		if gone, ok := errors.AsType[*router.PeerError](c.Err); ok {
			r.Count = uint64(gone.Undelivered)
		}
		if c.Kind == router.Lost || r.Count > 0 {
			n.s.record(r)
		}
	case router.Joined:
	}
}

const simHead = 32 // incarnation, stream, number, order

func (n *simNode) hear(spec router.Spec, m *router.Message) error {
	b := m.Payload
	if len(b) < simHead {
		return fmt.Errorf("a message of %d bytes", len(b))
	}
	le := binary.LittleEndian
	n.s.record(faultlab.Record{
		Kind: faultlab.Hear, Who: n.who, From: faultlab.Peer{Node: m.From, Incarnation: le.Uint64(b)}, Event: spec.Name,
		Stream: int(le.Uint64(b[8:])), Number: le.Uint64(b[16:]), Order: le.Uint64(b[24:]), Bytes: len(b), Sum: faultlab.Sum(b),
	})
	credit, size := m.Credit, len(b)
	if n.s.slow == 0 || n.s.chance(n.s.slow) > 0 {
		credit.Return(1, size)
		return nil
	}
	n.consumers.Go(func() {
		n.s.pauseUpTo(n.ctx, 200*time.Millisecond)
		credit.Return(1, size)
	})
	return nil
}

// stream is one goroutine that emits.
type stream struct {
	n      *simNode
	id     int
	order  uint64
	number map[int]uint64 // by event
}

// emit sends one message of event k. Only a departed peer, and this node's own
// end, may make it fail; the checker decides which.
func (st *stream) emit(k, size int, to []int) {
	n := st.n
	st.order++
	st.number[k]++
	b := make(router.Bytes, max(size, simHead))
	le := binary.LittleEndian
	for i, v := range []uint64{n.who.Incarnation, uint64(st.id), st.number[k], st.order} {
		le.PutUint64(b[8*i:], v)
	}
	for i := simHead; i < len(b); i++ {
		b[i] = byte(i) + byte(st.order)
	}
	r := faultlab.Record{
		Kind: faultlab.Emit, Who: n.who, Event: simEvents[k].Name, Stream: st.id, Number: st.number[k], Order: st.order,
		Bytes: len(b), Sum: faultlab.Sum(b), To: to,
	}
	n.s.record(r)
	r.Kind, r.To = faultlab.Sent, nil
	var match func(router.Peer) bool
	if simEvents[k].Delivery != router.Latest { // a newest value for some nodes only is not kept for nodes that join late
		match = func(p router.Peer) bool {
			if to != nil && !slices.Contains(to, p.ID) {
				return false
			}
			r.Exact = append(r.Exact, faultlab.Peer{Node: p.ID, Incarnation: p.Incarnation})
			return true
		}
	}
	if _, err := n.ch[k].Send(n.ctx, b, match); err != nil {
		r.Err, r.Failed = err.Error(), blamed(err)
	}
	n.s.record(r)
}

// blamed returns the nodes that an error of Send names; nil if it has another part
// that names none.
func blamed(err error) []int {
	var out []int
	for _, e := range flatten(err) {
		gone, ok := errors.AsType[*router.PeerError](e)
		if !ok {
			return nil
		}
		out = append(out, gone.Node)
	}
	return out
}

func flatten(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

// size returns the size of a message: small, a chunk, or several chunks.
func (s *sim) size() int {
	sizes := []int{32, 32, 32, 32, 32, 32, 32, 100, 100, 3000, 3000, 6000, 7000, 40 << 10, 80 << 10}
	if s.chunk == 0 {
		sizes[len(sizes)-1] = 300 << 10
	}
	return sizes[s.chance(len(sizes))]
}

// emits is the first stream: all events, in one order.
func (n *simNode) emits() {
	st := &stream{n: n, number: map[int]uint64{}}
	for i := range n.s.each {
		if n.stops() {
			return
		}
		var to []int
		k := n.s.chance(len(simEvents))
		if n.s.chance(8) == 0 && simEvents[k].Delivery != router.Latest {
			to = []int{n.s.chance(n.s.plan.nodes)}
		}
		st.emit(k, n.s.size(), to)
		if n.s.chance(4) == 0 {
			n.s.pauseUpTo(n.ctx, 300*time.Millisecond)
		}
		if b := n.s.barriers; b > 0 && i%(n.s.each/b+1) == 0 {
			n.barrier(uint64(i/(n.s.each/b+1)) + 1)
		}
	}
}

// stops reports that the node emits nothing more.
func (n *simNode) stops() bool {
	select {
	case <-n.leaves:
		return true
	default:
		return n.ctx.Err() != nil
	}
}

// races is another stream, of one event, beside the first.
func (n *simNode) races() {
	st := &stream{n: n, id: 1, number: map[int]uint64{}}
	for range n.s.each / 2 {
		if n.stops() {
			return
		}
		st.emit(1, n.s.size(), nil)
		n.s.pauseUpTo(n.ctx, 100*time.Millisecond)
	}
}

func (n *simNode) barrier(round uint64) {
	if n.s.members { // the members are not known
		return
	}
	r := faultlab.Record{Kind: faultlab.BarrierIn, Who: n.who, Event: "b", Number: round}
	n.s.record(r)
	r.Kind = faultlab.BarrierOut
	if err := n.Barrier(n.ctx, "b"); err != nil {
		r.Err = err.Error()
		n.cancel(err)
	}
	n.s.record(r)
}

// run runs a node to its end.
func (n *simNode) run(founder bool) {
	defer close(n.done)
	n.s.record(faultlab.Record{Kind: faultlab.Begin, Who: n.who, Founder: founder})
	end := faultlab.Record{Kind: faultlab.End, Who: n.who, Out: faultlab.Success}
	err := n.live()
	if cause := context.Cause(n.ctx); cause != nil {
		err = cause
	}
	if closed := n.Close(); closed != nil {
		n.report(closed)
	}
	n.reportMissed()
	n.consumers.Wait()
	if err != nil {
		end.Out, end.Err = faultlab.Failure, err.Error()
		if errors.Is(err, errKilled) {
			end.Out = faultlab.Killed
		}
	}
	n.s.record(end)
	n.cancel(nil)
}

// report records the messages that an error of Close names.
func (n *simNode) report(err error) {
	for _, e := range flatten(err) {
		if gone, ok := errors.AsType[*router.PeerError](e); ok {
			for _, p := range n.s.incarnations(gone.Node) {
				n.s.record(faultlab.Record{Kind: faultlab.Lost, Who: n.who, Peer: p, Count: uint64(gone.Undelivered), Err: gone.Error()})
			}
		}
	}
}

// reportMissed records what was not sent as its receiver was gone.
func (n *simNode) reportMissed() {
	for _, e := range flatten(n.Losses()) {
		if gone, ok := errors.AsType[*router.PeerError](e); ok && errors.Is(e, router.ErrAway) {
			n.s.record(faultlab.Record{
				Kind: faultlab.Lost, Who: n.who, Peer: faultlab.Peer{Node: gone.Node, Incarnation: gone.Incarnation},
				Count: uint64(gone.Undelivered), Err: gone.Error(),
			})
		}
	}
	for _, st := range n.Stats().Streams { // a node that leaves does so once
		if st.Away > 0 {
			n.s.record(faultlab.Record{
				Kind: faultlab.Lost, Who: n.who, Peer: faultlab.Peer{Node: st.Peer, Incarnation: 1}, Count: st.Away, Err: "it had left",
			})
		}
	}
}

// incarnations are all incarnations of the node so far: Close does not name the one it means.
func (s *sim) incarnations(node int) (out []faultlab.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.Kind == faultlab.Begin && r.Who.Node == node {
			out = append(out, r.Who)
		}
	}
	return out
}

func (n *simNode) live() error {
	s := n.s
	if err := n.Start(n.ctx, []string{fmt.Sprint("node.", n.who.Node)}); err != nil {
		return err
	}
	s.record(faultlab.Record{Kind: faultlab.Ready, Who: n.who})
	leaver := n.who.Node == s.leaver && s.leaver > 0
	if leaver {
		defer time.AfterFunc(s.stays, func() { close(n.leaves) }).Stop()
	}
	var both sync.WaitGroup
	both.Go(n.emits)
	both.Go(n.races)
	both.Wait()
	if leaver {
		select {
		case <-n.leaves:
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		}
		s.record(faultlab.Record{Kind: faultlab.Leaving, Who: n.who})
		if err := n.Leave(n.ctx); err != nil {
			return err
		}
	} else if !s.early {
		select {
		case <-s.over:
		case <-n.ctx.Done():
		}
	}
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	if !s.early && !s.grave && !leaver { // else there may be nodes that are never done
		if err := n.allDone(); err != nil {
			return err
		}
	}
	s.record(faultlab.Record{Kind: faultlab.Finishing, Who: n.who})
	if err := n.Drain(n.ctx, !leaver); err != nil {
		return err
	}
	for k := range n.ch {
		st := routertest.Total(n.Router, simEvents[k].Name)
		s.record(faultlab.Record{Kind: faultlab.Counted, Who: n.who, Event: simEvents[k].Name, Stats: faultlab.Stats{
			Consumed: st.Delivered, Dropped: st.Dropped(), Lost: st.Lost + st.Away, Queued: uint64(st.Queued + st.InFlight),
		}})
	}
	return nil
}

// allDone waits until all nodes have emitted what they will.
func (n *simNode) allDone() error {
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute)
	defer cancel()
	return n.Done(ctx)
}

// start starts a node.
func (s *sim) start(id int, incarnation uint64, founder bool, after time.Duration) {
	n := s.node(id, incarnation)
	s.mu.Lock()
	s.nodes[id] = n
	s.mu.Unlock()
	s.work.Go(func() {
		pause(n.ctx, after)
		n.run(founder)
	})
}

// run runs the job to its end.
func (s *sim) run() {
	s.nodes = make([]*simNode, s.plan.nodes)
	for id := range s.plan.nodes {
		late := s.members && id == s.plan.nodes-1
		after := time.Duration(s.chance(int(3 * time.Second)))
		if late {
			after += 3 * time.Second
		}
		s.start(id, 1, !late, after)
	}
	pause(s.t.Context(), 3*time.Second)
	for _, f := range s.faults {
		pause(s.t.Context(), f.after)
		s.inject(f)
		pause(s.t.Context(), 4*time.Second) // nodes dial again, and the silence ends
	}
	if s.members {
		pause(s.t.Context(), 4*time.Second) // the late one has begun
	}
	close(s.over)
	s.work.Wait()
	s.cable.close()
}

// inject makes one fault and waits for its end.
func (s *sim) inject(f fault) {
	ctx := s.t.Context()
	r := faultlab.Record{Kind: faultlab.Fault, Event: f.kind, Nodes: s.concerned(f), Grave: s.early || isGrave(f.kind)}
	others := func(fn func(b int)) {
		for b := range s.plan.nodes {
			if b != f.a {
				fn(b)
			}
		}
	}
	switch f.kind {
	case "cut pair", "partition":
		s.record(r)
		s.cable.cut(f.a, f.b, f.how)
		pause(ctx, f.lasts)
		s.cable.mend(f.a, f.b)
		r.Event = ""
		s.record(r) // its effects end here
	case "cut node":
		s.record(r)
		others(func(b int) { s.cable.cut(f.a, b, f.how) })
		pause(ctx, f.lasts)
		others(func(b int) { s.cable.mend(f.a, b) })
	case "cut all":
		s.record(r)
		for a := range s.plan.nodes {
			for b := range a {
				s.cable.cut(a, b, f.how)
			}
		}
		pause(ctx, f.lasts)
		for a := range s.plan.nodes {
			for b := range a {
				s.cable.mend(a, b)
			}
		}
	case "flick":
		s.record(r)
		s.cable.flick(f.a, f.b, f.how)
	case "flap":
		s.record(r)
		for range 5 {
			others(func(b int) { s.cable.flick(f.a, b, f.how) })
			pause(ctx, f.lasts/8) // 2.5 s at most
		}
	case "half-close":
		s.record(r)
		s.cable.flick(f.a, f.b, faultlab.Half)
	case "stall":
		s.record(r)
		s.cable.stall(f.a, f.b, true)
		if f.twoWay {
			s.cable.stall(f.b, f.a, true)
		}
		pause(ctx, f.lasts)
		s.cable.stall(f.a, f.b, false)
		if f.twoWay {
			s.cable.stall(f.b, f.a, false)
		}
	case "restart":
		s.record(r)
		s.restart(f)
	}
}

// concerned returns the nodes whose connections a fault touches. Where it comes when a node has
// ended, the others may not be notified that this node had received everything: they report it as
// lost.
func (p plan) concerned(f fault) []int {
	switch {
	case f.kind == "restart":
		return []int{f.a}
	case f.kind != "cut all" && f.kind != "cut node" && f.kind != "flap":
		return []int{f.a, f.b}
	case f.kind == "cut all", p.topology == router.Star && f.a == 0: // leaves connect through the hub
		var all []int
		for id := range p.nodes {
			all = append(all, id)
		}
		return all
	}
	return []int{f.a}
}

// restart kills a node, as kill -9 or the end of its machine does: no other node is notified. Its
// next incarnation begins a while later.
func (s *sim) restart(f fault) {
	s.mu.Lock()
	n := s.nodes[f.a]
	s.mu.Unlock()
	for b := range s.plan.nodes {
		if b != f.a {
			s.cable.cut(f.a, b, f.how)
		}
	}
	n.cancel(errKilled)
	<-n.done
	pause(s.t.Context(), f.lasts)
	for b := range s.plan.nodes {
		if b != f.a {
			s.cable.mend(f.a, b)
		}
	}
	s.start(f.a, n.who.Incarnation+1, false, 0)
}

// simulate runs the job of a seed and checks its records.
func simulate(t *testing.T, seed uint64) (report faultlab.Report) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlan(seed)
		s := &sim{
			plan: p, t: t, cable: newCable(seed, p.shape, p.torn), over: make(chan struct{}),
			rnd: rand.New(rand.NewPCG(seed, 2)), began: time.Now(),
		}
		s.run()
		var err error
		if report, err = faultlab.Check(simRules(p.chunk), s.records); err != nil {
			t.Errorf("seed %d: go test ./internal/faultlab -run Simulated -faultlab.seed=%d\n%v\nplan: %+v\n%s", seed, seed, err, p, s.logs.String())
		}
	})
	return report
}

// TestR4SimulatedFaults runs many jobs in virtual time. The seed of a job decides its
// nodes, its network, its faults and their times, but not the order in which the
// scheduler runs goroutines that are ready at the same time. A seed may therefore need
// several runs to show a fault again.
func TestR4SimulatedFaults(t *testing.T) {
	seeds(t, 1500, 40, simulate)
}

// seeds runs one function for many seeds, on all processors.
func seeds(t *testing.T, many, short uint64, run func(t *testing.T, seed uint64) faultlab.Report) {
	first, n := uint64(0), many
	switch {
	case *oneSeed >= 0:
		first, n = uint64(*oneSeed), 1
	case *forTime > 0:
		first, n = rand.Uint64()>>16, 1<<40
	case testing.Short():
		n = short
	case race.Enabled:
		n = many / 5 // or this alone would take most of the ten minutes that go test gives
	}
	var mu sync.Mutex
	next, total := first, faultlab.Report{}
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for worker := range 2 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					seed := next
					next++
					mu.Unlock()
					if seed >= first+n || *forTime > 0 && time.Since(began) > *forTime || t.Failed() {
						return
					}
					report := run(t, seed)
					mu.Lock()
					total.Add(report)
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("seeds %d to %d: %+v", first, next-1, total)
}

// TestFaultsConcernAllWhoseConnectionsTheyTouch holds what the checker takes as a reason
// for a loss: seed 1064 ended leaves of a star while all connections were cut.
func TestFaultsConcernAllWhoseConnectionsTheyTouch(t *testing.T) {
	star, mesh := plan{nodes: 4, topology: router.Star}, plan{nodes: 4}
	for _, tt := range []struct {
		p    plan
		f    fault
		want []int
	}{
		{star, fault{kind: "cut all", a: 3, b: 1}, []int{0, 1, 2, 3}},
		{mesh, fault{kind: "cut all", a: 3, b: 1}, []int{0, 1, 2, 3}},
		{star, fault{kind: "cut node", a: 0, b: 1}, []int{0, 1, 2, 3}},
		{star, fault{kind: "flap", a: 0, b: 1}, []int{0, 1, 2, 3}},
		{star, fault{kind: "cut node", a: 2, b: 1}, []int{2}},
		{mesh, fault{kind: "cut node", a: 0, b: 1}, []int{0}},
		{mesh, fault{kind: "stall", a: 0, b: 1}, []int{0, 1}},
		{mesh, fault{kind: "restart", a: 3, b: 1}, []int{3}},
	} {
		if got := tt.p.concerned(tt.f); !slices.Equal(got, tt.want) {
			t.Errorf("%v %+v: %v, want %v", tt.p.topology, tt.f, got, tt.want)
		}
	}
}
