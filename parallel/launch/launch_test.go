//go:build linux

package launch_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/metrics"
	"github.com/ditask/ditask/parallel/placement"
)

// buffer is a log that calls found, if that is set, for every line.
type buffer struct {
	logtest.Buffer
	mu    sync.Mutex
	found func(line string)
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found != nil {
		b.found(string(p))
	}
	return b.Buffer.Write(p)
}

// pieces keeps each write separately.
type pieces struct {
	mu      sync.Mutex
	written []string
}

func (p *pieces) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, string(b))
	return len(b), nil
}

// job is a launcher under test.
type job struct {
	cfg      launch.Config
	out, err buffer
	signals  chan os.Signal
	flags    placement.Flags
	watch    *leak.Watch
}

func newJob(t *testing.T, workers int, script string) *job {
	t.Helper()
	j := &job{signals: make(chan os.Signal, 4), watch: leak.Check(t)}
	j.flags = placement.Flags{Job: "test", Workers: workers, RunDir: filepath.Join(j.watch.Dir, "run")}
	j.cfg = launch.Config{
		Command: childCommand(script), Environ: append(j.watch.Environ(), "GORACE=atexit_sleep_ms=0"), Signals: j.signals,
		Stdout: &j.out, Stderr: &j.err, Backoff: time.Millisecond,
	}
	return j
}

