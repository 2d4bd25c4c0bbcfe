package nn

import (
	"math"
	"math/rand/v2"
)

// KaimingNormal draws from a normal distribution of variance 2/in: [Kaiming] with another
// distribution of the same variance. K. He et al., "Delving Deep into Rectifiers" (2015).
func KaimingNormal(w Matrix, _ []float32, rng *rand.Rand) {
	normal(w.Data, math.Sqrt(2/float64(w.Rows)), rng)
}

// GlorotNormal draws from a normal distribution of variance 2/(in+out): [Glorot] with another
// distribution of the same variance. X. Glorot and Y. Bengio, "Understanding the difficulty of
// training deep feedforward neural networks" (2010).
func GlorotNormal(w Matrix, _ []float32, rng *rand.Rand) {
	normal(w.Data, math.Sqrt(2/float64(w.Rows+w.Cols)), rng)
}

// Normal returns an initialiser that draws from a normal distribution of mean 0 and the given
// standard deviation; 1 is the default of PyTorch's Embedding.
func Normal(std float64) Init {
	return func(w Matrix, _ []float32, rng *rand.Rand) { normal(w.Data, std, rng) }
}

// Uniform returns an initialiser that draws uniformly from +-bound.
func Uniform(bound float64) Init {
	return func(w Matrix, _ []float32, rng *rand.Rand) { uniform(w.Data, bound, rng) }
}

// Fill returns an initialiser that sets all weights to x.
func Fill(x float64) Init {
	return func(w Matrix, _ []float32, _ *rand.Rand) {
		for i := range w.Data {
			w.Data[i] = float32(x)
		}
	}
}

func normal(dst []float32, std float64, rng *rand.Rand) {
	for i := range dst {
		dst[i] = float32(std * rng.NormFloat64())
	}
}
