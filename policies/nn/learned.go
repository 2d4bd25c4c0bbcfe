package nn

import "fmt"

// Learned returns the layer that puts n learned numbers, the same in each row, behind the
// columns. All begin at value. With it the logarithms of a Gaussian policy's standard deviations
// can be weights that do not depend on the observation: the network's last n columns.
func Learned(n int, value float64) Layer {
	if n <= 0 {
		panic(fmt.Sprintf("nn: %d learned columns", n))
	}
	return &learned{n: n, value: value}
}

type learned struct {
	n      int
	value  float64
	vector *Param
}

func (l *learned) Build(b *Builder, in int) int {
	l.vector = b.Param("learned", "vector", []int{l.n}, Fill(l.value))
	return in + l.n
}

func (l *learned) Apply(t *Tape, x Value) Value {
	return x.Beside(l.vector.On(t).Add(t.Zeros(x.Rows(), 1)))
}

// Rescale returns the layer that brings column i from the interval [-1, 1] to [low[i], high[i]]. It
// stands behind the [Tanh] of a policy whose actions have these bounds, which must be finite.
// Rounding may bring a result beyond its bound by a unit in the last place.
func Rescale(low, high []float32) Layer {
	if len(low) != len(high) || len(low) == 0 {
		panic(fmt.Sprintf("nn: rescaled columns with %d lower and %d upper bounds", len(low), len(high)))
	}
	r := &rescaled{middle: make([]float32, len(low)), half: make([]float32, len(low))}
	for i := range low {
		lo, hi := float64(low[i]), float64(high[i])
		if !finite(hi - lo) {
			panic(fmt.Sprintf("nn: rescaled column %d with bounds %v and %v", i, lo, hi))
		}
		r.middle[i], r.half[i] = float32((hi+lo)/2), float32((hi-lo)/2)
	}
	return r
}

type rescaled struct{ middle, half []float32 }

func (r *rescaled) Build(_ *Builder, in int) int {
	if in != len(r.half) {
		panic(fmt.Sprintf("nn: %d rescaled columns of %d", len(r.half), in))
	}
	return in
}

func (r *rescaled) Apply(t *Tape, x Value) Value {
	n := len(r.half)
	return x.Mul(t.Const(1, n, r.half)).Add(t.Const(1, n, r.middle))
}

// Scale returns the layer that multiplies by a number: Scale(1.0 / 255) brings pixels to 0..1.
func Scale(factor float64) Layer { return scaled{float32(factor)} }

type scaled struct{ factor float32 }

func (scaled) Build(_ *Builder, in int) int { return in }

func (s scaled) Apply(_ *Tape, x Value) Value { return x.Scale(s.factor) }
