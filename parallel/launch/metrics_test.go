package launch

import (
	"testing"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
)

// gathering is a launcher of one node, in the middle of a request for metrics.
func gathering(seq uint64) (*Launcher, chan struct{}) {
	done := make(chan struct{})
	l := &Launcher{states: []State{{ID: 3, Phase: Running, Restarts: 2}}, asks: []ask{{proc: &proc{}, seq: seq, done: done}}, seq: 7}
	return l, done
}

// answered reports whether a request is over.
func answered(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// An answer counts for the request that it has the number of, and ends it with its last part.
func TestAnswersCountForTheirRequest(t *testing.T) {
	part := []metrics.Sample{{Name: "x", Value: 1}}
	for _, c := range []struct {
		asked, answer uint64
		last          bool
		samples       int
		done          bool
	}{{7, 7, true, 1, true}, {7, 7, false, 1, false}, {7, 6, true, 0, false}, {0, 0, true, 0, false}, {0, 7, true, 0, false}} {
		l, done := gathering(c.asked)
		l.receiveMetrics(0, control.Metrics{Seq: c.answer, Samples: part, Last: c.last})
		if a := l.asks[0]; len(a.samples) != c.samples || answered(done) != c.done || a.seq != 0 && c.done {
			t.Errorf("%+v: %+v", c, a)
		}
		values := map[string]float64{}
		for _, s := range l.samples(7) {
			values[s.Name] = s.Value
		}
		if _, ok := values["x"]; ok != c.done || values[metrics.NodeAnswered] != truth(c.done) || values[metrics.NodeUp] != 1 ||
			values[metrics.NodeRestarts] != 2 {
			t.Errorf("%+v: %v", c, values)
		}
		for _, s := range l.samples(8) { // of a later request
			if s.Name == "x" {
				t.Errorf("%+v: %+v", c, s)
			}
		}
	}
}

// Nothing waits for the answer of a process that has ended.
func TestTheEndOfAProcessEndsARequest(t *testing.T) {
	for seq, want := range map[uint64]bool{7: true, 0: false} {
		l, done := gathering(seq)
		if l.reached(0, nil); answered(done) != want || l.asks[0].proc != nil || l.asks[0].seq != 0 {
			t.Errorf("request %d: %+v", seq, l.asks[0])
		}
	}
}
