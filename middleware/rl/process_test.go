//go:build linux

package rl_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/middleware/rl"
)

// launcher runs testdata/lockstep through ditask.
type launcher struct {
	watch           *leak.Watch
	ditask, program string
	dir             string // of the run
	algorithm       string // of the program
	workers         int    // nodes
	updates         int    // of the whole run
	rarely          bool   // no checkpoint before the end
	together        bool   // nodes 0 and 1 learn
}

// running is a job that has been started.
type running struct {
	cmd  *exec.Cmd
	out  *bufio.Scanner
	log  bytes.Buffer
	pids map[int]int // of the nodes
	all  int         // nodes
	over bool        // the job has ended
	err  error       // of the job, when it has ended
	at   int         // updates of the learner
}

var lockstepTime = flag.Duration("lockstep.time", 0, "how long jobs in lockstep are killed and resumed; 0: once each")

// TestProcesses runs jobs in lockstep as processes.
func TestProcesses(t *testing.T) {
	bin := t.TempDir()
	for name, pkg := range map[string]string{"ditask": "../../ditask", "lockstep": "./testdata/lockstep"} {
		// The package's own limit bounds a build: on a busy machine, with an empty cache, it takes minutes.
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, name), pkg).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", pkg, err, out)
		}
	}
	for name, test := range map[string]func(*testing.T, *launcher){
		"P4/killed jobs go on exactly":        killedJobs,
		"P4/a recovering job goes on exactly": recoveringJob,
		"P4/each algorithm goes on exactly":   eachAlgorithm,
		"P4/killed jobs of two learners go on exactly": func(t *testing.T, l *launcher) {
			l.together, l.workers = true, 5
			killedJobs(t, l)
		},
		"P4/a recovering job of two learners goes on exactly": func(t *testing.T, l *launcher) {
			l.together, l.workers = true, 5
			recoveringJob(t, l)
		},
		"resuming without a checkpoint is a failure": resumeWithoutACheckpoint,
	} {
		t.Run(name, func(t *testing.T) {
			l := launcher{watch: leak.Check(t), ditask: filepath.Join(bin, "ditask"), program: filepath.Join(bin, "lockstep"), algorithm: "dqn",
				workers: 4, updates: 600}
			rounds := 0
			for began := time.Now(); rounds == 0 || !t.Failed() && time.Since(began) < *lockstepTime; rounds++ {
				one := l
				test(t, &one)
			}
			t.Logf("%d rounds", rounds)
		})
	}
}

// start starts the job in the folder of the run.
func (l *launcher) start(ctx context.Context, t *testing.T, flags ...string) *running {
	t.Helper()
	args := append([]string{"--package", l.program, "-n", strconv.Itoa(l.workers), "--dir", l.dir}, flags...)
	args = append(args, "--", l.algorithm, strconv.Itoa(l.updates))
	if l.rarely {
		args = append(args, "rarely")
	}
	if l.together {
		args = append(args, "together")
	}
	r := &running{cmd: exec.CommandContext(ctx, l.ditask, args...), pids: map[int]int{}, all: l.workers}
	r.cmd.Env, r.cmd.Stderr = l.watch.Environ(), &r.log
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewScanner(out)
	return r
}

// until reads the job's output until the learner has made that many updates, and reports whether it
// has. All nodes have begun then.
func (r *running) until(updates int) bool {
	for (len(r.pids) < r.all || r.at < updates) && r.out.Scan() {
		line := r.out.Text()
		var node, pid int
		if _, text, ok := strings.Cut(line, "node "); ok {
			if _, err := fmt.Sscanf(text, "%d pid %d", &node, &pid); err == nil {
				r.pids[node] = pid
			}
		}
		if _, text, ok := strings.Cut(line, "updates "); ok {
			_, _ = fmt.Sscan(text, &r.at) // another line leaves it
		}
	}
	return len(r.pids) == r.all && r.at >= updates
}

// end reads to the end of the job and returns its error.
func (r *running) end() error {
	if !r.over {
		for r.out.Scan() {
		}
		r.over, r.err = true, r.cmd.Wait()
	}
	return r.err
}

// kill sends SIGKILL to a process, which may have ended.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
}

// interrupt ends a job in the middle: in order, by SIGTERM to its launcher, or by SIGKILL
// to all of its processes. It reports whether the job was done before.
func (l *launcher) interrupt(t *testing.T, r *running, inOrder bool) (done bool) {
	t.Helper()
	if inOrder {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	} else {
		kill(t, r.cmd.Process.Pid)
		for _, pid := range r.pids {
			kill(t, pid)
		}
	}
	var exit *exec.ExitError
	err := r.end()
	if err == nil {
		return true
	}
	if !errors.As(err, &exit) || inOrder && exit.ExitCode() != 75 {
		t.Fatalf("in order %v: %v\n%s", inOrder, err, r.log.String())
	}
	l.removeSockets(t)
	return false
}

