package actorcritic

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
