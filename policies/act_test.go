package policies_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// TestActCheckNamesWhatDoesNotFit: two rows of three observed and one action value, two extra
// columns and a state of two values.
func TestActCheckNamesWhatDoesNotFit(t *testing.T) {
	spec := policies.Spec{
		Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, StateSize: 2,
		Extra: []policies.Column{{Name: "one", Kind: policies.Float32}, {Name: "two", Kind: policies.Float32, Shape: []int{2}}},
	}
	values := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		name, want string
		edit       func(a *policies.Act)
	}{
		{"all fits", "", func(*policies.Act) {}},
		{"what is not wanted", "", func(a *policies.Act) { a.Extra, a.Reset = nil, nil }},
		{"no rows", "0 observed and 0 action values, want 3 and 1 for each row", func(a *policies.Act) { a.Obs, a.Action = nil, nil }},
		{"half a row", "5 observed and 2 action", func(a *policies.Act) { a.Obs = values(5) }},
		{"few actions", "6 observed and 1 action", func(a *policies.Act) { a.Action = values(1) }},
		{"many actions", "6 observed and 3 action", func(a *policies.Act) { a.Action = values(3) }},
		{"state", "3 state values of 2 rows, want 2 for each", func(a *policies.Act) { a.State = values(3) }},
		{"reset", "3 resets of 2 rows", func(a *policies.Act) { a.Reset = make([]bool, 3) }},
		{"extra", "memory for 1 extra columns, want 2", func(a *policies.Act) { a.Extra = a.Extra[:1] }},
		{"narrow extra", "2 values of the extra column two float32 [2] of 2 rows", func(a *policies.Act) { a.Extra[1] = values(2) }},
		{"NaN", "tensor obs is not finite: value 4 is NaN", func(a *policies.Act) { a.Obs[4] = float32(math.NaN()) }},
	} {
		a := policies.Act{Obs: values(6), Action: values(2), State: values(4), Reset: make([]bool, 2), Extra: [][]float32{values(2), values(4)}}
		c.edit(&a)
		rows, err := a.Check(&spec)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err == nil && rows != 2 {
			t.Errorf("%s: %d rows, want 2", c.name, rows)
		}
		if _, ok := errors.AsType[*nn.NonFiniteError](err); ok != (c.name == "NaN") {
			t.Errorf("%s: %T", c.name, err)
		}
	}
	spec.StateSize = 0
	a := policies.Act{Obs: values(3), Action: values(1), State: values(7), Rand: rand.New(rand.NewPCG(1, 1))}
	if _, err := a.Check(&spec); err != nil {
		t.Errorf("a state that the policy does not have: %v", err)
	}
}
