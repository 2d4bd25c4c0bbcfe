//go:build linux

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/parallel/kube"
)

// began is the start of this process. Its records have the time since then, which
// no jump of the clock changes.
var began = time.Now()

func now() int64 { return began.UnixNano() + int64(time.Since(began)) }

// round is one job.
type round struct {
	plan
	t       *testing.T
	dir     string
	watch   *leak.Watch
	jobs    []*launcher
	lines   *lines
	nets    *nets
	server  busServer
	records *faultlab.Writer // of the laboratory
	victim  int              // of a hostile node
	atEnd   []func()         // called before the records are judged
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
		if err := j.start(); err != nil {
			t.Fatal(err)
		}
	}
	if p.end == "kill-launcher-early" {
		r.await("all nodes to be processes", time.Minute, func() bool { return len(r.watch.Processes()) >= p.nodes+len(r.jobs) })
		r.pause(p.faults[0].after)
	} else {
		r.harm()
	}
	report = r.finish()
	t.Logf("%s, %d nodes, star %v, recover %v, output %s, %s: %v; emitted %d, received %d, reported %d, in %v",
		p.transport.name, p.nodes, p.star, p.recover, p.reader, p.end,
		report.Faults, report.Emitted, report.Delivered, report.Reported, time.Since(began).Round(time.Second))
	return report
}

// harm makes the faults of the round, one after the other.
func (r *round) harm() {
	r.await("all nodes to be ready", r.joins(), func() bool { return r.count(faultlab.Ready) >= r.nodes })
	if r.reader == "leaves" {
		r.fault("reader-gone", false)
		for _, j := range r.jobs {
			j.out.leave()
		}
	}
	for _, f := range r.faults {
		r.pause(f.after)
		r.inject(f)
		r.pause(2500 * time.Millisecond) // broken connections are made again
	}
	if r.reader == "pauses" {
		r.fault("reader-paused at the end", false)
		for _, j := range r.jobs {
			j.out.hold(true)
		}
		r.pause(time.Second) // the pipes fill
	}
}

// joins is how long the nodes wait for each other: 64 processes on a machine with other work
// need longer than the minute that is the default.
func (r *round) joins() time.Duration {
	if r.nodes > 8 {
		return 5 * time.Minute
	}
	return time.Minute
}

