package export

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
)

// The versions of the format that ONNX writes: IR version 8 and opset 17, of ONNX 1.12 (2022).
const (
	irVersion = 8
	opset     = 17
)

// ONNX writes the policy as an ONNX model. See the package for its inputs and outputs.
func ONNX(w io.Writer, p policies.Policy, meta Meta) error {
	g, err := Graph(p)
	if err != nil {
		return err
	}
	properties, err := meta.properties(p)
	if err != nil {
		return fmt.Errorf("export ONNX: %w", err)
	}
	text := model(g, properties)
	if len(text) > math.MaxInt32 {
		return fmt.Errorf("export ONNX: the model has %d bytes, and the format allows %d", len(text), math.MaxInt32)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("export ONNX: %w", err)
	}
	return nil
}

// model returns a ModelProto.
func model(g *graph.Graph, properties []property) message {
	b := &onnxBuilder{g: g, names: make([]string, len(g.Nodes))}
	b.name()
	for i := range g.Nodes {
		b.node(i)
	}
	b.aliases()
	var out message
	out.number(1, irVersion)
	out.text(2, "ditask") // producer_name
	for _, p := range properties {
		if p.key == "ditask_version" {
			out.text(3, p.value) // producer_version
		}
	}
	out.message(7, b.graph())
	var set message
	set.text(1, "") // domain: that of ONNX
	set.number(2, opset)
	out.message(8, set)
	for _, p := range properties {
		var entry message
		entry.text(1, p.key)
		entry.text(2, p.value)
		out.message(14, entry)
	}
	return out
}

// onnxBuilder collects the parts of a GraphProto.
type onnxBuilder struct {
	g            *graph.Graph
	names        []string // of the result of each node
	nodes        []message
	initializers []message
}

// name gives all results their names: an input, a constant and an output its own, and others that of the
// operation and its number, behind a slash, which no other name begins with.
func (b *onnxBuilder) name() {
	for i := range b.g.Nodes {
		n := &b.g.Nodes[i]
		b.names[i] = fmt.Sprintf("/%s_%d", strings.ToLower(n.Op.String()), i)
		if n.Op == graph.Input || n.Op == graph.Constant {
			b.names[i] = n.Name
		}
	}
	for _, o := range slices.Backward(b.g.Outputs) {
		if b.g.Nodes[o.Node].Op != graph.Input {
			b.names[o.Node] = o.Name
		}
	}
}

// aliases adds the copies of results whose names differ from those of their outputs.
func (b *onnxBuilder) aliases() {
	for _, o := range b.g.Outputs {
		if from := b.names[o.Node]; from != o.Name {
			b.operator("Identity", o.Name, []string{from})
		}
	}
}

// graph returns the GraphProto.
func (b *onnxBuilder) graph() message {
	var m message
	for _, n := range b.nodes {
		m.message(1, n)
	}
	m.text(2, "policy")
	for _, t := range b.initializers {
		m.message(5, t)
	}
	for i := range b.g.Nodes {
		if n := &b.g.Nodes[i]; n.Op == graph.Input {
			m.message(11, valueInfo(n.Name, elementType(n), n.Shape))
		}
	}
	for _, o := range b.g.Outputs {
		n := &b.g.Nodes[o.Node]
		m.message(12, valueInfo(o.Name, elementType(n), n.Shape))
	}
	return m
}

func elementType(n *graph.Node) int {
	if n.Kind == graph.Int64 {
		return typeInt64
	}
	return typeFloat
}

// operator adds a NodeProto with one result.
func (b *onnxBuilder) operator(op, result string, in []string, attributes ...attribute) {
	var m message
	for _, name := range in {
		m.text(1, name)
	}
	m.text(2, result)
	m.text(3, "node:"+result)
	m.text(4, op)
	for _, a := range attributes {
		m.message(5, message(a))
	}
	b.nodes = append(b.nodes, m)
}

// ints adds an initialiser of int64 for node i and returns its name. Without a shape it is a vector.
func (b *onnxBuilder) ints(i int, what string, values ...int) string {
	name := fmt.Sprintf("/%s_%d/%s", strings.ToLower(b.g.Nodes[i].Op.String()), i, what)
	b.initializers = append(b.initializers, intTensor(name, values, len(values)))
	return name
}

// number adds an initialiser of one number for node i, without dimensions, and returns its name.
func (b *onnxBuilder) number(i int, what string, value float32) string {
	name := fmt.Sprintf("/%s_%d/%s", strings.ToLower(b.g.Nodes[i].Op.String()), i, what)
	b.initializers = append(b.initializers, floatTensor(name, []float32{value}))
	return name
}

