package export

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
)

// Meta describes the policy in a file. Every field may be empty; empty fields are left out.
type Meta struct {
	Algorithm string // such as "ppo"
	Env       string // such as "CartPole-v1"
	// Version is that of ditask; empty means the one in the program's build information.
	Version string
}

// module is the import path by which build information knows ditask.
const module = "github.com/ditask/ditask"

// version returns the version of ditask in this program.
func version(info *debug.BuildInfo, ok bool) string {
	const unknown = "(devel)"
	if !ok {
		return unknown
	}
	if info.Main.Path == module {
		return cmp.Or(info.Main.Version, unknown)
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return cmp.Or(d.Version, unknown)
		}
	}
	return unknown
}

// property is one entry of a file's metadata.
type property struct{ key, value string }

// properties returns the metadata of a policy's file, in the order in which they are written.
func (m Meta) properties(p policies.Policy) ([]property, error) {
	spec := p.Spec()
	obs, err := spaceJSON(spec.Obs)
	if err != nil {
		return nil, fmt.Errorf("the observation space: %w", err)
	}
	action, err := spaceJSON(spec.Action)
	if err != nil {
		return nil, fmt.Errorf("the action space: %w", err)
	}
	all := []property{
		{"algorithm", m.Algorithm},
		{"env", m.Env},
		{"observation_space", obs},
		{"action_space", action},
		{"updates", strconv.FormatUint(p.Version(), 10)},
		{"ditask_version", cmp.Or(m.Version, version(debug.ReadBuildInfo()))},
	}
	for _, x := range all {
		if !utf8.ValidString(x.value) {
			return nil, fmt.Errorf("%s is %q, want valid UTF-8", x.key, x.value)
		}
	}
	return slices.DeleteFunc(all, func(x property) bool { return x.value == "" }), nil
}

// spaceJSON returns a space as JSON, in Gymnasium's words. A bound that is infinite is null.
func spaceJSON(space envs.Space) (string, error) {
	out := struct {
		Type   string     `json:"type"`
		N      int        `json:"n,omitempty"`
		Start  *int       `json:"start,omitempty"`
		NVec   []int      `json:"nvec,omitempty"`
		Shape  []int      `json:"shape,omitempty"`
		Low    []*float32 `json:"low,omitempty"`
		High   []*float32 `json:"high,omitempty"`
		Pixels bool       `json:"pixels,omitempty"`
	}{}
	switch s := space.(type) {
	case envs.Discrete:
		out.Type, out.N, out.Start = "Discrete", s.N, &s.Start
	case envs.MultiDiscrete:
		out.Type, out.NVec = "MultiDiscrete", s.N
	case envs.MultiBinary:
		out.Type, out.N = "MultiBinary", s.N
	case envs.Box:
		out.Type, out.Shape, out.Pixels = "Box", s.Shape, s.Pixels
		if s.Shape == nil {
			out.Shape = []int{s.Dim()}
		}
		if !s.Pixels { // those are 0 and 255
			out.Low, out.High = bounds(s.Low), bounds(s.High)
		}
	case nil:
		return "", errors.New("there is none")
	default:
		out.Type, out.Shape = space.String(), []int{space.Dim()}
	}
	text, err := json.Marshal(out)
	return string(text), err
}

// bounds returns the values, with nil for those that are infinite.
func bounds(values []float32) []*float32 {
	out := make([]*float32, len(values))
	for i := range values {
		if !math.IsInf(float64(values[i]), 0) {
			out[i] = &values[i]
		}
	}
	return out
}

// Graph returns the computation of the policy's greedy actions. The error names the part that cannot be described.
func Graph(p policies.Policy) (*graph.Graph, error) {
	e, ok := p.(policies.Exporter)
	if !ok {
		return nil, fmt.Errorf("export: %T %w: it is no policies.Exporter", p, graph.ErrUnsupported)
	}
	spec := p.Spec()
	g := graph.New()
	if err := e.Export(g, g.Input(graph.Obs, spec.Obs.Dim())); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	g.Prune()
	if err := errors.Join(g.Check(), fits(g, &spec)); err != nil {
		return nil, fmt.Errorf("export %T: %w", p, err)
	}
	return g, nil
}

// fits reports differences of inputs and outputs from the policy's Spec.
func fits(g *graph.Graph, spec *policies.Spec) error {
	var faults []error
	want := func(what string, n *graph.Node, kind graph.Kind, shape ...int) {
		if n == nil || n.Kind != kind || !slices.Equal(n.Shape, shape) {
			faults = append(faults, fmt.Errorf("the %s is not as in Spec: want rows of %v", what, shape))
		}
	}
	outputs, inputs := map[string]*graph.Node{}, map[string]*graph.Node{}
	for _, o := range g.Outputs {
		outputs[o.Name] = &g.Nodes[o.Node]
	}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Op == graph.Input {
			inputs[n.Name] = n
			if n.Name != graph.Obs && n.Name != graph.State {
				faults = append(faults, fmt.Errorf("the input %s is not known: want %s and %s only", n.Name, graph.Obs, graph.State))
			}
		}
	}
	switch a := spec.Action.(type) {
	case envs.Discrete:
		want("output action", outputs[graph.Action], graph.Int64)
	case envs.MultiDiscrete:
		want("output action", outputs[graph.Action], graph.Int64, len(a.N))
	case envs.Box:
		want("output action", outputs[graph.Action], graph.Float32, a.Dim())
	}
	if spec.StateSize > 0 {
		want("input state", inputs[graph.State], graph.Float32, spec.StateSize)
		want("output next_state", outputs[graph.NextState], graph.Float32, spec.StateSize)
	} else if inputs[graph.State] != nil || outputs[graph.NextState] != nil {
		faults = append(faults, errors.New("a state is not as in Spec: want none"))
	}
	return errors.Join(faults...)
}
