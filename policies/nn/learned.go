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

// Scale returns the layer that multiplies by a number: Scale(1.0 / 255) brings pixels to 0..1.
func Scale(factor float64) Layer { return scaled{float32(factor)} }

type scaled struct{ factor float32 }

func (scaled) Build(_ *Builder, in int) int { return in }

func (s scaled) Apply(_ *Tape, x Value) Value { return x.Scale(s.factor) }
