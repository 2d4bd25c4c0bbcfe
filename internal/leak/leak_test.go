package leak_test

import (
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
)

func TestLeftFindsAnOrphanAndASocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found in /proc")
	}
	w := leak.Check(t)
	if left := w.Left(); len(left) > 0 {
		t.Fatalf("at first: %v", left)
	}
	// A shell whose child outlives it, and tells its pid by holding stdin open.
	cmd := exec.Command("/bin/sh", "-c", "cat <&3 >/dev/null 2>&1 &")
	cmd.Env = w.Environ()
	in, out, err := pipe(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	l, err := net.Listen("unix", filepath.Join(w.Dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	notTwo := func() []string { // a process has no environment in the middle of an exec
		if left := w.Left(); len(left) != 2 {
			return append(left, "and no more")
		}
		return nil
	}
	if left := leak.Await(notTwo, 5*time.Second); len(left) > 0 {
		t.Errorf("with a process and a socket: %v", left)
	}
	_ = l.Close()
	_ = out.Close()
	if left := leak.Await(w.Left, 5*time.Second); len(left) > 0 {
		t.Errorf("at the end: %v", left)
	}
}