func (j *job) launcher(t *testing.T) *launch.Launcher {
	t.Helper()
	if err := os.MkdirAll(j.flags.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(j.flags.RunDir) })
	plan, err := placement.New(j.flags, placement.Site{})
	if err != nil {
		t.Fatal(err)
	}
	j.cfg.Plan = plan
	l, err := launch.New(j.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (j *job) run(t *testing.T) launch.Result {
	t.Helper()
	r, err := j.launcher(t).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// when sends a signal once n lines with the text have been written on stdout.
func (j *job) when(n int, text string, send os.Signal) {
	j.out.found = func(line string) {
		if strings.Contains(line, text) {
			if n--; n == 0 {
				j.signals <- send
			}
		}
	}
}

func expect(t *testing.T, r launch.Result, kind control.Kind, code int) {
	t.Helper()
	if r.Kind != kind || r.ExitCode() != code {
		t.Errorf("%s, exit code %d; want %s, %d; first failure: %+v", r.Kind, r.ExitCode(), kind, code, r.First)
	}
}

func TestL14SuccessLeavesNothing(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		for range 3 {
			j := newJob(t, workers, "*=ok")
			expect(t, j.run(t), control.Success, 0)
		}
	}
}

func TestEnvironmentOfNodes(t *testing.T) {
	for _, protocol := range []string{"ipc", "tcp"} {
		j := newJob(t, 2, "*=env")
		j.flags.Protocol, j.flags.Topology, j.flags.Labels = protocol, "alone", "gpu"
		j.flags.AttachTo = "tcp://a:1"
		j.cfg.Env = control.Env{Token: "s3cret", Main: "Play", Dir: "out"}
		j.cfg.Environ = append(j.cfg.Environ, "DITASK_SEED=77") // meant for this process, not for its nodes
		expect(t, j.run(t), control.Success, 0)
		scheme := map[string]string{"ipc": "unix", "tcp": "tcp"}[protocol]
		for id := range 2 {
			want := fmt.Sprintf("[%d gpu #0] node=%d local=%d nodes=0 job=test token=s3cret topology=alone scheme=%s attach=1 "+
				"labels=[gpu] dir=out main=Play other=0\n", id, id, id, scheme)
			if !strings.Contains(j.out.String(), want) {
				t.Errorf("no line %sin:\n%s%s", want, j.out.String(), j.err.String())
			}
		}
	}
}

func TestL11FirstFailureIsReportedWithItsCode(t *testing.T) {
	j := newJob(t, 4, "2=fail,*=wait")
	r := j.run(t)
	expect(t, r, control.Failure, 3)
	var report strings.Builder
	if err := r.Report(&report); err != nil || report.String() != "the job failed because of node 2: exit code 3\n" {
		t.Errorf("report %q", report.String())
	}
	if n := strings.Count(j.err.String()+report.String(), "out of luck"); n != 1 {
		t.Errorf("the cause is written %d times:\n%s", n, j.err.String())
	}
}

func TestNodesReceiveTheIntervalOfTheirStatus(t *testing.T) {
	j := newJob(t, 1, "*=interval")
	j.cfg.StatusInterval = 7 * time.Second
	expect(t, j.run(t), control.Success, 0)
	if !strings.Contains(j.out.String(), "a status every 7s\n") {
		t.Errorf("log:\n%s", j.out.String())
	}
}

func TestOwnFailureBeatsBlame(t *testing.T) {
	j := newJob(t, 3, "0=failtold,1=blamefirst,2=blame0")
	r := j.run(t)
	expect(t, r, control.Failure, 9)
	if r.First.Node != 0 || r.First.Error != "my own fault" {
		t.Errorf("first: %+v", r.First)
	}
}

func TestL12KilledNodeIsRestarted(t *testing.T) {
	j := newJob(t, 2, "0=flaky,1=ok")
	j.cfg.Env.AutoRecover = true
	j.flags.Topology = "alone" // so that the success of node 1 does not end the job
	r := j.run(t)
	expect(t, r, control.Success, 0)
	if r.Restarts != 2 || r.Nodes[0].Restarts != 2 {
		t.Errorf("restarts: %+v", r)
	}
	incarnations := regexp.MustCompile(`attempt (\d) of incarnation (\d+)`).FindAllStringSubmatch(j.err.String(), -1)
	if len(incarnations) != 2 || incarnations[0][2] >= incarnations[1][2] {
		t.Errorf("causes: %v in %s", incarnations, j.err.String())
	}
}

func TestL12AlwaysFailingEndsAfterMaxRetries(t *testing.T) {
	j := newJob(t, 2, "1=crash,*=wait")
	j.cfg.Env.AutoRecover, j.cfg.MaxRetries = true, 2
	r := j.run(t)
	expect(t, r, control.Failure, 137)
	if r.Restarts != 2 || r.First.Signal != "killed" || r.First.Attempt != 2 {
		t.Errorf("%d restarts, first %+v", r.Restarts, r.First)
	}
	for _, want := range []string{
		"ditask: node 1 failed: killed; restart 1 of 2 in 1ms\n",
		"ditask: node 1, attempt 1, failed: killed; restart 2 of 2 in 2ms\n",
		"ditask: node 1, attempt 2, failed: killed; the job ends\n",
		"ditask: restarts: node 1: 2\n",
	} {
		if !strings.Contains(j.err.String(), want) {
			t.Errorf("no line %q in:\n%s", want, j.err.String())
		}
	}
}

func TestOtherNodesAreNotifiedOfACrash(t *testing.T) {
	for _, recovering := range []bool{false, true} {
		j := newJob(t, 2, "0=meet,1=crashmet")
		j.cfg.Env.AutoRecover, j.cfg.Backoff = recovering, time.Hour // node 0 ends the job before
		r := j.run(t)
		if !strings.Contains(j.out.String(), "lost node 1, of this job's incarnations true: killed by signal: killed\n") {
			t.Errorf("%+v\n%s%s", r, j.out.String(), j.err.String())
		}
	}
}

func TestL13SignalsAreForwarded(t *testing.T) {
	for _, c := range []struct {
		sig  os.Signal
		code int
	}{{syscall.SIGTERM, 75}, {syscall.SIGINT, 130}} {
		j := newJob(t, 3, "*=wait")
		j.when(3, "waiting", c.sig)
		expect(t, j.run(t), control.Preempted, c.code)
	}
}

func TestL13ContextEndsTheJob(t *testing.T) {
	j := newJob(t, 2, "*=wait")
	ctx, cancel := contextUntil(t, &j.out, 2, "waiting")
	defer cancel()
	r, err := j.launcher(t).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, r, control.Preempted, 75)
}

func TestSecondInterruptKillsNow(t *testing.T) {
	j := newJob(t, 2, "0=stubborn,1=wait")
	j.cfg.Env.Grace = time.Hour
	ready := 0
	j.err.found = func(line string) {
		if strings.Contains(line, "2 ready") || strings.Contains(line, "interrupt again") {
			ready++
			j.signals <- syscall.SIGINT
		}
	}
	expect(t, j.run(t), control.Preempted, 130)
	if ready != 2 {
		t.Errorf("log:\n%s", j.err.String())
	}
}

func TestStubbornNodeIsKilledAfterTheGracePeriod(t *testing.T) {
	j := newJob(t, 2, "0=stubbornmet,1=failafter")
	j.cfg.Env.Grace = 50 * time.Millisecond
	expect(t, j.run(t), control.Failure, 3)
	if !strings.Contains(j.err.String(), "node 0 did not end in time: killed") {
		t.Errorf("log:\n%s", j.err.String())
	}
}

