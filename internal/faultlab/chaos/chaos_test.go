//go:build linux

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/internal/leak"
)

var (
	forTime = flag.Duration("chaos.time", 0, "begin rounds for so long; 0: a few rounds")
	oneSeed = flag.Int64("chaos.seed", -1, "run the round of this seed only")
)

// carrier is what the messages of a round go over.
type carrier struct {
	name   string
	flags  []string // of ditask
	faults []string // what it can suffer, besides its nodes
	root   bool     // it needs to be set up by root
	lines  bool     // its nodes dial each other over the laboratory's lines
	server func(t *testing.T) busServer
}

// carriers are what there is: one more is a line here, and a case in round.inject
// for a fault that only it has.
var carriers = []carrier{
	{name: "unix"},
	{name: "tcp", flags: []string{"--protocol", "tcp"}, faults: wireFaults, lines: true},
	{name: "tls", flags: []string{"--protocol", "tcp"}, faults: wireFaults, lines: true},
	{name: "nats", faults: serverFaults, server: newNATS},
	{name: "nats in launcher", flags: []string{"--mq-type", "nats"}},
	{name: "redis", faults: serverFaults, server: newRedis},
	{name: "netns", flags: []string{"--protocol", "tcp"}, faults: netFaults, root: true},
}

// The kinds of faults besides killing and stopping a node.
var (
	wireFaults = []string{"cut", "cut-close", "half-close", "reset", "stall", "stall-one-way", "flap"}
	netFaults  = []string{"drop-one-way", "drop", "link-down"}
	// The server is gone for a while, with all that it held.
	serverFaults = []string{"server-restart"}
	// What every carrier's nodes can suffer. Clocks jump where the program is built
	// for it, see make chaos.
	everyFaults = []string{"stop"}
)

// began is when this process began. What it writes down has the time since then, which
// no jump of the clock changes.
var began = time.Now()

func now() int64 { return began.UnixNano() + int64(time.Since(began)) }

// plan is what follows from a seed.
type plan struct {
	seed    uint64
	nodes   int
	carrier carrier
	star    bool
	recover bool   // failed nodes are started again
	end     string // stop, preempt, kill-launcher, or kill-node where that ends the job
	full    bool   // the log folder is full
	shape   faultlab.Shape
	pace    time.Duration
	big     int
	jump    int // seconds by which a clock jumps, and back
	faults  []fault
}

type fault struct {
	kind  string
	a, b  int
	after time.Duration
	lasts time.Duration
	grave bool
}

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	var have []carrier
	for _, c := range carriers {
		if !c.root || canNets() == nil {
			have = append(have, c)
		}
	}
	p := plan{
		seed: seed, nodes: []int{4, 4, 4, 4, 4, 2, 8}[r.IntN(7)], carrier: have[r.IntN(len(have))], star: r.IntN(3) == 0, recover: r.IntN(2) == 0,
		end: []string{"stop", "stop", "stop", "stop", "preempt", "kill-launcher"}[r.IntN(6)], pace: ms(2, 20), big: []int{1000, 300 << 10, 3 << 20}[r.IntN(3)],
	}
	if !p.recover && r.IntN(4) == 0 {
		p.end = "kill-node"
	}
	if r.IntN(40) == 0 {
		p.nodes, p.pace, p.big, p.carrier, p.recover, p.star = 64, 2*time.Second, 1000, have[0], false, false
	}
	if p.carrier.name == "netns" {
		p.nodes, p.star = min(p.nodes, 4), false
	}
	p.full = r.IntN(8) == 0 && os.Getuid() == 0 && p.nodes <= 8
	if r.IntN(4) > 0 {
		p.shape = faultlab.Shape{Delay: ms(0, 30), Jitter: ms(1, 10), Piece: []int{0, 1, 1000}[r.IntN(3)], Read: 512 << 10}
		p.big = min(p.big, 300<<10) // what is under way at the end must arrive within the grace period
	}
	p.jump = []int{-3000, -70, -5, 5, 70, 3000}[r.IntN(6)]
	kinds := slices.Concat(p.carrier.faults, everyFaults)
	for range 1 + r.IntN(4) {
		f := fault{kind: kinds[r.IntN(len(kinds))], a: r.IntN(p.nodes), after: ms(0, 800), lasts: ms(100, 2000)}
		f.b = (f.a + 1 + r.IntN(p.nodes-1)) % p.nodes
		if f.kind == "stop" {
			f.lasts = ms(100, 3000)
		}
		if p.recover && r.IntN(2) == 0 {
			f.kind, f.grave = "kill", true
		} else if p.recover && (p.carrier.lines || p.carrier.root) && r.IntN(6) == 0 { // for longer than nodes wait for each other
			f.kind, f.grave, f.lasts = p.carrier.faults[0], true, ms(9000, 12000)
		}
		p.faults = append(p.faults, f)
		if f.kind == "stop" && p.nodes == 64 {
			break
		}
	}
	return p
}

