package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// NoisyDense returns a dense layer with out columns whose weights have learned noise, which
// replaces random actions as the source of exploration: y = x (W + S * E) + b + s * e, with
// learned W, S, b and s, element by element products *, and factorised noise: E = f(p) f(q),
// e = f(q), f(v) = sign(v) sqrt(|v|), for standard normal vectors p (in) and q (out).
// W and b begin uniform in +-1/sqrt(in), S and s at sigma/sqrt(in); the paper's sigma is 0.5.
//
// The noise is zero until [Net.RedrawNoise], and again after [Net.ClearNoise]: then the layer
// computes with its mean weights, as in an evaluation. The noise is one for all rows of a batch,
// and is no part of [Net.State].
//
// M. Fortunato et al., "Noisy Networks for Exploration" (2018), section 3, case (b).
func NoisyDense(out int, sigma float64) Layer {
	if out <= 0 || sigma < 0 {
		panic(fmt.Sprintf("nn: noisy layer of %d columns, sigma %v", out, sigma))
	}
	return &noisy{out: out, sigma: sigma}
}

type noisy struct {
	out                        int
	sigma                      float64
	weight, bias, sigmaW, sigB *Param
	left, right                []float32 // f(p) and f(q)
	on                         bool
}

func (l *noisy) Build(b *Builder, in int) int {
	mean, spread := Uniform(1/math.Sqrt(float64(in))), Fill(l.sigma/math.Sqrt(float64(in)))
	l.weight = b.Param("noisy", "weight", []int{in, l.out}, mean)
	l.bias = b.Param("noisy", "bias", []int{l.out}, mean)
	l.sigmaW = b.Param("noisy", "weight_sigma", []int{in, l.out}, spread)
	l.sigB = b.Param("noisy", "bias_sigma", []int{l.out}, spread)
	l.left, l.right = make([]float32, in), make([]float32, l.out)
	b.image = image{}
	return l.out
}

func (l *noisy) Apply(t *Tape, x Value) Value {
	weight, bias := l.weight.On(t), l.bias.On(t)
	if l.on {
		// The tape has its own noise: a redraw must not change what is recorded.
		left, right := t.Zeros(len(l.left), 1), t.Zeros(1, len(l.right))
		copy(left.Data(), l.left)
		copy(right.Data(), l.right)
		weight = weight.Add(l.sigmaW.On(t).Mul(left.Mul(right)))
		bias = bias.Add(l.sigB.On(t).Mul(right))
	}
	return x.MatMul(weight).Add(bias)
}

func (l *noisy) redraw(rng *rand.Rand) {
	for _, v := range [2][]float32{l.left, l.right} {
		for i := range v {
			x := rng.NormFloat64()
			v[i] = float32(math.Copysign(math.Sqrt(math.Abs(x)), x))
		}
	}
	l.on = true
}

// RedrawNoise draws new noise for all noisy layers. Values that are on a tape already keep their noise.
func (n *Net) RedrawNoise(rng *rand.Rand) {
	for _, l := range n.layers {
		if l, ok := l.(*noisy); ok {
			l.redraw(rng)
		}
	}
}

// ClearNoise lets all noisy layers compute with their mean weights.
func (n *Net) ClearNoise() {
	for _, l := range n.layers {
		if l, ok := l.(*noisy); ok {
			l.on = false
		}
	}
}