// removeSockets removes the sockets of a launcher that was killed.
func (l *launcher) removeSockets(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(l.watch.Dir, "ditask-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// result is the output of the finished run.
func (l *launcher) result(t *testing.T, r *running, err error) string {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, r.log.String())
	}
	text, err := os.ReadFile(filepath.Join(l.dir, "result"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// straight returns the result of a run without an interruption.
func (l *launcher) straight(ctx context.Context, t *testing.T) string {
	t.Helper()
	l.dir = t.TempDir()
	r := l.start(ctx, t)
	return l.result(t, r, r.end())
}

// eachAlgorithm is killed and resumed alone and in lockstep, and offline ones alone.
func eachAlgorithm(t *testing.T, l *launcher) {
	out, err := exec.CommandContext(within(t), l.program, "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		for _, workers := range []int{1, 3} {
			if workers > 1 && strings.HasPrefix(name, "offline") {
				continue
			}
			one := *l
			one.algorithm, one.workers, one.updates = strings.TrimSpace(name), workers, 200
			t.Run(fmt.Sprintf("%s with %d nodes", one.algorithm, workers), func(t *testing.T) { killAndResume(t, &one, 1) })
		}
		if strings.HasPrefix(name, "normalised") { // its statistics are those of both learners
			one := *l
			one.algorithm, one.workers, one.updates, one.together = strings.TrimSpace(name), 5, 200, true
			t.Run(one.algorithm+" with two learners", func(t *testing.T) { killAndResume(t, &one, 1) })
		}
	}
	l.leavesNothing(t)
}

// leavesNothing waits until no process of the jobs runs: a watcher runs longer than its launcher.
func (l *launcher) leavesNothing(t *testing.T) {
	t.Helper()
	if left := leak.Await(l.watch.Left, 5*time.Second); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// killedJobs are killed and resumed until they are done.
func killedJobs(t *testing.T, l *launcher) {
	killAndResume(t, l, 2)
	l.leavesNothing(t)
}

// killAndResume kills or preempts all processes of a job at random moments, and resumes it each time,
// until it is done: so many times.
func killAndResume(t *testing.T, l *launcher, times int) {
	ctx := within(t)
	want := l.straight(ctx, t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range times {
		l.dir = t.TempDir()
		var moments []int
		for at := 0; ; {
			var flags []string
			if _, err := os.Stat(filepath.Join(l.dir, rl.CheckpointFile)); err == nil {
				flags = []string{"--resume"}
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			} else if len(moments) > 0 {
				flags = []string{"--overwrite"} // it was killed before its first checkpoint
			}
			r := l.start(ctx, t, flags...)
			at += rng.IntN(l.updates * 2 / 5)
			if !r.until(at) || at >= l.updates || l.interrupt(t, r, rng.IntN(3) == 0) {
				if got := l.result(t, r, r.end()); got != want {
					t.Errorf("killed at updates %v (seed %d), the run ends with %.200s\nand straight with %.200s", moments, seed, got, want)
				}
				break
			}
			moments = append(moments, at)
		}
	}
}

// recoveringJob kills single nodes of one job at random
// moments; the launcher starts them again.
func recoveringJob(t *testing.T, l *launcher) {
	ctx := within(t)
	want := l.straight(ctx, t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	l.dir = t.TempDir()
	r := l.start(ctx, t, "--auto-recover", "--max-retries", "9")
	var victims, moments []int
	for i := range 5 {
		victim := rng.IntN(l.workers)
		if i == 2 {
			victim = 0 // the learner at least once
		}
		victims, moments = append(victims, victim), append(moments, r.at+rng.IntN(120))
		if !r.until(moments[i]) {
			t.Fatalf("the job ended before %v\n%s", moments, r.log.String())
		}
		pid := r.pids[victim]
		delete(r.pids, victim) // until it is back
		kill(t, pid)
		if victim == 0 || l.together && victim == 1 {
			r.at = 0
		}
	}
	if got := l.result(t, r, r.end()); got != want {
		t.Errorf("nodes %v killed at updates %v (seed %d): the run ends with %.200s\nand straight with %.200s", victims, moments, seed, got, want)
	}
	l.leavesNothing(t)
}

// resumeWithoutACheckpoint: a run with a wrong --dir does not begin at 0. A node
// that is restarted before its first checkpoint begins there, and logs it.
func resumeWithoutACheckpoint(t *testing.T, l *launcher) {
	l.workers, l.updates, l.rarely = 1, 5000, true
	ctx := within(t)
	l.dir = t.TempDir()
	r := l.start(ctx, t, "--resume")
	var exit *exec.ExitError
	if err := r.end(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1\n%s", err, r.log.String())
	}
	if want := "resume from folder " + l.dir + ": there is no checkpoint"; !strings.Contains(r.log.String(), want) {
		t.Errorf("no %q in\n%s", want, r.log.String())
	}
	r = l.start(ctx, t, "--auto-recover")
	if !r.until(0) {
		t.Fatal(r.log.String())
	}
	kill(t, r.pids[0])
	if err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, r.log.String())
	}
	if want := "begin at 0: this run ended before its first checkpoint"; !strings.Contains(r.log.String(), want) {
		t.Errorf("no %q in\n%s", want, r.log.String())
	}
}
