package dist

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ditask/ditask/policies/nn"
)

// forbidden is the logit of an action that a mask forbids. It is finite, so that its product
// with a probability of 0 is 0.
const forbidden = -1e30

// Categorical chooses one of n actions, numbered from 0. Its action is one number.
type Categorical struct {
	log nn.Value // probabilities of the actions, batch x n
}

// NewCategorical returns the distribution with probabilities in proportion to exp(logits), batch
// x n. mask has a flag for each logit: true allows an action; nil allows all. A forbidden action
// has probability 0 and its logit no gradient; a row that allows nothing panics. S. Huang and
// S. Ontañón, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms" (2022).
func NewCategorical(logits nn.Value, mask []bool) Categorical {
	if mask != nil {
		logits = logits.Where(mask, forbidden)
		size := [1]int{logits.Cols()}
		checkMask(mask, size[:])
	}
	return Categorical{logits.LogSoftmax()}
}

// checkMask panics if a choice of a row allows no action. The sizes fit the mask.
func checkMask(mask []bool, sizes []int) {
	at := 0
	for row := 0; at < len(mask); row++ {
		for k, size := range sizes {
			if !slices.Contains(mask[at:at+size], true) {
				panic(fmt.Sprintf("dist: the mask allows no action in choice %d of row %d", k, row))
			}
			at += size
		}
	}
}

// ActionSize is 1.
func (c Categorical) ActionSize() int { return 1 }

// LogProbs returns the logarithms of the probabilities of all actions, batch x n. Those of forbidden
// actions are about -1e30.
func (c Categorical) LogProbs() nn.Value { return c.log }

// LogProb returns the logarithm of the probability of the action in each row.
func (c Categorical) LogProb(actions []float32) nn.Value {
	checkActions("categorical", len(actions), c.log.Rows(), 1)
	return c.log.Pick(actions)
}

// Entropy is -sum(p log p) of each row.
func (c Categorical) Entropy() nn.Value { return entropy(c.log) }

// KL returns the divergence from q to c, the sum of p (log p - log q) of each row, with the
// probabilities p of c.
func (c Categorical) KL(q Categorical) nn.Value { return divergence(c.log, q.log) }

// entropy of log-probabilities, summed over all groups.
func entropy(log nn.Value) nn.Value { return log.Exp().Mul(log).RowSums().Neg() }

func divergence(p, q nn.Value) nn.Value { return p.Exp().Mul(p.Sub(q)).RowSums() }

// Sample draws an action for each row. It takes one number from rng for each.
func (c Categorical) Sample(dst []float32, rng *rand.Rand) {
	checkActions("categorical", len(dst), c.log.Rows(), 1)
	n, log := c.log.Cols(), c.log.Data()
	for i := range dst {
		dst[i] = float32(draw(log[i*n:(i+1)*n], rng))
	}
}

// Mode writes the most probable action of each row, of equal ones the first.
func (c Categorical) Mode(dst []float32) {
	checkActions("categorical", len(dst), c.log.Rows(), 1)
	n, log := c.log.Cols(), c.log.Data()
	for i := range dst {
		dst[i] = float32(greatest(log[i*n : (i+1)*n]))
	}
}

// draw takes an action with the given log-probabilities. An action of probability 0 is never
// drawn, whatever the sum of the others is after rounding.
func draw(log []float32, rng *rand.Rand) int {
	u, last := rng.Float64(), 0
	for i, l := range log {
		p := math.Exp(float64(l))
		if p == 0 {
			continue
		}
		if last = i; u < p {
			break
		}
		u -= p
	}
	return last
}

func greatest(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// MultiCategorical makes several choices at once that do not depend on each other, such as
// Gymnasium's MultiDiscrete: choice k is one of sizes[k] actions, numbered from 0. Its action has
// a number for each choice.
type MultiCategorical struct {
	log   nn.Value // probabilities of the actions, batch x sum of sizes
	sizes []int
}

// NewMultiCategorical returns the distribution whose choices have the logits side by side: the
// first sizes[0] columns, the next sizes[1], and so on. mask has a flag for each logit: true
// allows an action; nil allows all. A choice that allows nothing panics. The sizes are not copied.
func NewMultiCategorical(logits nn.Value, sizes []int, mask []bool) MultiCategorical {
	if mask != nil {
		logits = logits.Where(mask, forbidden)
	}
	m := MultiCategorical{logits.LogSoftmaxGroups(sizes), sizes}
	checkMask(mask, sizes)
	return m
}

// ActionSize returns the number of choices.
func (m MultiCategorical) ActionSize() int { return len(m.sizes) }

// LogProb returns the logarithm of the probability of the action in each row: the sum over its choices.
func (m MultiCategorical) LogProb(actions []float32) nn.Value {
	k := len(m.sizes)
	checkActions("multi-categorical", len(actions), m.log.Rows(), k)
	chosen := m.log.Tape().Zeros(m.log.Rows(), m.log.Cols())
	flags, at := chosen.Data(), 0
	for i, a := range actions {
		n := int(a)
		if size := m.sizes[i%k]; a != float32(n) || n < 0 || n >= size {
			panic(fmt.Sprintf("dist: choice %d of row %d is %v, want a whole number from 0 to %d", i%k, i/k, a, size-1))
		}
		flags[at+n] = 1
		at += m.sizes[i%k]
	}
	return m.log.Mul(chosen).RowSums()
}

// Entropy is -sum(p log p) of each row: the sum over the choices.
func (m MultiCategorical) Entropy() nn.Value { return entropy(m.log) }

// KL returns the divergence from q to m: the sum over the choices.
func (m MultiCategorical) KL(q MultiCategorical) nn.Value { return divergence(m.log, q.log) }

// Sample draws an action for each row. It takes one number from rng for each choice.
func (m MultiCategorical) Sample(dst []float32, rng *rand.Rand) {
	m.each(dst, func(log []float32) int { return draw(log, rng) })
}

// Mode writes the most probable action of each choice, of equal ones the first.
func (m MultiCategorical) Mode(dst []float32) { m.each(dst, greatest) }

// each writes the choices of choose, which gets the log-probabilities of one choice.
func (m MultiCategorical) each(dst []float32, choose func(log []float32) int) {
	k := len(m.sizes)
	checkActions("multi-categorical", len(dst), m.log.Rows(), k)
	log := m.log.Data()
	for i := range dst {
		size := m.sizes[i%k]
		dst[i] = float32(choose(log[:size]))
		log = log[size:]
	}
}