// round is one job.
type round struct {
	plan
	t       *testing.T
	dir     string
	watch   *leak.Watch
	jobs    []*exec.Cmd // the launchers
	out     []*bytes.Buffer
	lines   *lines
	nets    *nets
	server  busServer
	records *faultlab.Writer // of the laboratory
}

// canNets says whether networks can be made here.
var canNets = sync.OnceValue(func() error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	name := fmt.Sprint("cx", os.Getpid()%10000)
	err := errors.Join(ip("netns", "add", name), ip("link", "add", name+"v", "type", "veth", "peer", "name", "eth0", "netns", name))
	return errors.Join(err, ip("netns", "del", name))
})

// TestChaos runs rounds, and fails with the first violation.
func TestChaos(t *testing.T) {
	if err := canNets(); err != nil {
		t.Logf("no networks of their own for nodes: %v", err)
	}
	first, rounds := rand.Uint64()>>20, 1<<30
	switch {
	case *oneSeed >= 0:
		first, rounds = uint64(*oneSeed), 1
	case *forTime == 0:
		first, rounds = 2, 2
		if testing.Short() {
			rounds = 1
		}
	}
	total, by := faultlab.Report{}, map[string]int{}
	began := time.Now()
	n := 0
	for ; n < rounds && !t.Failed() && (*forTime == 0 || time.Since(began) < *forTime); n++ {
		p := newPlan(first + uint64(n))
		by[p.carrier.name]++
		t.Run(fmt.Sprint("seed=", p.seed), func(t *testing.T) {
			report := runRound(t, p)
			total.Add(report)
		})
	}
	t.Logf("\n%s", table(n, total, by, t.Failed(), time.Since(began)))
}

// table is the report, for docs/reliability.md.
func table(rounds int, total faultlab.Report, carriers map[string]int, failed bool, took time.Duration) string {
	var b strings.Builder
	row := func(name string, v any) { fmt.Fprintf(&b, "| %s | %v |\n", name, v) }
	row("", "")
	fmt.Fprint(&b, "|---|---:|\n")
	row("time", took.Round(time.Second))
	row("rounds", rounds)
	for _, c := range slices.Sorted(maps.Keys(carriers)) {
		row("... over "+c, carriers[c])
	}
	row("processes", total.Nodes)
	row("events emitted", total.Emitted)
	row("events heard", total.Delivered)
	row("events reported as not acknowledged", total.Reported)
	for _, f := range slices.Sorted(maps.Keys(total.Faults)) {
		row("fault: "+f, total.Faults[f])
	}
	row("violations", map[bool]string{false: "0", true: "see above"}[failed])
	return b.String()
}

func runRound(t *testing.T, p plan) (report faultlab.Report) {
	began := time.Now()
	r := &round{plan: p, t: t, watch: leak.Check(t)}
	var err error
	if r.dir, err = os.MkdirTemp("", "round"); err != nil { //nolint:usetesting // it is kept after a violation
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("make chaos SEED=%d; the records are in %s\n%+v\n%s", p.seed, r.dir, p, r.output())
		} else {
			_ = os.RemoveAll(r.dir)
		}
	})
	if r.records, err = faultlab.NewWriter(filepath.Join(r.dir, "lab.records")); err != nil {
		t.Fatal(err)
	}
	defer r.records.Close()
	r.prepare()
	for _, j := range r.jobs {
		if err := j.Start(); err != nil {
			t.Fatal(err)
		}
	}
	r.await("all nodes to be ready", time.Minute, func() bool { return r.count(faultlab.Ready) >= p.nodes })
	for _, f := range p.faults {
		r.pause(f.after)
		r.inject(f)
		r.pause(2500 * time.Millisecond) // who dialled dials again
	}
	report = r.finish()
	t.Logf("%s, %d nodes, star %v, recover %v, %s: %v; emitted %d, heard %d, reported %d, in %v", p.carrier.name, p.nodes, p.star, p.recover,
		p.end, report.Faults, report.Emitted, report.Delivered, report.Reported, time.Since(began).Round(time.Second))
	return report
}

