package nn

import (
	"fmt"
	"math"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// TrainerConfig describes how networks are trained.
type TrainerConfig struct {
	// Optimizer returns the optimiser for that many weights; nil means Adam with its paper's
	// settings.
	Optimizer func(size int) Optimizer
	// MaxGradNorm clips the norm of all gradients together; 0 does not clip.
	MaxGradNorm float64
	// Workers take part in large products; nil: all is computed in the caller's goroutine. The
	// results are the same, bit for bit.
	Workers *Workers
}

// Workers are goroutines that take part in large products. See [kernels.Workers].
type Workers = kernels.Workers

// NewWorkers returns workers that make, with the caller, that many threads.
func NewWorkers(threads int) *Workers { return kernels.NewWorkers(threads) }

// Trainer trains networks by a loss that is written on a tape:
//
//	trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 10}, q)
//	step, err := trainer.Step(func(t *nn.Tape) nn.Value {
//		values := q.Apply(t, t.Const(64, 4, obs))
//		return values.Pick(actions).Sub(t.Column(targets)).Huber(1).Mean()
//	})
//
// A step is: forward, backward, clipping, the optimiser. A loss or a gradient that is not
// finite is an error that names the tensor, and leaves the weights as they were. Once it has
// seen a batch of that size, a step allocates nothing.
//
// Several trainers of equal networks train as one if each has an [AllReduce]: gradients are
// averaged between backward and clipping, so that all make the same step.
//
// A trainer is not safe for concurrent use.
type Trainer struct {
	nets  []*Net
	grads [][]float32
	opts  []Optimizer
	max   float64
	tape  Tape

	reduce  AllReduce // nil: this trainer is the only one
	numbers []float64 // for reduce
	workers *Workers
}

// AllReduce replaces gradients and numbers by their means over several trainers of equal
// networks, each of which calls its own with as many values, and waits for the others. The mean
// is weighted by the rows from which each has computed them. All trainers get the same bits. After an
// error the values are undefined.
type AllReduce func(grads [][]float32, numbers []float64) error

// TrainStep has the metrics of a step of a [Trainer].
type TrainStep struct {
	Loss     float64
	GradNorm float64 // of all gradients together, before clipping
}

// NewTrainer returns a trainer of the networks; the optimiser's state begins at zero.
func NewTrainer(cfg TrainerConfig, nets ...*Net) *Trainer {
	optimizer := cfg.Optimizer
	if optimizer == nil {
		optimizer = func(size int) Optimizer { return NewAdam(AdamConfig{}, size) }
	}
	t := &Trainer{nets: nets, max: cfg.MaxGradNorm, workers: cfg.Workers}
	t.tape.Use(cfg.Workers)
	for _, n := range nets {
		t.opts, t.grads = append(t.opts, optimizer(n.Size())), append(t.grads, n.Grad())
	}
	return t
}

// SetAllReduce makes the next steps average their gradients, and nil ends that.
func (t *Trainer) SetAllReduce(f AllReduce) { t.reduce = f }

// Mean replaces numbers by their means over all trainers. It leaves them as they are without an
// [AllReduce].
func (t *Trainer) Mean(numbers ...*float64) error {
	if t.reduce == nil {
		return nil
	}
	t.numbers = t.numbers[:0]
	for _, x := range numbers {
		t.numbers = append(t.numbers, *x)
	}
	if err := t.reduce(nil, t.numbers); err != nil {
		return fmt.Errorf("average numbers of the learners: %w", err)
	}
	for i, x := range numbers {
		*x = t.numbers[i]
	}
	return nil
}

// Step changes the weights once, so that loss, one number, becomes less. The numbers are
// other results of loss, such as metrics: with an [AllReduce] they become their means, as the loss does.
func (t *Trainer) Step(loss func(*Tape) Value, numbers ...*float64) (TrainStep, error) {
	if t.workers != nil {
		t.workers.Start()
		defer t.workers.Stop()
	}
	t.tape.Reset()
	t.tape.Train(t.nets...)
	for _, n := range t.nets {
		n.ZeroGrad()
	}
	l := loss(&t.tape)
	out := TrainStep{Loss: float64(l.Number())}
	if !finite(out.Loss) {
		return out, t.blame(&NonFiniteError{Tensor: "loss", Value: l.Number()})
	}
	t.tape.Backward(l)
	if t.reduce != nil {
		if err := t.average(&out.Loss, numbers); err != nil {
			return out, err
		}
	}
	norm, err := t.clip()
	if out.GradNorm = norm; err != nil {
		return out, err
	}
	for i, n := range t.nets {
		t.opts[i].Step(n.Weights(), n.Grad())
	}
	return out, nil
}

// average replaces the gradients, the loss and the numbers by their means. A gradient that is not
// finite does not reach the other trainers.
func (t *Trainer) average(loss *float64, numbers []*float64) error {
	if norm := ClipNorm(math.Inf(1), t.grads...); !finite(norm) {
		return t.blameGradient(norm)
	}
	t.numbers = append(t.numbers[:0], *loss)
	for _, x := range numbers {
		t.numbers = append(t.numbers, *x)
	}
	if err := t.reduce(t.grads, t.numbers); err != nil {
		return fmt.Errorf("average gradients of the learners: %w", err)
	}
	*loss = t.numbers[0]
	for i, x := range numbers {
		*x = t.numbers[1+i]
	}
	return nil
}

// SetRate changes the learning rate of the next steps.
func (t *Trainer) SetRate(rate float64) {
	for _, o := range t.opts {
		o.SetRate(rate)
	}
}

// Optimizers returns the optimizers of the networks, in their order.
func (t *Trainer) Optimizers() []Optimizer { return t.opts }

// clip clips the gradients of all networks together and returns their norm before. A norm that
// is not finite is an error that names the tensor.
func (t *Trainer) clip() (float64, error) {
	limit := t.max
	if limit <= 0 {
		limit = math.Inf(1)
	}
	norm := ClipNorm(limit, t.grads...)
	if !finite(norm) {
		return norm, t.blameGradient(norm)
	}
	return norm, nil
}

func (t *Trainer) blameGradient(norm float64) error {
	for _, n := range t.nets {
		for _, p := range n.params {
			g := Tensor{Name: p.Name + ".grad", Data: p.Grad}
			if err := g.CheckFinite(); err != nil {
				return t.blame(err)
			}
		}
	}
	return fmt.Errorf("gradient norm is %v", norm)
}

// blame returns the error of the first weight that is not finite, or err if all are.
func (t *Trainer) blame(err error) error {
	for _, n := range t.nets {
		if e := n.CheckFinite(); e != nil {
			return e
		}
	}
	return err
}

// CheckFinite returns a [*NonFiniteError] for the first weight that is a NaN or an infinity.
func (n *Net) CheckFinite() error {
	for _, p := range n.params {
		w := Tensor{Name: p.Name, Data: p.Value}
		if err := w.CheckFinite(); err != nil {
			return err
		}
	}
	return nil
}

func finite(v float64) bool { return v-v == 0 }
