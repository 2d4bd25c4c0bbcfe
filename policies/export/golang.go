package export

import (
	"bytes"
	"fmt"
	"go/format"
	"go/token"
	"io"
	"strconv"
	"strings"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
)

// GoConfig describes a Go file.
type GoConfig struct {
	// Package is the name of its package; empty means "policy".
	Package string
	Meta    Meta
}

// EnsureDefaults returns c with its defaults.
func (c GoConfig) EnsureDefaults() GoConfig {
	if c.Package == "" {
		c.Package = "policy"
	}
	return c
}

// Validate reports the faults of c.
func (c GoConfig) Validate() error {
	if c.Package != "" && (!token.IsIdentifier(c.Package) || c.Package == "_") {
		return fmt.Errorf("export Go: Package is %q, want the name of a package", c.Package)
	}
	return nil
}

// Go writes the policy as one file of Go source, which imports only the standard library. The package has the
// type Policy, whose method Act takes one observation and returns an int for an envs.Discrete, an []int for
// an envs.MultiDiscrete, and a []float32 for a box. Evaluate also returns the values from which the
// action follows. A recurrent Policy keeps its state, and has the method Reset, which begins an episode.
func Go(w io.Writer, p policies.Policy, cfg GoConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.EnsureDefaults()
	g, err := Graph(p)
	if err != nil {
		return err
	}
	properties, err := cfg.Meta.properties(p)
	if err != nil {
		return fmt.Errorf("export Go: %w", err)
	}
	b := &goBuilder{g: g, pkg: cfg.Package, properties: properties, fields: map[int]string{}, helpers: map[string]bool{}}
	text, err := format.Source(b.file())
	if err != nil {
		return fmt.Errorf("export Go: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("export Go: %w", err)
	}
	return nil
}

// goBuilder writes the source of a policy.
type goBuilder struct {
	g          *graph.Graph
	pkg        string
	properties []property
	fields     map[int]string  // names of constants, by node
	names      []string        // of the results of nodes
	helpers    map[string]bool // functions that are used
	results    []goResult
	body       bytes.Buffer
	text       bytes.Buffer
}

// goResult is a field of the type Result.
type goResult struct {
	field, kind, value, output string
}

// file returns the whole source, before it is formatted.
func (b *goBuilder) file() []byte {
	b.name()
	for i := range b.g.Nodes {
		b.node(i)
	}
	b.outputs()
	b.head()
	b.policy()
	b.evaluate()
	for _, h := range goHelpers {
		if b.helpers[h.name] {
			b.text.WriteString("\n" + h.text)
		}
	}
	b.data()
	return b.text.Bytes()
}

// identifier makes words of letters and digits one name, such as qValues of "q_values".
func identifier(name string, exported bool) string {
	in := func(r, first, last rune) bool { return first <= r && r <= last }
	words := strings.FieldsFunc(name, func(r rune) bool { return !in(r, 'a', 'z') && !in(r, 'A', 'Z') && !in(r, '0', '9') })
	var out strings.Builder
	for i, w := range words {
		if i > 0 || exported {
			w = strings.ToUpper(w[:1]) + w[1:]
		} else {
			w = strings.ToLower(w[:1]) + w[1:]
		}
		out.WriteString(w)
	}
	text := out.String()
	switch {
	case text == "" || text[0] >= '0' && text[0] <= '9':
		text = map[bool]string{true: "X", false: "x"}[exported] + text
	case token.IsKeyword(text) || text == "state":
		text += "Value"
	}
	return text
}

// unique returns the name, with a number if it is taken.
func unique(taken map[string]bool, name string) string {
	out := name
	for i := 2; taken[out]; i++ {
		out = name + "_" + strconv.Itoa(i)
	}
	taken[out] = true
	return out
}

// name gives constants and results their names.
func (b *goBuilder) name() {
	b.names = make([]string, len(b.g.Nodes))
	taken := map[string]bool{}
	for i := range b.g.Nodes {
		n := &b.g.Nodes[i]
		op := strings.ReplaceAll(n.Op.String(), "ReLU", "Relu")
		b.names[i] = strings.ToLower(op[:1]) + op[1:] + strconv.Itoa(i)
		switch {
		case n.Op == graph.Constant:
			b.fields[i] = unique(taken, identifier(n.Name, false))
			b.names[i] = "p." + b.fields[i]
		case n.Op == graph.Input && n.Name == graph.State:
			b.names[i] = "p.state"
		case n.Op == graph.Input:
			b.names[i] = "obs"
		}
	}
}

// call writes the call of a helper for node i.
func (b *goBuilder) call(i int, helper string, args ...any) {
	b.helpers[helper] = true
	text := make([]string, len(args))
	for k, a := range args {
		text[k] = fmt.Sprint(a)
		if x, ok := a.(float32); ok {
			text[k] = literal(x)
		}
	}
	fmt.Fprintf(&b.body, "\t%s := %s(%s)\n", b.names[i], helper, strings.Join(text, ", "))
}

// literal returns a finite number in Go.
func literal(x float32) string { return strconv.FormatFloat(float64(x), 'g', -1, 32) }

// node writes the computation of node i.
func (b *goBuilder) node(i int) {
	n := &b.g.Nodes[i]
	in := make([]string, len(n.In))
	for k, id := range n.In {
		in[k] = b.names[id]
	}
	switch n.Op {
	case graph.Input, graph.Constant:
	case graph.ReLU, graph.Tanh, graph.Sigmoid:
		b.call(i, strings.ToLower(n.Op.String()), in[0])
	case graph.Add, graph.Sub, graph.Mul:
		b.call(i, strings.ToLower(n.Op.String()), in[0], in[1])
	case graph.Min:
		b.call(i, "least", in[0], in[1])
	case graph.Max:
		b.call(i, "greatest", in[0], in[1])
	case graph.Scale:
		b.call(i, "scale", in[0], n.Floats[0])
	case graph.Shift:
		b.call(i, "shift", in[0], n.Floats[0])
	case graph.Clip:
		b.call(i, "clip", in[0], n.Floats[0], n.Floats[1])
	case graph.Offset:
		b.call(i, "offset", in[0], n.Ints[0])
	case graph.Concat:
		b.call(i, "join", strings.Join(in, ", "))
	case graph.Repeat: // for one row, a copy
		b.call(i, "join", in[0])
	case graph.Reshape: // rows have no shape here
		b.names[i] = in[0]
	case graph.Slice:
		fmt.Fprintf(&b.body, "\t%s := %s[%d:%d]\n", b.names[i], in[0], n.Ints[0], n.Ints[1])
	default:
		b.shaped(i, n, in)
	}
}

// shaped writes the computation of a node whose helper must know shapes.
func (b *goBuilder) shaped(i int, n *graph.Node, in []string) {
	shape := func(k int) []int { return b.g.Nodes[n.In[k]].Shape }
	last := func(k int) int { return shape(k)[len(shape(k))-1] }
	switch n.Op {
	case graph.Dense:
		b.helpers["product"] = true
		b.call(i, "dense", in[0], in[1], in[2])
	case graph.MatMul:
		b.call(i, "product", in[0], in[1], shape(1)[0], shape(1)[1])
	case graph.Conv:
		b.call(i, "convolve", in[0], in[1], in[2], shape(0)[0], shape(0)[1], shape(0)[2], shape(1)[0], n.Ints[0])
	case graph.LayerNorm:
		b.call(i, "layerNorm", in[0], in[1], in[2], n.Floats[0])
	case graph.Lookup:
		b.call(i, "lookup", in[0], in[1], shape(1)[0])
	case graph.Softmax:
		b.call(i, "softmax", in[0], last(0))
	case graph.Mean:
		inner := 1
		for _, d := range shape(0)[n.Ints[0]+1:] {
			inner *= d
		}
		b.call(i, "mean", in[0], shape(0)[n.Ints[0]], inner)
	case graph.ArgMax:
		b.call(i, "argMax", in[0], last(0))
	default:
		panic(fmt.Sprintf("export: operation %v", n.Op))
	}
}

// outputs makes the fields of the type Result. A single number is not a slice there.
func (b *goBuilder) outputs() {
	taken := map[string]bool{}
	for _, o := range b.g.Outputs {
		n := &b.g.Nodes[o.Node]
		kind := map[graph.Kind]string{graph.Float32: "float32", graph.Int64: "int"}[n.Kind]
		value := b.names[o.Node]
		if len(n.Shape) == 0 {
			value += "[0]"
		} else {
			kind = "[]" + kind
		}
		r := goResult{kind: kind, value: value, output: o.Name}
		if o.Name != graph.NextState {
			r.field = unique(taken, identifier(o.Name, true))
		}
		b.results = append(b.results, r)
	}
}

// state returns the size of the state, 0 without one, and the value of the next one.
func (b *goBuilder) state() (size int, next string) {
	for i := range b.g.Nodes {
		if n := &b.g.Nodes[i]; n.Op == graph.Input && n.Name == graph.State {
			size = n.Size()
		}
	}
	for _, r := range b.results {
		if r.output == graph.NextState {
			next = r.value
		}
	}
	return size, next
}
