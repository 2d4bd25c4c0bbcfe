package call_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/logtest"
)

// The last lines of a command are safe to print, with any text in its error.
func TestLinesArePrintable(t *testing.T) {
	var stdout, stderr bytes.Buffer
	c := &call.Call{Stdout: &stdout, Stderr: &stderr}
	c.Warn("text", logtest.Hostile)
	c.Note("json", logtest.Hostile)
	if code := c.Exit(errors.Join(call.Usage("--x %s", logtest.Hostile), errors.New(logtest.Hostile))); code != call.ExitUsage {
		t.Errorf("code %d", code)
	}
	if err := c.WriteJSON(map[string]string{"a": logtest.Hostile}); err != nil {
		t.Error(err)
	}
	for _, got := range []string{stdout.String(), stderr.String()} {
		if faults := logtest.Faults(got); faults != "" || !strings.Contains(got, `\u009b2J`) {
			t.Error(faults)
		}
	}
}
