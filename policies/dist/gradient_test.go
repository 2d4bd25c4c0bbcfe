package dist_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/nn"
)

func rng() *rand.Rand { return rand.New(rand.NewPCG(4, 4)) }

// losses are everything that can be differentiated, by a, 3 x 4, and b, 3 x 4 or its first row.
var losses = map[string]func(a, b nn.Value) nn.Value{
	"categorical log-prob": func(a, _ nn.Value) nn.Value {
		return dist.NewCategorical(a, nil).LogProb([]float32{3, 0, 2})
	},
	"categorical entropy": func(a, _ nn.Value) nn.Value { return dist.NewCategorical(a, nil).Entropy() },
	"categorical kl": func(a, b nn.Value) nn.Value {
		return dist.NewCategorical(a, nil).KL(dist.NewCategorical(b.Add(a.Scale(0)), nil))
	},
	"masked": func(a, _ nn.Value) nn.Value {
		c := dist.NewCategorical(a, slices.Repeat([]bool{true, true, false, true}, 3))
		return c.Entropy().Add(c.LogProb([]float32{3, 0, 1}))
	},
	"multi": func(a, b nn.Value) nn.Value {
		m := dist.NewMultiCategorical(a, []int{1, 3}, nil)
		q := dist.NewMultiCategorical(b.Add(a.Scale(0)), []int{1, 3}, nil)
		return m.Entropy().Add(m.LogProb([]float32{0, 2, 0, 0, 0, 1})).Add(m.KL(q))
	},
	"gaussian log-prob": func(a, b nn.Value) nn.Value {
		return dist.NewGaussian(a, b).LogProb([]float32{1, 2, 0, 0, -1, 0.5, 0, 1, 1, 1, -2, 3})
	},
	"gaussian entropy": func(a, b nn.Value) nn.Value { return dist.NewGaussian(a, b).Entropy() },
	"gaussian kl": func(a, b nn.Value) nn.Value {
		return dist.NewGaussian(a, b).KL(dist.NewGaussian(a.Tanh(), b.Scale(0.5)))
	},
	"gaussian sample": func(a, b nn.Value) nn.Value {
		return dist.NewGaussian(a, b).RSample(rng()).Square().RowSums()
	},
	"squashed log-prob": func(a, b nn.Value) nn.Value {
		low, high := []float32{-1, -1, -1, -2}, []float32{1, 1, 1, 4}
		return dist.NewSquashedGaussian(a, b, low, high).LogProb([]float32{0.5, 0.2, 0, 0, -0.9, 0.5, 0, 1, 0.9, 0.1, -0.2, 3})
	},
	"squashed sample": func(a, b nn.Value) nn.Value {
		action, logProb := dist.NewSquashedGaussian(a, b, nil, nil).RSample(rng())
		return action.Square().RowSums().Add(logProb)
	},
}

// TestP2GradientsOfDistributionsEqualCentralDifferences, with deviations of each row and of all.
func TestP2GradientsOfDistributionsEqualCentralDifferences(t *testing.T) {
	for name, loss := range losses {
		for _, rows := range []int{3, 1} {
			t.Run(fmt.Sprintf("%s/%d", name, rows), func(t *testing.T) {
				r := rng()
				inputs := [][]float32{make([]float32, 12), make([]float32, 4*rows)}
				for _, v := range inputs {
					for i := range v {
						v[i] = float32(0.7 * r.NormFloat64())
					}
				}
				var tape nn.Tape
				record := func() (out, a, b nn.Value) {
					tape.Reset()
					a, b = tape.Variable(3, 4, inputs[0]), tape.Variable(rows, 4, inputs[1])
					return loss(a, b).Mul(tape.Column([]float32{1, -0.5, 2})).Mean(), a, b
				}
				l, a, b := record()
				tape.Backward(l)
				grads := [][]float32{slices.Clone(a.Grad()), slices.Clone(b.Grad())}
				for k, v := range inputs {
					for i, x := range v {
						const h = 2e-3
						v[i] = x + h
						up, _, _ := record()
						high := float64(up.Number())
						v[i] = x - h
						down, _, _ := record()
						want := (high - float64(down.Number())) / (2 * h)
						v[i] = x
						got := 0.0
						if grads[k] != nil {
							got = float64(grads[k][i])
						}
						if math.Abs(got-want) > 4e-3*(1+math.Abs(want)) {
							t.Errorf("input %d, number %d: gradient %v, differences give %v", k, i, got, want)
						}
					}
				}
			})
		}
	}
}

