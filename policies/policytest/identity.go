package policytest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// spec: the description is consistent, fits its spaces and does not change.
func (s *suite) spec() {
	p := s.New(1)
	spec := p.Spec()
	for name, space := range map[string]envs.Space{"Obs": spec.Obs, "Action": spec.Action} {
		if space == nil || space.Dim() < 1 {
			s.faultf("Spec.%s is %v, want a space of at least one value", name, space)
			return
		}
	}
	if len(spec.Learns) == 0 {
		s.faultf("Spec.Learns is empty")
	}
	if spec.StateSize < 0 {
		s.faultf("Spec.StateSize is %d", spec.StateSize)
	}
	s.columns("Learns", spec.Learns, spec)
	s.columns("Extra", spec.Extra, spec)
	for _, c := range spec.Extra {
		if c.Kind != policies.Float32 {
			s.faultf("Spec.Extra has the column %v, want float32, which Act.Extra has", c)
		}
	}
	if name := spec.Bootstrap; name != "" && !slices.ContainsFunc(spec.Extra, func(c policies.Column) bool { return c.Name == name }) {
		s.faultf("Spec.Bootstrap is %q, which is no column of Spec.Extra", name)
	}
	other, same := s.New(2), s.New(1)
	if _, err := s.rounds(p, 0, 2); !s.must(err) {
		return
	}
	for what, q := range map[string]policies.Policy{"after it has learned": p, "of another seed": other, "of another policy": same} {
		if now := q.Spec(); !reflect.DeepEqual(now, spec) {
			s.faultf("Spec %s is %v, want %v", what, now, spec)
		}
	}
}

// columns reports columns that are not unique or have another form than the package policies gives
// their name.
func (s *suite) columns(list string, columns []policies.Column, spec policies.Spec) {
	seen := map[string]bool{}
	for _, c := range columns {
		narrow := slices.ContainsFunc(c.Shape, func(d int) bool { return d < 1 })
		if c.Name == "" || seen[c.Name] || c.Kind.Bytes() == 0 || narrow {
			s.faultf("Spec.%s has the column %v, want a unique name, a known kind and a shape of at least one value", list, c)
			continue
		}
		seen[c.Name] = true
		if want := form(c, spec); want != "" {
			s.faultf("Spec.%s has the column %v, want %s", list, c, want)
		}
	}
}

// form is how a column of a name that algorithms share should be instead, or "".
func form(c policies.Column, spec policies.Spec) string {
	kind, width := policies.Float32, 1
	switch c.Name {
	case policies.Obs, policies.NextObs:
		width = spec.Obs.Dim()
		if box, ok := spec.Obs.(envs.Box); ok && box.Pixels && c.Kind == policies.Uint8 {
			kind = policies.Uint8
		}
	case policies.Action:
		width = spec.Action.Dim()
	case policies.Terminated, policies.Truncated:
		kind = policies.Bool
	case policies.Steps:
		kind = policies.Uint8
	case policies.Version:
		kind = policies.Uint64
	case policies.Reward, policies.LogProb, policies.Value, policies.Bootstrap, policies.Advantage, policies.Return, policies.Weight:
	default:
		return ""
	}
	if c.Kind != kind || c.Width() != width {
		return fmt.Sprintf("%v and %d values", kind, width)
	}
	return ""
}

// seed: policies of one seed give the same bits, and those of another seed others.
func (s *suite) seed() {
	const rounds = 5
	a, b, c := s.New(1), s.New(1), s.New(2)
	logA, errA := s.rounds(a, 0, rounds)
	logB, errB := s.rounds(b, 0, rounds)
	logC, errC := s.rounds(c, 0, rounds)
	if !s.must(errA) || !s.must(errB) || !s.must(errC) {
		return
	}
	fileA, errA := snapshot(a)
	fileB, errB := snapshot(b)
	if !s.must(errA) || !s.must(errB) {
		return
	}
	if d := difference(logA, logB); d != "" {
		s.faultf("two policies of the same seed differ: %s", d)
	}
	if d := changed(fileA, fileB); d != "" {
		s.faultf("two policies of the same seed save different archives: %s", d)
	}
	switch d := difference(logA, logC); {
	case s.Seedless && d != "":
		s.faultf("Config.Seedless is set, but another seed makes a difference: %s", d)
	case !s.Seedless && d == "":
		s.faultf("another seed gives the same actions and metrics, although Config.Seedless is not set")
	}
}
