//go:build linux

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/internal/faultlab/hostile"
	"github.com/ditask/ditask/internal/race"
	"github.com/ditask/ditask/parallel/connect"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

var onlyHostile = flag.String("chaos.hostile", "", "run only rounds with a hostile node, which does this; any: by seed")

// Bounds on the cost of a hostile node for an honest process, or a launcher.
const (
	// mostLive bounds the growth of the live heap in bytes. The windows of a peer are 8 MiB of an
	// event in each direction, and the program has three reliable ones.
	mostLive = 64 << 20
	// mostDecoded is the additional growth that a payload which takes much memory may cause: the budget
	// of package payload for 12 MiB, and these.
	mostDecoded = 128 << 20
	// mostResident bounds the growth of the peak of resident memory in bytes: the live heap, as
	// much garbage, and as much again that the runtime has not given back.
	mostResident = 192 << 20
	// mostFiles bounds the growth of the number of open files: those of the connections whose
	// handshake continues, which on a busy machine may be as many as router.Config.MaxHandshakes
	// allows, and of a few that a hostile node may have with each honest one.
	mostFiles = 256 + 100
	// mostLogged bounds the size of the log of a node in bytes, of which an undisturbed one
	// writes some KiB.
	mostLogged = 256 << 10
	// mostElsewhere is the most connections that all honest nodes together may make, in a round, to a listener outside
	// the job, because a hostile node gives its address as that of a node.
	mostElsewhere = 200
)

// In a round with a hostile node.
const (
	hostileFault  = "hostile"
	hostileFor    = 8 * time.Second        // how long it continues
	hostileShared = 16                     // MiB that each node shares, and so maps of a peer: the bounds below count both
	gaugeEvery    = 100 * time.Millisecond // between two records of the resources of a process
	barrierWithin = 10 * time.Second       // how long honest nodes wait in a barrier
)

// bag is the event by which amplified payloads come.
var bag = task.NewEvent[hostile.Bag]("bag")

// invite makes a plan one with a hostile node.
func (p *plan) invite() {
	r := rand.New(rand.NewPCG(p.seed, 2))
	if *onlyHostile == "" && r.IntN(5) > 0 {
		return
	}
	names := hostile.Names()
	name := names[r.IntN(len(names))]
	if *onlyHostile != "" && *onlyHostile != "any" {
		name = *onlyHostile
	}
	kind, err := hostile.Find(name)
	can := slices.DeleteFunc(haveTransports(), func(c transport) bool { return c.own }) // networks that the laboratory is not in
	if err != nil || len(can) == 0 {
		return // checkHostile reports it
	}
	p.hostile = kind
	p.transport = can[r.IntN(len(can))]
	p.nodes = 3 + r.IntN(2)
	p.star = r.IntN(3) == 0
	p.recover = kind.Costs || kind.Renews || r.IntN(4) > 0
	p.end = []string{"stop", "stop", "preempt"}[r.IntN(3)]
	p.full, p.reader, p.slow = false, "reads", 0
	p.pace, p.big = 10*time.Millisecond, 300<<10
	if p.memory = -1; p.transport.neighbours() {
		p.memory = hostileShared
	}
	p.faults = []fault{{kind: hostileFault, a: r.IntN(p.nodes)}}
}

// checkHostile reports whether the rounds that are asked for can be made.
func checkHostile() error {
	if *onlyHostile == "" {
		return nil
	}
	if *onlyHostile != "any" {
		if _, err := hostile.Find(*onlyHostile); err != nil {
			return fmt.Errorf("-chaos.hostile: %w", err)
		}
	}
	if newPlan(0).hostile.Name == "" {
		return fmt.Errorf("-chaos.transport=%s: the laboratory is not in the networks of the nodes, and no hostile node can join", *onlyTransport)
	}
	return nil
}

