package nn

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// twoWeights returns a network of one product and a bias, with given weights, and its trainer.
func twoWeights(cfg TrainerConfig) (*Net, *Trainer) {
	n := New(1, 1, Dense(1, FanIn))
	copy(n.Weights(), []float32{2, 1})
	return n, NewTrainer(cfg, n)
}

// TestAllReduceComesBeforeClipping: the gradients that a step uses, the loss and the numbers are those
// that the function leaves.
func TestAllReduceComesBeforeClipping(t *testing.T) {
	sgd := func(size int) Optimizer { return NewSGD(1, 0, size) }
	n, tr := twoWeights(TrainerConfig{Optimizer: sgd, MaxGradNorm: 5})
	var grads []float32
	var numbers []float64
	tr.SetAllReduce(func(g [][]float32, x []float64) error {
		grads, numbers = slices.Clone(g[0]), slices.Clone(x)
		copy(g[0], []float32{6, 8})
		x[0], x[1] = 70, 80
		return nil
	})
	extra := 0.0
	step, err := tr.Step(func(tape *Tape) Value {
		extra = 7
		return n.Apply(tape, tape.Const(1, 1, []float32{3})).Mean() // 2*3 + 1, with the derivatives 3 and 1
	}, &extra)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(grads, []float32{3, 1}) || !slices.Equal(numbers, []float64{7, 7}) {
		t.Errorf("averaged %v and %v, want [3 1] and [7 7]", grads, numbers)
	}
	if step.Loss != 70 || extra != 80 || step.GradNorm != 10 || !slices.Equal(n.Weights(), []float32{2 - 3, 1 - 4}) {
		t.Errorf("loss %v, number %v, norm %v, weights %v, want 70, 80, 10 and [-1 -3]", step.Loss, extra, step.GradNorm, n.Weights())
	}
}

// TestAllReduceThatFailsChangesNothing, and neither does a gradient that is not finite, which no other
// trainer gets.
func TestAllReduceThatFailsChangesNothing(t *testing.T) {
	n, tr := twoWeights(TrainerConfig{})
	cause, calls := errors.New("cause"), 0
	tr.SetAllReduce(func([][]float32, []float64) error { calls++; return cause })
	loss := func(x float32) func(*Tape) Value {
		return func(tape *Tape) Value { return n.Apply(tape, tape.Const(1, 1, []float32{x})).Mean() }
	}
	if _, err := tr.Step(loss(1)); !errors.Is(err, cause) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	x := 1.0
	if err := tr.Mean(&x); !errors.Is(err, cause) || x != 1 {
		t.Errorf("%v, %v", x, err)
	}
	_, err := tr.Step(func(tape *Tape) Value { // the root has the value 0 and an infinite derivative
		return n.Apply(tape, tape.Const(1, 1, []float32{0})).Scale(0).Log().Exp().Mean()
	})
	if e, ok := errors.AsType[*NonFiniteError](err); !ok || calls != 2 {
		t.Errorf("%v after %d calls, want a *NonFiniteError %v", err, calls, e)
	}
	if !slices.Equal(n.Weights(), []float32{2, 1}) {
		t.Errorf("weights %v", n.Weights())
	}
	tr.SetAllReduce(nil)
	if _, err := tr.Step(loss(1)); err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestAllReduceAllocatesNothing(t *testing.T) {
	n, tr := twoWeights(TrainerConfig{})
	tr.SetAllReduce(func(_ [][]float32, x []float64) error { x[0] = math.Pi; return nil })
	obs := []float32{3}
	step := func() {
		number := 1.0
		if _, err := tr.Step(func(tape *Tape) Value { number = 2; return n.Apply(tape, tape.Const(1, 1, obs)).Mean() }, &number); err != nil {
			t.Fatal(err)
		}
		if err := tr.Mean(&number); err != nil || number != math.Pi {
			t.Fatal(number, err)
		}
	}
	step()
	if allocs := testing.AllocsPerRun(20, step); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
