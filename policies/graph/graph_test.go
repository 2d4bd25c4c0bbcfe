package graph_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies/graph"
)

// Example is a linear policy for three observed values and two actions.
func Example() {
	g := graph.New()
	obs := g.Input(graph.Obs, 3)
	values := obs.Dense(g.Constant("weight", make([]float32, 6), 3, 2), g.Constant("bias", []float32{0, 1}, 2))
	g.Output("q_values", values)
	g.Output(graph.Action, values.ArgMax().Reshape())
	fmt.Println(values.Shape(), len(g.Nodes), g.Check())
	// Output: [2] 6 <nil>
}

// TestShapesThatDoNotFitPanic, with the operation and the shapes.
func TestShapesThatDoNotFitPanic(t *testing.T) {
	other := graph.New()
	for want, f := range map[string]func(g *graph.Graph, x graph.Value){
		"graph: Dense of [4], [3 2], [2]": func(g *graph.Graph, x graph.Value) {
			x.Dense(g.Constant("w", make([]float32, 6), 3, 2), g.Constant("b", make([]float32, 2), 2))
		},
		"graph: Dense of [4], [4], [4]": func(_ *graph.Graph, x graph.Value) { x.Dense(x, x) },
		"graph: LayerNorm of [4], [4], [4]": func(_ *graph.Graph, x graph.Value) {
			x.LayerNorm(x, x, 1e-5) // weights must be constants
		},
		"graph: MatMul of [4], [4]":     func(g *graph.Graph, x graph.Value) { x.MatMul(g.Constant("w", make([]float32, 4), 4)) },
		"graph: Add of [4], [3]":        func(g *graph.Graph, x graph.Value) { x.Add(g.Constant("w", make([]float32, 3), 3)) },
		"graph: Add of [4], [2]":        func(_ *graph.Graph, x graph.Value) { x.Add(x.Slice(0, 2)) },
		"graph: Mul of [2 2], [2]":      func(_ *graph.Graph, x graph.Value) { x.Reshape(2, 2).Mul(x.Slice(0, 2)) },
		"graph: Slice of [4]":           func(_ *graph.Graph, x graph.Value) { x.Slice(2, 5) },
		"graph: Reshape of [4]":         func(_ *graph.Graph, x graph.Value) { x.Reshape(3) },
		"graph: Mean of [4]":            func(_ *graph.Graph, x graph.Value) { x.Mean(1) },
		"graph: Lookup of [4], [2 2]":   func(g *graph.Graph, x graph.Value) { x.Lookup(g.Constant("w", make([]float32, 4), 2, 2)) },
		"graph: Tanh of [1]":            func(_ *graph.Graph, x graph.Value) { x.ArgMax().Tanh() },
		"graph: Concat of [4], [1]":     func(_ *graph.Graph, x graph.Value) { x.Concat(x.ArgMax()) },
		"graph: Softmax of []":          func(_ *graph.Graph, x graph.Value) { x.Slice(0, 1).Reshape().Softmax() },
		"Offset of a value that is not": func(_ *graph.Graph, x graph.Value) { x.Offset(1) },
		"Repeat of what is no constant": func(_ *graph.Graph, x graph.Value) { x.Repeat(x) },
		"Add is a value of another":     func(_ *graph.Graph, x graph.Value) { x.Add(other.Input("x", 4)) },
		"two inputs are named obs":      func(g *graph.Graph, _ graph.Value) { g.Input("obs", 2) },
		"input x of shape [0]":          func(g *graph.Graph, _ graph.Value) { g.Input("x", 0) },
		"constant w of shape [2] with 1": func(g *graph.Graph, _ graph.Value) {
			g.Constant("w", []float32{1}, 2)
		},
		"two constants are named w": func(g *graph.Graph, _ graph.Value) {
			g.Constant("w", []float32{1}, 1)
			g.Constant("w", []float32{2}, 1)
		},
		"graph: Conv of [2 2 1], [3 3 1 1], [1]": func(g *graph.Graph, x graph.Value) {
			x.Reshape(2, 2, 1).Conv(g.Constant("w", make([]float32, 9), 3, 3, 1, 1), g.Constant("b", make([]float32, 1), 1), 1)
		},
	} {
		func() {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, want) || !strings.HasPrefix(v, "graph: ") {
					t.Errorf("panic %q, want %q", v, want)
				}
			}()
			g := graph.New()
			f(g, g.Input("obs", 4))
		}()
	}
}

// TestCheckReportsAllFaults.
func TestCheckReportsAllFaults(t *testing.T) {
	g := graph.New()
	x := g.Input("obs", 2)
	nan := float32(math.NaN())
	y := x.Add(g.Constant("/w", []float32{1, nan}, 2)).Scale(nan)
	g.Output("obs", y)
	g.Output("constant", g.Constant("c", []float32{1}, 1))
	err := g.Check()
	for _, want := range []string{
		`a constant is named "/w"`, "constant /w is not finite: value 1 is NaN", "Scale, has the number NaN", `an output is named "obs"`,
		"the output constant is a constant", "no output is named action",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPruneKeepsWhatOutputsNeed, inputs, and the order.
func TestPruneKeepsWhatOutputsNeed(t *testing.T) {
	g := graph.New()
	x := g.Input("obs", 2)
	g.Input("state", 1)
	x.Tanh()
	unused := g.Constant("unused", []float32{1, 2}, 2)
	y := x.Concat(unused.Repeat(x)).Slice(0, 2) // is x
	g.Output("action", y.Mul(g.Constant("w", []float32{1, 2}, 2)))
	g.Prune()
	text := ""
	for _, n := range g.Nodes {
		text += fmt.Sprint(n.Op, n.In, " ")
	}
	if want := "Input [] Input [] Constant [] Mul [0 2] "; text != want || g.Outputs[0].Node != 3 {
		t.Errorf("%s with the output %d, want %s with 3", text, g.Outputs[0].Node, want)
	}
	if err := g.Check(); err != nil {
		t.Error(err)
	}
}

// TestConstantIsACopy, and the same one if it is added again.
func TestConstantIsACopy(t *testing.T) {
	g := graph.New()
	data := []float32{1, 2}
	a, b := g.Constant("w", data, 2), g.Constant("w", data, 2)
	data[0] = 5
	if a != b || g.Nodes[0].Data[0] != 1 || len(g.Nodes) != 1 {
		t.Errorf("%v and %v of %d nodes, with the value %v", a, b, len(g.Nodes), g.Nodes[0].Data[0])
	}
}

// TestOperationsHaveNames, all of them.
func TestOperationsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for op := graph.Input; op <= graph.Offset; op++ {
		if name := op.String(); seen[name] || strings.Contains(name, "(") {
			t.Errorf("operation %d is named %s", op, name)
		}
		seen[op.String()] = true
	}
	if (graph.Offset + 1).String() != "Op(26)" {
		t.Error(graph.Offset + 1)
	}
}
