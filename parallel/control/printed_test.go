package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
)

// Texts that come over a control socket are safe to print, and bounded, whichever process has sent
// them.
func TestMessagesArePrintable(t *testing.T) {
	hostile := logtest.Hostile + strings.Repeat("x", 7<<10)
	for name, m := range map[string]control.Message{
		"role":    {Type: control.TypeStatus, Status: &control.Status{Role: hostile}},
		"note":    {Type: control.TypeStatus, Status: &control.Status{Note: hostile}},
		"error":   {Type: control.TypeOutcome, Outcome: &control.Outcome{Kind: control.Failure, Error: hostile}},
		"reason":  {Type: control.TypeLost, Lost: &control.Lost{Node: 1, Reason: hostile}},
		"outcome": {Type: control.TypeOutcome, Outcome: &control.Outcome{Kind: control.Kind(hostile)}},
	} {
		line, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := control.NewReader(strings.NewReader(string(line))).Next()
		texts := []string{fmt.Sprint(err)}
		if m.Status != nil {
			texts = append(texts, m.Status.Role, m.Status.Note)
		}
		if m.Outcome != nil {
			texts = append(texts, m.Outcome.Error)
		}
		if m.Lost != nil {
			texts = append(texts, m.Lost.Reason)
		}
		for _, text := range texts {
			if faults := logtest.Faults(text); faults != "" || len(text) > 16<<10 {
				t.Errorf("%s: %d bytes, %s", name, len(text), faults)
			}
		}
		if (err != nil) != (name == "outcome") {
			t.Errorf("%s: %v", name, err)
		}
	}
	number := `{"type":"status","status":{"step":` + strings.Repeat("1", 32<<10) + "}}\n"
	if _, err := control.NewReader(strings.NewReader(number)).Next(); err == nil || len(err.Error()) > 2<<10 {
		t.Errorf("a number: %.80v", err)
	}
}