// attack adds a hostile node to the job, and checks its effects on the honest nodes.
func (r *round) attack(f fault) {
	kind := r.hostile
	cfg, end := r.target(f.a)
	defer end()
	ln, calls := r.elsewhere()
	defer ln()
	cfg.Elsewhere = calls.addr
	r.victim = cfg.Victim
	r.pause(time.Second)
	more := uint64(0)
	if kind.Name == "amplify" {
		more = mostDecoded
	}
	held := newHoldings(r.dir, more)
	var touched []int
	if kind.Costs {
		touched = []int{cfg.Victim}
	}
	r.fault("hostile: "+kind.Name, kind.Costs, touched...)
	r.must(r.records.Write(faultlab.Record{Kind: faultlab.Hostile, At: now(), Who: faultlab.Peer{Node: cfg.Node}, Grave: !r.recover}))
	ctx, cancel := context.WithTimeout(r.t.Context(), hostileFor)
	if kind.Stays {
		ctx, cancel = context.WithCancel(r.t.Context())
	}
	var result hostile.Result
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		result, err = kind.Run(ctx, cfg)
	}()
	r.atEnd = append(r.atEnd, func() { // before all other checks
		cancel()
		<-over
		r.t.Logf("hostile node: %s as node.%d, the victim is node.%d: %+v, calls elsewhere: %d; %.300v", kind.Name, cfg.Node, cfg.Victim,
			result, calls.n.Load(), err)
		if result.Joined+result.Refused == 0 {
			r.t.Errorf("the hostile node has reached no honest one: %v", err)
		}
		if n := calls.n.Load(); n > mostElsewhere {
			r.t.Errorf("honest nodes have made %d connections to a listener outside the job", n)
		}
		for _, line := range held.judge() {
			r.t.Errorf("%s, caused by a hostile node of kind %q", line, kind.Name)
		}
	})
	r.wait(func() bool { return closed(over) || held.exceeded() }, min(hostileFor, 2*time.Second))
	if kind.Renews && !r.over() {
		r.inject(fault{kind: "kill", a: cfg.Victim, grave: true})
	}
	if kind.Stays {
		r.wait(held.exceeded, 2*time.Second)
	} else {
		r.wait(func() bool { return closed(over) || held.exceeded() }, 2*hostileFor)
		cancel()
		<-over
	}
	r.afterwards(cfg)
	held.look()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits until done, but no longer than limit.
func (r *round) wait(done func() bool, limit time.Duration) {
	for ctx, cancel := context.WithTimeout(r.t.Context(), limit); ; pause(ctx, 50*time.Millisecond) {
		if done() || ctx.Err() != nil {
			cancel()
			return
		}
	}
}

// over reports that a launcher has ended. None does so before the round stops it, unless the
// job does not recover.
func (r *round) over() bool {
	return slices.ContainsFunc(r.jobs, func(j *launcher) bool { return closed(j.ended) })
}

// afterwards checks that the honest nodes continue with each other.
func (r *round) afterwards(cfg hostile.Config) {
	since := now()
	r.await("all honest nodes to hear each other", 40*time.Second, func() bool {
		return r.exchanged(since) || !r.recover && r.over()
	})
	if r.hostile.Name != "barrier" || r.over() {
		return
	}
	for i, name := range cfg.Barriers {
		file := filepath.Join(r.dir, "barrier")
		r.must(os.WriteFile(file+"~", []byte(name), 0o600), os.Rename(file+"~", file))
		r.await("all honest nodes to be out of a barrier", 40*time.Second,
			func() bool { return r.heardOf(faultlab.BarrierOut, since) >= (i+1)*r.nodes })
	}
	for _, rec := range r.read() {
		if rec.Kind == faultlab.BarrierOut && rec.Err != "" && !strings.Contains(rec.Err, fmt.Sprint("node.", cfg.Node)) {
			r.t.Errorf("%v: barrier %q failed, and the error does not name the hostile node: %s", rec.Who, rec.Event, rec.Err)
		}
	}
}

// exchanged reports whether each honest node has received a message of each other one since then.
func (r *round) exchanged(since int64) bool {
	heard := map[[2]int]bool{}
	r.tails(since, func(rec faultlab.Record) {
		if rec.Kind == faultlab.Hear && rec.From.Node < r.nodes {
			heard[[2]int{rec.Who.Node, rec.From.Node}] = true
		}
	})
	return len(heard) >= r.nodes*(r.nodes-1)
}

// heardOf counts the records of that kind since then.
func (r *round) heardOf(kind faultlab.Kind, since int64) (n int) {
	r.tails(since, func(rec faultlab.Record) {
		if rec.Kind == kind {
			n++
		}
	})
	return n
}

// tailBytes is how much of the end of a file of records is looked at.
const tailBytes = 1 << 20

