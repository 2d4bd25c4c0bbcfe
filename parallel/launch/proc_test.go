//go:build unix

package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/leak"
)

// ownGroup starts a process that waits, in a separate process group.
func ownGroup(t *testing.T, own bool, environ ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "300")
	cmd.Env = append(leak.Check(t).Environ(), environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: own}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// signalled is the signal that has ended a process.
func signalled(t *testing.T, cmd *exec.Cmd) syscall.Signal {
	t.Helper()
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		t.Fatalf("it ends with %v", cmd.ProcessState)
	}
	return status.Signal()
}

// The number of a node that has been waited for may be that of another process, which
// gets no signal.
func TestAProcessThatWasWaitedForGetsNoSignal(t *testing.T) {
	for name, c := range map[string]struct {
		reaped bool
		send   func(p *proc)
		want   syscall.Signal
	}{
		"told":                 {false, func(p *proc) { p.signal(syscall.SIGINT) }, syscall.SIGINT},
		"told after the end":   {true, func(p *proc) { p.signal(syscall.SIGINT) }, syscall.SIGTERM},
		"killed":               {false, (*proc).kill, syscall.SIGKILL},
		"killed after the end": {true, (*proc).kill, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := ownGroup(t, true)
			c.send(&proc{cmd: cmd, reaped: c.reaped})
			if c.reaped {
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
			if got := signalled(t, cmd); got != c.want {
				t.Errorf("it ends by %v, want %v", got, c.want)
			}
		})
	}
}

// A launcher that ends in order notifies its watcher, which then kills nothing.
func TestTheWatcherReceivesThatTheLauncherIsDone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "received")
	w, err := startWatcher([]string{"/bin/sh", "-c", `cat >"$0"`, file}, os.Environ(), func() { t.Error("it has ended before") })
	if err != nil {
		t.Fatal(err)
	}
	w.send(watchEnd, 7)
	w.finish()
	if received, err := os.ReadFile(file); err != nil || string(received) != "end 7\ndone \n" {
		t.Errorf("%q, %v", received, err)
	}
}

// A watcher of a launcher that has left no node ends without a wait.
func TestAWatcherThatHasNothingToKillEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Watch(strings.NewReader("begin 7\nstart 99999999\n"))
		if took := time.Since(began); took > 0 {
			t.Errorf("it waits for %v", took)
		}
	})
}

func TestAWatcherIsOptional(t *testing.T) {
	w, err := startWatcher(nil, nil, nil)
	if w != nil || err != nil {
		t.Errorf("%v, %v", w, err)
	}
	w.send(watchEnd, 7)
	w.finish()
	if _, err := startWatcher([]string{"/nonexistent"}, nil, nil); err == nil {
		t.Error("a missing program is started")
	}
}
