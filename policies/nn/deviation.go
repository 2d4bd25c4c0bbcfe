package nn

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/graph"
)

// StateDeviation is the last layer of an actor whose exploration depends on the state and lasts for several steps:
// generalised state-dependent exploration. Its output are n means, a dense layer of its input x, and behind them the
// logarithms of n standard deviations: those of x times a matrix of noise, in x n, whose numbers are normal with
// mean 0 and learned deviations. Gradients of the deviations do not flow to x.
//
// An agent that holds such a matrix for some steps explores smoothly: see [StateDeviation.Draw]. A. Raffin et al., "Smooth
// Exploration for Robotic Reinforcement Learning" (2021).
type StateDeviation struct {
	mean   dense
	log    *Param // of the deviations of the noise
	logStd float64
}

// NewStateDeviation returns the layer with n means, filled by init. All learned deviations begin at exp(logStd).
func NewStateDeviation(n int, init Init, logStd float64) *StateDeviation {
	if n <= 0 || init == nil {
		panic(fmt.Sprintf("nn: state-dependent deviations of %d columns", n))
	}
	return &StateDeviation{mean: dense{out: n, init: init}, logStd: logStd}
}

// Build implements [Layer].
func (l *StateDeviation) Build(b *Builder, in int) int {
	n := l.mean.Build(b, in)
	l.log = b.Param("deviation", "log_std", []int{in, n}, Fill(l.logStd))
	return 2 * n
}

// leastVariance keeps the deviation of a state without features above 0.
const leastVariance = 1e-6

// Apply implements [Layer].
func (l *StateDeviation) Apply(t *Tape, x Value) Value {
	variance := x.Detach().Square().MatMul(l.log.On(t).Scale(2).Exp())
	return l.mean.Apply(t, x).Beside(variance.AddNumber(leastVariance).Log().Scale(0.5))
}

// Size returns the number of values of a matrix of noise.
func (l *StateDeviation) Size() int { return product(l.log.Shape) }

// Draw fills a matrix of noise, of [StateDeviation.Size] values.
func (l *StateDeviation) Draw(matrix []float32, rng *rand.Rand) {
	for i, log := range l.log.Value {
		matrix[i] = float32(math.Exp(float64(log)) * rng.NormFloat64())
	}
}

// AddNoise adds to n numbers the noise that a matrix of Draw gives in the state with the features x.
func (l *StateDeviation) AddNoise(dst, x, matrix []float32) {
	for j := range dst {
		var sum float64
		for i, v := range x {
			sum += float64(v) * float64(matrix[i*len(dst)+j])
		}
		dst[j] += float32(sum)
	}
}

// Export implements [Exportable], of the means alone.
func (l *StateDeviation) Export(g *graph.Graph, prefix string, x graph.Value) graph.Value {
	return l.mean.Export(g, prefix, x)
}
