//go:build linux

package launch_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// farewell is a process that sends the farewell of a node: it adds the node, and the nodes that dial
// its address, to the file of its argument. A "stuck" one does not end.
func farewell(path string) int {
	env, present, err := control.Parse(os.LookupEnv)
	if !present || err != nil || env.ControlFD != 0 {
		panic(fmt.Sprint("not for a node: ", err))
	}
	m, err := control.NewReader(os.Stdin).Next()
	if err != nil || m.Lost == nil || m.Lost.Incarnation != env.Incarnation || m.Lost.Node != env.NodeID {
		panic(fmt.Sprintf("%+v, %v", m, err))
	}
	if rest, err := io.ReadAll(os.Stdin); err != nil || len(rest) > 0 {
		panic(fmt.Sprintf("%q, %v", rest, err))
	}
	l, err := control.Listener(env)
	if err != nil {
		panic(err)
	}
	go func() {
		if c, err := net.Dial("unix", strings.TrimPrefix(env.Listen, "unix://")); err == nil {
			_, _ = c.Write([]byte("x"))
		}
	}()
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	_, _ = c.Read(make([]byte, 1))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Fprintf(f, "node %d, final %v: %s\n", m.Lost.Node, m.Lost.Final, m.Lost.Reason); err != nil {
		panic(err)
	}
	if strings.HasSuffix(path, "stuck") {
		<-time.After(time.Hour)
	}
	return 0
}

// sharedJob is a job with a node of another launcher. The ends of processes are written to the file
// path for it.
func sharedJob(t *testing.T, script, name string) (j *job, path string) {
	t.Helper()
	j = newJob(t, 2, script)
	path = filepath.Join(t.TempDir(), name)
	j.flags.AttachTo = "unix:///nowhere/other"
	j.cfg.Farewell = []string{j.cfg.Command[0], "farewell", path}
	return j, path
}

// The nodes of other launchers are notified of a crash, at the address of the node, before the
// launcher ends.
func TestL12OtherLaunchersAreNotifiedOfACrash(t *testing.T) {
	for _, recovering := range []bool{false, true} {
		j, path := sharedJob(t, "1=crash,*=wait", "said")
		j.cfg.Env.AutoRecover, j.cfg.MaxRetries = recovering, 1
		want := "node 1, final true: killed by signal: killed"
		if recovering {
			want += " (attempt 1)"
		}
		r := j.run(t)
		expect(t, r, control.Failure, 137)
		said, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix("\n"+string(said), "\n"+want+"\n") {
			t.Errorf("recovering %v: sent %q, want %q at the end; %v", recovering, said, want, err)
		}
		if left := j.watch.Left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// A node that has notified the others of its failure itself needs no farewell, nor does one without
// other launchers.
func TestUnneededFarewells(t *testing.T) {
	j, path := sharedJob(t, "*=ok", "said")
	expect(t, j.run(t), control.Success, 0)
	k, alone := sharedJob(t, "1=crash,*=wait", "said")
	k.flags.AttachTo = ""
	expect(t, k.run(t), control.Failure, 137)
	for _, path := range []string{path, alone} {
		if said, err := os.ReadFile(path); err == nil {
			t.Errorf("sent %q", said)
		}
	}
}

// A farewell that does not end delays no restart, and an interrupt ends it.
func TestAFarewellThatHangsHoldsNothing(t *testing.T) {
	j, path := sharedJob(t, "1=crash,*=wait", "stuck")
	j.cfg.Env.AutoRecover, j.cfg.MaxRetries = true, 2
	go func() { // once the last one is under way
		for t.Context().Err() == nil {
			if said, err := os.ReadFile(path); err == nil && strings.Contains(string(said), "final true") {
				j.signals <- syscall.SIGINT
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	r := j.run(t)
	expect(t, r, control.Failure, 137)
	if r.Restarts != 2 {
		t.Errorf("%d restarts", r.Restarts)
	}
	if left := j.watch.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A program for farewells that does not exist causes no delay either.
func TestAFarewellThatCannotStart(t *testing.T) {
	j, _ := sharedJob(t, "1=crash,*=wait", "said")
	j.cfg.Farewell = []string{"/nowhere/ditask"}
	expect(t, j.run(t), control.Failure, 137)
}
