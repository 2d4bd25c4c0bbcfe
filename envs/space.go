package envs

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Space is a set of values of type A: the observations or the actions of an
// environment.
type Space[A any] interface {
	// Contains reports whether v is in the space.
	Contains(v A) bool
	// Sample draws a value of the space.
	Sample(r *rand.Rand) A
	fmt.Stringer
}

// Discrete is the space of the integers Start..Start+N-1.
type Discrete struct {
	N     int // how many, at least 1
	Start int // the first
}

// Contains reports whether v is one of the integers.
func (d Discrete) Contains(v int) bool { return v >= d.Start && uint(v)-uint(d.Start) < uint(d.N) }

// Sample draws one of the integers, each equally likely.
func (d Discrete) Sample(r *rand.Rand) int { return d.Start + r.IntN(d.N) }

// String returns Gymnasium's notation: Discrete(2), or Discrete(3, start=-1).
func (d Discrete) String() string {
	if d.Start != 0 {
		return fmt.Sprintf("Discrete(%d, start=%d)", d.N, d.Start)
	}
	return fmt.Sprintf("Discrete(%d)", d.N)
}

// Box is the space of float32 vectors between Low and High, both included.
// A bound may be infinite. Low and High have one length, the dimension.
type Box struct {
	Low, High []float32
}

// NewBox returns the box of dim equal intervals [low, high].
func NewBox(low, high float32, dim int) Box {
	b := Box{Low: make([]float32, dim), High: make([]float32, dim)}
	for i := range dim {
		b.Low[i], b.High[i] = low, high
	}
	return b
}

// Dim is the number of values in a vector of the box.
func (b Box) Dim() int { return len(b.Low) }

// Contains reports whether v has the box's dimension and lies between its
// bounds. A NaN is in no box.
func (b Box) Contains(v []float32) bool {
	if len(v) != len(b.Low) {
		return false
	}
	for i, x := range v {
		if !(x >= b.Low[i] && x <= b.High[i]) {
			return false
		}
	}
	return true
}

// Sample draws a vector as Gymnasium does: uniform between two finite bounds,
// normal without bounds, exponential from a single one.
func (b Box) Sample(r *rand.Rand) []float32 {
	v := make([]float32, len(b.Low))
	for i := range v {
		low, high := float64(b.Low[i]), float64(b.High[i])
		switch lowInf, highInf := math.IsInf(low, 0), math.IsInf(high, 0); {
		case lowInf && highInf:
			v[i] = float32(r.NormFloat64())
		case lowInf:
			v[i] = float32(high - r.ExpFloat64())
		case highInf:
			v[i] = float32(low + r.ExpFloat64())
		default:
			v[i] = min(max(float32(low+r.Float64()*(high-low)), b.Low[i]), b.High[i])
		}
	}
	return v
}

// String returns the bounds: Box([-1], [1]).
func (b Box) String() string { return fmt.Sprintf("Box(%v, %v)", b.Low, b.High) }
