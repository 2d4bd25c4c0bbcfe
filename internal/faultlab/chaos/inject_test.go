//go:build linux

package chaos_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ditask/ditask/internal/faultlab"
)

// fault records a fault.
func (r *round) fault(name string, grave bool, nodes ...int) {
	err := r.records.Write(faultlab.Record{Kind: faultlab.Fault, At: now(), Event: name, Nodes: nodes, Grave: grave})
	if err != nil {
		r.t.Fatal(err)
	}
}

// must fails the test if the laboratory itself fails.
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
	if f.kind == hostileFault {
		r.attack(f)
		return
	}
	name := f.kind
	if f.grave && f.kind != "kill" {
		name += " for long"
	}
	nodes := []int{f.a, f.b}
	switch f.kind {
	case "stop", "kill", "link-down", "clock", leave:
		nodes = nodes[:1]
	case "server-restart", "launcher-clock", "reader-pause":
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
		r.stop(f)
	case "clock":
		r.twice(r.find(f.a).pid, syscall.SIGUSR2, syscall.SIGUSR2, f.lasts)
	case "launcher-clock":
		r.twice(r.jobs[f.a%len(r.jobs)].cmd.Process.Pid, syscall.SIGUSR2, syscall.SIGUSR2, f.lasts)
	case leave:
		r.leave(f.a)
	case "reader-pause":
		out := r.jobs[f.a%len(r.jobs)].out
		out.hold(true)
		r.pause(f.lasts)
		out.hold(false)
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
		r.fault("", f.grave, nodes...) // its effects end here
		r.pause(4 * time.Second)
	}
}

// stop stops a node for a while; under a grave fault, until the other nodes have lost it. Such a node ends when it
// continues, unless its launcher has killed it before.
func (r *round) stop(f fault) {
	p := r.find(f.a)
	r.twice(p.pid, syscall.SIGSTOP, syscall.SIGCONT, f.lasts)
	if p.pid == 0 || !f.grave {
		return
	}
	r.await("a new start of the node that was stopped", 40*time.Second, func() bool {
		q := r.find(f.a)
		return q.who.Incarnation > p.who.Incarnation && r.readyOf(q.who)
	})
	ended := func(rec faultlab.Record) bool { return rec.Kind == faultlab.End && rec.Who == p.who }
	if !slices.ContainsFunc(r.read(), ended) {
		r.must(r.records.Write(faultlab.Record{Kind: faultlab.End, At: now(), Who: p.who, Out: faultlab.Killed}))
	}
}

// leave signals the launcher of a node to end, as Kubernetes does with a pod that it
// drains, and starts it again when it has ended.
func (r *round) leave(id int) {
	before, j := r.find(id), r.jobs[id]
	r.must(j.signal(syscall.SIGTERM))
	select {
	case <-j.ended:
	case <-time.After(40 * time.Second):
		r.t.Errorf("node.%d did not leave within 40s", id)
		r.abort()
		r.t.FailNow()
	}
	if j.code() != 75 {
		r.t.Errorf("the launcher of node.%d ended with %d after the signal to leave", id, j.code())
	}
	r.must(j.start())
	r.await("the node that left to be back", 40*time.Second, func() bool {
		q := r.find(id)
		return q.who.Incarnation > before.who.Incarnation && r.readyOf(q.who)
	})
}

// readyOf reports whether the process has been ready.
func (r *round) readyOf(who faultlab.Peer) bool {
	b := part(filepath.Join(r.dir, fmt.Sprintf("%d-%d.records", who.Node, who.Incarnation)), readyBytes)
	return bytes.Contains(b, []byte(`{"k":"ready"`))
}
