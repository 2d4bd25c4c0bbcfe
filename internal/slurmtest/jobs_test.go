//go:build linux

package slurmtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/internal/slurmtest"
)

// lab is what all tests of jobs share: a cluster of four nodes, and programs.
type lab struct {
	*slurmtest.Cluster

	dir string
}

// opened is the lab once a test has needed it, for TestMain to close.
var opened *lab

var open = sync.OnceValues(func() (*lab, error) {
	dir, err := os.MkdirTemp("", "slurmjobs")
	if err != nil {
		return nil, err
	}
	opened = &lab{dir: dir}
	for name, pkg := range map[string]string{"ditask": "../../ditask", "hello": "../../examples/hello", "program": "./testdata/program",
		"dqn": "../../examples/dqn"} {
		if out, err := exec.Command("go", "build", "-o", opened.path(name), pkg).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	}
	opened.Cluster, err = slurmtest.Open(slurmtest.Config{Nodes: 4})
	return opened, err
})

func (l *lab) path(program string) string { return filepath.Join(l.dir, program) }

func TestMain(m *testing.M) {
	code := m.Run()
	if opened != nil {
		err := os.RemoveAll(opened.dir)
		if opened.Cluster != nil {
			err = errors.Join(err, opened.Close())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// job is one test's use of the lab.
type job struct {
	*lab

	t     *testing.T
	watch *leak.Watch
	runs  string // the folder that its nodes write
	out   logtest.Buffer
}

func newJob(t *testing.T) *job {
	t.Helper()
	slurmtest.Programs(t)
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return &job{lab: l, t: t, watch: leak.Check(t), runs: t.TempDir()}
}

// srun runs ditask in the tasks of a step to its end.
func (j *job) srun(step, flags string, args ...string) (string, int) {
	j.t.Helper()
	return j.Run(j.t, j.watch.Environ(), "srun", append(append(strings.Fields(step), j.path("ditask")),
		append(strings.Fields(flags), args...)...)...)
}

// start starts a step of the program whose nodes say that they are here, and
// waits for all of them.
func (j *job) start(nodes int, step string) *exec.Cmd {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), slurmtest.Limit)
	j.t.Cleanup(cancel)
	cmd := j.Command(ctx, j.watch.Environ(), "srun", append(strings.Fields(step), j.path("ditask"), "--package", j.path("program"), "--dir",
		j.runs)...)
	cmd.Stdout, cmd.Stderr = &j.out, &j.out
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.here(nodes)
	return cmd
}

// here waits until that many nodes are in their first step.
func (j *job) here(nodes int) {
	j.t.Helper()
	slurmtest.Await(j.t, func() string { return fmt.Sprintf("not all of %d nodes are here", nodes) }, func() bool {
		found, _ := filepath.Glob(filepath.Join(j.runs, "here-*"))
		return len(found) == nodes
	})
}

// pid returns the process of a node that is here.
func (j *job) pid(node int) int {
	j.t.Helper()
	b, err := os.ReadFile(filepath.Join(j.runs, fmt.Sprintf("here-%d", node)))
	if err != nil {
		j.t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		j.t.Fatal(err)
	}
	return pid
}

// launcher returns the process that has started a node.
func (j *job) launcher(node int) int {
	j.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", j.pid(node)))
	if err != nil {
		j.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the state, and the parent
	pid, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		j.t.Fatal(err)
	}
	return pid
}

// end waits for a step and checks its exit code; nothing may be left of it.
func (j *job) end(cmd *exec.Cmd, want int) {
	j.t.Helper()
	err := cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		j.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		j.t.Errorf("exit code %d, want %d:\n%s", got, want, j.out.String())
	}
}

// saved is how often the nodes have saved, "1 1" of two that have once.
func (j *job) saved(nodes int) string {
	var words []string
	for node := range nodes {
		b, err := os.ReadFile(filepath.Join(j.runs, fmt.Sprintf("saved-%d", node)))
		if err != nil {
			b = []byte("-")
		}
		words = append(words, string(b))
	}
	return strings.Join(words, " ")
}

// show returns the output of scontrol for a job.
func (j *job) show(id, field string) string {
	out, _ := j.Run(j.t, nil, "scontrol", "--oneliner", "show", "job", id)
	m := regexp.MustCompile(`\b` + field + `=(\S+)`).FindStringSubmatch(out)
	if m == nil {
		return ""
	}
	return m[1]
}

