//go:build unix

package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A closed descriptor represents a file system without locks.
func TestUnlockableFileIsNotHeld(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := lock(f); !errors.Is(err, ErrNoLock) || errors.Is(err, errHeld) {
		t.Error(err)
	}
}

// The holder of a lock has its file if the path still leads to it.
func TestReplacedFileIsAnother(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, LockFile)
	create := func() *os.File {
		t.Helper()
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	first := create()
	if err := sameFile(first, path); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := sameFile(first, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	if err := sameFile(create(), path); err != nil {
		t.Error(err)
	}
	if err := sameFile(first, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("replaced: %v", err)
	}
	if err := sameFile(first, filepath.Join(path, "below")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that cannot be: %v", err)
	}
	_ = first.Close()
	if err := sameFile(first, path); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
