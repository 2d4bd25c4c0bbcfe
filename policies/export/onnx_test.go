package export_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/onnxtest"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/ppo"
)

// TestONNXActsAlike, read and run by internal/onnxtest.
func TestONNXActsAlike(t *testing.T) {
	for name, p := range acting(t) {
		m, err := onnxtest.Parse(onnx(t, name, p))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		spec, s := p.Spec(), follow(t, p, 20, 3)
		for i := range s.obs {
			in := map[string]onnxtest.Tensor{graph.Obs: {Shape: []int{s.rows, spec.Obs.Dim()}, Floats: s.obs[i]}}
			if spec.StateSize > 0 {
				in[graph.State] = onnxtest.Tensor{Shape: []int{s.rows, spec.StateSize}, Floats: s.state[i]}
			}
			out, err := m.Run(in)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			action := out[graph.Action]
			err = differ(action.Floats, s.action[i])
			if action.Type() == onnxtest.Int64 {
				err = differ(action.Ints, s.action[i])
			}
			if err := errors.Join(err, differ(out[graph.NextState].Floats, s.state[i+1])); err != nil {
				t.Errorf("%s, step %d: %v", name, i, err)
			}
		}
	}
}

// TestONNXInPython: a third implementation, with Python's standard library, says the same.
func TestONNXInPython(t *testing.T) {
	leak.Check(t)
	actsAlike(t, func(t testing.TB, requests []onnxtest.Request) []onnxtest.Reply {
		replies := onnxtest.Python(t, requests)
		for i, r := range replies {
			if r.Meta == nil {
				t.Errorf("%s: no metadata", requests[i].Path)
			}
		}
		return replies
	})
}

// actsAlike runs the models of all policies in another program, which acts as they do. It need not return metadata.
func actsAlike(t *testing.T, run func(t testing.TB, requests []onnxtest.Request) []onnxtest.Reply) {
	t.Helper()
	var requests []onnxtest.Request
	var names []string
	var want []steps
	dir := t.TempDir()
	data := func(rows int, v []float32) onnxtest.PythonData {
		d := onnxtest.PythonData{Shape: []int{rows, len(v) / rows}}
		for _, x := range v {
			d.Data = append(d.Data, float64(x))
		}
		return d
	}
	for name, p := range acting(t) {
		path := filepath.Join(dir, name+".onnx")
		if err := os.WriteFile(path, onnx(t, name, p), 0o600); err != nil {
			t.Fatal(err)
		}
		s := follow(t, p, 6, 2)
		for i := range s.obs {
			r := onnxtest.Request{Path: path, Inputs: map[string]onnxtest.PythonData{graph.Obs: data(s.rows, s.obs[i])}}
			if p.Spec().StateSize > 0 {
				r.Inputs[graph.State] = data(s.rows, s.state[i])
			}
			requests, names = append(requests, r), append(names, fmt.Sprint(name, ", step ", i))
			want = append(want, steps{action: s.action[i : i+1], state: s.state[i+1 : i+2]})
		}
	}
	for i, r := range run(t, requests) {
		err := errors.Join(differ(r.Outputs[graph.Action].Data, want[i].action[0]), differ(r.Outputs[graph.NextState].Data, want[i].state[0]))
		if err != nil || r.Meta != nil && (r.Meta["env"] != "Test-v0" || r.Meta["ditask_version"] != "v1.2.3") {
			t.Errorf("%s: %v, metadata %v", names[i], err, r.Meta)
		}
	}
}

// TestONNXSaysWhatItIs: metadata, shapes, and initialisers with the names, shapes and values of Weights.
func TestONNXSaysWhatItIs(t *testing.T) {
	box := envs.Box{Low: []float32{-1, float32(math.Inf(-1))}, High: []float32{0.5, float32(math.Inf(1))}}
	p := ppo.New(ppo.Config{Obs: box, Action: envs.MultiDiscrete{N: []int{2, 3}}, Hidden: []int{4}, LSTM: 3, Length: 2})
	m, err := onnxtest.Parse(onnx(t, "ppo", p))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"algorithm": "ppo", "env": "Test-v0", "updates": "0", "ditask_version": "v1.2.3",
		"observation_space": `{"type":"Box","shape":[2],"low":[-1,null],"high":[0.5,null]}`,
		"action_space":      `{"type":"MultiDiscrete","nvec":[2,3]}`,
	}
	if fmt.Sprint(m.Meta) != fmt.Sprint(want) || m.Producer != "ditask" || m.Version != "v1.2.3" {
		t.Errorf("metadata %v of %s %s, want %v", m.Meta, m.Producer, m.Version, want)
	}
	const want1 = "[{obs 1 [-1 2]} {state 1 [-1 6]}]"
	const want2 = "[{action 7 [-1 2]} {logits 1 [-1 5]} {next_state 1 [-1 6]}]"
	if in, out := fmt.Sprint(m.Inputs), fmt.Sprint(m.Outputs); in != want1 || out != want2 {
		t.Errorf("inputs %s and outputs %s, want %s and %s", in, out, want1, want2)
	}
	found := 0
	for _, w := range p.Weights().Tensors {
		c, ok := m.Constants[w.Name]
		if critic := strings.HasPrefix(w.Name, "ppo.critic/"); ok == critic {
			t.Errorf("%s is in the file: %v", w.Name, ok)
		}
		if ok {
			found++
			if !slices.Equal(c.Shape, w.Shape) || !slices.Equal(c.Floats, w.Data) {
				t.Errorf("%s is %v in the file, %v in Weights", w.Name, c.Shape, w.Shape)
			}
		}
	}
	if found != 8 { // of a dense layer and an LSTM in the core, and of a dense layer of the actor
		t.Errorf("%d weights in the file, want 8", found)
	}
}