func TestFrozenNodeIsStartedAgain(t *testing.T) {
	for _, recovering := range []bool{true, false} {
		j := newJob(t, 1, "*=freeze")
		j.cfg.Silence, j.cfg.Env.AutoRecover = 100*time.Millisecond, recovering
		r := j.run(t)
		if recovering {
			expect(t, r, control.Success, 0)
		} else {
			expect(t, r, control.Failure, 1)
		}
		if !strings.Contains(j.err.String(), "node 0: did not answer for 100ms and was killed; ") || (r.Restarts == 1) != recovering {
			t.Errorf("%d restarts, log:\n%s", r.Restarts, j.err.String())
		}
	}
}

func TestStoppedNodeEndsInOrder(t *testing.T) {
	j := newJob(t, 1, "*=wait")
	pid := regexp.MustCompile(`pid=(\d+)`)
	j.out.found = func(line string) {
		if m := pid.FindStringSubmatch(line); m != nil {
			var n int
			_, _ = fmt.Sscan(m[1], &n)
			_ = syscall.Kill(n, syscall.SIGSTOP)
			j.signals <- syscall.SIGTERM
		}
	}
	expect(t, j.run(t), control.Preempted, 75)
}

func TestGrandchildrenEndWithTheirNode(t *testing.T) {
	j := newJob(t, 2, "*=grandchild")
	expect(t, j.run(t), control.Success, 0)
	if left := j.watch.Processes(); len(left) > 0 {
		t.Errorf("at the end of Run: %v", left)
	}
}

func TestL13KilledLauncherLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		script  string
		stopped bool
	}{{"*=wait", false}, {"*=wait", true}, {"0=asleep,1=deaf,2=parent", false}, {"0=asleep,1=deaf,2=parent", true}} {
		stopped := c.stopped
		w := leak.Check(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "launcher", c.script)
		cmd.Env = append(w.Environ(), "GORACE=atexit_sleep_ms=0")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := regexp.MustCompile(`pid=(\d+)`)
		lines := bufio.NewScanner(out)
		for range 3 {
			if !lines.Scan() {
				t.Fatal("the nodes do not wait")
			}
			var n int
			_, _ = fmt.Sscan(pid.FindStringSubmatch(lines.Text())[1], &n)
			if stopped {
				_ = syscall.Kill(n, syscall.SIGSTOP)
			}
		}
		if left := w.Left(); len(left) < 8 { // launcher, watcher, nodes, sockets
			t.Errorf("at work: %v", left)
		}
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		if left := leak.Await(w.Left, 5*time.Second); len(left) > 0 {
			t.Errorf("%s, stopped %v: after the launcher: %v", c.script, stopped, left)
		}
	}
}

// TestWatchKillsRemainingProcesses runs the watcher in this process, over groups that it
// receives in several forms.
func TestWatchKillsRemainingProcesses(t *testing.T) {
	w := leak.Check(t)
	addr := filepath.Join(w.Dir, "s")
	begun := fmt.Sprint(time.Now().UnixNano())
	for _, c := range []struct {
		lines string // PID stands for a process, BEGUN for its incarnation
		kills bool
	}{
		{"start PID\nsocket unix://" + addr + "\n", true},
		// it was killed before it could write the pid
		{"begin 77\nstart 99999999\nend 99999999\nbegin BEGUN\nsocket unix://" + addr + "\n", runtime.GOOS == "linux"},
		{"begin BEGUN\nstart PID\nend PID\n", false},
		{"begin 1\n", false},
		{"start PID\nend PID\n", false},
		{"start PID\ndone \n", false},
	} {
		cmd := exec.Command("sleep", "1000")
		cmd.Env, cmd.SysProcAttr = append(w.Environ(), "DITASK_INCARNATION="+begun), &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		launch.Watch(strings.NewReader(strings.NewReplacer("PID", fmt.Sprint(cmd.Process.Pid), "BEGUN", begun).Replace(c.lines)))
		if _, err := os.Stat(addr); os.IsNotExist(err) != c.kills {
			t.Errorf("%q: the socket: %v", c.lines, err)
		}
		_ = os.Remove(addr)
		_ = os.Mkdir(w.Dir, 0o700) // it is removed with its last socket
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !c.kills {
			t.Errorf("%q: the process has ended: %v", c.lines, err)
		}
		want := map[bool]string{true: "signal: killed", false: "signal: terminated"}[c.kills]
		if err := <-ended; err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", c.lines, err, want)
		}
	}
}

