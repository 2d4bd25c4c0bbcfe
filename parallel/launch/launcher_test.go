//go:build unix

package launch

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// prepared is a launcher of node 1 of two, which does not listen.
func prepared(t *testing.T, cfg Config) *Launcher {
	t.Helper()
	cfg.Plan, cfg.Command = busPlan(t, 1), []string{"/bin/sh", "-c", ":"}
	cfg.Environ = append(leak.Check(t).Environ(), "GORACE=atexit_sleep_ms=0")
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// The process that sends a farewell receives the line and the environment of the node.
func TestAFarewellIsSentWithTheEnvironmentOfTheNode(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "received")
	l := prepared(t, Config{
		WorkDir:  dir,
		Farewell: []string{"/bin/sh", "-c", `cat >"$0"; echo "$DITASK_NODE_ID,$DITASK_INCARNATION,$DITASK_LISTEN_FD,$(pwd)" >>"$0"`, file},
	})
	n := l.nodes[0]
	n.incarnation = 7
	l.sendFarewell(0, "exit code 3", true)
	if l.saying != 1 || n.farewell == nil {
		t.Fatalf("%d are being sent", l.saying)
	}
	l.hasParted(<-l.parted)
	l.waiters.Wait()
	if l.saying != 0 || n.farewell != nil {
		t.Errorf("after the end %d are being sent", l.saying)
	}
	want := `{"type":"lost","lost":{"node":1,"incarnation":"7","reason":"exit code 3","final":true}}` + "\n1,7,," + dir + "\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("it receives %q, want %q; %v", got, want, err)
	}
}

// Nothing waits for a farewell that cannot be sent.
func TestAFarewellThatCannotBeSent(t *testing.T) {
	for _, command := range [][]string{nil, {"/nowhere/ditask"}} {
		l := prepared(t, Config{Farewell: command})
		l.sendFarewell(0, "exit code 3", false)
		if l.saying != 0 || l.nodes[0].farewell != nil {
			t.Errorf("%q: %d are being sent", command, l.saying)
		}
	}
}

func TestANodeThatIsStartedAgainEndsItsFarewell(t *testing.T) {
	cmd := ownGroup(t, true)
	n := &node{farewell: cmd}
	for range 2 {
		(&Launcher{}).cutFarewell(n)
	}
	if got := signalled(t, cmd); n.farewell != nil || got != syscall.SIGKILL {
		t.Errorf("it ends by %v", got)
	}
}

// A node that is not started again listens until its newest farewell is sent.
func TestANodeIsFreedWithItsFarewell(t *testing.T) {
	ended, newer := &exec.Cmd{}, &exec.Cmd{}
	for _, c := range []struct {
		retired     bool
		farewell    *exec.Cmd
		freed, left bool
	}{{true, ended, true, false}, {true, newer, false, true}, {false, ended, false, false}, {false, newer, false, true}} {
		file, err := os.Create(filepath.Join(t.TempDir(), "socket"))
		if err != nil {
			t.Fatal(err)
		}
		n := &node{retired: c.retired, farewell: c.farewell, socket: &socket{addr: "tcp://127.0.0.1:1", file: file}}
		l := &Launcher{nodes: []*node{n}, saying: 2}
		l.hasParted(parted{0, ended})
		_, err = file.Stat()
		if (n.socket == nil) != c.freed || (err != nil) != c.freed || (n.farewell != nil) != c.left || l.saying != 1 {
			t.Errorf("%+v: socket %v, %v; farewell %v; %d are being sent", c, n.socket, err, n.farewell, l.saying)
		}
		_ = file.Close()
	}
}

// At the end of a job its farewells are waited for, until an interrupt.
func TestAnInterruptEndsFarewells(t *testing.T) {
	for name, c := range map[string]struct {
		forced  bool
		signals []os.Signal
		killed  bool
	}{
		"none":        {false, nil, false},
		"terminated":  {false, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, false},
		"interrupted": {false, []os.Signal{syscall.SIGTERM, syscall.SIGINT}, true},
		"before":      {true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "cat") // ends with its stdin
			cmd.Env = leak.Check(t).Environ()
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			signals := make(chan os.Signal)
			l := &Launcher{
				cfg: Config{Signals: signals}, core: &core{forced: c.forced}, nodes: []*node{{farewell: cmd}, {}},
				parted: make(chan parted), saying: 1,
			}
			l.waiters.Go(func() {
				_ = cmd.Wait()
				l.parted <- parted{0, cmd}
			})
			l.waiters.Go(func() {
				for _, s := range c.signals {
					signals <- s
				}
				if !c.killed {
					_ = in.Close()
				}
			})
			l.endFarewells()
			l.waiters.Wait()
			if killed := !cmd.ProcessState.Success(); killed != c.killed || l.nodes[0].farewell != nil || l.saying != 0 {
				t.Errorf("killed %v, %d are being sent", killed, l.saying)
			}
		})
	}
}