// TestSpacesAsJSON.
func TestSpacesAsJSON(t *testing.T) {
	column := envs.NewBox(0, 1, 2)
	column.Shape = []int{2, 1}
	for want, space := range map[string]envs.Space{
		`{"type":"Discrete","n":3,"start":-1}`:                                envs.Discrete{N: 3, Start: -1},
		`{"type":"Box","shape":[2,1,2],"pixels":true}`:                        envs.NewPixels(2, 1, 2),
		`{"type":"MultiBinary","n":3}`:                                        envs.MultiBinary{N: 3},
		`{"type":"Box","shape":[1],"low":[0],"high":[null]}`:                  envs.NewBox(0, float32(math.Inf(1)), 1),
		`{"type":"Box","shape":[2,1],"low":[0,0],"high":[1,1]}`:               column,
		`{"type":"Box","shape":[3],"low":[0.1,0.1,0.1],"high":[0.2,0.2,0.2]}`: envs.NewBox(0.1, 0.2, 3),
	} {
		p := dqn.New(dqn.Config{Obs: space, Action: envs.Discrete{N: 2}, Hidden: []int{2}})
		m, err := onnxtest.Parse(onnx(t, "dqn", p))
		if err != nil || m.Meta["observation_space"] != want {
			t.Errorf("%v is %s, want %s: %v", space, m.Meta["observation_space"], want, err)
		}
	}
}

// refusing is a policy with another Export.
type refusing struct {
	policies.Policy

	export func(g *graph.Graph, obs graph.Value) error
}

func (r refusing) Export(g *graph.Graph, obs graph.Value) error { return r.export(g, obs) }

// ownLayer is a layer of a program that cannot be exported.
type ownLayer struct{ nn.Layer }

// TestRefusals: every form of file has the error, and nothing is written.
func TestRefusals(t *testing.T) {
	inner := dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Hidden: []int{2}})
	broken := dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Hidden: []int{2}})
	broken.Online.Weights()[1] = float32(math.Inf(1))
	with := func(f func(g *graph.Graph, obs graph.Value)) policies.Policy {
		return refusing{inner, func(g *graph.Graph, obs graph.Value) error { f(g, obs); return nil }}
	}
	for _, c := range []struct {
		p           policies.Policy
		want        string
		unsupported bool
	}{
		{struct{ policies.Policy }{inner}, "cannot be exported: it is no policies.Exporter", true},
		{newNetPolicy(3, ownLayer{nn.Dense(2, nn.FanIn)}), "layer 0, export_test.ownLayer, cannot be exported: it has no method Export", true},
		{broken, "constant dense0.weight is not finite: value 1 is +Inf", false},
		{with(func(*graph.Graph, graph.Value) {}), "no output is named action", false},
		{with(func(g *graph.Graph, obs graph.Value) { g.Output(graph.Action, obs) }),
			"the output action is not as in Spec: want rows of []", false},
		{with(func(g *graph.Graph, obs graph.Value) {
			policies.ExportChoice(g, obs, envs.Discrete{N: 3})
			g.Output(graph.NextState, obs)
		}), "a state is not as in Spec: want none", false},
		{with(func(g *graph.Graph, obs graph.Value) {
			policies.ExportChoice(g, obs, envs.Discrete{N: 3})
			g.Input("mask", 3)
		}), "the input mask is not known", false},
	} {
		for form, write := range forms(c.p, export.Meta{}) {
			var out bytes.Buffer
			err := write(&out)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, graph.ErrUnsupported) != c.unsupported || out.Len() > 0 {
				t.Errorf("%s: %d bytes, %v, want %s", form, out.Len(), err, c.want)
			}
		}
	}
	for form, write := range forms(inner, export.Meta{Env: "\xff"}) {
		if err := write(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), `env is "\xff", want valid UTF-8`) {
			t.Errorf("%s: %v", form, err)
		}
	}
}
