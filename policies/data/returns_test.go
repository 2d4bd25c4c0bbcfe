package data

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func near(got, want []float32) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if !(math.Abs(float64(got[i]-want[i])) <= 2e-6*(1+math.Abs(float64(want[i])))) {
			return false
		}
	}
	return true
}

// three returns a sequence of three rewards of 1.
func three() *Unroll {
	return &Unroll{
		Length: 3, Rewards: []float32{1, 1, 1}, Values: []float32{0.5, 0.6, 0.7}, Bootstrap: make([]float32, 3),
		Terminated: make([]uint8, 3), Truncated: make([]uint8, 3),
	}
}

func TestP1AdvantagesEqualHandComputedNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(u *Unroll)
		a, want []float32
	}{
		"terminated": {func(u *Unroll) { u.Terminated[2], u.Bootstrap[2] = 1, 9 }, []float32{2.387329, 1.37515, 0.3},
			[]float32{2.887329, 1.97515, 1}},
		"truncated": {func(u *Unroll) { u.Truncated[2], u.Bootstrap[2] = 1, 0.8 }, []float32{3.087884, 2.120026, 1.092},
			[]float32{3.587884, 2.720026, 1.792}},
		"the sequence ends": {func(u *Unroll) { u.Bootstrap[2] = 0.8 }, []float32{3.087884, 2.120026, 1.092},
			[]float32{3.587884, 2.720026, 1.792}},
		"terminated and cut": {func(u *Unroll) { u.Terminated[2], u.Truncated[2], u.Bootstrap[2] = 1, 1, 9 },
			[]float32{2.387329, 1.37515, 0.3}, []float32{2.887329, 1.97515, 1}},
		"terminated in between": {func(u *Unroll) { u.Terminated[1], u.Bootstrap[2] = 1, 0.8 }, []float32{1.094 + 0.9405*0.4, 0.4, 1.092},
			[]float32{1.594 + 0.9405*0.4, 1, 1.792}},
		"truncated in between": {func(u *Unroll) { u.Truncated[0], u.Bootstrap[0], u.Terminated[2] = 1, 2, 1 }, []float32{2.48, 1.37515, 0.3},
			[]float32{2.98, 1.97515, 1}},
	} {
		u, a, targets := three(), make([]float32, 3), make([]float32, 3)
		c.edit(u)
		if GAE(a, targets, u, 0.99, 0.95); !near(a, c.a) || !near(targets, c.want) {
			t.Errorf("%s: advantages %v and targets %v, want %v and %v", name, a, targets, c.a, c.want)
		}
	}
}

// TestSequencesDoNotTouch: two in one call are as two calls.
func TestSequencesDoNotTouch(t *testing.T) {
	u := &Unroll{
		Length: 2, Rewards: []float32{1, 2, 3, 4}, Values: []float32{1, 2, 3, 4}, Bootstrap: []float32{0, 5, 0, 6},
		Terminated: make([]uint8, 4), Truncated: make([]uint8, 4),
	}
	a, targets := make([]float32, 4), make([]float32, 4)
	GAE(a, targets, u, 1, 1)
	if !near(targets, []float32{8, 7, 13, 10}) {
		t.Errorf("targets %v", targets)
	}
}

func TestP1VTraceEqualsHandComputedNumbers(t *testing.T) {
	u, targets, a := three(), make([]float32, 3), make([]float32, 3)
	u.Bootstrap[2] = 0.8
	VTrace(targets, a, u, []float32{1.5, 0.5, 1}, VTraceConfig{Gamma: 0.99})
	if !near(targets, []float32{2.67017, 1.68704, 1.792}) || !near(a, []float32{2.17017, 1.08704, 1.092}) {
		t.Errorf("targets %v and advantages %v", targets, a)
	}
	// On-policy it is the n-step return; an episode that ends has no future.
	u.Terminated[1] = 1
	VTrace(targets, a, u, []float32{1, 1, 1}, VTraceConfig{Gamma: 0.5})
	if !near(targets, []float32{1.5, 1, 1.4}) || !near(a, []float32{1, 0.4, 0.7}) {
		t.Errorf("on-policy: targets %v and advantages %v", targets, a)
	}
	// their own Limits.
	u = three()
	VTrace(targets, a, u, []float32{3, 3, 3}, VTraceConfig{Gamma: 1, MaxRho: 2, MaxC: 0.5})
	if want := []float32{0.5 + 2*1.1 + 0.5*(0.6+2*1.1+0.5*(0.7+2*0.3-0.7)-0.6), 0.6 + 2*1.1 + 0.5*0.6, 1.3}; !near(targets, want) {
		t.Errorf("limits: targets %v, want %v", targets, want)
	}
}

func TestP1StandardizedAdvantagesEqualHandComputedNumbers(t *testing.T) {
	v := []float32{1, 2, 3, 4}
	if Standardize(v); !near(v, []float32{-1.3416408, -0.4472136, 0.4472136, 1.3416408}) {
		t.Errorf("%v", v)
	}
	same := []float32{2, 2}
	if Standardize(same); !near(same, []float32{0, 0}) {
		t.Errorf("equal values become %v", same)
	}
	Standardize(nil)
}

func TestUnrollsOfOtherLengthsAreRefused(t *testing.T) {
	for i, spoil := range []func(u *Unroll, a *[]float32){
		func(u *Unroll, _ *[]float32) { u.Length = 0 },
		func(u *Unroll, _ *[]float32) { u.Length = 2 },
		func(u *Unroll, _ *[]float32) { u.Values = u.Values[1:] },
		func(u *Unroll, _ *[]float32) { u.Bootstrap = nil },
		func(u *Unroll, _ *[]float32) { u.Terminated = nil },
		func(u *Unroll, _ *[]float32) { u.Truncated = nil },
		func(_ *Unroll, a *[]float32) { *a = (*a)[1:] },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "data: sequences of ") {
					t.Errorf("fault %d: panic %q", i, p)
				}
			}()
			u, a := three(), make([]float32, 3)
			spoil(u, &a)
			GAE(a, make([]float32, 3), u, 1, 1)
		}()
	}
}

func TestExplainedVarianceEqualsHandComputedNumbers(t *testing.T) {
	returns := []float32{1, 2, 3, 6}
	for name, test := range map[string]struct {
		values []float32
		want   float64
	}{
		"perfect":           {[]float32{1, 2, 3, 6}, 1},
		"but for a number":  {[]float32{0, 1, 2, 5}, 1},
		"a constant":        {[]float32{3, 3, 3, 3}, 0},
		"some of it":        {[]float32{2, 2, 4, 4}, 1 - 6./14},
		"opposite":          {[]float32{-1, -2, -3, -6}, -3},
		"of equal returns":  {[]float32{0.1, 2}, math.NaN()},
		"of a single value": {[]float32{1}, math.NaN()},
	} {
		of := returns[:len(test.values)]
		if name == "of equal returns" {
			of = []float32{0.1, 0.1}
		}
		e := Explain(test.values, of)
		got := e.Variance()
		if math.IsNaN(test.want) != math.IsNaN(got) || math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
}
