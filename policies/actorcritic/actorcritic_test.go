package actorcritic

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

var spaces = map[string]envs.Space{
	"discrete": envs.Discrete{N: 3}, "multi-discrete": envs.MultiDiscrete{N: []int{2, 3}}, "box": envs.NewBox(-1, 1, 2),
}

func model(space envs.Space, lstm int) *Model {
	return New(Config{
		Algorithm: "x", Obs: envs.NewBox(-1, 1, 2), Action: space, Seed: 3, Hidden: []int{4}, LSTM: lstm, Length: 2,
		Extra: []string{policies.ActionDist, policies.Value, policies.LogProb}, Optimizer: nn.AdamConfig{}.New, OptimizerName: "adam",
	})
}

// act has room for rows of m.
func act(m *Model, rows int) *policies.Act {
	s := m.NewSpec()
	a := &policies.Act{
		Obs: make([]float32, rows*s.Obs.Dim()), Action: make([]float32, rows*s.Action.Dim()), State: make([]float32, rows*s.StateSize),
		Rand: rand.New(rand.NewPCG(1, 1)),
	}
	for _, c := range s.Extra {
		a.Extra = append(a.Extra, make([]float32, rows*c.Width()))
	}
	return a
}

// TestActionDistGivesTheDistributionAgain: from the column of that name comes the log-probability of
// the action, and a divergence of 0 from what acting used.
func TestActionDistGivesTheDistributionAgain(t *testing.T) {
	for name, space := range spaces {
		m := model(space, 0)
		a := act(m, 3)
		a.Obs = []float32{1, -1, 0.5, 0, -0.25, 1}
		if err := m.Act(a); err != nil {
			t.Fatal(err)
		}
		var tape nn.Tape
		again := m.DistributionOf(tape.Const(3, m.Actor.Out(), a.Extra[0]))
		d := m.DistributionOf(m.Actor.Apply(&tape, tape.Const(3, 2, a.Obs)))
		if got := again.LogProb(a.Action).Data(); !slices.Equal(got, a.Extra[2]) {
			t.Errorf("%s: log-probabilities %v, want %v", name, got, a.Extra[2])
		}
		other := m.DistributionOf(tape.Const(3, m.Actor.Out(), slices.Repeat([]float32{0.5, 0, -0.5, 1, 0.25}[:m.Actor.Out()], 3)))
		for i := range 3 {
			if same, far := again.KL(&d).Data()[i], other.KL(&d).Data()[i]; same != 0 || !(far > 0.01) {
				t.Errorf("%s: divergences %v from itself and %v from another", name, same, far)
			}
		}
	}
}

// TestSpec has the columns in the order of the config, and those of the state behind them.
func TestSpec(t *testing.T) {
	s := model(envs.MultiDiscrete{N: []int{2, 3}}, 4).NewSpec(policies.Reward, policies.NextObs, policies.Version)
	var extra, learns []string
	for _, c := range s.Extra {
		extra = append(extra, c.String())
	}
	for _, c := range s.Learns {
		learns = append(learns, c.String())
	}
	if got := strings.Join(extra, ", "); got != "action_dist float32 [5], value float32, log_prob float32, state float32 [8]" {
		t.Error(got)
	}
	want := "obs float32 [2], action float32 [2], reward float32, next_obs float32 [2], version uint64, " +
		"state float32 [8], terminated bool, truncated bool"
	if got := strings.Join(learns, ", "); got != want || s.StateSize != 8 || s.Bootstrap != "" {
		t.Errorf("%s; state of %d, bootstrap %q", got, s.StateSize, s.Bootstrap)
	}
}

// TestActRefuses what does not fit and what is not finite, and leaves the state as it was.
func TestActRefuses(t *testing.T) {
	for want, edit := range map[string]func(m *Model, a *policies.Act){
		"x: 3 observed and 2 action values":                       func(_ *Model, a *policies.Act) { a.Obs = a.Obs[:3] },
		"x: 4 observed and 1 action values":                       func(_ *Model, a *policies.Act) { a.Action = a.Action[:1] },
		"x: 15 state values of 2 rows, want 8 for each":           func(_ *Model, a *policies.Act) { a.State = a.State[:15] },
		"x: 1 resets of 2 rows":                                   func(_ *Model, a *policies.Act) { a.Reset = []bool{true} },
		"x: memory for 3 extra columns, want 4":                   func(_ *Model, a *policies.Act) { a.Extra = a.Extra[:3] },
		"x: 1 values of the extra column value float32 of 2 rows": func(_ *Model, a *policies.Act) { a.Extra[1] = a.Extra[1][:1] },
		"x: no random numbers to sample actions with":             func(_ *Model, a *policies.Act) { a.Rand = nil },
		"tensor obs is not finite":                                func(_ *Model, a *policies.Act) { a.Obs[3] = float32(math.Inf(1)) },
		"tensor state is not finite":                              func(_ *Model, a *policies.Act) { a.State[3] = float32(math.NaN()) },
		"tensor dense0.weight is not finite":                      func(m *Model, _ *policies.Act) { m.Actor.Weights()[0] = float32(math.NaN()) },
		"tensor lstm2.weight_input is not finite: value 1": func(m *Model,
			_ *policies.Act) {
			m.Core.Params()[2].Value[1] = float32(math.NaN())
		},
	} {
		m := model(envs.Discrete{N: 3}, 4)
		a := act(m, 2)
		a.Obs[0] = 1
		edit(m, a)
		before := slices.Clone(a.State)
		err := m.Act(a)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if !slices.EqualFunc(before, a.State, func(x, y float32) bool { return x == y || x != x && y != y }) {
			t.Errorf("%s: the state has changed", want)
		}
	}
}

