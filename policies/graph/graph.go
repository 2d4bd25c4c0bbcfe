package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Names of inputs and outputs that every reader knows.
const (
	Obs       = "obs"        // input: N observations
	State     = "state"      // input of recurrent policies: N states, zero where an episode begins
	NextState = "next_state" // output of recurrent policies: the states of the next step
	Action    = "action"     // output: N actions
)

// ErrUnsupported is wrapped by the errors of policies and layers that cannot be exported.
var ErrUnsupported = errors.New("cannot be exported")

// Kind is the type of a value's elements.
type Kind uint8

// The kinds.
const (
	Float32 Kind = iota
	Int64
)

// Op is an operation.
type Op uint8

// The operations. Each comment has the inputs of its node, and its fields besides In.
const (
	Input     Op = iota // Name
	Constant            // Name, Data
	Dense               // x, weight [in, out], bias [out]: x weight + bias
	MatMul              // x, weight [in, out], along the last dimension of x
	Conv                // x [height, width, in], weight [kernel, kernel, in, out], bias [out]; Ints: stride
	LayerNorm           // x [n], weight [n], bias [n]; Floats: epsilon
	Lookup              // x [1], table [count, width]: row number x
	ReLU                // x
	Tanh                // x
	Sigmoid             // x
	Softmax             // x, along its last dimension
	Add                 // x, y
	Sub                 // x, y
	Mul                 // x, y
	Min                 // x, y
	Max                 // x, y
	Scale               // x; Floats: the factor
	Shift               // x; Floats: the number to add
	Clip                // x; Floats: low, high
	Mean                // x, over one dimension, which becomes 1; Ints: the dimension
	Slice               // x [n]; Ints: from, to
	Concat              // x [n], y [m], or more
	Reshape             // x
	Repeat              // constant, x: the constant for each row of x
	ArgMax              // x, along the last dimension, which becomes 1: the first of the greatest, int64
	Offset              // x of int64; Ints: the number to add
)

// ops are the names of the operations.
var ops = [...]string{
	"Input", "Constant", "Dense", "MatMul", "Conv", "LayerNorm", "Lookup", "ReLU", "Tanh", "Sigmoid", "Softmax", "Add", "Sub", "Mul", "Min",
	"Max", "Scale", "Shift", "Clip", "Mean", "Slice", "Concat", "Reshape", "Repeat", "ArgMax", "Offset",
}

// String returns the name of the operation.
func (o Op) String() string {
	if int(o) < len(ops) {
		return ops[o]
	}
	return fmt.Sprintf("Op(%d)", o)
}

// Node is one operation and its result.
type Node struct {
	Op     Op
	In     []int // indexes of the nodes that it reads, which come before it
	Kind   Kind
	Shape  []int     // of one row; of a constant, its own
	Name   string    // of an input or a constant
	Data   []float32 // of a constant
	Ints   []int     // see the operations
	Floats []float32 // see the operations
}

// Size returns the number of elements in one row of the result.
func (n *Node) Size() int { return product(n.Shape) }

// Result is an output of a graph.
type Result struct {
	Name string
	Node int // index in Graph.Nodes
}

// Graph is the operations, in an order in which each reads only earlier ones.
type Graph struct {
	Nodes   []Node
	Outputs []Result
}

// New returns an empty graph.
func New() *Graph { return &Graph{} }

// Value is the result of an operation of a graph.
type Value struct {
	g  *Graph
	id int
}

// Graph returns the graph to which the value belongs.
func (v Value) Graph() *Graph { return v.g }

// Shape returns the shape of one row, or of the constant. It must not be changed.
func (v Value) Shape() []int { return v.node().Shape }

func (v Value) node() *Node { return &v.g.Nodes[v.id] }

// Input adds an input of rows with the given shape.
func (g *Graph) Input(name string, shape ...int) Value {
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Op == Input && n.Name == name {
			panic("graph: two inputs are named " + name)
		}
	}
	checkShape("input "+name, shape)
	return g.push(Node{Op: Input, Name: name, Shape: shape})
}

