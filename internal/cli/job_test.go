//go:build linux

package cli_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
)

// programs are the binaries of the whole-job tests, built once.
type programs struct {
	ditask, hello, nodes string
}

var build = sync.OnceValues(func() (programs, error) {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return programs{}, err
	}
	p := programs{filepath.Join(dir, "ditask"), filepath.Join(dir, "hello"), filepath.Join(dir, "nodes")}
	for path, pkg := range map[string]string{p.ditask: "../../ditask", p.hello: "../../examples/hello", p.nodes: "./testdata/nodes"} {
		if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
			return p, fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	}
	return p, nil
})

// job is a ditask process with its output and its nodes.
type job struct {
	*exec.Cmd
	watch *leak.Watch
	log   bytes.Buffer
}

func newJob(t *testing.T, program func(programs) string, args ...string) *job {
	t.Helper()
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	j := &job{watch: leak.Check(t)}
	j.Cmd = exec.Command(p.ditask, append([]string{"--package", program(p)}, args...)...)
	j.Env, j.Stderr = j.watch.Environ(), &j.log
	j.Dir = t.TempDir()
	return j
}

func hello(p programs) string { return p.hello }
func nodes(p programs) string { return p.nodes }

// code returns the exit code of a process that was waited for.
func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

func (j *job) expect(t *testing.T, err error, want int) {
	t.Helper()
	if got := code(t, err); got != want {
		t.Errorf("exit code %d, want %d:\n%s", got, want, j.log.String())
	}
	if left := j.watch.Left(); len(left) > 0 {
		t.Errorf("left when ditask ended: %v", left)
	}
}

// start starts a job of three nodes and returns their pids by node id, once each
// is in its first step.
func (j *job) start(t *testing.T) []int {
	t.Helper()
	out, err := j.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	const n = 3
	pids, running := make([]int, n), 0
	re := regexp.MustCompile(`^(?:\[|.*"node":)([0-2])\b.*pid=(\d+)`)
	lines := bufio.NewScanner(out)
	for running < n && lines.Scan() {
		if m := re.FindStringSubmatch(lines.Text()); m != nil {
			var id int
			_, _ = fmt.Sscan(m[1], &id)
			_, _ = fmt.Sscan(m[2], &pids[id])
			running++
		}
	}
	if running < n {
		t.Fatalf("the nodes did not start: %v, %s", j.Wait(), j.log.String())
	}
	rest := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, out); close(rest) }()
	t.Cleanup(func() { <-rest })
	return pids
}

