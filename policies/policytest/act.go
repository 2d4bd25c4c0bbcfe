package policytest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// actLengths: memory of the wrong length is an error and no panic.
func (s *suite) actLengths() {
	p := s.New(1)
	spec := p.Spec()
	try := func(what string, edit func(a *policies.Act)) {
		for _, greedy := range []bool{false, true} {
			a := newAct(spec, 3, numbers(0))
			a.Greedy = greedy
			edit(a)
			s.refused(fmt.Sprintf("Act (greedy: %v) with %s", greedy, what), act(p, a))
		}
	}
	cut := func(v []float32, by int) []float32 { return v[:len(v)-by] }
	try("an action value less than it needs", func(a *policies.Act) { a.Action = cut(a.Action, 1) })
	try("actions for a row more than observed", func(a *policies.Act) { a.Action = unknown(4 * spec.Action.Dim()) })
	try("no memory for actions", func(a *policies.Act) { a.Action = nil })
	try("nothing at all", func(a *policies.Act) { *a = policies.Act{Rand: a.Rand, Greedy: a.Greedy} })
	if spec.Obs.Dim() > 1 { // else a value less is a row less
		try("an observed value less than it needs", func(a *policies.Act) { a.Obs = cut(a.Obs, 1) })
	}
	try("a row observed less than actions", func(a *policies.Act) { a.Obs = cut(a.Obs, spec.Obs.Dim()) })
	try("an extra column more than Spec.Extra", func(a *policies.Act) { a.Extra = append(a.Extra, unknown(3)) })
	for i, c := range spec.Extra {
		try("too little memory for "+c.Name, func(a *policies.Act) { a.Extra[i] = cut(a.Extra[i], 1) })
	}
	if len(spec.Extra) > 0 {
		try("an extra column less than Spec.Extra", func(a *policies.Act) { a.Extra = a.Extra[:len(a.Extra)-1] })
	}
	if spec.StateSize > 0 {
		try("a state value less than it needs", func(a *policies.Act) { a.State = cut(a.State, 1) })
		try("no state", func(a *policies.Act) { a.State = nil })
		try("a reset less than rows", func(a *policies.Act) { a.Reset = a.Reset[:2] })
	}
	if spec.NoiseSize > 0 {
		try("a noise value less than it needs", func(a *policies.Act) { a.Greedy, a.Noise = false, cut(a.Noise, 1) })
		try("no noise", func(a *policies.Act) { a.Greedy, a.Noise = false, nil })
	}
}

// actNotFinite: an observation that is not finite is refused by name. One outside of its space may
// be, but must not panic.
func (s *suite) actNotFinite() {
	p := s.New(1)
	for _, greedy := range []bool{false, true} {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			a := newAct(p.Spec(), 3, numbers(0))
			a.Greedy = greedy
			a.Obs[len(a.Obs)-1] = float32(v)
			what := fmt.Sprintf("Act (greedy: %v) with %v observed", greedy, v)
			err := act(p, a)
			if e, ok := errors.AsType[*nn.NonFiniteError](err); s.refused(what, err) && (!ok || e.Tensor != policies.Obs) {
				s.faultf("%s: error %q, want a *nn.NonFiniteError of tensor %s", what, err, policies.Obs)
			}
		}
	}
	for _, v := range []float32{-1e6, 1e6, 0.5} {
		a := newAct(p.Spec(), 3, numbers(0))
		a.Obs[0] = v
		if e, ok := errors.AsType[*panicError](act(p, a)); ok {
			s.faultf("Act with %v observed panics: %v\n%s", v, e.value, e.stack)
		}
	}
}

// counted is a source of random numbers that counts them.
type counted struct {
	rand.Source
	draws int
}

func (c *counted) Uint64() uint64 {
	c.draws++
	return c.Source.Uint64()
}