// TestLoadChangesNothingIfOneNetworkDoesNotFit: the networks before it get their weights back.
func TestLoadChangesNothingIfOneNetworkDoesNotFit(t *testing.T) {
	m, other := model(envs.Discrete{N: 3}, 4), model(envs.Discrete{N: 3}, 4)
	for _, net := range other.nets() {
		for i := range net.Weights() {
			net.Weights()[i]++
		}
	}
	good := other.Weights()
	good.Version = 7
	for part, edit := range map[string]func(tensors []nn.Tensor){
		"x.actor": func(tensors []nn.Tensor) { tensors[0].Data[0] = float32(math.NaN()) },
		"x.core":  func(tensors []nn.Tensor) { tensors[len(tensors)-1].Data[0] = float32(math.Inf(-1)) },
		"x.critic": func(tensors []nn.Tensor) {
			i := slices.IndexFunc(tensors, func(t nn.Tensor) bool { return strings.HasPrefix(t.Name, "x.critic/") })
			tensors[i].Name = "y"
		},
	} {
		bad := other.Weights()
		edit(bad.Tensors)
		before := m.Weights()
		err := m.Load(bad)
		if err == nil || !strings.Contains(err.Error(), "load "+part) {
			t.Errorf("%s: %v", part, err)
		}
		for i, tensor := range m.Weights().Tensors {
			if !slices.Equal(tensor.Data, before.Tensors[i].Data) || m.Version() != 0 {
				t.Errorf("%s: tensor %s has changed, version %d", part, tensor.Name, m.Version())
			}
		}
	}
	if err := m.Load(good); err != nil || m.Version() != 7 || !slices.Equal(m.Core.Weights(), other.Core.Weights()) {
		t.Errorf("version %d, %v", m.Version(), err)
	}
}

// TestP1KLCoefEqualsHandComputedNumbers above twice the target, below half of it, and in between.
func TestP1KLCoefEqualsHandComputedNumbers(t *testing.T) {
	k := KLCoef{Value: 0.2, Target: 0.01}
	for _, c := range []struct{ kl, want float64 }{{0.03, 0.3}, {0.025, 0.45}, {0.02, 0.45}, {0.005, 0.45}, {0.004, 0.225}, {0, 0.1125}} {
		if k.Adapt(c.kl); math.Abs(k.Value-c.want) > 1e-12 {
			t.Errorf("after a divergence of %v the coefficient is %v, want %v", c.kl, k.Value, c.want)
		}
	}
}

// TestP1VTraceTakesTheValuesBehindTheEnds from the critic, which says the observation here, for truncated
// steps and ends of sequences only.
func TestP1VTraceTakesTheValuesBehindTheEnds(t *testing.T) {
	critic := nn.New(1, 1, nn.Dense(1, nn.Zeros))
	copy(critic.Weights(), []float32{1, 0})
	v := VTrace{Length: 3, VTraceConfig: data.VTraceConfig{Gamma: 0.99}}
	m := New(Config{Algorithm: "x", Obs: envs.NewBox(-1, 1, 1), Action: envs.Discrete{N: 2}, Optimizer: nn.AdamConfig{}.New})
	var b policies.Batch
	b.Init(m.NewSpec(v.Columns()...).Learns...)
	b.Resize(6)
	copy(b.Floats(policies.Reward), []float32{1, 1, 1, 1, 1, 1})
	copy(b.Floats(policies.NextObs), []float32{50, 50, 0.8, 2, 50, 50})
	copy(b.Bytes(policies.Terminated), []uint8{0, 0, 0, 0, 0, 1})
	copy(b.Bytes(policies.Truncated), []uint8{0, 0, 0, 1, 0, 1})
	v.Compute(critic, &b, []float32{0.5, 0.6, 0.7, 0, 0, 0}, []float32{1.5, 0.5, 1, 1, 1, 1})
	if err := errors.Join(v.Check(&b), m.Check(&b, m.NewSpec(v.Columns()...).Learns...)); err != nil {
		t.Error(err)
	}
	for i, want := range []float64{2.67017, 1.68704, 1.792, 2.98, 1.99, 1} {
		if got := float64(v.Targets[i]); math.Abs(got-want) > 1e-5 {
			t.Errorf("target %d is %v, want %v", i, got, want)
		}
	}
	for i, want := range []float64{2.17017, 1.08704, 1.092, 2.98, 1.99, 1} {
		if got := float64(v.Advantages[i]); math.Abs(got-want) > 1e-5 {
			t.Errorf("advantage %d is %v, want %v", i, got, want)
		}
	}
	b.Resize(5)
	if err := v.Check(&b); err == nil || !strings.Contains(err.Error(), "5 rows, want whole sequences of 3 steps") {
		t.Errorf("%v", err)
	}
}

func TestFaults(t *testing.T) {
	for want, space := range map[string]envs.Space{
		"Action is <nil>, want a Discrete": nil, "Action is Discrete(1)": envs.Discrete{N: 1},
		"Action.N[1] is 1":         envs.MultiDiscrete{N: []int{2, 1}},
		"want at least one choice": envs.MultiDiscrete{}, "want a Discrete, a MultiDiscrete or a Box": envs.MultiBinary{N: 2},
	} {
		err := errors.Join(Faults("x", nil, space, []int{0})...)
		for _, want := range []string{want, "x config: Obs is <nil>", "Hidden[0] is 0"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	for name, space := range spaces {
		if faults := Faults("x", envs.NewBox(0, 1, 1), space, nil); len(faults) != 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}
