//go:build unix

package parallel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/parallel/control"
)

// The output of a node whose launcher was killed has no reader. The node ends in order, and leaves
// neither a socket nor a process that it has started.
func TestANodeWhoseLauncherIsGoneSavesAndLeavesNothing(t *testing.T) {
	w := leak.Check(t)
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	output, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir, socket := t.TempDir(), filepath.Join(w.Dir, "job", "n0.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	env := control.Env{JobID: "j", Nodes: 1, ControlFD: 3, Listen: "unix://" + socket, Dir: dir}
	cmd.Env = append(append(w.Environ(), env.Encode()...), childVar+"="+dir)
	cmd.Stdout, cmd.ExtraFiles, cmd.SysProcAttr = stdout, []*os.File{node}, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = stdout.Close(), node.Close()
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Errorf("it has not started: %v", err)
	}
	_, _ = output.Close(), launcher.Close()
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ends with %v, want the end of its process group", err)
	}
	saved, err := os.ReadFile(filepath.Join(dir, "saved"))
	if err != nil || !strings.Contains(string(saved), "the launcher is gone") {
		t.Errorf("saved %q: %v", saved, err)
	}
}