// Constant adds a constant, such as a weight, and copies its data. Another constant of that name is the same
// if it has the same shape and data, so that a layer may be used twice; else Constant panics.
func (g *Graph) Constant(name string, data []float32, shape ...int) Value {
	checkShape("constant "+name, shape)
	if product(shape) != len(data) {
		panic(fmt.Sprintf("graph: constant %s of shape %v with %d values", name, shape, len(data)))
	}
	same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Op != Constant || n.Name != name {
			continue
		}
		if !slices.Equal(n.Shape, shape) || !slices.EqualFunc(n.Data, data, same) {
			panic("graph: two constants are named " + name)
		}
		return Value{g, i}
	}
	return g.push(Node{Op: Constant, Name: name, Shape: shape, Data: slices.Clone(data)})
}

// Output names a value as a result of the graph.
func (g *Graph) Output(name string, v Value) {
	g.mustOwn("output "+name, v)
	g.Outputs = append(g.Outputs, Result{name, v.id})
}

// Prune removes the operations and constants that no output depends on. Inputs stay. Values that were made
// before belong to the graph no longer.
func (g *Graph) Prune() {
	used := make([]bool, len(g.Nodes))
	for _, o := range g.Outputs {
		used[o.Node] = true
	}
	for i := range slices.Backward(g.Nodes) {
		if used[i] {
			for _, in := range g.Nodes[i].In {
				used[in] = true
			}
		}
	}
	var kept []Node
	index := make([]int, len(g.Nodes))
	for i, n := range g.Nodes {
		if !used[i] && n.Op != Input {
			continue
		}
		n.In = slices.Clone(n.In)
		for k, in := range n.In {
			n.In[k] = index[in]
		}
		index[i] = len(kept)
		kept = append(kept, n)
	}
	g.Nodes = kept
	for i := range g.Outputs {
		g.Outputs[i].Node = index[g.Outputs[i].Node]
	}
}

// Check reports all faults of a finished graph: names that are empty, used twice or begin with a slash, which
// is kept for names that writers make; constants that are not finite; no output named [Action]; an output
// that is a constant.
func (g *Graph) Check() error {
	var faults []error
	seen := map[string]bool{}
	name := func(what, name string) {
		if name == "" || seen[name] || strings.HasPrefix(name, "/") {
			faults = append(faults, fmt.Errorf("%s is named %q, want a unique name that does not begin with a slash", what, name))
		}
		seen[name] = true
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch n.Op {
		case Input:
			name("an input", n.Name)
		case Constant:
			name("a constant", n.Name)
			if k := slices.IndexFunc(n.Data, notFinite); k >= 0 {
				faults = append(faults, fmt.Errorf("constant %s is not finite: value %d is %v", n.Name, k, n.Data[k]))
			}
		}
		if k := slices.IndexFunc(n.Floats, notFinite); k >= 0 {
			faults = append(faults, fmt.Errorf("operation %d, %v, has the number %v", i, n.Op, n.Floats[k]))
		}
	}
	for _, o := range g.Outputs {
		name("an output", o.Name)
		if g.Nodes[o.Node].Op == Constant {
			faults = append(faults, fmt.Errorf("the output %s is a constant, which has no rows", o.Name))
		}
	}
	if !slices.ContainsFunc(g.Outputs, func(o Result) bool { return o.Name == Action }) {
		faults = append(faults, fmt.Errorf("no output is named %s", Action))
	}
	return errors.Join(faults...)
}

func notFinite(x float32) bool { return x-x != 0 }

// push adds a node.
func (g *Graph) push(n Node) Value {
	n.Shape = slices.Clone(n.Shape)
	g.Nodes = append(g.Nodes, n)
	return Value{g, len(g.Nodes) - 1}
}

func (g *Graph) mustOwn(what string, v Value) {
	if v.g != g || v.id >= len(g.Nodes) {
		panic("graph: " + what + " is a value of another graph")
	}
}

func checkShape(what string, shape []int) {
	for _, d := range shape {
		if d < 1 {
			panic(fmt.Sprintf("graph: %s of shape %v", what, shape))
		}
	}
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
