//go:build unix

package trace

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTraceIsPrivate makes a trace where other users could read it, or redirect it to a file of
// their choice: with an open umask, over a file that was readable, and through a link.
func TestTraceIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "run", "traces")
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh, readable, linked := Path(dir, 0, 0), Path(dir, 1, 0), Path(dir, 2, 0)
	create := func(path string) {
		t.Helper()
		r, err := Create(path, Head{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	create(fresh)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder around it: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(readable, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	create(readable)
	if err := os.Symlink(victim, linked); err != nil {
		t.Fatal(err)
	}
	create(linked)
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
}
