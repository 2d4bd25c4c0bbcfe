//go:build unix

package rundir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/rundir"
)

func TestAFolderIsLockedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "dqn", "one")
	l, err := rundir.Take(dir, rundir.Self("first"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = rundir.Take(dir, rundir.Self("second"))
	held, ok := errors.AsType[*rundir.HeldError](err)
	if !ok || held.By.Job != "first" || held.By.PID != os.Getpid() || held.By.Host == "" {
		t.Fatalf("%v", err)
	}
	if text := err.Error(); !strings.HasPrefix(text, "folder "+dir+" is in use by job first, which runs (process ") {
		t.Error(text)
	}
	l.Release()
	if l, err = rundir.Take(dir, rundir.Self("second")); err != nil {
		t.Fatal(err)
	}
	l.Release()
}

// Release removes everything that Take has made, unless the run has written files.
func TestReleaseLeavesNoEmptyFolder(t *testing.T) {
	root := t.TempDir()
	for _, writes := range []bool{false, true} {
		dir := filepath.Join(root, "runs", "dqn", "one")
		l, err := rundir.Take(dir, rundir.Self("j"))
		if err != nil {
			t.Fatal(err)
		}
		if writes {
			write(t, filepath.Join(dir, "metrics.csv"))
		}
		l.Release()
		if _, err := os.Stat(filepath.Join(root, "runs")); (err == nil) != writes {
			t.Errorf("writes %v: %v", writes, err)
		}
		if _, err := os.Stat(filepath.Join(dir, rundir.LockFile)); err == nil {
			t.Error("the file of the lock stays")
		}
	}
	var none *rundir.Lock
	none.Release()
}

// Of those that take a folder at the same time one has it, though each release removes
// the file and the folder. The file that it has locked is the one that names it.
func TestOneOfManyHasTheLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	var inside atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				job := fmt.Sprintf("j-%d-%d", i, j)
				l, err := rundir.Take(dir, rundir.Self(job))
				if err != nil {
					if _, ok := errors.AsType[*rundir.HeldError](err); !ok {
						t.Error(err)
					}
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				if text, err := os.ReadFile(filepath.Join(dir, rundir.LockFile)); err != nil || !strings.Contains(string(text), `"`+job+`"`) {
					t.Errorf("%s has the lock, and its file has %q, %v", job, text, err)
				}
				inside.Add(-1)
				l.Release()
			}
		})
	}
	all.Wait()
}

// take locks a folder for a job.
func take(t *testing.T, dir, job string) *rundir.Lock {
	t.Helper()
	l, err := rundir.Take(dir, rundir.Self(job))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestHolderThatCannotBeWrittenHasNoLock(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "runs", "one")
	l, err := rundir.Take(dir, rundir.Holder{Started: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}) // JSON has no such year
	if l != nil || err == nil || !strings.HasPrefix(err.Error(), "run folder: ") {
		t.Fatalf("%v, %v", l, err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	take(t, dir, "next").Release()
}

// The file of a killed holder remains, and may be longer than the text of the next one.
func TestFileOfAnEndedHolderIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, rundir.LockFile)
	if err := os.WriteFile(path, []byte(`{"job":"dead","pid":7}`+strings.Repeat("x", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := take(t, dir, "next")
	_, err := rundir.Take(dir, rundir.Self("late"))
	if held, ok := errors.AsType[*rundir.HeldError](err); !ok || held.Dir != dir || held.By.Job != "next" {
		t.Errorf("%v", err)
	}
	l.Release()
	l.Release() // releases only its own lock
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A second release does not remove the file of the next holder.
func TestReleaseCountsOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "one")
	first := take(t, dir, "first")
	first.Release()
	second := take(t, dir, "second")
	defer second.Release()
	first.Release()
	if _, err := rundir.Take(dir, rundir.Self("third")); err == nil || !strings.Contains(err.Error(), "in use by job second,") {
		t.Errorf("%v", err)
	}
}

func TestHolderThatHasNotWrittenItsFileYet(t *testing.T) {
	dir := t.TempDir()
	defer take(t, dir, "first").Release()
	for _, text := range []string{"", `{"job":"fir`, `{"job":"first","pid":"many"}`} {
		if err := os.WriteFile(filepath.Join(dir, rundir.LockFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := rundir.Take(dir, rundir.Self("second"))
		held, ok := errors.AsType[*rundir.HeldError](err)
		if !ok || held.By != (rundir.Holder{}) || !strings.Contains(err.Error(), "is in use by a job that runs: wait for its end") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestErrorNamesTheHolder(t *testing.T) {
	err := &rundir.HeldError{Dir: "/runs/one", By: rundir.Holder{Job: "j", PID: 7, Host: "h", Started: began}}
	want := "folder /runs/one is in use by job j, which runs (process 7 on host h, started 2026-03-04 05:06:07): " +
		"wait for its end, or choose another --dir (DITASK_DIR)"
	if err.Error() != want {
		t.Errorf("%q, want %q", err.Error(), want)
	}
}

// Take removes everything that it has made when it fails.
func TestFolderThatCannotBeLockedIsNotLeft(t *testing.T) {
	root := t.TempDir()
	if runtime.GOOS == "linux" {
		if l, err := rundir.Take(long(root), rundir.Self("j")); l != nil || err == nil || !strings.HasPrefix(err.Error(), "run folder: ") {
			t.Errorf("a path that is too long: %v, %v", l, err)
		}
	}
	write(t, filepath.Join(root, "file"))
	if l, err := rundir.Take(filepath.Join(root, "file", "run"), rundir.Self("j")); l != nil || err == nil ||
		!strings.HasPrefix(err.Error(), "run folder: ") {
		t.Errorf("below a file: %v, %v", l, err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestRetriesOfALockAreBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "missing", "file"), filepath.Join(dir, rundir.LockFile)); err != nil {
		t.Fatal(err)
	}
	if l, err := rundir.Take(dir, rundir.Self("j")); l != nil || err == nil || errors.Is(err, fs.ErrNotExist) ||
		!strings.HasSuffix(err.Error(), rundir.LockFile+" goes away again and again") {
		t.Errorf("%v, %v", l, err)
	}
}

// A path that is relative is made and removed up to the folder of the process.
func TestRelativeFolder(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	take(t, filepath.Join("runs", "one"), "j").Release()
	if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestSelfIsThisProcess(t *testing.T) {
	before := time.Now()
	h := rundir.Self("j")
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if h.Job != "j" || h.PID != os.Getpid() || h.Host != host || h.Started.Before(before) {
		t.Errorf("%+v", h)
	}
}

func TestClaimOfAFolderThatCannotBeMarked(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "missing", "file"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if made, err := rundir.Claim(filepath.Join(dir, "link"), rundir.Mark{}); made || err == nil ||
		!strings.HasPrefix(err.Error(), "run folder: ") {
		t.Errorf("a link to nothing: %v, %v", made, err)
	}
	if runtime.GOOS == "linux" {
		if made, err := rundir.Claim(long(dir), rundir.Mark{}); made || err == nil || !strings.HasPrefix(err.Error(), "run folder: open "+dir) {
			t.Errorf("a path that is too long: %v, %v", made, err)
		}
	}
}
