package policytest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// entry is something that a policy returned, as numbers.
type entry struct {
	what   string
	values []float64
}

func floats(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// unknown are n values that are not numbers.
func unknown(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return v
}

// numbers returns a source of random numbers that is the same in each run.
func numbers(n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(n), 0x706f6c696379)) }

// rounds lets p act and learn in the rounds from..to-1, and returns its results. All that a round
// gives to the policy follows from the number of the round.
func (s *suite) rounds(p policies.Policy, from, to int) ([]entry, error) {
	var log []entry
	for n := from; n < to; n++ {
		rng := numbers(n)
		for _, greedy := range []bool{false, true} {
			a := newAct(p.Spec(), 1+rng.IntN(6), rng)
			a.Greedy = greedy
			if err := act(p, a); err != nil {
				return nil, fmt.Errorf("round %d: Act: %w", n, err)
			}
			log = append(log, entry{fmt.Sprintf("round %d: action", n), floats(a.Action)})
			log = append(log, entry{fmt.Sprintf("round %d: state", n), floats(a.State)})
			for i, c := range p.Spec().Extra {
				log = append(log, entry{fmt.Sprintf("round %d: %s", n, c.Name), floats(a.Extra[i])})
			}
		}
		metrics, err := learn(p, s.batch(p, rng))
		if err != nil {
			return nil, fmt.Errorf("round %d: Learn: %w", n, err)
		}
		for _, m := range metrics {
			log = append(log, entry{fmt.Sprintf("round %d: %s", n, m.Name), []float64{m.Value}})
		}
		log = append(log, entry{fmt.Sprintf("round %d: version", n), []float64{float64(p.Version())}})
	}
	return log, nil
}

// learned returns a policy of a seed that has gone through rounds 0..n-1.
func (s *suite) learned(seed uint64, n int) (policies.Policy, bool) {
	p := s.New(seed)
	_, err := s.rounds(p, 0, n)
	return p, s.must(err)
}

// difference returns the first difference of two logs, or "".
func difference(a, b []entry) string {
	for i, x := range a[:min(len(a), len(b))] {
		y := b[i]
		if x.what != y.what || len(x.values) != len(y.values) {
			return fmt.Sprintf("%s of %d values, and %s of %d", x.what, len(x.values), y.what, len(y.values))
		}
		for k := range x.values {
			if math.Float64bits(x.values[k]) != math.Float64bits(y.values[k]) {
				return fmt.Sprintf("%s[%d] is %v and %v", x.what, k, x.values[k], y.values[k])
			}
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d results", len(a), len(b))
	}
	return ""
}

// act is p.Act; a panic is an error.
func act(p policies.Policy, a *policies.Act) error { return guard(func() error { return p.Act(a) }) }

// learn is p.Learn; a panic is an error.
func learn(p policies.Policy, b *policies.Batch) (m []policies.Metric, err error) {
	err = guard(func() error {
		m, err = p.Learn(b)
		return err
	})
	return m, err
}

// restore is p.Restore; a panic is an error.
func restore(p policies.Policy, a *nn.Archive) error {
	return guard(func() error { return p.Restore(a) })
}

// load is p.Load; a panic is an error.
func load(p policies.Policy, w nn.State) error { return guard(func() error { return p.Load(w) }) }

// snapshot is all that a policy saves, as a file.
func snapshot(p policies.Policy) ([]byte, error) {
	var a nn.Archive
	if err := guard(func() error { return p.Save(&a) }); err != nil {
		return nil, fmt.Errorf("Save: %w", err)
	}
	file, err := a.AppendBinary(nil)
	if err != nil {
		return nil, fmt.Errorf("file of what Save wrote: %w", err)
	}
	return file, nil
}

// parse reads a file of snapshot.
func parse(file []byte) (*nn.Archive, error) {
	a := new(nn.Archive)
	err := a.UnmarshalBinary(file)
	return a, err
}

// changed describes how two files of snapshot differ, or is "".
func changed(before, after []byte) string {
	if slices.Equal(before, after) {
		return ""
	}
	a, errA := parse(before)
	b, errB := parse(after)
	if err := errors.Join(errA, errB); err != nil {
		return err.Error()
	}
	for name, text := range a.Meta {
		if b.Meta[name] != text {
			return fmt.Sprintf("%s is %q and %q", name, text, b.Meta[name])
		}
	}
	for i, t := range a.Tensors {
		if i >= len(b.Tensors) || b.Tensors[i].Name != t.Name {
			return "other tensors from " + t.Name + " on"
		}
		if d := difference([]entry{{t.Name, floats(t.Data)}}, []entry{{t.Name, floats(b.Tensors[i].Data)}}); d != "" {
			return d
		}
	}
	return "other content"
}

// unchanged reports changes of p since it was saved as before. what is the subject of the report.
func (s *suite) unchanged(what string, p policies.Policy, before []byte) {
	after, err := snapshot(p)
	if err != nil {
		s.faultf("%s, and then %w", what, err)
	} else if d := changed(before, after); d != "" {
		s.faultf("%s changes the policy: before and after, %s", what, d)
	}
}
