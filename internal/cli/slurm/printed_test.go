package slurm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/logtest"
)

// Texts of Slurm are printed escaped: users write the comments and reasons in them.
func TestPrintedTextOfSlurm(t *testing.T) {
	line := strings.NewReplacer("\r", "", "\n", "").Replace(logtest.Hostile)
	bin := t.TempDir()
	for name, script := range map[string]string{
		"scontrol": "#!/bin/sh\ncat <<'END'\nJobId=12 JobState=PENDING Reason=" + line + " StdOut=/dev/null\nEND\n",
		"scancel":  "#!/bin/sh\ncat <<'END'\n" + logtest.Hostile + "\nEND\nexit 1\n",
		"sbatch":   "#!/bin/sh\ncat >&2 <<'END'\n" + logtest.Hostile + "\nEND\nexit 1\n",
	} {
		script = strings.ReplaceAll(script, "\x00", "") // no shell takes it
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var stderr bytes.Buffer
	c := &call.Call{Stderr: &stderr}
	f := &follower{c: c, job: "12", mode: onInterruptCancel, tails: map[string]*tail{}, last: map[string]jobState{}}
	if _, err := f.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.interrupted(t.Context(), os.Interrupt)
	_, err := submit(t.Context(), "x")
	c.Exit(err)
	if got := stderr.String(); logtest.Faults(got) != "" || strings.Count(got, `\u009b2J`) != 3 {
		t.Errorf("%s: %q", logtest.Faults(got), got)
	}
}