func (r *round) output() string {
	var s string
	for _, b := range r.out {
		text := b.String()
		s += text[max(0, len(text)-20_000):]
	}
	return s
}

func (r *round) pause(d time.Duration) { pause(r.t.Context(), d) }

// await waits until done, or fails the test.
func (r *round) await(what string, limit time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	for !done() {
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			r.t.Errorf("waited %v for %s", limit, what)
			r.abort()
			r.t.FailNow()
		}
	}
}

// abort lets all processes of the round say where they are, and ends them.
func (r *round) abort() {
	for _, p := range r.pids() {
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		_ = syscall.Kill(p.pid, syscall.SIGQUIT)
	}
	for _, j := range r.jobs {
		done := make(chan struct{})
		go func() { _ = j.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = j.Process.Kill()
			<-done
		}
	}
}

func (r *round) files() []string {
	files, _ := filepath.Glob(filepath.Join(r.dir, "*.records"))
	return files
}

func (r *round) read() []faultlab.Record {
	records, err := faultlab.ReadFiles(r.files())
	if err != nil {
		r.t.Fatal(err)
	}
	return records
}

func (r *round) count(kind faultlab.Kind) int {
	n := 0
	for _, path := range r.files() {
		n += bytes.Count(part(path, readyBytes), []byte(`{"k":"`+string(kind)+`"`))
	}
	return n
}

type process struct {
	who faultlab.Peer
	pid int
}

// pids are the processes of the round that run.
func (r *round) pids() (out []process) {
	for _, path := range r.files() {
		first, _, _ := bytes.Cut(part(path, 1<<10), []byte{'\n'})
		var rec faultlab.Record
		if json.Unmarshal(first, &rec) != nil || rec.Kind != faultlab.Begin {
			continue // it has only just begun, or it is the laboratory's own
		}
		if p := (process{rec.Who, int(rec.Count)}); alive(p.pid, r.dir) {
			out = append(out, p)
		}
	}
	return out
}

// part is the beginning of a file: files of records grow long, and all that is
// asked for while a round goes on is there.
func part(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, n))
	return b
}

// readyBytes is within how many bytes of its records a node is ready.
const readyBytes = 1 << 20

// alive says that the process is one of the round, and runs.
func alive(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(b, []byte(varDir+"="+dir))
}

// find is the present process of a node, or 0.
func (r *round) find(id int) process {
	var found process
	for _, p := range r.pids() {
		if p.who.Node == id && p.who.Incarnation > found.who.Incarnation {
			found = p
		}
	}
	return found
}

// prepare makes the commands of all launchers.
func (r *round) prepare() {
	logs := filepath.Join(r.dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		r.t.Fatal(err)
	}
	env := append(r.watch.Environ(), varDir+"="+r.dir, fmt.Sprint(varPace, "=", r.pace), fmt.Sprint(varBig, "=", r.big), fmt.Sprint(varJump, "=", r.jump), "GOTRACEBACK=all")
	args := append([]string{"--package", os.Args[0], "--log-dir", logs, "--seed", fmt.Sprint(r.seed >> 1), "--grace", "30s"}, r.carrier.flags...)
	if r.star {
		args = append(args, "--topology", "star")
	}
	if r.recover {
		args = append(args, "--auto-recover", "--max-retries", "20")
	}
	if r.full {
		if err := syscall.Mount("none", logs, "tmpfs", 0, "size=16k"); err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = syscall.Unmount(logs, 0) })
		r.fault("disk full", false)
		env = append(env, varLoud+"=1")
	}
	switch r.carrier.name {
	case "netns":
		var err error
		if r.nets, err = newNets(r.t, fmt.Sprint("c", os.Getpid()%10000), r.nodes); err != nil {
			r.t.Fatal(err)
		}
		for k := range r.nodes {
			var others []string
			for o := range r.nodes {
				if o != k {
					others = append(others, "tcp://"+r.nets.addr(o)+":7000")
				}
			}
			own := slices.Concat([]string{"ip", "netns", "exec", r.nets.name(k), os.Args[0]}, args, []string{
				"--node-ids", fmt.Sprint(k), "--address", r.nets.addr(k), "--ports", "7000", "--attach-to", strings.Join(others, ","),
				"--job-id", "chaos", "--token", "secret",
			})
			r.command(env, own)
		}
		return
	case "tls":
		files := certtest.New(r.t)
		args = append(args, "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA)
	}
	if r.carrier.server != nil {
		r.server = r.carrier.server(r.t)
		args = append(args, r.server.flags()...)
	}
	if r.carrier.lines {
		port := freeport.Get(r.t, r.nodes)
		args = append(args, "--ports", fmt.Sprint(port))
		r.lines = newLines(r.t, r.seed, r.nodes, port, r.shape)
		env = append(env, varRoutes+"="+strings.Join(r.lines.routes, " "))
	}
	r.command(env, append([]string{os.Args[0], "--parallel-workers", fmt.Sprint(r.nodes)}, args...))
}