// TestDistributionsAllocateNothing on a tape that has seen them before.
func TestDistributionsAllocateNothing(t *testing.T) {
	var tape nn.Tape
	logits, r := make([]float32, 64*4), rng()
	actions, dst, picks := make([]float32, 64*4), make([]float32, 64*4), make([]float32, 64)
	mask, sizes := slices.Repeat([]bool{true, false}, 128), []int{2, 2}
	low, high := []float32{-1, -1, -1, -1}, []float32{2, 2, 2, 2}
	if n := testing.AllocsPerRun(20, func() {
		tape.Reset()
		x := tape.Variable(64, 4, logits)
		c, m := dist.NewCategorical(x, mask), dist.NewMultiCategorical(x, sizes, mask)
		g, s := dist.NewGaussian(x, x), dist.NewSquashedGaussian(x, x, low, high)
		c.Sample(picks, r)
		m.Sample(dst[:128], r)
		g.Sample(dst, r)
		s.Sample(dst, r)
		c.Mode(picks)
		m.Mode(dst[:128])
		action, logProb := s.RSample(r)
		loss := c.LogProb(picks).Add(c.Entropy()).Add(c.KL(c)).Add(m.LogProb(actions[:128])).Add(m.Entropy()).Add(m.KL(m))
		loss = loss.Add(g.LogProb(actions)).Add(g.Entropy()).Add(g.KL(g)).Add(g.RSample(r).RowSums())
		tape.Backward(loss.Add(s.LogProb(actions)).Add(logProb).Add(action.RowSums()).Mean())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	var tape nn.Tape
	x, column, nan := tape.Zeros(2, 3), tape.Zeros(2, 1), float32(math.NaN())
	for want, f := range map[string]func(){
		"dist: categorical of 2 rows got actions of 3 numbers, want 2": func() {
			dist.NewCategorical(x, nil).LogProb(make([]float32, 3))
		},
		"dist: categorical of 2 rows got actions of 1 numbers, want 2": func() {
			dist.NewCategorical(x, nil).Sample(make([]float32, 1), rng())
		},
		"dist: categorical of 2 rows got actions of 0 numbers, want 2": func() {
			dist.NewCategorical(x, nil).Mode(nil)
		},
		"nn: pick of column 3 of 3": func() {
			dist.NewCategorical(x, nil).LogProb([]float32{0, 3})
		},
		"dist: the mask allows no action in choice 0 of row 1": func() {
			dist.NewCategorical(x, []bool{true, false, false, false, false, false})
		},
		"dist: the mask allows no action in choice 1 of row 0": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, []bool{true, true, false, true, true, true})
		},
		"nn: a masked value of 2 x 3 with 5 flags": func() {
			dist.NewCategorical(x, make([]bool, 5))
		},
		"nn: log-softmax of groups [2] in 3 columns": func() {
			dist.NewMultiCategorical(x, []int{2}, make([]bool, 6))
		},
		"nn: log-softmax of groups [] in 3 columns": func() {
			dist.NewMultiCategorical(x, nil, make([]bool, 6))
		},
		"dist: multi-categorical of 2 rows got actions of 2 numbers, want 4": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, nil).Sample(make([]float32, 2), rng())
		},
		"dist: multi-categorical of 2 rows got actions of 6 numbers, want 4": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, nil).LogProb(make([]float32, 6))
		},
		"dist: choice 1 of row 1 is 1, want a whole number from 0 to 0": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, nil).LogProb([]float32{0, 0, 0, 1})
		},
		"dist: choice 0 of row 0 is -1, want a whole number from 0 to 1": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, nil).LogProb([]float32{-1, 0, 0, 0})
		},
		"dist: choice 0 of row 0 is 0.5, want a whole number from 0 to 1": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, nil).LogProb([]float32{0.5, 0, 0, 0})
		},
		"dist: choice 0 of row 1 is NaN, want a whole number from 0 to 1": func() {
			dist.NewMultiCategorical(x, []int{2, 1}, nil).LogProb([]float32{0, 0, nan, 0})
		},
		"dist: gaussian with means of 2 x 3 and deviations of 2 x 1": func() { dist.NewGaussian(x, column) },
		"dist: gaussian with means of 2 x 3 and deviations of 3 x 3": func() {
			dist.NewGaussian(x, tape.Zeros(3, 3))
		},
		"dist: gaussian of 2 rows got actions of 5 numbers, want 6": func() {
			dist.NewGaussian(x, x).LogProb(make([]float32, 5))
		},
		"dist: squashed gaussian of 2 rows got actions of 5 numbers, want 6": func() {
			dist.NewSquashedGaussian(x, x, nil, nil).LogProb(make([]float32, 5))
		},
		"dist: squashed gaussian of 1 numbers with 1 and 0 bounds": func() {
			dist.NewSquashedGaussian(column, column, []float32{1}, nil)
		},
		"dist: squashed gaussian with bounds 1 and 1 of number 0": func() {
			dist.NewSquashedGaussian(column, column, []float32{1}, []float32{1})
		},
		"dist: squashed gaussian with bounds NaN and 1 of number 0": func() {
			dist.NewSquashedGaussian(column, column, []float32{nan}, []float32{1})
		},
		fmt.Sprintf("dist: squashed gaussian with bounds 1 and %v of number 0", math.Inf(1)): func() {
			dist.NewSquashedGaussian(column, column, []float32{1}, []float32{float32(math.Inf(1))})
		},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); p != want {
					t.Errorf("panic %q, want %q", p, want)
				}
			}()
			f()
		}()
	}
}