// temporary returns the name of a result within node i.
func (b *onnxBuilder) temporary(i int, what string) string {
	return fmt.Sprintf("/%s_%d/%s", strings.ToLower(b.g.Nodes[i].Op.String()), i, what)
}

// plain are the operations that ONNX has with the same operands and meaning.
var plain = map[graph.Op]string{
	graph.Dense: "Gemm", graph.MatMul: "MatMul", graph.ReLU: "Relu", graph.Tanh: "Tanh", graph.Sigmoid: "Sigmoid",
	graph.Add: "Add", graph.Sub: "Sub", graph.Mul: "Mul", graph.Min: "Min", graph.Max: "Max",
}

// node adds the computation of node i.
func (b *onnxBuilder) node(i int) {
	n, result := &b.g.Nodes[i], b.names[i]
	in := make([]string, len(n.In))
	for k, id := range n.In {
		in[k] = b.names[id]
	}
	if op, ok := plain[n.Op]; ok {
		b.operator(op, result, in)
		return
	}
	switch n.Op {
	case graph.Input:
	case graph.Constant:
		b.initializers = append(b.initializers, floatTensor(n.Name, n.Data, n.Shape...))
	case graph.LayerNorm:
		b.operator("LayerNormalization", result, in, intAttribute("axis", -1), floatAttribute("epsilon", n.Floats[0]))
	case graph.Softmax:
		b.operator("Softmax", result, in, intAttribute("axis", -1))
	case graph.Scale:
		b.operator("Mul", result, []string{in[0], b.number(i, "factor", n.Floats[0])})
	case graph.Shift:
		b.operator("Add", result, []string{in[0], b.number(i, "number", n.Floats[0])})
	case graph.Clip:
		b.operator("Clip", result, []string{in[0], b.number(i, "low", n.Floats[0]), b.number(i, "high", n.Floats[1])})
	case graph.Mean:
		b.operator("ReduceMean", result, in, intsAttribute("axes", n.Ints[0]+1), intAttribute("keepdims", 1))
	case graph.ArgMax:
		b.operator("ArgMax", result, in, intAttribute("axis", -1), intAttribute("keepdims", 1))
	case graph.Offset:
		b.operator("Add", result, []string{in[0], b.ints(i, "number", n.Ints[0])})
	default:
		b.moves(i, n, in, result)
	}
}

// moves adds operations that ONNX has in another form.
func (b *onnxBuilder) moves(i int, n *graph.Node, in []string, result string) {
	switch n.Op {
	case graph.Slice:
		b.operator("Slice", result, []string{in[0], b.ints(i, "from", n.Ints[0]), b.ints(i, "to", n.Ints[1]), b.ints(i, "axis", 1)})
	case graph.Concat:
		b.operator("Concat", result, in, intAttribute("axis", 1))
	case graph.Reshape:
		b.operator("Reshape", result, []string{in[0], b.rowShape(i, n)})
	case graph.Lookup:
		number, row := b.temporary(i, "number"), b.temporary(i, "row")
		b.operator("Cast", number, in[:1], intAttribute("to", typeInt64))
		b.operator("Gather", row, []string{in[1], number}, intAttribute("axis", 0))
		b.operator("Reshape", result, []string{row, b.rowShape(i, n)})
	case graph.Repeat:
		rows, shape := b.temporary(i, "rows"), b.temporary(i, "shape")
		b.operator("Shape", rows, in[1:], intAttribute("start", 0), intAttribute("end", 1))
		b.operator("Concat", shape, []string{rows, b.ints(i, "row", n.Shape...)}, intAttribute("axis", 0))
		b.operator("Expand", result, []string{in[0], shape})
	case graph.Conv: // ONNX has the channels first, of images and of weights
		image, weight, out := b.temporary(i, "image"), b.temporary(i, "weight"), b.temporary(i, "out")
		stride, kernel := n.Ints[0], b.g.Nodes[n.In[1]].Shape[0]
		b.operator("Transpose", image, in[:1], intsAttribute("perm", 0, 3, 1, 2))
		b.operator("Transpose", weight, in[1:2], intsAttribute("perm", 3, 2, 0, 1))
		window, step := intsAttribute("kernel_shape", kernel, kernel), intsAttribute("strides", stride, stride)
		b.operator("Conv", out, []string{image, weight, in[2]}, window, step)
		b.operator("Transpose", result, []string{out}, intsAttribute("perm", 0, 2, 3, 1))
	default:
		panic(fmt.Sprintf("export: operation %v", n.Op))
	}
}

// rowShape adds the shape of node i's result for Reshape, where 0 keeps the number of rows.
func (b *onnxBuilder) rowShape(i int, n *graph.Node) string {
	return b.ints(i, "shape", append([]int{0}, n.Shape...)...)
}
