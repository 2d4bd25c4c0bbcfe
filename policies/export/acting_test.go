package export_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/a2c"
	"github.com/ditask/ditask/policies/appo"
	"github.com/ditask/ditask/policies/bc"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/cql"
	"github.com/ditask/ditask/policies/ddpg"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/qlearning"
	"github.com/ditask/ditask/policies/qrdqn"
	"github.com/ditask/ditask/policies/rainbow"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/policies/td3"
)

// netPolicy is a policy of one network, which acts by the greatest of its outputs: for layers that no
// algorithm here has.
type netPolicy struct {
	policies.Policy // nil: it does not learn

	net  *nn.Net
	spec policies.Spec
}

func newNetPolicy(in int, layers ...nn.Layer) *netPolicy {
	p := &netPolicy{net: nn.New(in, 3, layers...)}
	p.spec = policies.Spec{Obs: envs.NewBox(-1, 1, in), Action: envs.Discrete{N: p.net.Out()}, StateSize: p.net.StateSize()}
	return p
}

func (p *netPolicy) Spec() policies.Spec       { return p.spec }
func (p *netPolicy) Version() uint64           { return 0 }
func (p *netPolicy) Weights() nn.State         { return p.net.State(0) }
func (p *netPolicy) Load(state nn.State) error { return p.net.Load(state) }

func (p *netPolicy) Act(a *policies.Act) error {
	out := p.net.Step(nn.Matrix{Rows: len(a.Obs) / p.net.In(), Cols: p.net.In(), Data: a.Obs}, a.State, nil)
	for i := range out.Rows {
		a.Action[i] = float32(slices.Index(out.Row(i), slices.Max(out.Row(i))))
	}
	return nil
}

func (p *netPolicy) Export(g *graph.Graph, obs graph.Value) error {
	var y, next graph.Value
	var err error
	if p.spec.StateSize > 0 {
		if y, next, err = p.net.ExportStep(g, "", obs, g.Input(graph.State, p.spec.StateSize)); err == nil {
			g.Output(graph.NextState, next)
		}
	} else {
		y, err = p.net.Export(g, "", obs)
	}
	if err != nil {
		return err
	}
	g.Output("q_values", y)
	policies.ExportChoice(g, y, envs.Discrete{N: p.net.Out()})
	return nil
}

