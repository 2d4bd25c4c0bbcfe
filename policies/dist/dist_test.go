package dist_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/nn"
)

// formulaTolerance is the error of float32 results, against formulas in float64, as a part of
// 1 + the result.
const formulaTolerance = 3e-6

// near fails unless every number of got is what a formula gives.
func near(t *testing.T, what string, got nn.Value, want ...float64) {
	t.Helper()
	if got.Cols() != 1 || got.Rows() != len(want) {
		t.Fatalf("%s: %d x %d, want %d x 1", what, got.Rows(), got.Cols(), len(want))
	}
	for i, w := range want {
		if v := float64(got.Data()[i]); !(math.Abs(v-w) <= formulaTolerance*(1+math.Abs(w))) {
			t.Errorf("%s, row %d: %v, want %v", what, i, v, w)
		}
	}
}

// softmax returns the distribution of logits in float64.
func softmax(logits ...float64) []float64 {
	top, sum := slices.Max(logits), 0.0
	p := make([]float64, len(logits))
	for i, x := range logits {
		p[i] = math.Exp(x - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func entropyOf(p []float64) (h float64) {
	for _, x := range p {
		if x > 0 {
			h -= x * math.Log(x)
		}
	}
	return h
}

func divergenceOf(p, q []float64) (d float64) {
	for i, x := range p {
		if x > 0 {
			d += x * math.Log(x/q[i])
		}
	}
	return d
}

func TestP1CategoricalEqualsItsFormulas(t *testing.T) {
	var tape nn.Tape
	c := dist.NewCategorical(tape.Const(2, 3, []float32{1, 2, 3, 0, -4, 0.5}), nil)
	q := dist.NewCategorical(tape.Const(2, 3, []float32{0, 0, 1, 2, 2, -1}), nil)
	p0, p1 := softmax(1, 2, 3), softmax(0, -4, 0.5)
	near(t, "log-prob", c.LogProb([]float32{2, 0}), math.Log(p0[2]), math.Log(p1[0]))
	near(t, "entropy", c.Entropy(), entropyOf(p0), entropyOf(p1))
	near(t, "kl", c.KL(q), divergenceOf(p0, softmax(0, 0, 1)), divergenceOf(p1, softmax(2, 2, -1)))
	near(t, "kl to itself", c.KL(c), 0, 0)
	mode := make([]float32, 2)
	if c.Mode(mode); !slices.Equal(mode, []float32{2, 2}) || c.ActionSize() != 1 {
		t.Errorf("mode %v", mode)
	}
}

// TestExtremeLogits give what the limits are, and no gradient that is not finite.
func TestExtremeLogits(t *testing.T) {
	var tape nn.Tape
	logits := tape.Variable(3, 3, []float32{1e30, 0, -1e30, 1000, 999, -1000, -2e4, -2e4, -2e4})
	c := dist.NewCategorical(logits, nil)
	p := softmax(1, 0)
	near(t, "entropy", c.Entropy(), 0, entropyOf(p), math.Log(3))
	near(t, "log-prob", c.LogProb([]float32{0, 1, 2}), 0, math.Log(p[1]), -math.Log(3))
	tape.Backward(c.Entropy().Add(c.LogProb([]float32{1, 2, 0})).Add(c.KL(c)).Mean())
	if i := nn.FindNonFinite(logits.Grad()); i >= 0 {
		t.Errorf("gradient %v", logits.Grad())
	}
}

// TestMaskedActionsAreNeverTaken, count for nothing, and have no gradient.
func TestMaskedActionsAreNeverTaken(t *testing.T) {
	var tape nn.Tape
	logits := tape.Variable(2, 3, []float32{1, 9, 3, 0, -4, 700})
	mask := []bool{true, false, true, false, true, false}
	c := dist.NewCategorical(logits, mask)
	p := softmax(1, 3)
	near(t, "log-prob", c.LogProb([]float32{0, 1}), math.Log(p[0]), 0)
	near(t, "entropy", c.Entropy(), entropyOf(p), 0)
	other := dist.NewCategorical(tape.Const(2, 3, []float32{3, 1, 1, 1, 1, 1}), mask)
	near(t, "kl", c.KL(other), divergenceOf(p, softmax(3, 1)), 0)
	tape.Backward(c.Entropy().Add(c.KL(other)).Add(c.LogProb([]float32{0, 1})).Sum())
	if g := logits.Grad(); g[1] != 0 || g[3] != 0 || g[5] != 0 || g[0] == 0 || nn.FindNonFinite(g) >= 0 {
		t.Errorf("gradient %v", g)
	}
	rng, dst := rand.New(rand.NewPCG(1, 1)), make([]float32, 2)
	for range 10_000 {
		if c.Sample(dst, rng); dst[0] == 1 || dst[1] != 1 {
			t.Fatalf("a forbidden action is drawn: %v", dst)
		}
	}
	if c.Mode(dst); dst[0] != 2 || dst[1] != 1 {
		t.Errorf("mode %v", dst)
	}
}

func TestP1MultiCategoricalEqualsItsFormulas(t *testing.T) {
	var tape nn.Tape
	sizes := []int{2, 3}
	m := dist.NewMultiCategorical(tape.Const(2, 5, []float32{1, 2, 0, 1, 5, -1, 0, 3, 3, 1}), sizes, nil)
	q := dist.NewMultiCategorical(tape.Const(2, 5, make([]float32, 10)), sizes, nil)
	a0, b0, a1, b1 := softmax(1, 2), softmax(0, 1, 5), softmax(-1, 0), softmax(3, 3, 1)
	near(t, "log-prob", m.LogProb([]float32{1, 0, 0, 2}), math.Log(a0[1])+math.Log(b0[0]), math.Log(a1[0])+math.Log(b1[2]))
	near(t, "entropy", m.Entropy(), entropyOf(a0)+entropyOf(b0), entropyOf(a1)+entropyOf(b1))
	u, v := softmax(0, 0), softmax(0, 0, 0)
	near(t, "kl", m.KL(q), divergenceOf(a0, u)+divergenceOf(b0, v), divergenceOf(a1, u)+divergenceOf(b1, v))
	mode := make([]float32, 4)
	if m.Mode(mode); !slices.Equal(mode, []float32{1, 2, 1, 0}) || m.ActionSize() != 2 {
		t.Errorf("mode %v", mode)
	}
	masked := dist.NewMultiCategorical(tape.Const(1, 5, []float32{1, 2, 0, 1, 5}), sizes, []bool{true, false, true, true, false})
	near(t, "masked entropy", masked.Entropy(), entropyOf(softmax(0, 1)))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		if masked.Sample(mode[:2], rng); mode[0] != 0 || mode[1] == 2 {
			t.Fatalf("a forbidden action is drawn: %v", mode[:2])
		}
	}
}

// TestSamplesHaveTheirProbabilities, within four standard deviations of their counts.
func TestSamplesHaveTheirProbabilities(t *testing.T) {
	const n = 100_000
	var tape nn.Tape
	m := dist.NewMultiCategorical(tape.Const(1, 5, []float32{1, 2, 0, 1, 5}), []int{2, 3}, nil)
	c := dist.NewCategorical(tape.Const(1, 3, []float32{0, 1, 5}), nil)
	rng, dst := rand.New(rand.NewPCG(1, 1)), make([]float32, 2)
	var first, second, single [3]int
	for range n {
		m.Sample(dst, rng)
		first[int(dst[0])]++
		second[int(dst[1])]++
		c.Sample(dst[:1], rng)
		single[int(dst[0])]++
	}
	for _, c := range []struct {
		counts [3]int
		p      []float64
	}{{first, softmax(1, 2)}, {second, softmax(0, 1, 5)}, {single, softmax(0, 1, 5)}} {
		for i, p := range c.p {
			if got := float64(c.counts[i]); math.Abs(got-n*p) > 4*math.Sqrt(n*p*(1-p)) {
				t.Errorf("action %d of %v: %v times, want %v", i, c.p, got, n*p)
			}
		}
	}
}

// normal returns the logarithm of a normal density.
func normal(x, mean, logStd float64) float64 {
	z := (x - mean) / math.Exp(logStd)
	return -z*z/2 - logStd - math.Log(2*math.Pi)/2
}

func TestP1GaussianEqualsItsFormulas(t *testing.T) {
	var tape nn.Tape
	mean := tape.Const(2, 2, []float32{0.5, -1, 3, 2})
	each, shared := tape.Const(2, 2, []float32{-1, 0.5, 0, 1}), tape.Const(1, 2, []float32{-2, 1})
	g, s := dist.NewGaussian(mean, each), dist.NewGaussian(mean, shared)
	q := dist.NewGaussian(tape.Const(2, 2, []float32{0, 0, 0, 1}), each)
	x := []float32{1, 0, 2.5, -4}
	near(t, "log-prob", g.LogProb(x), normal(1, 0.5, -1)+normal(0, -1, 0.5), normal(2.5, 3, 0)+normal(-4, 2, 1))
	near(t, "log-prob, shared", s.LogProb(x), normal(1, 0.5, -2)+normal(0, -1, 1), normal(2.5, 3, -2)+normal(-4, 2, 1))
	h := math.Log(2 * math.Pi * math.E) // of two numbers with deviation 1
	near(t, "entropy", g.Entropy(), h-0.5, h+1)
	near(t, "entropy, shared", s.Entropy(), h-1, h-1)
	kl := func(mp, lp, mq, lq float64) float64 {
		return lq - lp + (math.Exp(2*lp)+(mp-mq)*(mp-mq))/(2*math.Exp(2*lq)) - 0.5
	}
	near(t, "kl", g.KL(q), kl(0.5, -1, 0, -1)+kl(-1, 0.5, 0, 0.5), kl(3, 0, 0, 0)+kl(2, 1, 1, 1))
	near(t, "kl, shared", s.KL(g), kl(0.5, -2, 0.5, -1)+kl(-1, 1, -1, 0.5), kl(3, -2, 3, 0)+kl(2, 1, 2, 1))
	zero := tape.Zeros(1, 2)
	near(t, "kl of shared", dist.NewGaussian(zero, shared).KL(dist.NewGaussian(zero, zero)), kl(0, -2, 0, 0)+kl(0, 1, 0, 0))
	mode := make([]float32, 4)
	if g.Mode(mode); !slices.Equal(mode, mean.Data()) || g.ActionSize() != 2 {
		t.Errorf("mode %v", mode)
	}
}

// TestExtremeDeviations: logarithms from -20 to 20 give finite numbers, those of the formulas.
func TestExtremeDeviations(t *testing.T) {
	var tape nn.Tape
	logStd := tape.Variable(3, 1, []float32{-20, 20, 0})
	mean := tape.Variable(3, 1, []float32{1, 1e6, -1e4})
	g := dist.NewGaussian(mean, logStd)
	x := []float32{1, -1e6, 1e4}
	near(t, "log-prob", g.LogProb(x), normal(1, 1, -20), normal(-1e6, 1e6, 20), normal(1e4, -1e4, 0))
	h := math.Log(2*math.Pi*math.E) / 2
	near(t, "entropy", g.Entropy(), h-20, h+20, h)
	tape.Backward(g.LogProb(x).Add(g.KL(g)).Add(g.Entropy()).Sum())
	if nn.FindNonFinite(mean.Grad()) >= 0 || nn.FindNonFinite(logStd.Grad()) >= 0 {
		t.Errorf("gradients %v and %v", mean.Grad(), logStd.Grad())
	}
	s := dist.NewSquashedGaussian(tape.Variable(3, 1, []float32{30, -200, 0}), tape.Const(3, 1, []float32{-5, 2, 2}), nil, nil)
	action, logProb := s.RSample(rand.New(rand.NewPCG(1, 1)))
	atBounds := s.LogProb([]float32{1, -1, -1}).Data()
	if nn.FindNonFinite(action.Data()) >= 0 || nn.FindNonFinite(logProb.Data()) >= 0 || nn.FindNonFinite(atBounds) >= 0 {
		t.Errorf("action %v, log-prob %v", action.Data(), logProb.Data())
	}
	// At u = 30 the derivative of tanh is 4 exp(-60).
	u := 30 + math.Exp(-5)*rand.New(rand.NewPCG(1, 1)).NormFloat64()
	if want := normal(u, 30, -5) - (math.Log(4) - 2*u); math.Abs(float64(logProb.Data()[0])-want) > 1e-3 {
		t.Errorf("log-prob at u %v: %v, want %v", u, logProb.Data()[0], want)
	}
}

// bends are means, deviations and bounds of squashed Gaussians.
var bends = []struct{ mean, logStd, low, high float32 }{{0.3, -0.7, -1, 1}, {-1, 0.2, -2, 0.5}, {0, 0.6, 10, 30}, {1.5, -1.5, -0.1, 0.3}}

// integralTolerance is the error of sums over 40,000 densities in float32.
const integralTolerance = 2e-3

// TestSquashedDensityIntegratesToOne between the bounds, and gives samples their mean.
func TestSquashedDensityIntegratesToOne(t *testing.T) {
	const n = 40_000
	for _, c := range bends {
		var tape nn.Tape
		fill := func(x float32) nn.Value { return tape.Const(n, 1, slices.Repeat([]float32{x}, n)) }
		s := dist.NewSquashedGaussian(fill(c.mean), fill(c.logStd), []float32{c.low}, []float32{c.high})
		actions := make([]float32, n)
		width := float64(c.high-c.low) / n
		for i := range actions {
			actions[i] = float32(float64(c.low) + (float64(i)+0.5)*width)
		}
		var total, mean, square float64
		for i, l := range s.LogProb(actions).Data() {
			p := math.Exp(float64(l)) * width
			total, mean, square = total+p, mean+p*float64(actions[i]), square+p*float64(actions[i])*float64(actions[i])
		}
		if math.Abs(total-1) > integralTolerance {
			t.Errorf("%+v: the density has the integral %v", c, total)
		}
		samples, sum := make([]float32, n), 0.0
		s.Sample(samples, rand.New(rand.NewPCG(1, 1)))
		for _, x := range samples {
			if sum += float64(x); x < c.low || x > c.high {
				t.Fatalf("%+v: sample %v", c, x)
			}
		}
		if got, far := sum/n, 5*math.Sqrt((square-mean*mean)/n)+integralTolerance*(1+math.Abs(mean)); math.Abs(got-mean) > far {
			t.Errorf("%+v: samples have the mean %v, the density %v", c, got, mean)
		}
	}
}

// TestRSampleEqualsSampleAndLogProb: the same random numbers give the same actions, whose
// density is that of LogProb.
func TestRSampleEqualsSampleAndLogProb(t *testing.T) {
	for _, c := range bends {
		var tape nn.Tape
		mean, logStd := tape.Const(50, 1, slices.Repeat([]float32{c.mean}, 50)), tape.Const(1, 1, []float32{c.logStd})
		s := dist.NewSquashedGaussian(mean, logStd, []float32{c.low}, []float32{c.high})
		action, logProb := s.RSample(rand.New(rand.NewPCG(3, 3)))
		drawn := make([]float32, 50)
		s.Sample(drawn, rand.New(rand.NewPCG(3, 3)))
		again := s.LogProb(action.Data()).Data()
		for i, a := range action.Data() {
			if math.Abs(float64(a-drawn[i])) > 1e-5*(1+math.Abs(float64(a))) {
				t.Errorf("%+v: RSample %v, Sample %v", c, a, drawn[i])
			}
			// u is read back from the action, whose rounding counts for more towards the bounds.
			if d := math.Abs(float64(logProb.Data()[i] - again[i])); d > 1e-3 {
				t.Errorf("%+v: at %v RSample has the density %v, LogProb %v", c, a, logProb.Data()[i], again[i])
			}
		}
		g := dist.NewGaussian(mean, logStd)
		free := g.RSample(rand.New(rand.NewPCG(3, 3))).Data()
		g.Sample(drawn, rand.New(rand.NewPCG(3, 3)))
		for i, a := range free {
			if math.Abs(float64(a-drawn[i])) > 1e-5*(1+math.Abs(float64(a))) {
				t.Errorf("gaussian: RSample %v, Sample %v", a, drawn[i])
			}
		}
	}
}

func TestSquashedGaussian(t *testing.T) {
	var tape nn.Tape
	mean, logStd := tape.Const(1, 2, []float32{0.5, -20}), tape.Const(1, 2, []float32{-1, 0.5})
	low, high := []float32{-2, -0.1}, []float32{2, 0.3}
	s := dist.NewSquashedGaussian(mean, logStd, low, high)
	mode := make([]float32, 2)
	if s.Mode(mode); math.Abs(float64(mode[0])-2*math.Tanh(0.5)) > 1e-6 || mode[1] < low[1] || mode[1] > low[1]+1e-6 || s.ActionSize() != 2 {
		t.Errorf("mode %v", mode)
	}
	q := dist.NewSquashedGaussian(tape.Zeros(1, 2), tape.Zeros(1, 2), low, high)
	near(t, "kl", s.KL(q), float64(dist.NewGaussian(mean, logStd).KL(dist.NewGaussian(tape.Zeros(1, 2), tape.Zeros(1, 2))).Number()))
}

// TestSquashedActionsStayInTheirBox, however the bounds round.
func TestSquashedActionsStayInTheirBox(t *testing.T) {
	rng, dst := rand.New(rand.NewPCG(1, 1)), make([]float32, 2)
	for range 2000 {
		low, width := float32(rng.NormFloat64()), float32(rng.ExpFloat64())
		var tape nn.Tape
		mean, bounds := tape.Column([]float32{50, -50}), [2][]float32{{low}, {low + width}}
		d := dist.NewSquashedGaussian(mean, tape.Zeros(2, 1), bounds[0], bounds[1])
		d.Mode(dst)
		for _, a := range dst {
			if a < low || a > low+width {
				t.Fatalf("%v is not in %v..%v", a, low, low+width)
			}
		}
	}
}

// monteCarloTolerance is for means of 200,000 samples of numbers of the order of 1.
const monteCarloTolerance = 0.01

// TestEntropyAndKLAreMeansOfLogProbs of samples.
func TestEntropyAndKLAreMeansOfLogProbs(t *testing.T) {
	const n = 200_000
	rng := rand.New(rand.NewPCG(1, 1))
	var tape nn.Tape
	rows := func(v ...float32) nn.Value { return tape.Const(n, len(v), slices.Repeat(v, n)) }
	g, q := dist.NewGaussian(rows(0.5, -1), rows(-0.5, 0.2)), dist.NewGaussian(rows(0, 0), rows(0, 0.4))
	c, d := dist.NewCategorical(rows(1, 0, -1), nil), dist.NewCategorical(rows(0, 0.5, 0), nil)
	check := func(what string, estimate, exact nn.Value) {
		t.Helper()
		if a, b := estimate.Mean().Number(), exact.Data()[0]; math.Abs(float64(a-b)) > monteCarloTolerance {
			t.Errorf("%s: %v by samples, %v by the formula", what, a, b)
		}
	}
	x, y := make([]float32, 2*n), make([]float32, n)
	g.Sample(x, rng)
	c.Sample(y, rng)
	check("entropy of a gaussian", g.LogProb(x).Neg(), g.Entropy())
	check("kl of gaussians", g.LogProb(x).Sub(q.LogProb(x)), g.KL(q))
	check("entropy of a categorical", c.LogProb(y).Neg(), c.Entropy())
	check("kl of categoricals", c.LogProb(y).Sub(d.LogProb(y)), c.KL(d))
}
