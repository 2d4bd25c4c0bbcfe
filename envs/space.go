package envs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Space is a set of elements, each of which is a fixed number of float32
// values: the observations or the actions of an environment. [Discrete],
// [Box], [MultiDiscrete] and [MultiBinary] are spaces.
type Space interface {
	// Dim is the number of values in one element. A discrete element has one
	// value, its number.
	Dim() int
	// Contains reports whether v is an element of the space. It is false for a
	// v whose length is not Dim.
	Contains(v []float32) bool
	// Sample fills dst, which has length Dim, with a random element.
	Sample(dst []float32, r *rand.Rand)
	fmt.Stringer
}

// maxExact is the first whole number after which float32 skips numbers.
const maxExact = 1 << 24

// whole reports whether v is a whole number in [start, start+n).
func whole(v float32, start, n int) bool {
	k := int(v)
	return v > -maxExact && v < maxExact && float32(k) == v && k >= start && k-start < n
}

// Discrete is the space of the integers Start..Start+N-1. Its elements have one
// value, a whole number. All of its integers must be between -2^24 and 2^24,
// where float32 is exact.
type Discrete struct {
	N     int // how many, at least 1
	Start int // the first
}

// Dim is 1.
func (d Discrete) Dim() int { return 1 }

// Contains reports whether v is one value, which is one of the integers.
func (d Discrete) Contains(v []float32) bool { return len(v) == 1 && whole(v[0], d.Start, d.N) }

// Sample draws one of the integers, each equally likely.
func (d Discrete) Sample(dst []float32, r *rand.Rand) { dst[0] = float32(d.Start + r.IntN(d.N)) }

// String returns Gymnasium's notation: Discrete(2), or Discrete(3, start=-1).
func (d Discrete) String() string {
	if d.Start != 0 {
		return fmt.Sprintf("Discrete(%d, start=%d)", d.N, d.Start)
	}
	return fmt.Sprintf("Discrete(%d)", d.N)
}

// MultiDiscrete is the space of the vectors of whole numbers whose value i is
// in 0..N[i]-1.
type MultiDiscrete struct {
	N []int // how many numbers each value can have, each at least 1
}

// Dim returns the number of values.
func (m MultiDiscrete) Dim() int { return len(m.N) }

// Contains reports whether v has a whole number in range at every place.
func (m MultiDiscrete) Contains(v []float32) bool {
	if len(v) != len(m.N) {
		return false
	}
	for i, x := range v {
		if !whole(x, 0, m.N[i]) {
			return false
		}
	}
	return true
}

// Sample draws each value independently, each number equally likely.
func (m MultiDiscrete) Sample(dst []float32, r *rand.Rand) {
	for i, n := range m.N {
		dst[i] = float32(r.IntN(n))
	}
}

// String returns Gymnasium's notation: MultiDiscrete([2 3]).
func (m MultiDiscrete) String() string { return fmt.Sprintf("MultiDiscrete(%v)", m.N) }

// MultiBinary is the space of the vectors of N values, each 0 or 1.
type MultiBinary struct {
	N int // values, at least 1
}

// Dim is N.
func (m MultiBinary) Dim() int { return m.N }

// Contains reports whether v has N values, each 0 or 1.
func (m MultiBinary) Contains(v []float32) bool {
	return len(v) == m.N && !slices.ContainsFunc(v, func(x float32) bool { return x != 0 && x != 1 })
}

// Sample draws each value independently, 0 and 1 equally likely.
func (m MultiBinary) Sample(dst []float32, r *rand.Rand) {
	for i := range m.N {
		dst[i] = float32(r.IntN(2))
	}
}

// String returns Gymnasium's notation: MultiBinary(5).
func (m MultiBinary) String() string { return fmt.Sprintf("MultiBinary(%d)", m.N) }

// Box is the space of float32 vectors between Low and High, both included.
// A bound may be infinite. Low and High have one length, the dimension.
type Box struct {
	Low, High []float32
	// Shape is how the values are arranged, in row-major order, such as
	// {frames, height, width}. The product of Shape is the dimension. Nil
	// means a plain vector.
	Shape []int
	// Pixels reports that every value is a whole number in 0..255, so that a
	// replay buffer can store it in one byte.
	Pixels bool
}

// NewBox returns the box of dim equal intervals [low, high].
func NewBox(low, high float32, dim int) Box {
	b := Box{Low: make([]float32, dim), High: make([]float32, dim)}
	for i := range dim {
		b.Low[i], b.High[i] = low, high
	}
	return b
}

// NewPixels returns the box of images of the given shape, whose values are
// whole numbers in 0..255.
func NewPixels(shape ...int) Box {
	dim := 1
	for _, n := range shape {
		dim *= n
	}
	b := NewBox(0, 255, dim)
	b.Shape, b.Pixels = slices.Clone(shape), true
	return b
}

// Dim returns the number of values in a vector of the box.
func (b Box) Dim() int { return len(b.Low) }

// Contains reports whether v has the box's dimension, lies between its bounds
// and, in a box of pixels, has whole numbers only. A NaN is in no box.
func (b Box) Contains(v []float32) bool {
	if len(v) != len(b.Low) {
		return false
	}
	for i, x := range v {
		if !(x >= b.Low[i] && x <= b.High[i]) || b.Pixels && x != float32(int(x)) {
			return false
		}
	}
	return true
}

// Sample draws a vector as Gymnasium does: uniform between two finite bounds,
// normal without bounds, exponential from a single one. Pixels are whole
// numbers, each equally likely.
func (b Box) Sample(dst []float32, r *rand.Rand) {
	for i := range b.Low {
		low, high := float64(b.Low[i]), float64(b.High[i])
		switch lowInf, highInf := math.IsInf(low, 0), math.IsInf(high, 0); {
		case b.Pixels:
			dst[i] = float32(low) + float32(r.IntN(int(high-low)+1))
		case lowInf && highInf:
			dst[i] = float32(r.NormFloat64())
		case lowInf:
			dst[i] = float32(high - r.ExpFloat64())
		case highInf:
			dst[i] = float32(low + r.ExpFloat64())
		default:
			dst[i] = min(max(float32(low+r.Float64()*(high-low)), b.Low[i]), b.High[i])
		}
	}
}

// String returns the bounds, Box([-1], [1]), or the shape of a box of pixels:
// Pixels([4 42 42]).
func (b Box) String() string {
	if b.Pixels {
		return fmt.Sprintf("Pixels(%v)", b.Shape)
	}
	return fmt.Sprintf("Box(%v, %v)", b.Low, b.High)
}