// greedy: greedy actions are the same each time, use no random numbers and change nothing; they
// are the same without Extra.
func (s *suite) greedy() {
	p, before := s.savedPolicy()
	if before == nil {
		return
	}
	a := newAct(p.Spec(), 8, numbers(0))
	b, c := newAct(p.Spec(), 8, numbers(0)), newAct(p.Spec(), 8, numbers(0))
	source := &counted{Source: rand.NewPCG(1, 1)}
	a.Greedy, b.Greedy, c.Greedy = true, true, true
	a.Rand, b.Rand, c.Rand, c.Extra = rand.New(source), nil, nil, nil
	for i, x := range []*policies.Act{a, b, c} {
		if err := act(p, x); err != nil {
			s.faultf("greedy Act (a random source: %v; extra columns: %v): %w", i == 0, i < 2, err)
			return
		}
	}
	if source.draws > 0 {
		s.faultf("a greedy Act draws %d random numbers", source.draws)
	}
	for i, x := range []*policies.Act{b, c} {
		if d := difference([]entry{{"action", floats(a.Action)}}, []entry{{"action", floats(x.Action)}}); d != "" {
			s.faultf("greedy actions for the same observations differ (extra columns: %v): %s", i == 0, d)
		}
	}
	s.unchanged("a greedy Act", p, before)

	x, y := newAct(p.Spec(), 8, numbers(1)), newAct(p.Spec(), 8, numbers(1))
	y.Extra = nil
	file, err := snapshot(p)
	if !s.must(err) || !s.must(act(p, x)) {
		return
	}
	q := s.New(2)
	archive, err := parse(file)
	if !s.must(err) || !s.must(restore(q, archive)) || !s.must(act(q, y)) {
		return
	}
	if d := difference([]entry{{"action", floats(x.Action)}}, []entry{{"action", floats(y.Action)}}); d != "" {
		s.faultf("without memory for the extra columns the actions are others: %s", d)
	}
}

// actionsInSpace: every action is an element of Spec.Action, before learning and after.
func (s *suite) actionsInSpace() {
	p := s.New(1)
	space := p.Spec().Action
	w := space.Dim()
	for n := range 6 {
		for _, greedy := range []bool{false, true} {
			a := newAct(p.Spec(), 64, numbers(n))
			a.Greedy = greedy
			if err := act(p, a); !s.must(err) {
				return
			}
			for at := 0; at < len(a.Action); at += w {
				if v := a.Action[at : at+w]; !space.Contains(v) || !finite(v) {
					s.faultf("action %v (greedy: %v) is not in %v", v, greedy, space)
					return
				}
			}
			for i, c := range p.Spec().Extra {
				if !finite(a.Extra[i]) {
					s.faultf("Act (greedy: %v) leaves values in the column %s that are not finite", greedy, c.Name)
				}
			}
		}
		if _, err := s.rounds(p, n, n+1); !s.must(err) {
			return
		}
	}
}

func finite(v []float32) bool { return nn.FindNonFinite(v) < 0 }

// allocations: once a policy has seen batches of a size, updates and choices of actions of that
// size allocate nothing.
func (s *suite) allocations() {
	p := s.New(1)
	b := s.batch(p, numbers(0))
	explore, best := newAct(p.Spec(), 4, numbers(1)), newAct(p.Spec(), 4, numbers(2))
	best.Greedy = true
	for what, f := range map[string]func() error{
		"Learn": func() error {
			_, err := p.Learn(b)
			return err
		},
		"Act":          func() error { return p.Act(explore) },
		"a greedy Act": func() error { return p.Act(best) },
	} {
		if n := allocated(f, s); n > 0 {
			s.faultf("%d calls of %s allocate %d times", steady, what, n)
		}
	}
}

// steady is the number of calls whose allocations are counted.
const steady = 12

// allocated counts the allocations of that many calls of f. It is not the mean of a call, whose
// fraction testing.AllocsPerRun cuts: a policy may allocate in every second update. The least of
// several counts excludes allocations of the runtime.
func allocated(f func() error, s *suite) int {
	least := math.MaxInt
	for range 3 {
		n := testing.AllocsPerRun(1, func() {
			for range steady {
				if err := f(); err != nil {
					s.faults = append(s.faults, err)
					return
				}
			}
		})
		least = min(least, int(n))
	}
	return least
}
