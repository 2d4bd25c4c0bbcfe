package rl

import "testing"

// TestLearnerKeepsTheBest: an evaluator that was restarted, or that evaluates for a
// resumed learner, sends the best of its own first evaluations.
func TestLearnerKeepsTheBest(t *testing.T) {
	x := &paced{learns: true}
	c := new(Online)
	for i, b := range []struct {
		mean    float64
		reached bool
		want    float64
	}{{5, false, 5}, {3, false, 5}, {7, false, 7}, {6, true, 6}, {9, false, 6}, {8, true, 8}} {
		if err := x.hearBest(t.Context(), Best{Evaluation: Evaluation{Mean: b.mean}, Reached: b.reached}); err != nil {
			t.Fatal(err)
		}
		x.hear(c)
		if c.Best == nil || c.Best.Mean != b.want {
			t.Errorf("after message %d the best is %+v, want %v", i, c.Best, b.want)
		}
	}
	kept := c.Best
	if x.hear(c); c.Best != kept {
		t.Error("a best was taken over twice")
	}
}