// tails calls do with the newest records of all nodes, as far as they were made since then.
func (r *round) tails(since int64, do func(faultlab.Record)) {
	for _, path := range r.files() {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		size, _ := f.Seek(0, 2)
		b := make([]byte, min(size, tailBytes))
		n, _ := f.ReadAt(b, size-int64(len(b)))
		_ = f.Close()
		for line := range bytes.Lines(b[:n]) {
			var rec faultlab.Record
			if json.Unmarshal(line, &rec) == nil && rec.At >= since {
				do(rec)
			}
		}
	}
}

// target returns the job for a hostile node, from the environment of the job's nodes.
func (r *round) target(victim int) (cfg hostile.Config, end func()) {
	cfg = hostile.Config{Node: r.nodes, Victim: victim, Reliable: "one", Amplified: bag.Name(),
		Barriers: []string{"barrier 1", "barrier 2"}, Seed: r.seed}
	for id := range r.nodes {
		p := r.find(id)
		env, err := envOf(p.pid)
		if err != nil {
			r.t.Fatal(err)
		}
		cfg.Addrs = append(cfg.Addrs, env.Listen)
		if id == victim {
			cfg.Incarnation = p.who.Incarnation
		}
		if id > 0 {
			continue
		}
		transport, below, err := connect.Transport(env, slog.New(slog.DiscardHandler))
		if err != nil {
			r.t.Fatal(err)
		}
		secret, _ := env.Secret() // the transport was made with it
		cfg.Job, cfg.Token, cfg.Dialer, end = env.JobID, []byte(secret), transport, below
	}
	if cfg.Addrs[victim] == "" { // a leaf of a star does not listen
		cfg.Victim = 0
		cfg.Incarnation = r.find(0).who.Incarnation
	}
	return cfg, end
}

// envOf returns the settings that a node has from its launcher, except for the files that it handed over.
func envOf(pid int) (control.Env, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return control.Env{}, err
	}
	env, _, err := control.Parse(func(name string) (string, bool) {
		for kv := range strings.SplitSeq(string(b), "\x00") {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value, true
			}
		}
		return "", false
	})
	env.ListenFD, env.ControlFD = 0, 0
	return env, err
}

// elsewhere is a listener outside the job.
type elsewhere struct {
	addr string
	n    atomic.Int64 // calls
}

// elsewhere listens at an address of no node.
func (r *round) elsewhere() (end func(), e *elsewhere) {
	if r.transport.server != nil || strings.HasPrefix(r.transport.name, "nats") {
		return func() {}, &elsewhere{addr: "bus://node.77777"}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	e = &elsewhere{addr: "tcp://" + ln.Addr().String()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			e.n.Add(1)
			_ = conn.Close()
		}
	}()
	return func() { _ = ln.Close(); <-done }, e
}

// holdings are the resources of the processes of a round, compared with the first values of each.
type holdings struct {
	dir   string
	first map[string]gauge // by node or launcher
	most  map[string]gauge
	more  uint64 // bytes of memory beyond the bounds
}

func newHoldings(dir string, more uint64) *holdings {
	h := &holdings{dir: dir, more: more, first: map[string]gauge{}, most: map[string]gauge{}}
	for _, g := range gauges(dir) {
		h.first[g.Who] = g
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", g.pid), []byte("5"), 0) // the peak of resident memory is that of what follows
	}
	return h
}

// look records the present resources of the processes.
func (h *holdings) look() {
	for _, g := range gauges(h.dir) {
		m := h.most[g.Who]
		m.Live, m.resident, m.files = max(m.Live, g.Live), max(m.resident, g.peak), max(m.files, g.files)
		h.most[g.Who] = m
	}
}

// exceeded calls look, and reports whether a bound was exceeded.
func (h *holdings) exceeded() bool {
	h.look()
	return len(h.judge()) > 0
}

// judge reports which bounds were exceeded.
func (h *holdings) judge() (out []string) {
	resident := uint64(mostResident)
	if race.Enabled {
		resident *= 8 // the race detector has several bytes for each of the program's
	}
	for who, m := range h.most {
		a, ok := h.first[who]
		if !ok {
			continue
		}
		if m.Live > a.Live+mostLive+h.more {
			out = append(out, fmt.Sprintf("%s: the live heap grew from %d to %d MiB", who, a.Live>>20, m.Live>>20))
		}
		if m.resident > a.peak+resident+2*h.more {
			out = append(out, fmt.Sprintf("%s: resident memory grew from %d to %d MiB", who, a.peak>>20, m.resident>>20))
		}
		if m.files > a.files+mostFiles {
			out = append(out, fmt.Sprintf("%s: open files grew from %d to %d", who, a.files, m.files))
		}
	}
	slices.Sort(out)
	return out
}