func (r *round) command(env, args []string) {
	cmd := exec.Command(args[0], args[1:]...)
	out := &bytes.Buffer{}
	cmd.Env, cmd.Dir, cmd.Stderr = env, r.dir, out
	if !r.full {
		cmd.Stdout = out
	}
	r.jobs, r.out = append(r.jobs, cmd), append(r.out, out)
}

// fault writes down what is done.
func (r *round) fault(name string, grave bool, nodes ...int) {
	err := r.records.Write(faultlab.Record{Kind: faultlab.Fault, At: now(), Event: name, Nodes: nodes, Grave: grave})
	if err != nil {
		r.t.Fatal(err)
	}
}

// must fails the test for what the laboratory itself cannot do.
func (r *round) must(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Error(err)
	}
}

// twice sends a process, if there is one, a signal and a while later another.
func (r *round) twice(pid int, first, second syscall.Signal, wait time.Duration) {
	if pid > 0 && syscall.Kill(pid, first) == nil {
		r.pause(wait)
		_ = syscall.Kill(pid, second)
	}
}

// inject makes one fault, and waits for its end.
func (r *round) inject(f fault) {
	name := f.kind
	if f.grave && f.kind != "kill" {
		name += " for long"
	}
	nodes := []int{f.a, f.b}
	switch f.kind {
	case "stop", "kill", "link-down", "clock":
		nodes = nodes[:1]
	case "server-restart", "launcher-clock":
		nodes = nil
	}
	r.fault(name, f.grave, nodes...)
	switch f.kind {
	case "kill":
		if p := r.find(f.a); p.pid > 0 && syscall.Kill(p.pid, syscall.SIGKILL) == nil {
			r.must(r.records.Write(faultlab.Record{Kind: faultlab.End, At: now(), Who: p.who, Out: faultlab.Killed}))
			r.await("a new start of the node that was killed", 40*time.Second, func() bool {
				q := r.find(f.a)
				return q.who.Incarnation > p.who.Incarnation && r.readyOf(q.who)
			})
		}
	case "stop":
		r.twice(r.find(f.a).pid, syscall.SIGSTOP, syscall.SIGCONT, f.lasts)
	case "clock":
		r.twice(r.find(f.a).pid, syscall.SIGUSR2, syscall.SIGUSR2, f.lasts)
	case "launcher-clock":
		r.twice(r.jobs[f.a%len(r.jobs)].Process.Pid, syscall.SIGUSR2, syscall.SIGUSR2, f.lasts)
	case "cut", "cut-close":
		how := map[string]faultlab.How{"cut": faultlab.Break, "cut-close": faultlab.Close}[f.kind]
		r.lines.cut(f.a, f.b, how)
		r.pause(f.lasts)
		r.lines.mend(f.a, f.b)
	case "reset":
		r.lines.flick(f.a, f.b, faultlab.Break)
	case "half-close":
		r.lines.flick(f.a, f.b, faultlab.Half)
	case "flap":
		for range 5 {
			r.lines.flick(f.a, f.b, faultlab.Break)
			r.pause(f.lasts / 5)
		}
	case "stall", "stall-one-way":
		r.lines.stall(f.a, f.b, 1)
		if f.kind == "stall" {
			r.lines.stall(f.b, f.a, 1)
		}
		r.pause(f.lasts)
		r.lines.stall(f.a, f.b, -1)
		if f.kind == "stall" {
			r.lines.stall(f.b, f.a, -1)
		}
	case "server-restart":
		r.server.stop()
		r.pause(f.lasts)
		r.server.start()
	case "drop", "drop-one-way":
		r.must(r.nets.drop(f.a, f.b))
		if f.kind == "drop" {
			r.must(r.nets.drop(f.b, f.a))
		}
		r.pause(f.lasts)
		r.must(r.nets.mend(f.a, f.b))
		if f.kind == "drop" {
			r.must(r.nets.mend(f.b, f.a))
		}
	case "link-down":
		r.must(r.nets.link(f.a, "down"))
		r.pause(f.lasts)
		r.must(r.nets.link(f.a, "up"))
	default:
		r.t.Errorf("no fault %q", f.kind)
	}
	if f.grave && f.kind != "kill" {
		r.fault("", f.grave, nodes...) // until here it may have its effects
		r.pause(4 * time.Second)
	}
}