func TestAWatcherThatEndsIsLogged(t *testing.T) {
	j := newJob(t, 1, "*=wait")
	j.cfg.Watcher = []string{"/bin/true"}
	j.err.found = func(line string) {
		if strings.Contains(line, "ditask: the watcher of this launcher has ended") {
			j.signals <- syscall.SIGTERM
		}
	}
	expect(t, j.run(t), control.Preempted, 75)

	j = newJob(t, 1, "*=ok") // a watcher that works prints nothing, and ends with the launcher
	j.cfg.Watcher = []string{j.cfg.Command[0], "watcher"}
	expect(t, j.run(t), control.Success, 0)
	if strings.Contains(j.err.String(), "watcher") || len(j.watch.Processes()) > 0 {
		t.Errorf("%v left, log:\n%s", j.watch.Processes(), j.err.String())
	}

	j = newJob(t, 1, "*=ok")
	j.cfg.Watcher = []string{"/no/such/program"}
	if _, err := j.launcher(t).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start the watcher: ") {
		t.Error(err)
	}
}

func TestL15NoLineIsTorn(t *testing.T) {
	j := newJob(t, 8, "*=lines")
	j.flags.Topology = "alone"
	j.cfg.LogDir = filepath.Join(t.TempDir(), "logs")
	var all pieces // a buffer of 50 MB that grows may take longer for a write than a reader may before it counts as paused
	j.cfg.Stdout, j.cfg.Stderr = &all, &all
	expect(t, j.run(t), control.Success, 0)

	count := map[string]int{}
	for line := range strings.Lines(strings.Join(all.written, "")) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "ditask: "):
		case strings.HasSuffix(line, strings.Repeat("y", 1000)+" ... (134464 bytes more)") && len(line) < 66_000:
			count["cut"]++
		case strings.HasSuffix(line, "] no newline"):
			count["open"]++
		case !wholeLine(line):
			t.Fatalf("torn: %.200q", line)
		default:
			count[line[1:2]]++
		}
	}
	want := map[string]int{"cut": 8, "open": 8}
	for id := range 8 {
		want[fmt.Sprint(id)] = 10_000
	}
	for key, n := range want {
		if count[key] != n {
			t.Errorf("%s: %d lines, want %d", key, count[key], n)
		}
	}
	for id := range 8 {
		checkFile(t, filepath.Join(j.cfg.LogDir, fmt.Sprintf("node-%d.log", id)))
	}
}

// wholeLine reports whether line is one that a test node has written, marked
// with the id of that node.
func wholeLine(line string) bool {
	var id, i, of int
	text, ok := strings.CutPrefix(strings.Replace(line, " collector", "", 1), "["+line[1:2]+" #0] ")
	_, err := fmt.Sscanf(line[1:2]+" "+text[:min(len(text), 24)], "%d line %d of %d x", &id, &i, &of)
	want := fmt.Sprintf("line %d of %d %s end", i, of, strings.Repeat("x", 300+i%700))
	return ok && err == nil && id == of && text == want
}

// checkFile checks that the file of a node has every byte.
func checkFile(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(" end\n")); n != 10_000 {
		t.Errorf("%s: %d lines", path, n)
	}
	if !bytes.HasPrefix(b, []byte("--- node ")) || bytes.Count(b, []byte("y")) != 200_000 || !bytes.Contains(b, []byte("no newline")) {
		t.Errorf("%s: begins %.80q", path, b)
	}
}

// stuck is a writer whose reader does not read until it is released.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

// Nodes continue and the rules act, although no process reads the output of nodes on stdout.
func TestSupervisionGoesOnWhileStdoutIsPaused(t *testing.T) {
	for _, c := range []struct {
		script  string
		signals []os.Signal
		kind    control.Kind
		code    int
	}{
		{"*=chatter", []os.Signal{syscall.SIGTERM}, control.Preempted, 75},
		{"0=chatter,1=stubborn", []os.Signal{syscall.SIGINT, syscall.SIGINT}, control.Preempted, 130},
	} {
		j := newJob(t, 2, c.script)
		j.cfg.LogDir, j.cfg.Env.Grace = t.TempDir(), time.Hour
		out := stuck{make(chan struct{})}
		j.cfg.Stdout = out
		written := strings.Count(c.script, "chatter") * 2 / strings.Count(c.script, "=")
		j.err.found = func(line string) {
			if strings.Contains(line, "all is written") {
				if written--; written == 0 {
					for _, s := range c.signals {
						j.signals <- s
					}
				}
			}
		}
		expect(t, j.run(t), c.kind, c.code)
		if !strings.Contains(j.err.String(), "ditask: stdout: ") ||
			!strings.Contains(j.err.String(), " lines were not written, as nothing read them\n") {
			t.Errorf("log:\n%s", j.err.String())
		}
		if b, err := os.ReadFile(filepath.Join(j.cfg.LogDir, "node-0.log")); err != nil || bytes.Count(b, []byte("x\n")) != 2<<10 {
			t.Errorf("the file of node 0 has %d lines, %v", bytes.Count(b, []byte("x\n")), err)
		}
		close(out.release)
	}
}

