package rl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/a2c"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/qlearning"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/task"
)

// steps are the batches of each step of a learner.
type steps [][]*policies.Batch

// script is a source of known batches: Next returns those of one step, and then false once.
type script struct {
	steps steps
	at    int
}

func (s *script) Next(dst *policies.Batch) bool {
	if len(s.steps) == 0 {
		return false
	}
	if s.at == len(s.steps[0]) {
		s.steps, s.at = s.steps[1:], 0
		return false
	}
	b := s.steps[0][s.at]
	s.at++
	dst.InitLike(b)
	dst.AppendBatch(b)
	return true
}

func (*script) Add(*policies.Batch) error     { return nil }
func (*script) Learned(*policies.Batch) error { return nil }
func (*script) Save(*nn.Archive) error        { return nil }
func (*script) Restore(*nn.Archive) error     { return nil }

// scripted runs learners that learn from known batches, each so many steps, and returns their
// policies.
func scripted(t *testing.T, newPolicy func(seed uint64) policies.Policy, sources []steps, n int) []policies.Policy {
	t.Helper()
	all, release := make([]policies.Policy, len(sources)), func() error { return nil }
	nodes := []task.Node{quiet{task.Alone()}}
	if len(sources) > 1 {
		made, r := nodesOf(len(sources))
		nodes, release = nodes[:0], r
		for _, node := range made {
			nodes = append(nodes, node)
		}
	}
	ctx := within(t)
	errs := make([]error, len(nodes), len(nodes)+1)
	var wg sync.WaitGroup
	for i, node := range nodes {
		all[i] = newPolicy(uint64(1 + i)) // they begin with the state of the first one
		tk := task.New[rl.Online](node, rl.LearnerRoles(len(nodes), len(nodes))...)
		r := rl.New(tk, all[i], rl.Config{})
		tk.Use(r.Exchange(rl.ExchangeConfig{Learners: len(nodes)}), r.Learn(&script{steps: sources[i]}, rl.LearnConfig{}))
		wg.Go(func() { errs[i] = tk.Run(ctx, task.MaxSteps(n)) })
	}
	wg.Wait()
	if err := errors.Join(append(errs, release())...); err != nil {
		t.Fatal(err)
	}
	return all
}

// algorithms are those of which several learners are one with all rows, with the rows of a unit that
// must not be torn.
var algorithms = map[string]struct {
	unit int
	make func(seed uint64) policies.Policy
}{
	"dqn": {1, func(seed uint64) policies.Policy {
		return dqn.New(dqn.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}, Double: true, TargetEvery: 2})
	}},
	"ppo": {1, func(seed uint64) policies.Policy {
		return ppo.New(ppo.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}})
	}},
	"a2c": {1, func(seed uint64) policies.Policy {
		return a2c.New(a2c.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}})
	}},
	"impala": {4, func(seed uint64) policies.Policy {
		return impala.New(impala.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}, Length: 4})
	}},
}

// batchesOf are n random batches for a policy, with observations near 0.
func batchesOf(p policies.Policy, rng *rand.Rand, rows, n int) []*policies.Batch {
	out := make([]*policies.Batch, n)
	for i := range out {
		out[i] = policytest.RandomBatch(p.Spec(), rng, rows)
		for _, name := range []string{policies.Obs, policies.NextObs} {
			for k := range out[i].Floats(name) {
				out[i].Floats(name)[k] = float32(rng.NormFloat64())
			}
		}
	}
	return out
}

// learnersTolerance is how far the weights of several learners may be from those of one with all rows,
// relative to 1 plus the weight: sums of float32 in another order.
const learnersTolerance = 1e-5

