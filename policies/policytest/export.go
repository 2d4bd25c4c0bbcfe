package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/onnxtest"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/policies/graph"
)

// exportTolerance is how far the numbers of an exported network may be from those of the policy, relative to
// 1 plus their magnitude: products in another order.
const exportTolerance = 1e-5

// exported checks that the ONNX file of a policies.Exporter acts as the policy does with Greedy set, for
// fresh weights and after learning, and for observations far from those that the policy has seen. A policy
// may refuse with graph.ErrUnsupported.
func (s *suite) exported() {
	p, ok := s.New(1).(policies.Exporter)
	if !ok {
		return
	}
	for round := range 3 {
		var file bytes.Buffer
		if err := export.ONNX(&file, p, export.Meta{}); err != nil {
			if !errors.Is(err, graph.ErrUnsupported) {
				s.faultf("the export to ONNX: %w", err)
			}
			return
		}
		m, err := onnxtest.Parse(file.Bytes())
		if !s.must(err) {
			return
		}
		for n, a := range exportActs(p.Spec(), numbers(round)) {
			if err := exportedActs(m, p, a); err != nil {
				s.faultf("round %d, observations %d: the exported network: %w", round, n, err)
				return
			}
		}
		if _, err := s.rounds(p, 3*round, 3*round+3); !s.must(err) {
			return
		}
	}
}

// exportActs are rows of random observations, of ones far away if the space has any, of zeros, and of
// denormal numbers. Those of a discrete space are its elements.
func exportActs(spec policies.Spec, rng *rand.Rand) []*policies.Act {
	var acts []*policies.Act
	for _, edit := range []func(x float32) float32{
		func(x float32) float32 { return x },
		func(float32) float32 { return 0 },
		func(x float32) float32 { return 30 * x },
		func(float32) float32 { return 1e4 * float32(2*rng.IntN(2)-1) },
		func(x float32) float32 { return 1e-40 * x },
	} {
		a := newAct(spec, 16, rng)
		a.Greedy, a.Reset, a.Extra, a.Rand = true, nil, nil, nil
		if box, ok := spec.Obs.(envs.Box); ok && !box.Pixels {
			for i, x := range a.Obs {
				a.Obs[i] = edit(x)
			}
		}
		acts = append(acts, a)
	}
	return acts
}

// exportedActs reports how the actions and the next states of the model differ from those of the policy.
func exportedActs(m *onnxtest.Model, p policies.Policy, a *policies.Act) error {
	spec := p.Spec()
	rows := len(a.Obs) / spec.Obs.Dim()
	in := map[string]onnxtest.Tensor{graph.Obs: {Shape: []int{rows, spec.Obs.Dim()}, Floats: append([]float32(nil), a.Obs...)}}
	if spec.StateSize > 0 {
		in[graph.State] = onnxtest.Tensor{Shape: []int{rows, spec.StateSize}, Floats: append([]float32(nil), a.State...)}
	}
	out, err := m.Run(in)
	if err != nil {
		return err
	}
	if err := act(p, a); err != nil {
		return fmt.Errorf("runs, but Act does not: %w", err)
	}
	if spec.StateSize > 0 {
		if err := near(graph.NextState, out[graph.NextState].Floats, a.State, tolerance(a.Obs)); err != nil {
			return err
		}
	}
	action := out[graph.Action]
	if action.Type() == onnxtest.Float {
		return near(graph.Action, action.Floats, a.Action, tolerance(a.Obs))
	}
	for i, k := range action.Ints {
		if float32(k) != a.Action[i] && !tied(out, spec.Action, i, k, int64(a.Action[i])) {
			return fmt.Errorf("action %d is %d, Act has %v", i, k, a.Action[i])
		}
	}
	return nil
}

// tied reports whether two actions are equally good except for rounding: the outputs q_values or logits report it.
func tied(out map[string]onnxtest.Tensor, space envs.Space, i int, x, y int64) bool {
	sizes := []int{0}
	switch a := space.(type) {
	case envs.Discrete:
		sizes[0] = a.N
		x, y = x-int64(a.Start), y-int64(a.Start)
	case envs.MultiDiscrete:
		sizes = a.N
	}
	values, ok := out["q_values"]
	if !ok {
		values = out["logits"]
	}
	at := 0
	for k := range i {
		at += sizes[k%len(sizes)]
	}
	size := int64(sizes[i%len(sizes)])
	if min(x, y) < 0 || max(x, y) >= size || at+int(size) > len(values.Floats) {
		return false
	}
	a, b := float64(values.Floats[at+int(x)]), float64(values.Floats[at+int(y)])
	return math.Abs(a-b) < exportTolerance*(1+math.Abs(a))
}

// tolerance returns the greatest difference of numbers near 0 after an observation: the rounding error of a sum is
// relative to its largest term.
func tolerance(obs []float32) float64 {
	largest := 0.
	for _, x := range obs {
		largest = max(largest, math.Abs(float64(x)))
	}
	return exportTolerance * max(1, largest/100)
}

// near reports the first number that differs by more than a tolerance.
func near(name string, got, want []float32, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d values, want %d", name, len(got), len(want))
	}
	for i, x := range got {
		if d := math.Abs(float64(x) - float64(want[i])); !(d <= tolerance*(1+math.Abs(float64(want[i])))) {
			return fmt.Errorf("value %d of %s is %v, Act has %v", i, name, x, want[i])
		}
	}
	return nil
}