// The end of a node ends the job, although no process reads stderr either.
func TestSupervisionGoesOnWhileAllOutputIsPaused(t *testing.T) {
	j := newJob(t, 2, "0=meet,1=crashmet")
	out := stuck{make(chan struct{})}
	defer close(out.release)
	j.cfg.Stdout, j.cfg.Stderr = out, out
	expect(t, j.run(t), control.Failure, 137)
}

// A closed reader does not end the job, and is logged at the end.
func TestClosedReaderDoesNotEndTheJob(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	_ = r.Close()
	j := newJob(t, 2, "*=lines")
	j.cfg.Stdout = w
	j.flags.Topology = "alone"
	expect(t, j.run(t), control.Success, 0)
	const pattern = `(?m)^ditask: stdout: \d+ lines were not written, as its reader has gone: .*broken pipe$`
	if !regexp.MustCompile(pattern).MatchString(j.err.String()) {
		t.Errorf("log ends:\n%s", j.err.String()[max(0, len(j.err.String())-300):])
	}
}

func TestL15FullDiskIsLoggedOnceAndTheJobGoesOn(t *testing.T) {
	j := newJob(t, 2, "*=lines")
	j.flags.Topology = "alone"
	j.cfg.LogDir = t.TempDir()
	for id := range 2 {
		if err := os.Symlink("/dev/full", filepath.Join(j.cfg.LogDir, fmt.Sprintf("node-%d.log", id))); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, j.run(t), control.Success, 0)
	if n := strings.Count(j.err.String(), "no space left on device"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestJSONLogIsOneObjectALine(t *testing.T) {
	j := newJob(t, 2, "0=fail,*=wait")
	j.cfg.Env.LogFormat = "json"
	expect(t, j.run(t), control.Failure, 3)
	n := 0
	for line := range strings.Lines(j.out.String() + j.err.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		n++
	}
	if n == 0 {
		t.Error("no lines")
	}
}

func TestL16BusyPortIsOneErrorBeforeAnyStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	j := newJob(t, 1, "*=ok")
	j.flags.Ports = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	_, err = j.launcher(t).Run(t.Context())
	want := fmt.Sprintf("node 0: listen on tcp://%s: address already in use: choose other --ports, or end the process that has it", l.Addr())
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(j.flags.RunDir); err != nil {
		t.Error(err)
	}
}

func TestL16MissingSocketFolderIsOneError(t *testing.T) {
	j := newJob(t, 1, "*=ok")
	l := j.launcher(t)
	if err := os.Remove(j.flags.RunDir); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the folder of the socket is missing") {
		t.Error(err)
	}
}

func TestProgramThatReportsNothingFails(t *testing.T) {
	for _, c := range []struct {
		script, want string
		command      []string
	}{
		{script: "1=exit0,*=wait", want: "the program ended before its function returned"},
		{command: []string{"/bin/true"}, want: "the program did not call parallel.Main, so --main Play had no effect"},
	} {
		j := newJob(t, 2, c.script)
		if c.command != nil {
			j.cfg.Command = c.command
		}
		j.cfg.Env.Main = "Play"
		r := j.run(t)
		expect(t, r, control.Failure, 1)
		if r.First == nil || !strings.Contains(r.First.Error, c.want) {
			t.Errorf("%+v", r.First)
		}
	}
}

func TestProgramThatCannotStartFails(t *testing.T) {
	j := newJob(t, 2, "")
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("\x7fELF rubbish"), 0o755); err != nil {
		t.Fatal(err)
	}
	j.cfg.Command = []string{bad}
	r := j.run(t)
	expect(t, r, control.Failure, 1)
	if !strings.HasPrefix(r.First.Error, "start: fork/exec ") {
		t.Errorf("%+v", r.First)
	}
}