func (r *round) output() string {
	var s string
	for _, j := range r.jobs {
		for line := range strings.Lines(j.out.text()) {
			if !strings.Contains(line, word) {
				s += line
			}
		}
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

// abort makes all processes of the round print their stacks, and ends them.
func (r *round) abort() {
	for _, p := range r.pids() {
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		_ = syscall.Kill(p.pid, syscall.SIGQUIT)
	}
	for _, j := range r.jobs {
		j.out.hold(false)
		select {
		case <-j.ended:
		case <-time.After(10 * time.Second):
			_ = j.signal(syscall.SIGKILL)
			<-j.ended
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

// pids returns the processes of the round that run.
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

// part returns the first n bytes of a file. Files of records grow long, and a running
// round needs only their beginnings.
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

// alive reports that the process is one of the round, and runs.
func alive(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(b, []byte(varDir+"="+dir))
}

// find returns the present process of a node, or 0.
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
	env := append(r.watch.Environ(), varDir+"="+r.dir, fmt.Sprint(varPace, "=", r.pace), fmt.Sprint(varBig, "=", r.big),
		fmt.Sprint(varJump, "=", r.jump),
		fmt.Sprint(varSlow, "=", r.slow), "GOTRACEBACK=all")
	if r.full || r.reader != "reads" || slices.ContainsFunc(r.faults, func(f fault) bool { return f.kind == "reader-pause" }) {
		env = append(env, varLoud+"=1")
	}
	if r.hostile.Name != "" {
		env = append(env, fmt.Sprint(varGauge, "=", gaugeEvery), varHostile+"=1")
	}
	args := append([]string{"--package", os.Args[0], "--log-dir", logs, "--seed", fmt.Sprint(r.seed >> 1), "--grace", "30s",
		"--join-timeout", r.joins().String()}, r.transport.flags...)
	if r.star {
		args = append(args, "--topology", "star")
	}
	if r.memory >= 0 {
		args = append(args, "--shared-memory", fmt.Sprint(r.memory))
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
	}
	switch r.transport.name {
	case "netns", "pods":
		var err error
		if r.nets, err = newNets(r.t, fmt.Sprint("c", os.Getpid()%10000), r.nodes); err != nil {
			r.t.Fatal(err)
		}
		var hosts []string
		for k := range r.nodes {
			hosts = append(hosts, r.nets.addr(k))
		}
		for k := range r.nodes {
			var others []string
			for o := range r.nodes {
				if o != k {
					others = append(others, "tcp://"+r.nets.addr(o)+":7000")
				}
			}
			own := slices.Concat([]string{"ip", "netns", "exec", r.nets.name(k), os.Args[0]}, args,
				[]string{"--job-id", "chaos", "--token", "secret"})
			if r.transport.name == "pods" {
				r.command(slices.Concat(env, []string{kube.VarNodes + "=" + strings.Join(hosts, ","), fmt.Sprint(kube.VarRank, "=", k)}), own)
				continue
			}
			r.command(env, append(own, "--node-ids", fmt.Sprint(k), "--address", r.nets.addr(k), "--ports", "7000", "--attach-to",
				strings.Join(others, ",")))
		}
		return
	case "tls":
		files := certtest.New(r.t)
		args = append(args, "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA)
	}
	if r.transport.server != nil {
		r.server = r.transport.server(r.t)
		args = append(args, r.server.flags()...)
	}
	if r.transport.lines {
		port := freeport.Get(r.t, r.nodes)
		args = append(args, "--ports", fmt.Sprint(port))
		r.lines = newLines(r.t, r.seed, r.nodes, port, r.shape)
		env = append(env, varRoutes+"="+strings.Join(r.lines.routes, " "))
	}
	r.command(env, append([]string{os.Args[0], "--parallel-workers", fmt.Sprint(r.nodes)}, args...))
}

func (r *round) command(env, args []string) {
	r.jobs = append(r.jobs, &launcher{args: args, env: env, dir: r.dir, out: newReader(r.t)})
}

// finish ends the job and runs the checker.
func (r *round) finish() faultlab.Report {
	good := func(code int) bool { return code == 0 }
	switch r.end {
	case "preempt":
		r.fault("preempt", true)
		good = func(code int) bool { return code == 75 || code == 0 }
		for _, j := range r.jobs {
			r.must(j.signal(syscall.SIGTERM))
		}
	case "kill-launcher", "kill-launcher-early":
		r.fault(r.end, true)
		good = func(code int) bool { return code == -1 }
		for _, j := range r.jobs {
			r.must(j.signal(syscall.SIGKILL))
		}
	case "kill-node":
		r.fault("kill, not recovered", true)
		good = func(code int) bool { return code != 0 }
		if p := r.find(r.nodes - 1); p.pid > 0 {
			r.must(syscall.Kill(p.pid, syscall.SIGKILL), r.records.Write(faultlab.Record{Kind: faultlab.End, At: now(), Who: p.who,
				Out: faultlab.Killed}))
		}
	default:
		r.must(os.WriteFile(filepath.Join(r.dir, "stop"), nil, 0o600))
	}
	if r.hostile.Name != "" && !r.recover { // the job may end with the loss of the hostile node
		good = func(code int) bool { return code >= 0 }
	}
	limit := time.After(45 * time.Second)
	for _, j := range r.jobs {
		select {
		case <-j.ended:
			if !good(j.code()) {
				r.t.Errorf("a launcher ended with %d at the end by %s", j.code(), r.end)
			}
		case <-limit:
			r.t.Error("the job did not end within 45s")
			r.abort()
			limit = nil
		}
	}
	if left := leak.Await(r.watch.Processes, 5*time.Second); len(left) > 0 {
		r.t.Errorf("5s after the launcher there are still %v", left)
	}
	for _, do := range r.atEnd {
		do()
	}
	r.judgeLogs()
	records := append(r.read(), r.ends()...)
	report, err := faultlab.Check(rules, records)
	if err != nil {
		r.t.Errorf("violations:\n%v", err)
	}
	return report
}

// ends returns the records that nodes could not write: those of killed nodes, and what
// the others have logged about them.
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
			if !over[who] && strings.HasPrefix(r.end, "kill-launcher") {
				out = append(out, faultlab.Record{Kind: faultlab.End, At: at, Who: who, Out: faultlab.Killed})
			}
		}
		for peer, n := range r.lost(id) {
			out = append(out, faultlab.Record{Kind: faultlab.Lost, At: at, Who: all[len(all)-1], Peer: faultlab.Peer{Node: peer}, Count: n,
				Err: "by its log"})
		}
	}
	return out
}

// A loss in a node's log: "node lost" of the task, or the router's message about a
// node that left too early.
var goneLine = regexp.MustCompile(`msg="node lost".* peer=(\d+) err="(?:.* (\d+) messages not)?|` +
	`msg="a node has left.* peer=node\.(\d+) unacknowledged=(\d+)`)

// lost returns the lines of a node's log about lost peers.
func (r *round) lost(id int) map[int]uint64 {
	out := map[int]uint64{}
	b, _ := os.ReadFile(filepath.Join(r.dir, "logs", fmt.Sprintf("node-%d.log", id))) // missing if the node has logged nothing
	for _, m := range goneLine.FindAllStringSubmatch(string(b), -1) {
		peer, _ := strconv.Atoi(m[1] + m[3])
		n, _ := strconv.ParseUint("0"+m[2]+m[4], 10, 64)
		out[peer] += n
	}
	return out
}