func TestL14FinishIsFinish(t *testing.T) {
	repeats := 100
	if testing.Short() {
		repeats = 3
	}
	for _, transport := range []string{"ipc", "tcp"} {
		for _, workers := range []int{1, 2, 8} {
			t.Run(fmt.Sprintf("%s/%d", transport, workers), func(t *testing.T) {
				for range repeats {
					j := newJob(t, hello, "--protocol", transport, "-n", fmt.Sprint(workers))
					j.expect(t, j.Run(), 0)
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

func TestL11FailureIsWrittenOnceWithItsNode(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--", "1=fail")
	j.expect(t, j.Run(), 1)
	log := j.log.String()
	if n := strings.Count(log, "out of luck"); n != 1 {
		t.Errorf("the error is there %d times:\n%s", n, log)
	}
	if strings.Count(log, "ditask: node 1 failed: exit code 1") != 1 || !strings.HasSuffix(log,
		"ditask: the job failed because of node 1: exit code 1\n") {
		t.Errorf("no failure of node 1, or more than one, or not the last word:\n%s", log)
	}
}

func TestL11PanicIsWrittenOnceWithItsNode(t *testing.T) {
	j := newJob(t, nodes, "-n", "1", "--", "0=panic")
	j.expect(t, j.Run(), 1)
	log := j.log.String()
	if strings.Count(log, "on purpose") != 1 || strings.Count(log, "main.play.func") != 1 || !strings.Contains(log, "[0 #0] ") {
		t.Errorf("log:\n%s", log)
	}
}

// TestClosedOutputDoesNotEndTheJob: ditask ... | true.
func TestClosedOutputDoesNotEndTheJob(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer func() { _ = w.Close() }()
	j := newJob(t, hello, "-n", "2")
	j.Stdout = w
	j.expect(t, j.Run(), 0)
	if !strings.Contains(j.log.String(), "lines were not written, as its reader has gone") {
		t.Errorf("log:\n%s", j.log.String())
	}
	j = newJob(t, hello, "-n", "2", "--protocol", "tcp", "--token", "short", "--address", "0.0.0.0") // with cautions at the start
	j.Stdout, j.Stderr = w, w
	j.expect(t, j.Run(), 0)
}

// TestL13KilledLauncherLeavesNoStartingProgram: sleep stands for a program that
// takes long until it calls parallel.Main.
func TestL13KilledLauncherLeavesNoStartingProgram(t *testing.T) {
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t, func(programs) string { return path }, "-n", "2", "--", "1000")
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	asleep := func() []string {
		if n := strings.Count(strings.Join(j.watch.Processes(), "\n"), path+" 1000"); n != 2 {
			return []string{fmt.Sprintf("%d nodes", n)}
		}
		return nil
	}
	if left := leak.Await(asleep, 30*time.Second); len(left) > 0 {
		t.Errorf("before: %v", left)
	}
	_ = j.Process.Kill()
	_ = j.Wait()
	if left := leak.Await(j.watch.Left, 5*time.Second); len(left) > 0 {
		t.Errorf("after 5 s: %v", left)
	}
}

// TestOtherNodesNameACrash: the launcher notifies them, before they detect the silence.
func TestOtherNodesNameACrash(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--auto-recover", "--max-retries", "1", "--", "1=die")
	j.expect(t, j.Run(), 137)
	if log := j.log.String(); strings.Count(log, `err="node.1: lost: killed by signal: killed"`) < 2 || strings.Contains(log, "silent for") {
		t.Errorf("log:\n%s", log)
	}
}

// TestL12FailedNodeComesBack: the others continue meanwhile, after any failure.
func TestL12FailedNodeComesBack(t *testing.T) {
	for _, script := range [][]string{{"0=lead", "3=kill"}, {"0=lead", "3=stumble"}, {"0=lead", "3=fall"}, {"2=lead", "0=fall"}} {
		j := newJob(t, nodes, append([]string{"-n", "4", "--auto-recover", "--"}, script...)...)
		var out bytes.Buffer
		j.Stdout = &out
		j.expect(t, j.Run(), 0)
		if !strings.Contains(out.String(), "node "+script[1][:1]+" is back\n") || strings.Count(j.log.String(), "; restart ") != 1 {
			t.Errorf("%v: out:\n%s\nlog:\n%s", script, out.String(), j.log.String())
		}
	}
}

func TestL13KilledNodeEndsTheJob(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--grace", "2s")
	pids := j.start(t)
	_ = syscall.Kill(pids[1], syscall.SIGKILL)
	j.expect(t, j.Wait(), 137)
}

func TestL13KilledLauncherLeavesNoNode(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		j := newJob(t, nodes, "-n", "3")
		for _, pid := range j.start(t) {
			if stopped {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		_ = j.Process.Kill()
		_ = j.Wait()
		if left := leak.Await(j.watch.Left, 5*time.Second); len(left) > 0 {
			t.Errorf("stopped %v: left after 5 s: %v", stopped, left)
		}
	}
}

func TestL13SignalsDrainTheJob(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 75, syscall.SIGINT: 130} {
		j := newJob(t, nodes, "-n", "3")
		j.start(t)
		_ = j.Process.Signal(sig)
		j.expect(t, j.Wait(), want)
	}
}

func TestR8EqualJobsRunSideBySide(t *testing.T) {
	for _, args := range [][]string{{"-n", "3"}, {"-n", "3", "--job-id", "same", "--protocol", "tcp"}, {"-n", "3", "--job-id", "same"}} {
		var jobs []*job
		for range 2 {
			j := newJob(t, nodes, args...)
			j.start(t)
			jobs = append(jobs, j)
		}
		for _, j := range jobs {
			_ = j.Process.Signal(syscall.SIGTERM)
			j.expect(t, j.Wait(), 75)
		}
	}
}

// BenchmarkReady is a whole job of four nodes that greet each other, from the
// start of ditask to its end; the baseline is one hello that runs alone.
func BenchmarkReady(b *testing.B) {
	p, err := build()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cmd  []string
	}{{"alone", []string{p.hello}}, {"ditask/4", []string{p.ditask, "-p", p.hello, "-n", "4"}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if out, err := exec.Command(c.cmd[0], c.cmd[1:]...).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
