package policies

import (
	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/graph"
)

// Exporter is a policy that can be written to a file which acts without it: package export has the forms.
type Exporter interface {
	Policy
	// Export adds the computation of Act with Greedy set to g, from obs: rows of Spec.Obs.Dim() elements, as they
	// are in Act. It ends with the output graph.Action, by [ExportChoice], [ExportChoices], [ExportBox] or
	// by itself, and gives the numbers behind it as outputs with names such as "q_values", "logits" or "mean".
	// A recurrent policy adds the input graph.State and the output graph.NextState, of Spec.StateSize
	// elements. A policy that cannot be exported returns an error that wraps graph.ErrUnsupported.
	//
	// The names of weights are those in Weights, so that a reader finds them there.
	Export(g *graph.Graph, obs graph.Value) error
}

// ExportChoice adds the output graph.Action of an envs.Discrete: the number of the greatest of values, from
// the space's first number on. It is one int64 for each row.
func ExportChoice(g *graph.Graph, values graph.Value, space envs.Discrete) {
	action := values.ArgMax().Reshape()
	if space.Start != 0 {
		action = action.Offset(space.Start)
	}
	g.Output(graph.Action, action)
}

// ExportChoices adds the output graph.Action of an envs.MultiDiscrete, one int64 for each choice. The logits
// of the choices stand side by side.
func ExportChoices(g *graph.Graph, logits graph.Value, space envs.MultiDiscrete) {
	var choices []graph.Value
	at := 0
	for _, n := range space.N {
		choices = append(choices, logits.Slice(at, at+n).ArgMax())
		at += n
	}
	action := choices[0]
	if len(choices) > 1 {
		action = action.Concat(choices[1:]...)
	}
	g.Output(graph.Action, action)
}

// ExportBox adds the output graph.Action of a box with finite bounds: actions, clipped to the box. If unit is
// set, they are between -1 and 1, and are brought to the bounds first.
func ExportBox(g *graph.Graph, actions graph.Value, box envs.Box, unit bool) {
	n := box.Dim()
	if unit {
		middle, half := make([]float32, n), make([]float32, n)
		for i := range n {
			low, high := float64(box.Low[i]), float64(box.High[i])
			middle[i], half[i] = float32((high+low)/2), float32((high-low)/2)
		}
		actions = actions.Mul(g.Constant("action.half", half, n)).Add(g.Constant("action.middle", middle, n))
	}
	g.Output(graph.Action, actions.Max(g.Constant("action.low", box.Low, n)).Min(g.Constant("action.high", box.High, n)))
}
