package policytest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/onnxtest"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
)

func exportFaults() []fault {
	with := func(name, want string, export func(p *faulty, g *graph.Graph, obs graph.Value) error) fault {
		return fault{"export", name, want, func(p *faulty, _ uint64) {
			p.export = func(g *graph.Graph, obs graph.Value) error { return export(p, g, obs) }
		}}
	}
	return []fault{
		with("an error", "the export to ONNX: export: no", func(*faulty, *graph.Graph, graph.Value) error { return errors.New("no") }),
		with("nothing", "no output is named action", func(*faulty, *graph.Graph, graph.Value) error { return nil }),
		with("another network", "the exported network: action", func(_ *faulty, g *graph.Graph, obs graph.Value) error {
			return newToy(9).Export(g, obs)
		}),
		with("other observations", "the exported network: ", func(p *faulty, g *graph.Graph, obs graph.Value) error {
			return p.toy.Export(g, obs.Scale(0.9))
		}),
		with("another state", "value 0 of next_state is", func(p *faulty, g *graph.Graph, obs graph.Value) error {
			err := p.toy.Export(g, obs)
			for i := range g.Nodes {
				if g.Nodes[i].Op == graph.Scale {
					g.Nodes[i].Floats[0] = 0.51
				}
			}
			return err
		}),
		with("the weights of the first call", "round 1, observations", func() func(p *faulty, g *graph.Graph, obs graph.Value) error {
			var first []float32
			return func(p *faulty, g *graph.Graph, obs graph.Value) error {
				if first == nil {
					first = append(first, p.net.Weights()...)
					for i := range first {
						first[i] += 0.2 * float32(i%3)
					}
				}
				now := append([]float32(nil), p.net.Weights()...)
				if p.updates > 0 {
					copy(p.net.Weights(), first)
				}
				err := p.toy.Export(g, obs)
				copy(p.net.Weights(), now)
				return err
			}
		}()),
	}
}

// TestRefusedExportPasses, except for one whose error is not graph.ErrUnsupported.
func TestRefusedExportPasses(t *testing.T) {
	export := check{"export", (*suite).exported}
	cfg := faultyConfig(func(p *faulty, _ uint64) {
		p.export = func(*graph.Graph, graph.Value) error { return fmt.Errorf("toy %w", graph.ErrUnsupported) }
	})
	if err := export.test(cfg); err != nil {
		t.Error(err)
	}
}

// TestTiedActions: other actions pass only where their values are equal except for rounding.
func TestTiedActions(t *testing.T) {
	values := func(name string, v ...float32) map[string]onnxtest.Tensor {
		return map[string]onnxtest.Tensor{name: {Shape: []int{1, len(v)}, Floats: v}}
	}
	multi := envs.MultiDiscrete{N: []int{2, 3}}
	for _, c := range []struct {
		name  string
		out   map[string]onnxtest.Tensor
		space envs.Space
		i     int
		x, y  int64
		want  bool
	}{
		{"equal", values("q_values", 1, 2, 2.000001), envs.Discrete{N: 3}, 0, 1, 2, true},
		{"apart", values("q_values", 1, 2, 2.0001), envs.Discrete{N: 3}, 0, 1, 2, false},
		{"logits", values("logits", 1, 2, 2), envs.Discrete{N: 3}, 0, 1, 2, true},
		{"with a start", values("logits", 1, 2, 2), envs.Discrete{N: 3, Start: 5}, 0, 6, 7, true},
		{"not in the space", values("logits", 1, 2, 2), envs.Discrete{N: 3}, 0, 2, 3, false},
		{"no values", nil, envs.Discrete{N: 3}, 0, 1, 2, false},
		{"the second row", values("logits", 1, 2, 3, 3), envs.Discrete{N: 2}, 1, 0, 1, true},
		{"the second choice", values("logits", 1, 2, 3, 4, 4), multi, 1, 1, 2, true},
		{"the second choice of the second row", values("logits", 0, 0, 0, 0, 0, 1, 2, 3, 4, 4), multi, 3, 0, 1, false},
	} {
		if got := tied(c.out, c.space, c.i, c.x, c.y); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// unexported is a policy that is no policies.Exporter.
type unexported struct{ policies.Policy }

// TestPolicyNeedNotBeAnExporter.
func TestPolicyNeedNotBeAnExporter(t *testing.T) {
	export := check{"export", (*suite).exported}
	if err := export.test(Config{New: func(seed uint64) policies.Policy { return unexported{newToy(seed)} }}); err != nil {
		t.Error(err)
	}
}