// TestLearnersAreOneWithAllRows: 2 and 4 learners with parts of a batch, which differ in size, have the
// weights of one that has all of it, and all have the same bits.
func TestLearnersAreOneWithAllRows(t *testing.T) {
	for name, algorithm := range algorithms {
		for _, k := range []int{2, 4} {
			t.Run(fmt.Sprint(name, "/", k), func(t *testing.T) {
				const updates = 6
				rng := rand.New(rand.NewPCG(3, uint64(k)))
				probe := algorithm.make(1)
				sources, whole := make([]steps, k), make(steps, updates)
				for u := range updates {
					all := new(policies.Batch)
					for i := range sources {
						b := batchesOf(probe, rng, algorithm.unit*(4+3*i), 1)[0]
						if i == 0 {
							all.InitLike(b)
						}
						all.AppendBatch(b)
						sources[i] = append(sources[i], []*policies.Batch{b})
					}
					whole[u] = []*policies.Batch{all}
				}
				want := scripted(t, algorithm.make, []steps{whole}, updates)[0]
				got := scripted(t, algorithm.make, sources, updates)
				for i, p := range got {
					if p.Version() != updates || fmt.Sprint(p.Weights()) != fmt.Sprint(got[0].Weights()) {
						t.Errorf("learner %d has made %d updates, want %d and the weights of learner 0", i, p.Version(), updates)
					}
				}
				d, moved := distance(want, got[0]), distance(probe, got[0])
				t.Logf("learning has moved the weights by %.3g, and several learners are off by %.3g", moved, d)
				if d > learnersTolerance || moved < 1e-3 {
					t.Errorf("the weights differ by %v from those of one learner; learning has moved them by %v", d, moved)
				}
			})
		}
	}
}

// distance is the greatest difference of two weights, relative to 1 plus the weight.
func distance(a, b policies.Policy) float64 {
	far, other := 0.0, b.Weights()
	for i, tensor := range a.Weights().Tensors {
		for k, v := range tensor.Data {
			d := math.Abs(float64(v)-float64(other.Tensors[i].Data[k])) / (1 + math.Abs(float64(v)))
			far = max(far, d)
		}
	}
	return far
}

// TestLearnersWithUnequalNumbersOfUpdates do not wait for each other in vain, and end with equal
// weights: a learner without a batch takes over what the others have made of theirs.
func TestLearnersWithUnequalNumbersOfUpdates(t *testing.T) {
	algorithm := algorithms["dqn"]
	rng := rand.New(rand.NewPCG(5, 5))
	probe := algorithm.make(1)
	counts := [][3]int{{0, 0, 0}, {1, 0, 2}, {3, 1, 0}, {0, 0, 1}, {0, 2, 2}, {4, 0, 0}, {1, 1, 1}}
	sources := make([]steps, 3)
	total := 0
	for _, count := range counts {
		for i, n := range count {
			sources[i] = append(sources[i], batchesOf(probe, rng, 8, n))
		}
		total += max(count[0], count[1], count[2])
	}
	got := scripted(t, algorithm.make, sources, len(counts))
	for i, p := range got {
		var a, b nn.Archive
		if err := errors.Join(got[0].Save(&a), p.Save(&b)); err != nil {
			t.Fatal(err)
		}
		if p.Version() != uint64(total) || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("learner %d has made %d updates, want %d, and all that learner 0 has", i, p.Version(), total)
		}
	}
	// The last round, with all of them, is that of one learner with all rows.
	last := len(counts) - 1
	before := make([]steps, 3)
	all := new(policies.Batch)
	all.InitLike(sources[0][last][0])
	for i := range before {
		before[i] = sources[i][:last]
		all.AppendBatch(sources[i][last][0])
	}
	one := scripted(t, algorithm.make, before, last)[1]
	if _, err := one.Learn(all); err != nil {
		t.Fatal(err)
	}
	if d := distance(one, got[0]); d > learnersTolerance {
		t.Errorf("the weights differ by %v from those of one learner", d)
	}
}

var _ = []any{slices.Sorted[int], strings.Contains, data.NewUniform, qlearning.New, sac.New, envs.CartPole, context.Background}
