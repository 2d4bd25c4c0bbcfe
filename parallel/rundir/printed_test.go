package rundir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/rundir"
)

// The folder of another user's run, and what is in it, may hold anything.
func TestRunsOfOthersArePrintable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run\n"+logtest.Forged+"\x1b[2J")
	if _, err := rundir.Claim(dir, rundir.Mark{Job: logtest.Hostile, Started: time.Now()}); err != nil {
		t.Fatal(err)
	}
	_, err := rundir.Choose(rundir.Request{Dir: dir})
	if err == nil || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), `\u009b2J`) {
		t.Errorf("the mark: %v", err)
	}
	held, err := rundir.Take(dir, rundir.Self("j"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	text, err := json.Marshal(rundir.Holder{Job: logtest.Hostile, PID: 1, Host: logtest.Hostile})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, rundir.LockFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = rundir.Take(dir, rundir.Self("k"))
	if err == nil || logtest.Faults(err.Error()) != "" || !strings.Contains(err.Error(), `\u009b2J`) {
		t.Errorf("the lock: %v", err)
	}
}
