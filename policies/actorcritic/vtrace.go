package actorcritic

import (
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// VTrace computes targets and advantages by V-trace for batches of sequences that an older policy
// has collected. It keeps its memory. The zero value with Length and the other fields of the
// config set is ready for use.
//
// L. Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
// Architectures" (2018), section 4.1. Where an episode was truncated or a sequence ends, the value
// of the observation behind it is that of the present critic.
type VTrace struct {
	data.VTraceConfig

	Length int // steps of a sequence: step t of sequence k is row k*Length+t

	// The results of Compute, one for each row: targets of the values, and advantages of the policy
	// gradient, which the clipped ratio has been multiplied with.
	Targets, Advantages []float32

	eval      nn.Tape
	ends      []int     // rows whose next observation is in no other row
	endObs    []float32 // those observations
	bootstrap []float32
}

// Columns returns the names of the columns that Compute needs.
func (v *VTrace) Columns() []string {
	return []string{policies.Reward, policies.NextObs, policies.Terminated, policies.Truncated}
}

// Check reports a batch that is not of whole sequences.
func (v *VTrace) Check(b *policies.Batch) error {
	if b.N%v.Length != 0 {
		return fmt.Errorf("a batch of %d rows, want whole sequences of %d steps", b.N, v.Length)
	}
	return nil
}

// Compute sets Targets and Advantages, given the values of the observations and the ratios of the
// probabilities of the actions under the present policy and under the older one. critic computes the
// values of the observations behind the ends.
func (v *VTrace) Compute(critic *nn.Net, b *policies.Batch, values, ratios []float32) {
	v.computeBootstraps(critic, b)
	v.Targets, v.Advantages = append(v.Targets[:0], values...), append(v.Advantages[:0], values...) // of that length
	data.VTrace(v.Targets, v.Advantages, &data.Unroll{
		Length: v.Length, Rewards: b.Floats(policies.Reward), Values: values, Bootstrap: v.bootstrap,
		Terminated: b.Bytes(policies.Terminated), Truncated: b.Bytes(policies.Truncated),
	}, ratios, v.VTraceConfig)
}

// computeBootstraps evaluates the observations behind truncated steps and sequences.
func (v *VTrace) computeBootstraps(critic *nn.Net, b *policies.Batch) {
	terminated, truncated := b.Bytes(policies.Terminated), b.Bytes(policies.Truncated)
	next, dim := b.Floats(policies.NextObs), critic.In()
	v.ends, v.endObs, v.bootstrap = v.ends[:0], v.endObs[:0], v.bootstrap[:0]
	for row := range b.N {
		v.bootstrap = append(v.bootstrap, 0)
		if terminated[row] == 0 && (truncated[row] != 0 || (row+1)%v.Length == 0) {
			v.ends, v.endObs = append(v.ends, row), append(v.endObs, next[row*dim:(row+1)*dim]...)
		}
	}
	if len(v.ends) == 0 {
		return
	}
	v.eval.Reset()
	values := critic.Apply(&v.eval, v.eval.Const(len(v.ends), dim, v.endObs)).Data()
	for i, row := range v.ends {
		v.bootstrap[row] = values[i]
	}
}