// TestAllAreDistributions.
func TestAllAreDistributions(t *testing.T) {
	var tape nn.Tape
	x := tape.Zeros(2, 3)
	for _, d := range []dist.Distribution{
		dist.NewCategorical(x, nil), dist.NewMultiCategorical(x, []int{1, 2}, nil),
		dist.NewGaussian(x, x), dist.NewSquashedGaussian(x, x, nil, nil),
	} {
		dst := make([]float32, 2*d.ActionSize())
		d.Sample(dst, rng())
		if p := d.LogProb(dst); p.Rows() != 2 || p.Cols() != 1 {
			t.Errorf("%T: %d x %d", d, p.Rows(), p.Cols())
		}
	}
}

func ExampleNewCategorical() {
	var t nn.Tape
	logits := t.Const(2, 3, []float32{0, 1, 2, 2, 0, 5})
	d := dist.NewCategorical(logits, []bool{true, true, true, true, true, false})
	actions := make([]float32, 2)
	d.Mode(actions)
	fmt.Println("greedy:", actions)
	fmt.Printf("log-prob: %.3f, entropy: %.3f\n", d.LogProb(actions).Data(), d.Entropy().Data())
	// Output:
	// greedy: [2 0]
	// log-prob: [-0.408 -0.127], entropy: [0.832 0.365]
}

// The logarithms of the standard deviations are weights of the network, behind its outputs.
func ExampleNewGaussian() {
	actor := nn.New(3, 1, nn.Dense(2, nn.Orthogonal(0.01)), nn.Learned(2, -1))
	var t nn.Tape
	out := actor.Apply(&t, t.Zeros(4, 3))
	d := dist.NewGaussian(out.Columns(0, 2), out.Columns(2, 4))
	fmt.Printf("%.3f\n", d.Entropy().Data())
	// Output: [0.838 0.838 0.838 0.838]
}

// The loss of SAC's actor: the gradient flows through the action into the actor.
func ExampleSquashedGaussian_RSample() {
	actor := nn.New(3, 1, nn.Dense(2*1, nn.FanIn))
	critic := nn.New(3+1, 2, nn.Dense(1, nn.FanIn))
	var t nn.Tape
	t.Train(actor)
	obs := t.Const(2, 3, []float32{1, 2, 3, 4, 5, 6})
	out := actor.Apply(&t, obs)
	d := dist.NewSquashedGaussian(out.Columns(0, 1), out.Columns(1, 2).Clamp(-20, 2), []float32{-2}, []float32{2})
	action, logProb := d.RSample(rand.New(rand.NewPCG(1, 1)))
	q := critic.Apply(&t, obs.Beside(action))
	t.Backward(logProb.Scale(0.2).Sub(q).Mean())
	fmt.Println(action.Rows(), action.Cols(), nn.FindNonFinite(actor.Grad()) < 0)
	// Output: 2 1 true
}
