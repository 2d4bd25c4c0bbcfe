package nn

import "fmt"

// Embedding returns the layer that replaces a whole number from 0 to count-1 by a learned vector
// of width columns: row number of a table of count x width. Its input is one column, such as
// the observation of FrozenLake. init fills the table; Normal(1) is PyTorch's default. A number
// that is not the index of a row panics with the name of the table. No gradient reaches the
// input.
func Embedding(count, width int, init Init) Layer {
	if count <= 0 || width <= 0 || init == nil {
		panic(fmt.Sprintf("nn: embedding of %d numbers in %d columns", count, width))
	}
	return &embedding{count: count, width: width, init: init}
}

type embedding struct {
	count, width int
	init         Init
	weight       *Param
}

func (e *embedding) Build(b *Builder, in int) int {
	if in != 1 {
		panic(fmt.Sprintf("nn: embedding of %d columns, want 1", in))
	}
	e.weight = b.Param("embedding", "weight", []int{e.count, e.width}, e.init)
	return e.width
}

func (e *embedding) Apply(t *Tape, x Value) Value {
	in := x.node()
	in.matrix().check(1)
	out, n := t.result(e, in.rows, e.width, x, x)
	n.needs = t.trains(e.weight.net)
	table, y := e.weight.matrix(), n.matrix()
	for i, v := range x.node().data {
		k := int(v)
		if v != float32(k) || uint(k) >= uint(e.count) {
			panic(fmt.Sprintf("nn: %s: index %v in row %d, want a whole number from 0 to %d", e.weight.Name, v, i, e.count-1))
		}
		copy(y.Row(i), table.Row(k))
	}
	return out
}

func (e *embedding) backward(t *Tape, n *node) {
	table, dy := e.weight.as(e.weight.Grad), Matrix{n.rows, n.cols, n.grad}
	for i, v := range t.nodes[n.a].data {
		dst := table.Row(int(v))
		for j, g := range dy.Row(i) {
			dst[j] += g
		}
	}
}
