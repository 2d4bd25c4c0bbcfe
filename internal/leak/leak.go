// Package leak finds what a test leaves behind: goroutines, processes and
// sockets.
//
//	func TestJob(t *testing.T) {
//		w := leak.Check(t)                     // fails t, at its end, for what is left
//		cmd := exec.Command("ditask", "...")
//		cmd.Env = w.Environ()                  // marks all processes that come of it
//		...
//	}
//
// A process is found by a mark in its environment, so that even one whose
// parent is dead counts; for this it needs /proc, and elsewhere only goroutines
// and sockets are checked. A Watch is for one test, which must not run in
// parallel with others that start goroutines.
package leak

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is the time that goroutines and processes get to end.
const patience = 5 * time.Second

// Watch marks the processes that a test starts, and finds those that are left.
type Watch struct {
	// Dir is an empty folder with a short name, for sockets. It is removed at the
	// end of the test; a socket or another file left in it is a leak.
	Dir  string
	mark string
}

// Check returns a Watch. When t ends, whatever is left that was not there at the
// call fails it.
func Check(t testing.TB) *Watch {
	t.Helper()
	dir, err := os.MkdirTemp("", "leak") //nolint:usetesting // t.TempDir has names too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{Dir: dir, mark: fmt.Sprintf("LEAK_MARK=%d-%s", os.Getpid(), filepath.Base(dir))}
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		t.Helper()
		if left := Await(w.Left, patience); len(left) > 0 {
			t.Errorf("left behind: %s", strings.Join(left, "; "))
		}
		if err := goleak.Find(ignore); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return w
}

// Environ returns the environment of this process, marked, with Dir as the folder
// for temporary files and sockets.
func (w *Watch) Environ() []string {
	return append(os.Environ(), w.mark, "TMPDIR="+w.Dir, "XDG_RUNTIME_DIR="+w.Dir)
}

// Left returns the marked processes and the files in Dir that exist now.
func (w *Watch) Left() []string {
	return append(w.Processes(), w.files()...)
}

// Processes returns the marked processes that exist now.
func (w *Watch) Processes() []string {
	var left []string
	entries, _ := os.ReadDir("/proc") // none elsewhere
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !hasLine(environ, w.mark) {
			continue // another user's, ended just now, or not ours
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		left = append(left, fmt.Sprintf("process %d: %s", pid, bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
	}
	return left
}

func hasLine(environ []byte, kv string) bool {
	for line := range bytes.SplitSeq(environ, []byte{0}) {
		if string(line) == kv {
			return true
		}
	}
	return false
}

func (w *Watch) files() []string {
	var left []string
	_ = filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != w.Dir {
			left = append(left, fmt.Sprintf("%v %s", d.Type(), path))
		}
		return nil
	})
	return left
}

// Await calls find until it finds nothing or the time is over, and returns
// what it found last.
func Await(find func() []string, limit time.Duration) []string {
	deadline := time.Now().Add(limit)
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		left := find()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-pause.C
	}
}
