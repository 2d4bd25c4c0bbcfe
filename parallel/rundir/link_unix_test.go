//go:build unix

package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksOfAnotherUserInARunFolder puts links in the places of a folder and of its lock. Only root can
// make one that belongs to another user; for others, both are their own and are followed.
func TestLinksOfAnotherUserInARunFolder(t *testing.T) {
	for _, place := range []string{"folder", LockFile} {
		dir := t.TempDir()
		victim := filepath.Join(dir, "victim")
		run := filepath.Join(dir, "run")
		var err error
		if place == "folder" {
			err = errors.Join(os.Mkdir(victim, 0o700), os.Symlink(victim, run))
		} else {
			err = errors.Join(os.WriteFile(victim, []byte("kept"), 0o600), os.Mkdir(run, 0o700), os.Symlink(victim, filepath.Join(run, LockFile)))
		}
		if err != nil {
			t.Fatal(err)
		}
		link := run
		if place == LockFile {
			link = filepath.Join(run, LockFile)
		}
		foreign := os.Lchown(link, 12345, -1)
		l, err := Take(run, Self("j"))
		if foreign != nil {
			if err != nil {
				t.Errorf("%s: own link: %v", place, err)
			}
			l.Release()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "of another user (uid 12345)") {
			t.Errorf("%s: %v", place, err)
			l.Release()
		}
		if b, err := os.ReadFile(victim); place == LockFile && (err != nil || string(b) != "kept") {
			t.Errorf("%s: %q, %v", place, b, err)
		}
		if place == "folder" {
			if _, err := Claim(run, Mark{Job: "j"}); err == nil || !strings.Contains(err.Error(), "uid 12345") {
				t.Errorf("claim: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(victim, MarkFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("claim wrote through the link: %v", err)
			}
		}
	}
}
