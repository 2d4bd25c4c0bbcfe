package nn

import (
	"fmt"

	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn/kernels"
)

// Exportable is a layer that can be described by the operations of a graph: all layers of this package that
// have no state, and those of a program's own that implement it.
type Exportable interface {
	Layer
	// Export returns the result of Apply for x, without noise. prefix stands before the names of weights:
	// see [Param.Export].
	Export(g *graph.Graph, prefix string, x graph.Value) graph.Value
}

// ExportableRecurrent is a recurrent layer of which a graph can describe one step: [LSTM] and [GRU].
type ExportableRecurrent interface {
	Recurrent
	// ExportStep returns the result of Unroll for one step of each sequence, without resets.
	ExportStep(g *graph.Graph, prefix string, x, state graph.Value) (y, next graph.Value)
}

// Export adds the weight to a graph as a constant named prefix and p.Name, with the weight's shape.
func (p *Param) Export(g *graph.Graph, prefix string) graph.Value {
	return g.Constant(prefix+p.Name, p.Value, p.Shape...)
}

// Export adds the computation of Apply to a graph; x has rows of [Net.In] elements. prefix stands before the
// names of weights, such as "ppo.actor/". A layer that is not [Exportable] is an error that names it and
// wraps [graph.ErrUnsupported], and so is one with a state, which needs [Net.ExportStep].
func (n *Net) Export(g *graph.Graph, prefix string, x graph.Value) (graph.Value, error) {
	for i, l := range n.layers {
		e, ok := l.(Exportable)
		if r, is := l.(Recurrent); is && r.StateSize() > 0 {
			return x, fmt.Errorf("nn: layer %d, %T, has a state and %w as a layer without one", i, l, graph.ErrUnsupported)
		}
		if !ok {
			return x, fmt.Errorf("nn: layer %d, %T, %w: it has no method Export", i, l, graph.ErrUnsupported)
		}
		x = e.Export(g, prefix, x)
	}
	return x, nil
}

// ExportStep is Export of [Net.Step]: one step of a network with recurrent layers, from state, rows of
// [Net.StateSize] elements, which the reader of the graph sets to zero where an episode begins.
func (n *Net) ExportStep(g *graph.Graph, prefix string, x, state graph.Value) (y, next graph.Value, err error) {
	var states []graph.Value
	from := 0
	for i, l := range n.layers {
		if r, ok := l.(ExportableRecurrent); ok {
			to := from + r.StateSize()
			own := state
			if r.StateSize() != n.StateSize() {
				own = state.Slice(from, to)
			}
			x, next = r.ExportStep(g, prefix, x, own)
			states, from = append(states, next), to
			continue
		}
		e, ok := l.(Exportable)
		if !ok {
			return x, next, fmt.Errorf("nn: layer %d, %T, %w: it has no method Export or ExportStep", i, l, graph.ErrUnsupported)
		}
		x = e.Export(g, prefix, x)
	}
	if len(states) > 1 {
		next = states[0].Concat(states[1:]...)
	}
	return x, next, nil
}

// Export implements [Exportable].
func (d *dense) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	return x.Dense(d.weight.Export(g, prefix), d.bias.Export(g, prefix))
}

// Export implements [Exportable]. The layer before has not computed it there.
func (e *elementwise) Export(_ *graph.Graph, _ string, x graph.Value) graph.Value {
	if e.act == kernels.ActReLU {
		return x.ReLU()
	}
	return x.Tanh()
}

// Export implements [Exportable].
func (l dueling) Export(_ *graph.Graph, _ string, x graph.Value) graph.Value {
	columns := x.Shape()[0]
	actions := columns/l.width - 1
	value := x.Slice(0, l.width).Reshape(1, l.width)
	advantages := x.Slice(l.width, columns).Reshape(actions, l.width)
	return advantages.Add(value.Sub(advantages.Mean(0))).Reshape(columns - l.width)
}

// Export implements [Exportable].
func (l *layerNorm) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	return x.LayerNorm(l.weight.Export(g, prefix), l.bias.Export(g, prefix), layerNormEpsilon)
}

// Export implements [Exportable].
func (e *embedding) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	return x.Lookup(e.weight.Export(g, prefix))
}

// Export implements [Exportable].
func (l imageLayer) Export(_ *graph.Graph, _ string, x graph.Value) graph.Value { return x }

// Export implements [Exportable].
func (c *conv) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	y := x.Reshape(c.from.height, c.from.width, c.from.channels)
	return y.Conv(c.weight.Export(g, prefix), c.bias.Export(g, prefix), c.stride).Reshape(c.to.size())
}

// Export implements [Exportable], with the mean weights.
func (l *noisy) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	return x.Dense(l.weight.Export(g, prefix), l.bias.Export(g, prefix))
}

// Export implements [Exportable].
func (l *learned) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	return x.Concat(l.vector.Export(g, prefix).Repeat(x))
}

// Export implements [Exportable].
func (r *rescaled) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	n := len(r.half)
	return x.Mul(g.Constant(prefix+"rescale.half", r.half, n)).Add(g.Constant(prefix+"rescale.middle", r.middle, n))
}

// Export implements [Exportable].
func (s scaled) Export(_ *graph.Graph, _ string, x graph.Value) graph.Value { return x.Scale(s.factor) }

// exporter is a rule that a graph can describe.
type exporter interface {
	// export is forward: x and h are the contributions to the gates.
	export(x, h, before graph.Value) (y, next graph.Value)
}

// ExportStep implements [ExportableRecurrent].
func (r *recurrent) ExportStep(g *graph.Graph, prefix string, x, state graph.Value) (y, next graph.Value) {
	before := state
	if r.StateSize() != r.hidden {
		before = state.Slice(0, r.hidden)
	}
	return r.rule.export(r.input.Export(g, prefix, x), before.Dense(r.weight.Export(g, prefix), r.bias.Export(g, prefix)), state)
}

func (lstm) export(x, h, before graph.Value) (y, next graph.Value) {
	n := before.Shape()[0] / 2
	gates := x.Add(h)
	i, f := gates.Slice(0, n).Sigmoid(), gates.Slice(n, 2*n).Sigmoid()
	fresh, o := gates.Slice(2*n, 3*n).Tanh(), gates.Slice(3*n, 4*n).Sigmoid()
	cell := f.Mul(before.Slice(n, 2*n)).Add(i.Mul(fresh))
	y = o.Mul(cell.Tanh())
	return y, y.Concat(cell)
}

func (gru) export(x, h, before graph.Value) (y, next graph.Value) {
	n := before.Shape()[0]
	r := x.Slice(0, n).Add(h.Slice(0, n)).Sigmoid()
	z := x.Slice(n, 2*n).Add(h.Slice(n, 2*n)).Sigmoid()
	fresh := x.Slice(2*n, 3*n).Add(r.Mul(h.Slice(2*n, 3*n))).Tanh()
	y = z.Scale(-1).Shift(1).Mul(fresh).Add(z.Mul(before))
	return y, y
}