// sbatch submits a script and returns the job's number.
func (j *job) sbatch(script string, args ...string) string {
	j.t.Helper()
	path := filepath.Join(j.t.TempDir(), "batch.sh")
	if err := os.WriteFile(path, []byte("#!/bin/bash\n"+script), 0o700); err != nil {
		j.t.Fatal(err)
	}
	out, code := j.Run(j.t, j.watch.Environ(), "sbatch", append(append([]string{"--parsable", "--output",
		filepath.Join(j.runs, "%a-%j.out")}, args...), path)...)
	if code != 0 {
		j.t.Fatalf("sbatch: %s", out)
	}
	return strings.TrimSpace(out)
}

// ended waits for the end of a batch job and returns its state.
func (j *job) ended(id string) string {
	j.t.Helper()
	var state string
	slurmtest.Await(j.t, func() string { return "job " + id + " is " + state + ":\n" + j.output() }, func() bool {
		state = j.show(id, "JobState")
		return state != "PENDING" && state != "RUNNING" && state != "COMPLETING" && state != ""
	})
	return state
}

// output returns the output of the batch jobs of this test.
func (j *job) output() string {
	files, _ := filepath.Glob(filepath.Join(j.runs, "*.out"))
	var all []string
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all = append(all, string(b))
	}
	return strings.Join(all, "")
}

