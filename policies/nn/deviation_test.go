package nn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

// TestStateDeviationIsThatOfItsNoise: with many matrices the noise has the deviations that the layer says, in each state.
func TestStateDeviationIsThatOfItsNoise(t *testing.T) {
	layer := nn.NewStateDeviation(2, nn.FanIn, -1)
	net := nn.New(3, 1, layer)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range net.Params()[2].Value { // each has its own
		net.Params()[2].Value[i] = float32(rng.NormFloat64() - 1)
	}
	const draws = 20_000
	matrix := make([]float32, layer.Size())
	for _, x := range [][]float32{{1, -2, 0.5}, {0, 0, 3}, {0, 0, 0}} {
		out := net.Forward(nn.Matrix{Rows: 1, Cols: 3, Data: x}).Data
		var square [2]float64
		for range draws {
			noise := make([]float32, 2)
			layer.Draw(matrix, rng)
			layer.AddNoise(noise, x, matrix)
			for j, v := range noise {
				square[j] += float64(v) * float64(v) / draws
			}
		}
		for j, s := range square {
			if want := math.Exp(float64(out[2+j])); math.Abs(math.Sqrt(s)-want) > 0.03*want+0.002 {
				t.Errorf("state %v: action %d has noise of deviation %v, the layer has %v", x, j, math.Sqrt(s), want)
			}
		}
	}
}

// TestStateDeviationsDoNotTrainTheFeatures: gradients of the deviations end at the layer, and those of the means do not.
func TestStateDeviationsDoNotTrainTheFeatures(t *testing.T) {
	net := nn.New(3, 1, nn.Dense(4, nn.FanIn), nn.Tanh(), nn.NewStateDeviation(1, nn.FanIn, 0))
	gradient := func(column int) []float32 {
		var tape nn.Tape
		tape.Train(net)
		net.ZeroGrad()
		y := net.Apply(&tape, tape.Const(2, 3, []float32{1, 2, 3, 4, 5, 6}))
		tape.Backward(y.Columns(column, column+1).Sum())
		return slices.Clone(net.Grad())
	}
	const hidden = 3*4 + 4
	means, deviations := gradient(0), gradient(1)
	zero := func(g []float32) bool { return !slices.ContainsFunc(g, func(x float32) bool { return x != 0 }) }
	if zero(means[:hidden]) || zero(deviations[hidden:]) || !zero(deviations[:hidden]) {
		t.Errorf("gradients of the mean %v, and of the deviation %v", means, deviations)
	}
	var tape nn.Tape
	x := tape.Const(1, 3, []float32{1, 2, 3})
	features, y := net.ApplyLast(&tape, x)
	if want := net.Apply(&tape, x); !slices.Equal(y.Data(), want.Data()) || features.Cols() != 4 {
		t.Errorf("%v of %d features, want %v", y.Data(), features.Cols(), want.Data())
	}
}
