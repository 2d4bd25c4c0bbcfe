//go:build linux

package launch

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// descriptors is how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// Nodes and watchers leave no file open, whether they could be started or not.
func TestProcessesLeaveNoFileOpen(t *testing.T) {
	silent := NewStream(io.Discard, "text")
	out := &output{now: time.Now, stdout: silent, stderr: silent, dir: t.TempDir()}
	for name, run := range map[string]func(program string){
		"node": func(program string) {
			log := out.open(0, 0, "")
			p, err := startProc(spec{command: []string{program}}, log, func(control.Message) {})
			if err != nil {
				log.close()
				return
			}
			_ = p.wait()
		},
		"watcher": func(program string) {
			if w, err := startWatcher([]string{program}, nil, func() {}); err == nil {
				w.finish()
			}
		},
	} {
		for _, program := range []string{"/bin/true", filepath.Join(t.TempDir(), "none")} {
			run(program) // what stays open once
			before := descriptors(t)
			for range 3 {
				run(program)
			}
			if after := descriptors(t); after > before {
				t.Errorf("%s, %s: %d files are open, before %d", name, program, after, before)
			}
		}
	}
}
