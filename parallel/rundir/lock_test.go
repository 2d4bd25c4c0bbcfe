//go:build unix

package rundir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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

// What Take has made goes away again, unless the run has written.
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
// the file and the folder.
func TestOneOfManyHasTheLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	var inside atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				l, err := rundir.Take(dir, rundir.Self("j"))
				if err != nil {
					if _, ok := errors.AsType[*rundir.HeldError](err); !ok {
						t.Error(err)
					}
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				inside.Add(-1)
				l.Release()
			}
		})
	}
	all.Wait()
}