// The rules may name a node whose process could not be started, or has just ended.
func TestANodeWithoutAProcessReceivesNoMessage(t *testing.T) {
	l := prepared(t, Config{})
	l.do([]action{{do: sendSignal, signal: syscall.SIGTERM}, {do: kill}, {do: lose, note: "exit code 3"}, {do: restart}})
	if s := l.Snapshot()[0]; s.Phase != Backoff || l.nodes[0].retired {
		t.Errorf("%+v", s)
	}
	l.do([]action{{do: retire}})
	if s := l.Snapshot()[0]; s.Phase != Ended || !l.nodes[0].retired {
		t.Errorf("%+v", s)
	}
}

// The state of one attempt does not count for the next one.
func TestAStartForgetsTheAttemptBefore(t *testing.T) {
	l := prepared(t, Config{})
	l.received[0], l.core.nodes[0].attempt, l.nodes[0].incarnation = time.Now(), 2, 1<<63
	l.start(0)
	if s := l.Snapshot()[0]; !l.received[0].IsZero() || s.Phase != Starting || s.Restarts != 2 || s.PID == 0 {
		t.Errorf("received at %v, %+v", l.received[0], s)
	}
	if p := l.nodes[0].proc; p == nil || l.asks[0].proc != p || l.nodes[0].incarnation != 1<<63+1 {
		t.Errorf("%+v", l.nodes[0])
	}
	if e := <-l.exits; e.index != 0 || e.exit.code != 0 || e.exit.err != nil {
		t.Errorf("%+v", e)
	}
	l.waiters.Wait()
}

// A node that has ended receives no requests, and the log has no empty line.
func TestNothingIsKeptOfAProcessThatHasEnded(t *testing.T) {
	var log bytes.Buffer
	l := prepared(t, Config{Stderr: &log})
	r, err := l.Run(t.Context())
	if err != nil || r.Kind != control.Failure {
		t.Errorf("%+v, %v", r, err)
	}
	if l.nodes[0].proc != nil || l.asks[0].proc != nil || !l.nodes[0].retired {
		t.Errorf("%+v, %+v", l.nodes[0], l.asks[0])
	}
	if lines := strings.Split(log.String(), "\n"); slices.Contains(lines, "ditask: ") || len(lines) != 2 {
		t.Errorf("%q", lines)
	}
}

// Other launchers are notified of ends where the job has nodes of theirs that depend on the nodes
// here. A failure is not final where the launcher is started again and recovers.
func TestTheRulesFollowFromTheConfiguration(t *testing.T) {
	for _, c := range []struct {
		topology, attach     string
		replaced, recovering bool
		shared, goesOn       bool
	}{
		{"mesh", "", false, false, false, false},
		{"mesh", "tcp://a:1", true, true, true, true},
		{"alone", "tcp://a:1", true, false, false, false},
		{"star", "tcp://a:1", false, true, true, false},
	} {
		plan, err := placement.New(placement.Flags{Workers: 2, Topology: c.topology, AttachTo: c.attach, Protocol: "tcp"}, placement.Site{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(Config{Plan: plan, Command: []string{os.Args[0]}, Replaced: c.replaced, Env: control.Env{AutoRecover: c.recovering}})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.core; got.shared != c.shared || got.replaced != c.goesOn || got.recover != c.recovering ||
			got.independent != (c.topology == "alone") || len(got.nodes) != 2 {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// A folder for logs that cannot be made is a fault before any start.
func TestALogFolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := New(Config{Plan: busPlan(t, 1), Command: []string{os.Args[0]}, LogDir: filepath.Join(file, "logs"), Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "log folder: ") {
		t.Error(err)
	}
}