// judgeLogs checks the logs after a round with a hostile node: they stay small, have
// no control characters, and report only losses that fit.
func (r *round) judgeLogs() {
	if r.hostile.Name == "" {
		return
	}
	logs := map[string]string{"the launcher's output": r.output()}
	files, _ := filepath.Glob(filepath.Join(r.dir, "logs", "*.log"))
	for _, path := range files {
		b, err := os.ReadFile(path)
		r.must(err)
		logs[filepath.Base(path)] = string(b)
	}
	for name, text := range logs {
		most := mostLogged
		if strings.HasPrefix(name, "the launcher") { // it has the output of all nodes
			most *= r.nodes
		}
		if len(text) > most {
			r.t.Errorf("%s has %d bytes", name, len(text))
		}
		if line := raw(text); line != "" {
			r.t.Errorf("%s has unescaped text of a hostile node: %.200q", name, line)
		}
	}
	if !r.recover {
		return // the end of one node by the loss of the hostile one ends the others
	}
	victim := r.victim
	excuse := r.hostile.Costs || r.hostile.Renews
	for _, rec := range r.read() {
		if rec.Kind == faultlab.End && rec.Out == faultlab.Failure && (!excuse || rec.Who.Node != victim) {
			r.t.Errorf("%v, which is honest, has failed: %s", rec.Who, rec.Err)
		}
	}
	for id := range r.nodes {
		for peer := range r.lost(id) {
			excused := excuse && (peer == victim || id == victim)
			if peer < r.nodes && !excused && r.end != "preempt" {
				r.t.Errorf("node.%d has lost node.%d, which is honest", id, peer)
			}
		}
	}
}

// raw returns the first line of a log that no honest process writes; empty: there is none.
func raw(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, hostile.Forged) || !utf8.ValidString(line) || strings.ContainsFunc(line, func(c rune) bool {
			return c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) || c == '\u2028' || c == '\u2029')
		}) {
			return line
		}
	}
	return ""
}

func TestRawLinesAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"level=INFO\nerr=\"a\\x1b[2J\"\n\ttab é\n": "",
		"one\n" + hostile.Forged + "\n":            hostile.Forged,
		"one \x1b[2J\n":                            "one \x1b[2J",
		"one \u009b2J\ntwo":                        "one \u009b2J",
		"one\ntwo \u202e":                          "two \u202e",
		"one\xff":                                  "one\xff",
		"one\r\n":                                  "one\r",
		"one \u2028two":                            "one \u2028two",
	} {
		if got := raw(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestGrowthIsFound(t *testing.T) {
	base := gauge{Live: 10 << 20, peak: 50 << 20, files: 12}
	for want, most := range map[string]gauge{
		"":                              {Live: base.Live + mostLive, resident: base.peak + mostResident, files: base.files + mostFiles},
		"the live heap grew from 10 to": {Live: base.Live + mostLive + 1},
		"open files grew from 12 to":    {files: base.files + mostFiles + 1},
		"resident memory grew from 50":  {resident: base.peak + 9*mostResident},
	} {
		h := &holdings{first: map[string]gauge{"node 1": base}, most: map[string]gauge{"node 1": most, "node 2": {Live: 1 << 40}}}
		if got := h.judge(); (want == "") != (len(got) == 0) || want != "" && !strings.Contains(got[0], "node 1: "+want) {
			t.Errorf("%q: %v", want, got)
		}
	}
}

// Every kind can be selected, and also occurs at random.
func TestHostileNodesAreInTheMix(t *testing.T) {
	if *onlyHostile != "" || *onlyTransport != "" {
		return // the flags leave rounds out
	}
	got := map[string]int{}
	for seed := range uint64(4000) {
		got[newPlan(seed).hostile.Name]++
	}
	for _, k := range hostile.Kinds() {
		if got[k.Name] == 0 {
			t.Errorf("%d rounds with %q", got[k.Name], k.Name)
		}
	}
	if got[""] < 2000 {
		t.Errorf("%d rounds of 4000 without a hostile node", got[""])
	}
}
