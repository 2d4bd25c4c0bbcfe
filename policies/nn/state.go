package nn

import (
	"fmt"
	"math"
	"slices"
)

// State is the weights of a network as data: it travels between processes and
// rests in files.
type State struct {
	Version uint64 // counts the updates behind these weights
	Tensors []Tensor
}

// Tensor is a named array in row-major order. Its values are float32, in Data, unless one of the
// others is not nil: those rest in archives, and are no weights.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32

	Ints  []int32
	Bytes []uint8
	Words []uint64
}

// len returns the number of values.
func (t Tensor) len() int { return len(t.Data) + len(t.Ints) + len(t.Bytes) + len(t.Words) }

// Lookup finds a tensor by name.
func (s State) Lookup(name string) (Tensor, bool) {
	for _, t := range s.Tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// CheckFinite returns a [*NonFiniteError] for the first tensor with a NaN or an
// infinity.
func (s State) CheckFinite() error {
	for _, t := range s.Tensors {
		if err := t.CheckFinite(); err != nil {
			return err
		}
	}
	return nil
}

// CheckFinite returns a [*NonFiniteError] if the tensor has a NaN or an infinity.
func (t Tensor) CheckFinite() error {
	if i := FindNonFinite(t.Data); i >= 0 {
		return &NonFiniteError{Tensor: t.Name, Index: i, Value: t.Data[i]}
	}
	return nil
}

// checkWeights reports a tensor that is not of float32, has another shape or is not finite.
func (t Tensor) checkWeights(shape []int) error {
	if !slices.Equal(t.Shape, shape) || len(t.Data) != product(shape) {
		return fmt.Errorf("tensor %s is %v with %d values, want %v", t.Name, t.Shape, len(t.Data), shape)
	}
	return t.CheckFinite()
}

// NonFiniteError reports where a NaN or an infinity stands.
type NonFiniteError struct {
	Tensor string // its name: of a weight, or "obs", "reward", "loss"
	Index  int    // place in the tensor's data
	Value  float32
}

// Error names tensor, place and value.
func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("tensor %s is not finite: value %d is %v", e.Tensor, e.Index, e.Value)
}

// FindNonFinite returns the place of the first NaN or infinity, or -1.
func FindNonFinite(v []float32) int {
	const exponent = 0xff << 23 // all ones in NaN and infinities only
	for i, x := range v {
		if math.Float32bits(x)&exponent == exponent {
			return i
		}
	}
	return -1
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
