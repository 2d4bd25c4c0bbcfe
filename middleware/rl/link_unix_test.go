//go:build unix

package rl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

// TestCheckpointDoesNotFollowALink saves where another user has put links to another file in the
// places of the checkpoint and of the file that is written next to it.
func TestCheckpointDoesNotFollowALink(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, CheckpointFile)
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, filepath.Join(dir, "."+CheckpointFile+".new")} {
		if err := os.Symlink(victim, name); err != nil {
			t.Fatal(err)
		}
	}
	var a nn.Archive
	a.SetText("key", "text")
	if err := writeArchive(path, &a); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