// acting returns one of each algorithm and kind of action, and networks with all layers. Their weights are random
// and of the size of trained ones.
func acting(t *testing.T) map[string]policies.Policy {
	obs, wide := envs.NewBox(-1, 1, 3), envs.NewBox(float32(math.Inf(-1)), float32(math.Inf(1)), 2)
	box, hidden := envs.Box{Low: []float32{-1, 0}, High: []float32{1, 4}}, []int{6, 5}
	three, multi, late := envs.Discrete{N: 3}, envs.MultiDiscrete{N: []int{2, 3}}, envs.Discrete{N: 3, Start: -4}
	all := map[string]policies.Policy{
		"a2c":                a2c.New(a2c.Config{Obs: obs, Action: three, Hidden: hidden}),
		"appo":               appo.New(appo.Config{Obs: obs, Action: wide, Hidden: hidden}),
		"bc":                 bc.New(bc.Config{Obs: obs, Action: late, Hidden: hidden}),
		"bc box":             bc.New(bc.Config{Obs: obs, Action: box, Hidden: hidden}),
		"c51":                c51.New(c51.Config{Obs: obs, Action: late, Hidden: hidden, Atoms: 5, Low: -2, High: 3}),
		"cql":                cql.New(cql.Config{Obs: obs, Action: box, Hidden: hidden}),
		"cql discrete":       cql.NewDiscrete(cql.DiscreteConfig{Obs: obs, Action: late, Hidden: hidden}),
		"ddpg":               ddpg.New(ddpg.Config{Obs: obs, Action: box, Hidden: hidden}),
		"dqn":                dqn.New(dqn.Config{Obs: obs, Action: late, Hidden: hidden}),
		"dqn dueling":        dqn.New(dqn.Config{Obs: obs, Action: three, Hidden: hidden, Dueling: true}),
		"dqn noisy":          dqn.New(dqn.Config{Obs: obs, Action: three, Hidden: hidden, Noisy: true}),
		"impala":             impala.New(impala.Config{Obs: obs, Action: multi, Hidden: hidden}),
		"normalize":          normalize.New(dqn.New(dqn.Config{Obs: obs, Action: three, Hidden: hidden}), normalize.Config{Clip: 2}),
		"ppo":                ppo.New(ppo.Config{Obs: obs, Action: three, Hidden: hidden}),
		"ppo box":            ppo.New(ppo.Config{Obs: obs, Action: wide, Hidden: hidden}),
		"ppo multi-discrete": ppo.New(ppo.Config{Obs: obs, Action: multi, Hidden: hidden}),
		"ppo recurrent":      ppo.New(ppo.Config{Obs: obs, Action: three, Hidden: hidden, LSTM: 4, Length: 2}),
		"qlearning":          qlearning.New(qlearning.Config{Obs: envs.Discrete{N: 7, Start: 2}, Action: late}),
		"qrdqn":              qrdqn.New(qrdqn.Config{Obs: obs, Action: three, Hidden: hidden, Quantiles: 4, Dueling: true}),
		"rainbow":            rainbow.New(rainbow.Config{Obs: obs, Action: three, Hidden: hidden, Atoms: 5}),
		"sac":                sac.New(sac.Config{Obs: obs, Action: box, Hidden: hidden}),
		"sac discrete":       sac.New(sac.Config{Obs: obs, Action: three, Hidden: hidden}),
		"td3":                td3.New(td3.Config{Obs: obs, Action: box, Hidden: hidden}),
		"convolutions": newNetPolicy(9*8*2, nn.Image(9, 8, 2), nn.Scale(0.5), nn.Conv2D(4, 3, 2, nn.Kaiming), nn.ReLU(),
			nn.Conv2D(3, 2, 1, nn.Kaiming), nn.Tanh(), nn.Dense(3, nn.FanIn)),
		"gru":        newNetPolicy(3, nn.Dense(4, nn.FanIn), nn.GRU(5, nil), nn.Dense(3, nn.FanIn)),
		"two layers": newNetPolicy(3, nn.LSTM(4, nil), nn.LayerNorm(), nn.GRU(5, nil), nn.Dense(3, nn.FanIn)),
		"layers":     newNetPolicy(3, nn.Dense(6, nn.FanIn), nn.LayerNorm(), nn.ReLU(), nn.Dense(2, nn.FanIn), nn.Learned(2, 0.1)),
		"embedding":  newNetPolicy(1, nn.Embedding(5, 4, nn.Normal(1)), nn.Tanh(), nn.Dense(3, nn.FanIn)),
	}
	all["embedding"].(*netPolicy).spec.Obs = envs.Discrete{N: 5}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rng, p := rand.New(rand.NewPCG(4, uint64(len(name)))), all[name]
		w := p.Weights()
		for _, tensor := range w.Tensors {
			for i := range tensor.Data {
				tensor.Data[i] += 0.4 * float32(rng.NormFloat64())
			}
		}
		if err := p.Load(w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// steps are that many steps of some environments: observations, actions by Act with Greedy, and states between.
type steps struct {
	rows               int
	obs, action, state [][]float32 // state i is before step i, and one more behind the last
}

// follow acts greedily. Recurrent policies begin with a state of zeros.
func follow(t *testing.T, p policies.Policy, rows, n int) steps {
	t.Helper()
	spec, rng := p.Spec(), rand.New(rand.NewPCG(5, 5))
	s := steps{rows: rows, state: [][]float32{make([]float32, rows*spec.StateSize)}}
	for step := range n {
		a := policies.Act{
			Obs: make([]float32, rows*spec.Obs.Dim()), Action: make([]float32, rows*spec.Action.Dim()),
			State: slices.Clone(s.state[step]), Greedy: true,
		}
		for i := range rows {
			row := a.Obs[i*spec.Obs.Dim():][:spec.Obs.Dim()]
			spec.Obs.Sample(row, rng)
			if _, ok := spec.Obs.(envs.Box); ok && step == 1 { // extreme
				for k := range row {
					row[k] *= 50
				}
			}
		}
		s.obs = append(s.obs, slices.Clone(a.Obs))
		if err := p.Act(&a); err != nil {
			t.Fatal(err)
		}
		s.action, s.state = append(s.action, a.Action), append(s.state, a.State)
	}
	return s
}

// onnx returns the ONNX file of a policy.
func onnx(t *testing.T, name string, p policies.Policy) []byte {
	t.Helper()
	var file, again bytes.Buffer
	meta := export.Meta{Algorithm: name, Env: "Test-v0", Version: "v1.2.3"}
	if err := export.ONNX(&file, p, meta); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := export.ONNX(&again, p, meta); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Errorf("%s: two files of one policy differ: %v", name, err)
	}
	return file.Bytes()
}

// differ reports a difference of more than rounding.
func differ[T float32 | float64 | int | int64](got []T, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	for i, x := range got {
		if !(math.Abs(float64(x)-float64(want[i])) <= 1e-5*(1+math.Abs(float64(want[i])))) {
			return fmt.Errorf("value %d is %v, want %v", i, x, want[i])
		}
	}
	return nil
}
