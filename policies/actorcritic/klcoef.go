package actorcritic

import (
	"fmt"
	"math"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// KLCoef is the coefficient of a penalty on the Kullback-Leibler divergence between two policies,
// which adapts so that the divergence comes near a target. J. Schulman et al., "Proximal Policy
// Optimization Algorithms" (2017), section 4, with RLlib's factors: times 1.5 above twice the
// target, and half below half of it.
type KLCoef struct {
	Value  float64
	Target float64 // nats
}

// Adapt changes the coefficient after a divergence was measured.
func (k *KLCoef) Adapt(kl float64) {
	switch {
	case kl > 2*k.Target:
		k.Value *= 1.5
	case kl < k.Target/2:
		k.Value /= 2
	}
}

// NumbersPart is the part of a checkpoint that float64 numbers are. The name of their tensor is
// "numbers".
func NumbersPart(name string, numbers ...*float64) policies.Part {
	save := func() nn.State {
		words := make([]uint64, len(numbers))
		for i, x := range numbers {
			words[i] = math.Float64bits(*x)
		}
		return nn.State{Tensors: []nn.Tensor{{Name: "numbers", Shape: []int{len(words)}, Words: words}}}
	}
	load := func(s nn.State) error {
		t, _ := s.Lookup("numbers")
		if len(t.Words) != len(numbers) {
			return fmt.Errorf("tensor numbers has %d values, want %d", len(t.Words), len(numbers))
		}
		for i, w := range t.Words {
			if x := math.Float64frombits(w); x-x != 0 {
				return fmt.Errorf("tensor numbers is not finite: value %d is %v", i, x)
			}
		}
		for i, w := range t.Words {
			*numbers[i] = math.Float64frombits(w)
		}
		return nil
	}
	return policies.Part{Name: name, Save: save, Load: load}
}