// greetings checks that each of n nodes has heard each other once.
func greetings(t *testing.T, out string, n int) {
	t.Helper()
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\[(\d+) #0\] hello from node (\d+)$`).FindAllStringSubmatch(out, -1) {
		count[m[1]+" "+m[2]]++
	}
	for a := range n {
		for b := range n {
			want := 1
			if a == b {
				want = 0
			}
			if got := count[fmt.Sprintf("%d %d", a, b)]; got != want {
				t.Errorf("node %d has heard node %d %d times, want %d", a, b, got, want)
			}
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestL8StepsOfEveryLayout(t *testing.T) {
	for _, c := range []struct {
		name, step, flags string
		nodes             int
	}{
		{"one host", "-n 4", "", 4},
		{"one task", "-n 1", "-n 3", 3},
		{"four hosts", "-N 4 -n 4", "", 4},
		{"uneven", "-N 4 -n 7", "", 7},
		{"cyclic", "-N 3 -n 7 --distribution=cyclic", "", 7},
		{"plane", "-N 3 -n 7 --distribution=plane=2", "", 7},
		{"arbitrary", "-n 4 --distribution=arbitrary -w n4,n2,n2,n3", "", 4},
		{"arbitrary, workers", "-n 3 --distribution=arbitrary -w n3,n3,n1", "-n 2", 6},
		{"several workers", "-N 3 -n 4", "-n 3", 12},
		{"star", "-N 4 -n 5", "--topology star", 5},
		{"star, workers", "-N 2 -n 3 --distribution=cyclic", "--topology star -n 2", 6},
		{"nats", "-N 4 -n 4", "--mq-type nats", 4},
		{"nats, cyclic, workers", "-N 2 -n 4 --distribution=cyclic", "--mq-type nats -n 2", 8},
		{"sixteen", "-N 4 -n 16", "", 16},
		{"not all hosts", "-n 2 -N 2 -w n3,n4", "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t)
			out, code := j.srun(c.step, c.flags+" --package "+j.path("hello"))
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			greetings(t, out, c.nodes)
		})
	}
}

// Four tasks build the package at once, as in the first command of docs/slurm.md.
func TestL8PackageIsBuiltByTheTasks(t *testing.T) {
	j := newJob(t)
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	environ := append(j.watch.Environ(), "GOCACHE="+strings.TrimSpace(string(goCache)), "XDG_CACHE_HOME="+t.TempDir())
	out, code := j.Run(t, environ, "srun", "-N", "4", "-n", "4", j.path("ditask"), "--package", "../../examples/hello")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	greetings(t, out, 4)
}

func TestL8HeterogeneousStepIsOneWorld(t *testing.T) {
	j := newJob(t)
	ditask := []string{j.path("ditask"), "--package", j.path("hello")}
	words := append(append(append([]string{"-N", "1", "-n", "2"}, ditask...), ":", "-N", "2", "-n", "3"), ditask...)
	out, code := j.Run(t, j.watch.Environ(), "srun", words...)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	greetings(t, out, 5)
}

func TestL8SubSteps(t *testing.T) {
	j := newJob(t)
	ditask := j.path("ditask") + " -p " + j.path("hello")
	// The job's variables say 4 tasks on 2 hosts, two on each, in each of these.
	id := j.sbatch(fmt.Sprintf(`
srun -n 3 %[1]s >%[2]s/three 2>&1 || exit 3
srun -N 1 -n 1 -w $(scontrol show hostnames | tail -1) %[1]s -n 2 >%[2]s/one 2>&1 || exit 1
srun --overlap -n 2 %[1]s >%[2]s/first 2>&1 & a=$!
srun --overlap -n 2 %[1]s >%[2]s/second 2>&1 & b=$!
wait $a && wait $b`, ditask, j.runs), "-N", "2", "--ntasks-per-node", "2")
	if state := j.ended(id); state != "COMPLETED" {
		t.Errorf("the job is %s:\n%s", state, j.output())
	}
	for file, nodes := range map[string]int{"three": 3, "one": 2, "first": 2, "second": 2} {
		b, err := os.ReadFile(filepath.Join(j.runs, file))
		if err != nil {
			t.Error(err)
		}
		greetings(t, string(b), nodes)
	}
}

func TestR8JobsSideBySideOnTheSameHosts(t *testing.T) {
	var jobs []*job
	var steps []*exec.Cmd
	for i := range 3 {
		j := newJob(t)
		jobs, steps = append(jobs, j), append(steps, j.start(4, fmt.Sprintf("-N 4 -n 4 --job-name side%d", i)))
	}
	for i, j := range jobs {
		if out, code := j.Run(t, nil, "scancel", "--signal=USR1", "--name", fmt.Sprint("side", i)); code != 0 {
			t.Fatal(out)
		}
		j.end(steps[i], 75)
	}
}

func TestL8BatchScriptRunsAlone(t *testing.T) {
	j := newJob(t)
	id := j.sbatch(j.path("ditask")+" -n 2 -p "+j.path("hello")+"\n", "-n", "4")
	if state := j.ended(id); state != "COMPLETED" {
		t.Errorf("the job is %s", state)
	}
	greetings(t, j.output(), 2)
	hint := "this is job " + id + " of Slurm, outside of its 4 tasks, so the nodes run alone on this host: " +
		"srun ditask ... runs them in the tasks"
	if !strings.Contains(j.output(), hint) {
		t.Errorf("no hint:\n%s", j.output())
	}
}

func TestL8Array(t *testing.T) {
	j := newJob(t)
	id := j.sbatch("srun "+j.path("ditask")+" -p "+j.path("hello")+"\n", "-n", "2", "--array", "1-2")
	for _, task := range []string{"1", "2"} {
		if state := j.ended(id + "_" + task); state != "COMPLETED" {
			t.Errorf("task %s is %s", task, state)
		}
		files, _ := filepath.Glob(filepath.Join(j.runs, task+"-*.out"))
		if len(files) != 1 {
			t.Fatalf("the output of task %s: %v", task, files)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		greetings(t, string(b), 2)
		if !strings.Contains(string(b), "job slurm-"+id+"_"+task+".0: ") {
			t.Errorf("not the job's name:\n%s", b)
		}
	}
}

func TestL8PortsThatSlurmHasReserved(t *testing.T) {
	watch := leak.Check(t)
	slurmtest.Programs(t)
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	begin := 30100 + rand.IntN(2500) // not those of another cluster on this machine
	// On the one host of this cluster, so that its tasks do not share a machine's
	// ports with those of another host.
	c := slurmtest.Start(t, slurmtest.Config{Nodes: 1, Conf: []string{fmt.Sprintf("MpiParams=ports=%d-%d", begin, begin+99)}})
	out, code := c.Run(t, watch.Environ(), "srun", "-n", "3", "--resv-ports=3", "sh", "-c",
		"echo from $SLURM_STEP_RESV_PORTS; exec "+l.path("ditask")+" plan --json")
	var first, last int
	if i := strings.Index(out, "from "); i >= 0 {
		_, _ = fmt.Sscanf(out[i:], "from %d-%d", &first, &last)
	}
	for port := first; port < first+3; port++ {
		if want := fmt.Sprintf(`"listen": "tcp://127.0.0.1:%d"`, port); code != 0 || last != first+2 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %s:\n%s", code, want, out)
		}
	}
	out, code = c.Run(t, watch.Environ(), "srun", "-n", "3", l.path("ditask"), "-n", "2", "-p", l.path("hello"))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	greetings(t, out, 6)
}

func TestL13FailureEndsTheStep(t *testing.T) {
	j := newJob(t)
	out, code := j.srun("-N 4 -n 4", "--package "+j.path("program")+" --dir "+j.runs, "--", "2=fail")
	if code != 1 || !strings.Contains(out, "node 2 failed: exit code 1") || !strings.Contains(out, "node 0 failed because of node 2") {
		t.Errorf("exit code %d, or the first failure is not named:\n%s", code, out)
	}
	if got := j.saved(4); got != "- - - -" {
		t.Errorf("saved %s after a failure", got)
	}
}

// With --auto-recover a node is started again, until it has failed too often: that is
// the end of all tasks, without srun's help.
func TestL12TheLastFailureEndsTheStep(t *testing.T) {
	j := newJob(t)
	out, code := j.srun("-K0 -N 3 -n 3", "--auto-recover --max-retries 1 --package "+j.path("program")+" --dir "+j.runs, "--", "2=fail")
	if code != 1 || strings.Count(out, "; restart 1 of 1") != 1 || !strings.Contains(out, "node 2, attempt 1, failed: exit code 1") ||
		!strings.Contains(out, "node 0 failed because of node 2") || !strings.Contains(out, "node 1 failed because of node 2") {
		t.Errorf("exit code %d, or it is not said what has happened:\n%s", code, out)
	}
}

func TestL13KilledNodeEndsTheStep(t *testing.T) {
	j := newJob(t)
	cmd := j.start(4, "-N 4 -n 4")
	_ = syscall.Kill(j.pid(1), syscall.SIGKILL)
	j.end(cmd, 137)
	if out := j.out.String(); !strings.Contains(out, "node 1 failed: killed;") || strings.Count(out,
		"node 1 failed: killed by signal: killed") < 3 {
		t.Errorf("the first failure is not named:\n%s", out)
	}
}

func TestL13KilledTaskEndsTheStep(t *testing.T) {
	for _, kill := range []string{"", "-K1 "} {
		j := newJob(t)
		cmd := j.start(4, kill+"-N 4 -n 4")
		_ = syscall.Kill(j.launcher(1), syscall.SIGKILL)
		j.end(cmd, 137)
		if out := j.out.String(); !strings.Contains(out, "n2: task 1: Killed") {
			t.Errorf("srun %s: the first failure is not named:\n%s", kill, out)
		}
		if left := leak.Await(j.watch.Processes, 10*time.Second); len(left) > 0 {
			t.Errorf("srun %s: left behind: %v", kill, left)
		}
	}
}

func TestL13ScancelSavesAndEnds(t *testing.T) {
	j := newJob(t)
	cmd := j.start(4, "-N 2 -n 4 --job-name scancelled")
	if out, code := j.Run(t, nil, "scancel", "--name", "scancelled"); code != 0 {
		t.Fatal(out)
	}
	j.end(cmd, 75)
	if got := j.saved(4); got != "1 1 1 1" {
		t.Errorf("saved %s:\n%s", got, j.out.String())
	}
}

// Two interrupts within a second make srun interrupt its tasks. With
// --quit-on-interrupt one is enough, but then srun also kills the tasks at once, and
// their files may be cut off.
func TestL13SrunInterruptedSavesAndEnds(t *testing.T) {
	j := newJob(t)
	cmd := j.start(4, "-N 2 -n 4")
	count := func(text string) int { return strings.Count(j.out.String(), text) }
	for count("sending Ctrl-C") == 0 {
		warned := count("one more within 1 sec")
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		slurmtest.Await(t, j.out.String, func() bool { return count("one more within 1 sec") > warned || count("sending Ctrl-C") > 0 })
	}
	_ = cmd.Wait()
	if got := j.saved(4); got != "1 1 1 1" {
		t.Errorf("saved %s\n%s", got, j.out.String())
	}
}

// A warning of Slurm, by the scheduler itself, before the time is up.
func TestL13SignalBeforeTheEndSaves(t *testing.T) {
	if testing.Short() {
		t.Skip("Slurm looks for the end of jobs every half minute")
	}
	j := newJob(t)
	cmd := j.start(2, "-N 2 -n 2 --time=2 --signal=USR1@115")
	j.end(cmd, 75)
	if got := j.saved(2); got != "1 1" || !strings.Contains(j.out.String(), "user defined signal 1: the nodes have 10s to end") {
		t.Errorf("saved %s:\n%s", got, j.out.String())
	}
}

func TestRequeuedJobResumes(t *testing.T) {
	j := newJob(t)
	script, code := j.Run(t, j.watch.Environ(), j.path("ditask"), "slurm", "script", "--nodes", "2", "--ntasks", "4", "--requeue", "--time",
		"10",
		"--package", j.path("program"), "--dir", j.runs, "--", "all=again")
	if code != 0 {
		t.Fatal(script)
	}
	id := j.sbatch(strings.TrimPrefix(script, "#!/bin/bash\n"))
	j.here(4)
	if out, code := j.Run(t, nil, "scancel", "--signal=USR1", id); code != 0 {
		t.Fatal(out)
	}
	slurmtest.Await(t, func() string { return "the job is not requeued:\n" + j.output() }, func() bool {
		return j.show(id, "Restarts") == "1" && j.show(id, "JobState") == "PENDING"
	})
	if got := j.saved(4); got != "1 1 1 1" {
		t.Errorf("saved %s before the requeue", got)
	}
	// Slurm waits two minutes by itself. Its nodes refuse a job that starts in the
	// second in which it was told to end.
	slurmtest.Await(t, func() string { return "scontrol does not take a time to start" }, func() bool {
		_, code := j.Run(t, nil, "scontrol", "update", "jobid="+id, "StartTime=now+3")
		return code == 0
	})
	if state := j.ended(id); state != "COMPLETED" || j.show(id, "ExitCode") != "0:0" {
		t.Errorf("the job is %s:\n%s", state, j.output())
	}
	if got := j.saved(4); got != "2 2 2 2" {
		t.Errorf("saved %s after the requeue:\n%s", got, j.output())
	}
	if out := j.output(); !strings.Contains(out, "job slurm-"+id+".0.r1: ") || strings.Count(out, "run 2 of node") != 4 {
		t.Errorf("the second run:\n%s", out)
	}
}

func TestWarningOfTheScriptAloneReachesTheTasks(t *testing.T) {
	j := newJob(t)
	script, code := j.Run(t, j.watch.Environ(), j.path("ditask"), "slurm", "script", "--ntasks", "2", "--nodes", "2", "--time", "10",
		"--signal", "B:USR1@30",
		"--package", j.path("program"), "--dir", j.runs)
	if code != 0 {
		t.Fatal(script)
	}
	id := j.sbatch(strings.TrimPrefix(script, "#!/bin/bash\n"))
	j.here(2)
	if out, code := j.Run(t, nil, "scancel", "--batch", "--signal=USR1", id); code != 0 {
		t.Fatal(out)
	}
	if state := j.ended(id); state != "FAILED" || j.show(id, "ExitCode") != "75:0" {
		t.Errorf("the job is %s, %s:\n%s", state, j.show(id, "ExitCode"), j.output())
	}
	if got := j.saved(2); got != "1 1" {
		t.Errorf("saved %s", got)
	}
}

func TestSubmitFollowsTheJob(t *testing.T) {
	j := newJob(t)
	logs := filepath.Join(j.runs, "logs")
	submit := []string{"slurm", "submit", "--slurm-logs", logs, "--nodes", "2", "--ntasks", "2", "--time", "10", "--package",
		j.path("program"), "--dir", j.runs}
	out, code := j.Run(t, j.watch.Environ(), j.path("ditask"), append(submit, "--", "all=go")...)
	if code != 0 || strings.Count(out, "run 1 of node") != 2 || !strings.Contains(out, ": completed") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	out, code = j.Run(t, j.watch.Environ(), j.path("ditask"), append(submit, "--overwrite", "--", "1=fail")...)
	if code != 1 || !strings.Contains(out, ": failed: exit code 1") || !strings.Contains(out, "out of luck") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestSubmitInterruptedCancelsTheJob(t *testing.T) {
	j := newJob(t)
	ctx, cancel := context.WithTimeout(context.Background(), slurmtest.Limit)
	defer cancel()
	cmd := j.Command(ctx, j.watch.Environ(), j.path("ditask"), "slurm", "submit", "--on-interrupt", "cancel", "--slurm-logs", j.runs,
		"--nodes", "2", "--ntasks", "2", "--package", j.path("program"), "--dir", j.runs)
	cmd.Stdout, cmd.Stderr = &j.out, &j.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.here(2)
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(j.out.String(), ": cancelled: exit code") {
		t.Errorf("exit code %d:\n%s", code, j.out.String())
	}
	slurmtest.Await(t, func() string { return "saved " + j.saved(2) }, func() bool { return j.saved(2) == "1 1" })
}

func TestSubmitAsksBeforeItCancels(t *testing.T) {
	j := newJob(t)
	ctx, cancel := context.WithTimeout(context.Background(), slurmtest.Limit)
	defer cancel()
	cmd := j.Command(ctx, j.watch.Environ(), j.path("ditask"), "slurm", "submit", "--slurm-logs", j.runs,
		"--nodes", "2", "--ntasks", "2", "--package", j.path("program"), "--dir", j.runs)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.here(2)
	_ = cmd.Process.Signal(os.Interrupt)
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		fmt.Fprintln(&j.out, lines.Text())
		if strings.Contains(lines.Text(), "interrupt again within 3s to cancel job") {
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(j.out.String(), ": cancelled: exit code") {
		t.Errorf("exit code %d:\n%s", code, j.out.String())
	}
}

func TestAnotherUserDoesNotShareAToken(t *testing.T) {
	j := newJob(t)
	// The key of the user was made by the first step; others cannot read it.
	out, code := j.srun("-n 2", "--package "+j.path("hello"))
	if code != 0 {
		t.Fatal(out)
	}
	key := j.Config("ditask", "slurm.key")
	info, err := os.Stat(key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(key, 0o600) }()
	if out, code := j.srun("-n 2", "--package "+j.path("hello")); code != 2 || !strings.Contains(out,
		"slurm.key: other users can read it: chmod 600 it") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	// A token of one's own needs no key.
	out, code = j.Run(t, append(j.watch.Environ(), "DITASK_TOKEN=secret"), "srun", "-n", "2", j.path("ditask"), "--package", j.path("hello"))
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestHostsWithDifferentKeysSaySo(t *testing.T) {
	j := newJob(t)
	out, code := j.Run(t, j.watch.Environ(), "srun", "-N", "2", "-n", "2", "-K1", "sh", "-c",
		"XDG_CONFIG_HOME="+t.TempDir()+"/$SLURM_PROCID exec "+j.path("ditask")+" -p "+j.path("hello"))
	if code == 0 || !strings.Contains(out,
		"the hosts have different keys for the job's token, as without a shared home folder: set DITASK_TOKEN") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestProcessorsAreThoseOfTheTask(t *testing.T) {
	j := newJob(t)
	out, code := j.srun("-n 2 -c 1", "--package "+j.path("program")+" --dir "+j.runs, "--", "all=go")
	if code != 0 || strings.Count(out, ", 1 processors") != 2 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// The tasks of a step on one host share memory, although each has a launcher of its own.
func TestTasksOfOneHostShareMemory(t *testing.T) {
	j := newJob(t)
	out, code := j.srun("-N 1 -n 3", "--package "+j.path("program")+" --dir "+j.runs, "--", "all=maps")
	if code != 0 || strings.Count(out, " maps the memory of 3 nodes") != 3 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestDQNLearns is the real thing: it takes half a minute to two.
func TestDQNLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("learns for long")
	}
	j := newJob(t)
	out, code := j.srun("-N 4 -n 4", "--package "+j.path("dqn")+" --dir "+j.runs+" --seed 1")
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if _, err := os.Stat(filepath.Join(j.runs, "checkpoint.safetensors")); err != nil {
		t.Error(err)
	}
}

// TestTrainWithoutAProgram: the command itself is the program of the tasks.
func TestTrainWithoutAProgram(t *testing.T) {
	j := newJob(t)
	run := filepath.Join(j.runs, "run")
	out, code := j.srun("-N 4 -n 4", "train ppo --env CartPole-v1 --until 475 --seed 1 --dir "+run)
	if code != 0 || strings.Count(out, "best evaluation: ") != 1 {
		t.Errorf("exit code %d, want 0 and one summary:\n%s", code, out)
	}
	for _, name := range []string{"config.yaml", "progress.csv", "evaluations.csv", "best.safetensors", "checkpoint.safetensors"} {
		if _, err := os.Stat(filepath.Join(run, name)); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(run, "outcome.json"))
	if err != nil || !strings.Contains(string(text), "mean return") {
		t.Errorf("outcome.json: %s, %v", text, err)
	}
}