func TestNewReportsAllFaults(t *testing.T) {
	_, err := launch.New(launch.Config{MaxRetries: -1, Backoff: -1, Env: control.Env{LogFormat: "xml", Grace: -1}})
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"the plan has no node for this launcher", "no command", "max retries -1: want at least 0",
		"grace period -1ns: want at least 0s", "back-off -1ns: want at least 0s", `log format "xml": want text or json`,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got:\n%v", err)
	}
	if _, err := launch.New(launch.Config{Command: []string{"/no/such/program"}}); err == nil ||
		!strings.Contains(err.Error(), "/no/such/program") {
		t.Error(err)
	}
}

func TestR8EqualJobsNeverShareAFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	a, errA := launch.MakeRunDir("j")
	b, errB := launch.MakeRunDir("j")
	if errA != nil || errB != nil || a == b {
		t.Fatal(a, b, errA, errB)
	}
	if info, err := os.Stat(a); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	if ok, err := filepath.Match(launch.RunDirPattern("j"), a); !ok || err != nil {
		t.Errorf("%s is not %s", a, launch.RunDirPattern("j"))
	}
	t.Setenv("XDG_RUNTIME_DIR", "/no/such/folder")
	t.Setenv("TMPDIR", "/no/such/folder")
	if _, err := launch.MakeRunDir("j"); err == nil || !strings.Contains(err.Error(), "use --protocol tcp") {
		t.Error(err)
	}
}

func TestSnapshotFollowsTheNodes(t *testing.T) {
	j := newJob(t, 2, "*=wait")
	j.cfg.StatusInterval = time.Second
	l := j.launcher(t)
	states := make(chan []launch.State, 1)
	j.err.found = func(line string) {
		if strings.Contains(line, "job test: 2 ready after") {
			states <- l.Snapshot()
			j.signals <- syscall.SIGTERM
		}
	}
	if got := l.Snapshot(); got[0].Phase != launch.Waiting || got[1].ID != 1 {
		t.Errorf("before: %+v", got)
	}
	r, err := l.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, r, control.Preempted, 75)
	for _, s := range <-states {
		if s.Phase != launch.Running || s.PID == 0 {
			t.Errorf("ready: %+v", s)
		}
	}
	for _, s := range l.Snapshot() {
		if s.Phase != launch.Ended {
			t.Errorf("after: %+v", s)
		}
	}
}

func TestSnapshotDistinguishesAFailureFromAnEnd(t *testing.T) {
	j := newJob(t, 2, "0=meet,1=crashmet")
	l := j.launcher(t)
	if _, err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.Snapshot(); got[0].Phase != launch.Ended || got[1].Phase != launch.Failed {
		t.Errorf("%+v", got)
	}
}

// TestMetricsAreGatheredFromNodesThatAnswer has two nodes that count and one that does
// not answer.
func TestMetricsAreGatheredFromNodesThatAnswer(t *testing.T) {
	j := newJob(t, 3, "1=wait,*=count")
	l := j.launcher(t)
	ready := make(chan struct{})
	j.err.found = func(line string) {
		if strings.Contains(line, "job test: 3 ready after") {
			close(ready)
		}
	}
	gathered := make(chan []metrics.Sample)
	go func() {
		<-ready
		for range 2 { // the second with the rest of the first
			gathered <- l.Metrics(t.Context())
		}
		j.signals <- syscall.SIGTERM
		close(gathered)
	}()
	done := make(chan error, 1)
	go func() {
		_, err := l.Run(t.Context())
		done <- err
	}()
	for samples := range gathered {
		steps, answered := map[string]int{}, map[string]float64{}
		for _, s := range samples {
			if s.Label("job") != "test" {
				t.Errorf("%+v", s)
			}
			switch s.Name {
			case metrics.TaskSteps:
				if s.Label("event") != fmt.Sprint(s.Value) {
					t.Errorf("%+v", s)
				}
				steps[s.Label("node")]++
			case metrics.NodeAnswered:
				answered[s.Label("node")] = s.Value
			}
		}
		if fmt.Sprint(steps) != "map[0:500 2:500]" || fmt.Sprint(answered) != "map[0:1 1:0 2:1]" {
			t.Errorf("samples %v, answered %v", steps, answered)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, s := range l.Metrics(t.Context()) { // all have ended
		if s.Name == metrics.NodeAnswered && s.Value != 0 || s.Name == metrics.TaskSteps {
			t.Errorf("%+v", s)
		}
	}
}
