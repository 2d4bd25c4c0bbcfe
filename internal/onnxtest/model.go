package onnxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The limits of a run.
const (
	maxElements = 1 << 22 // of a value
	maxProducts = 1 << 26 // of one operator
)

// elements returns the product of a shape, if it is at most maxElements.
func elements(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > maxElements/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// Check reports the faults of a model: versions, names that are not defined before they are used or
// defined twice, operators and attributes that are not known, and types and shapes that are not as they
// are declared, in runs of one row and of three rows of zeros, or of the first number of discrete observations.
func (m *Model) Check() error {
	if m.IR != 8 || m.Opset != 17 {
		return fmt.Errorf("IR version %d and opset %d, want 8 and 17", m.IR, m.Opset)
	}
	for _, key := range []string{"observation_space", "action_space", "updates", "ditask_version"} {
		if m.Meta[key] == "" {
			return fmt.Errorf("no metadata %s", key)
		}
	}
	if len(m.Inputs) == 0 || len(m.Outputs) == 0 {
		return errors.New("no inputs or no outputs")
	}
	if err := m.checkNames(); err != nil {
		return err
	}
	for _, rows := range []int{1, 3} {
		in := map[string]Tensor{}
		for _, i := range m.Inputs {
			shape := i.shape(rows)
			n, ok := elements(shape)
			if !ok || i.Type != Float || len(i.Dims) == 0 {
				return fmt.Errorf("input %s of type %d and shape %v", i.Name, i.Type, i.Dims)
			}
			in[i.Name] = Tensor{Shape: shape, Floats: slices.Repeat([]float32{m.first()}, n)}
		}
		if _, err := m.Run(in); err != nil {
			return fmt.Errorf("with %d rows: %w", rows, err)
		}
	}
	return nil
}

// first returns an element of a discrete space of observations, as the metadata describe it, and 0 for another one.
func (m *Model) first() float32 {
	var space struct {
		Start float32 `json:"start"`
	}
	if json.Unmarshal([]byte(m.Meta["observation_space"]), &space) != nil {
		return 0
	}
	return space.Start
}

// shape returns the declared shape for that many rows.
func (i Info) shape(rows int) []int {
	shape := slices.Clone(i.Dims)
	if len(shape) > 0 && shape[0] == -1 {
		shape[0] = rows
	}
	return shape
}

func (m *Model) checkNames() error {
	defined := map[string]bool{}
	define := func(name string) error {
		if name == "" || defined[name] {
			return fmt.Errorf("the name %.100q is empty or defined twice", name)
		}
		defined[name] = true
		return nil
	}
	for _, i := range m.Inputs {
		if err := define(i.Name); err != nil {
			return err
		}
	}
	for _, name := range m.Names {
		if err := define(name); err != nil {
			return err
		}
	}
	used := map[string]bool{}
	for _, n := range m.Nodes {
		op, ok := operators[n.Op]
		if !ok || len(n.In) < op.least || len(n.In) > op.most || len(n.Out) != 1 {
			return fmt.Errorf("node %.100q, %.100q, has %d operands and %d results", n.Name, n.Op, len(n.In), len(n.Out))
		}
		for name, a := range n.Attrs {
			if op.attrs[name] != a.Type {
				return fmt.Errorf("node %.100q, %s, has the attribute %.100q of type %d", n.Name, n.Op, name, a.Type)
			}
		}
		for _, name := range n.In {
			if !defined[name] {
				return fmt.Errorf("node %.100q reads %.100q, which is not defined before it", n.Name, name)
			}
			used[name] = true
		}
		if err := define(n.Out[0]); err != nil {
			return fmt.Errorf("node %.100q: %w", n.Name, err)
		}
	}
	outputs := map[string]bool{}
	for _, o := range m.Outputs {
		if !defined[o.Name] || outputs[o.Name] {
			return fmt.Errorf("the output %.100q is not defined, or there twice", o.Name)
		}
		outputs[o.Name] = true
	}
	for _, name := range m.Names {
		if !used[name] {
			return fmt.Errorf("the tensor %.100q is not used", name)
		}
	}
	return nil
}

// Run computes all outputs. The inputs must have the declared shapes, with one number of rows.
func (m *Model) Run(inputs map[string]Tensor) (map[string]Tensor, error) {
	rows := -1
	values := maps.Clone(m.Constants)
	for _, i := range m.Inputs {
		t, ok := inputs[i.Name]
		if !ok || len(t.Shape) == 0 {
			return nil, fmt.Errorf("the input %s is missing", i.Name)
		}
		if rows < 0 {
			rows = t.Shape[0]
		}
		if err := i.check(t, rows); err != nil {
			return nil, err
		}
		values[i.Name] = t
	}
	if len(inputs) != len(m.Inputs) {
		return nil, fmt.Errorf("%d inputs, want %d", len(inputs), len(m.Inputs))
	}
	for _, n := range m.Nodes {
		in := make([]Tensor, len(n.In))
		for k, name := range n.In {
			in[k] = values[name]
		}
		out, err := operators[n.Op].run(n, in)
		if err != nil {
			return nil, fmt.Errorf("node %s, %s: %w", n.Name, n.Op, err)
		}
		if size, ok := elements(out.Shape); !ok || size != max(len(out.Floats), len(out.Ints)) {
			return nil, fmt.Errorf("node %s, %s, has a result of shape %v with %d values", n.Name, n.Op, out.Shape, len(out.Floats)+len(out.Ints))
		}
		values[n.Out[0]] = out
	}
	out := map[string]Tensor{}
	for _, o := range m.Outputs {
		if err := o.check(values[o.Name], rows); err != nil {
			return nil, err
		}
		out[o.Name] = values[o.Name]
	}
	return out, nil
}

// check reports a value that is not as declared.
func (i Info) check(t Tensor, rows int) error {
	n, ok := elements(t.Shape)
	if !ok || t.Type() != i.Type || !slices.Equal(t.Shape, i.shape(rows)) || max(len(t.Floats), len(t.Ints)) != n {
		return fmt.Errorf("%s is of type %d and shape %v, declared is %d and %v", i.Name, t.Type(), t.Shape, i.Type, i.Dims)
	}
	return nil
}
