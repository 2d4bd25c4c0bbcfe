package policies

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ditask/ditask/policies/nn"
)

// UpdateError reports which update of which algorithm found something wrong.
type UpdateError struct {
	Algorithm string // such as "ppo"
	Update    uint64 // updates made before
	Err       error  // a *nn.NonFiniteError, or the faults of the batch
}

// Error names algorithm, update and cause.
func (e *UpdateError) Error() string {
	return fmt.Sprintf("%s update %d: %v", e.Algorithm, e.Update, e.Err)
}

// Unwrap returns the cause.
func (e *UpdateError) Unwrap() error { return e.Err }

// Needs returns an error unless the batch has these columns, with all its rows and finite values. A
// value that is not finite is a *nn.NonFiniteError. The batch may have other columns, in any order. An
// empty batch is an error.
func (b *Batch) Needs(columns ...Column) error {
	if b.N == 0 {
		return errors.New("an empty batch")
	}
	for i := range columns {
		want := &columns[i]
		have := b.Column(want.Name)
		if have == nil || !have.same(want) || have.check(b.N) != nil {
			return fmt.Errorf("the batch has no column %v of %d rows", *want, b.N)
		}
		if err := (nn.Tensor{Name: want.Name, Data: have.Floats}).CheckFinite(); err != nil {
			return err
		}
	}
	return nil
}

// Part is something of a policy that a checkpoint holds: weights, or an optimiser's memory.
type Part struct {
	Name string // unique in a checkpoint, such as "ppo.actor"
	Save func() nn.State
	Load func(nn.State) error
}

// NetPart returns the part that a network's weights are. version counts the updates behind them.
func NetPart(name string, n *nn.Net, version *uint64) Part {
	load := func(s nn.State) error {
		if err := n.Load(s); err != nil {
			return err
		}
		*version = s.Version
		return nil
	}
	return Part{name, func() nn.State { return n.State(*version) }, load}
}

// ValuesPart returns the part that numbers are, such as a table of action values. Its tensor is called
// "values". version, if not nil, counts the updates behind them.
func ValuesPart(name string, values []float32, version *uint64) Part {
	save := func() nn.State {
		s := nn.State{Tensors: []nn.Tensor{{Name: "values", Shape: []int{len(values)}, Data: slices.Clone(values)}}}
		if version != nil {
			s.Version = *version
		}
		return s
	}
	load := func(s nn.State) error {
		t, _ := s.Lookup("values")
		if len(t.Data) != len(values) {
			return fmt.Errorf("tensor values has %d values, want %d", len(t.Data), len(values))
		}
		if err := t.CheckFinite(); err != nil {
			return err
		}
		copy(values, t.Data)
		if version != nil {
			*version = s.Version
		}
		return nil
	}
	return Part{name, save, load}
}

// NumbersPart returns the part of a checkpoint that float64 numbers are. The name of their tensor is
// "numbers".
func NumbersPart(name string, numbers ...*float64) Part {
	save := func() nn.State {
		words := make([]uint64, len(numbers))
		for i, x := range numbers {
			words[i] = math.Float64bits(*x)
		}
		return nn.State{Tensors: []nn.Tensor{{Name: "numbers", Shape: []int{len(words)}, Words: words}}}
	}
	load := func(s nn.State) error {
		t, _ := s.Lookup("numbers")
		if len(t.Words) != len(numbers) {
			return fmt.Errorf("tensor numbers has %d values, want %d", len(t.Words), len(numbers))
		}
		for i, w := range t.Words {
			if x := math.Float64frombits(w); x-x != 0 {
				return fmt.Errorf("tensor numbers is not finite: value %d is %v", i, x)
			}
		}
		for i, w := range t.Words {
			*numbers[i] = math.Float64frombits(w)
		}
		return nil
	}
	return Part{name, save, load}
}

// OptimizerPart returns the part that the memory of an optimiser is.
func OptimizerPart(name string, o nn.Optimizer) Part { return Part{name, o.State, o.Load} }

// RandomPart returns the part that the state of a random source is.
func RandomPart(name string, source *rand.PCG) Part {
	const tensor = "pcg"
	save := func() nn.State {
		state, _ := source.MarshalBinary() // never fails
		return nn.State{Tensors: []nn.Tensor{{Name: tensor, Shape: []int{len(state)}, Bytes: state}}}
	}
	load := func(s nn.State) error {
		t, _ := s.Lookup(tensor)
		if err := source.UnmarshalBinary(t.Bytes); err != nil {
			return fmt.Errorf("random state of %d bytes: %w", len(t.Bytes), err)
		}
		return nil
	}
	return Part{name, save, load}
}

// Parts are all that a checkpoint holds of a policy.
type Parts []Part

// Save writes all parts to a. Values that are not finite are an error that names the part.
func (p Parts) Save(a *nn.Archive) error {
	for _, part := range p {
		s := part.Save()
		if err := s.CheckFinite(); err != nil {
			return fmt.Errorf("save %s: %w", part.Name, err)
		}
		a.Put(part.Name, s)
	}
	return nil
}

// Restore restores the parts that Save wrote. An error names the part; the parts before it may be
// restored.
func (p Parts) Restore(a *nn.Archive) error {
	for _, part := range p {
		s, err := a.State(part.Name)
		if err == nil {
			err = part.Load(s)
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", part.Name, err)
		}
	}
	return nil
}

// State joins the parts into one state, with their names before those of the tensors: the weights
// of a policy that has several networks.
func (p Parts) State(version uint64) nn.State {
	out := nn.State{Version: version}
	for _, part := range p {
		for _, t := range part.Save().Tensors {
			t.Name = part.Name + "/" + t.Name
			out.Tensors = append(out.Tensors, t)
		}
	}
	return out
}

// Load reads the states that State has joined. If that fails, no part changes.
func (p Parts) Load(s nn.State) error {
	before := make([]nn.State, len(p))
	for i, part := range p {
		before[i] = part.Save()
		if err := part.Load(within(s, part.Name)); err != nil {
			for k := range slices.Backward(p[:i]) {
				err = errors.Join(err, p[k].Load(before[k]))
			}
			return fmt.Errorf("load %s: %w", part.Name, err)
		}
	}
	return nil
}

// within returns the tensors of a part, by their own names.
func within(s nn.State, name string) nn.State {
	out := nn.State{Version: s.Version}
	for _, t := range s.Tensors {
		if own, ok := strings.CutPrefix(t.Name, name+"/"); ok {
			t.Name = own
			out.Tensors = append(out.Tensors, t)
		}
	}
	return out
}
