//go:build unix

package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLogThroughALinkOfAnotherUser puts a link in the place of the log of a node. Only root can make one
// that belongs to another user; for others it is their own and is followed.
func TestLogThroughALinkOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "node-0.log")
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	foreign := os.Lchown(path, 12345, -1) == nil
	var said strings.Builder
	stream := NewStream(&said, "text")
	o := &output{now: time.Now, stdout: stream, stderr: stream, dir: dir}
	n := o.open(0, 0, "")
	n.close()
	o.flush(nil)
	b, err := os.ReadFile(victim)
	if err != nil {
		t.Fatal(err)
	}
	if foreign != (string(b) == "kept") || foreign != strings.Contains(said.String(), "uid 12345") {
		t.Errorf("%q in the file; logged %q", b, said.String())
	}
}