// readyOf says whether the process has been ready.
func (r *round) readyOf(who faultlab.Peer) bool {
	b := part(filepath.Join(r.dir, fmt.Sprintf("%d-%d.records", who.Node, who.Incarnation)), readyBytes)
	return bytes.Contains(b, []byte(`{"k":"ready"`))
}

// finish ends the job and lets the checker judge.
func (r *round) finish() faultlab.Report {
	good := func(code int) bool { return code == 0 }
	switch r.end {
	case "preempt":
		r.fault("preempt", true)
		good = func(code int) bool { return code == 75 || code == 0 }
		for _, j := range r.jobs {
			r.must(j.Process.Signal(syscall.SIGTERM))
		}
	case "kill-launcher":
		r.fault("kill-launcher", true)
		good = func(code int) bool { return code == -1 }
		for _, j := range r.jobs {
			r.must(j.Process.Kill())
		}
	case "kill-node":
		r.fault("kill, not recovered", true)
		good = func(code int) bool { return code != 0 }
		if p := r.find(r.nodes - 1); p.pid > 0 {
			r.must(syscall.Kill(p.pid, syscall.SIGKILL), r.records.Write(faultlab.Record{Kind: faultlab.End, At: now(), Who: p.who, Out: faultlab.Killed}))
		}
	default:
		r.must(os.WriteFile(filepath.Join(r.dir, "stop"), nil, 0o600))
	}
	ended := make(chan int, len(r.jobs))
	for _, j := range r.jobs {
		go func() { _ = j.Wait(); ended <- j.ProcessState.ExitCode() }()
	}
	limit := time.After(45 * time.Second)
	for range r.jobs {
		select {
		case code := <-ended:
			if !good(code) {
				r.t.Errorf("a launcher ended with %d at the end by %s", code, r.end)
			}
		case <-limit:
			r.t.Error("the job did not end within 45s")
			for _, p := range r.pids() {
				_ = syscall.Kill(p.pid, syscall.SIGQUIT)
			}
			limit = nil
		}
	}
	if left := leak.Await(r.watch.Processes, 5*time.Second); len(left) > 0 {
		r.t.Errorf("5s after the launcher there are still %v", left)
	}
	records := append(r.read(), r.ends()...)
	report, err := faultlab.Check(rules, records)
	if err != nil {
		r.t.Errorf("violations:\n%v", err)
	}
	return report
}

// ends are the records that nodes could not write: those of the killed, and what
// the others have said of them in their logs.
func (r *round) ends() (out []faultlab.Record) {
	at := now()
	begun := map[int][]faultlab.Peer{}
	over := map[faultlab.Peer]bool{}
	for _, rec := range r.read() {
		switch rec.Kind {
		case faultlab.Begin:
			begun[rec.Who.Node] = append(begun[rec.Who.Node], rec.Who)
		case faultlab.End:
			over[rec.Who] = true
		}
	}
	for id, all := range begun {
		for _, who := range all {
			if !over[who] && r.end == "kill-launcher" {
				out = append(out, faultlab.Record{Kind: faultlab.End, At: at, Who: who, Out: faultlab.Killed})
			}
		}
		for peer, n := range r.lost(id) {
			out = append(out, faultlab.Record{Kind: faultlab.Lost, At: at, Who: all[len(all)-1], Peer: faultlab.Peer{Node: peer}, Count: n, Err: "by its log"})
		}
	}
	return out
}

// A loss in a node's log: "node lost" of the task, or what the router says of a
// node that left too early.
var goneLine = regexp.MustCompile(`msg="node lost".* peer=(\d+) err="(?:.* (\d+) messages not)?|msg="a node has left.* peer=node\.(\d+) unacknowledged=(\d+)`)

// lost is what a node's log says of peers that are gone.
func (r *round) lost(id int) map[int]uint64 {
	out := map[int]uint64{}
	b, _ := os.ReadFile(filepath.Join(r.dir, "logs", fmt.Sprintf("node-%d.log", id))) // none, if it has said nothing
	for _, m := range goneLine.FindAllStringSubmatch(string(b), -1) {
		peer, _ := strconv.Atoi(m[1] + m[3])
		n, _ := strconv.ParseUint("0"+m[2]+m[4], 10, 64)
		out[peer] += n
	}
	return out
}
