package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestResults prints rows of a run alone and of one with several processes.
func TestResults(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "results")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, c := range map[string]struct{ flags, preset, want string }{
		"alone":     {"-nodes=1", "qlearning/CliffWalking", "(?m)^\\| `qlearning/CliffWalking-v1/ours` \\| – \\| -13.0 ± 0 \\| -13.0 \\| -13: – \\(–\\) \\| [0-9.]+ \\| nothing published; 1 of 1 seeds are at the threshold \\|$"},
		"processes": {"-nodes=4", "qlearning/CliffWalking", "(?m)^\\| `qlearning/CliffWalking-v1/ours` \\| -13.0 ± 0 \\| -13.0 \\| -13: [0-9,]+ \\| [0-9.]+ \\|$"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), bin, "-seeds", "1", "-runs", t.TempDir(), c.flags, c.preset)
			cmd.Dir = "../.." // it builds ditask there
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil || !regexp.MustCompile(c.want).Match(out) {
				t.Errorf("%v\n%s%s", err, out, stderr.String())
			}
		})
	}
}
