package policytest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// relearn replaces Learn by one that calls it and then f.
func relearn(f func(p *faulty, m []policies.Metric) []policies.Metric) func(p *faulty, seed uint64) {
	return func(p *faulty, _ uint64) {
		p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
			m, err := p.toy.Learn(b)
			if err == nil {
				m = f(p, m)
			}
			return m, err
		}
	}
}

func learnFaults() []fault {
	var kept [][]byte // what a faulty policy allocates
	allocate := func(p *faulty, m []policies.Metric) []policies.Metric {
		if p.updates%2 == 0 {
			kept = append(kept[:0], make([]byte, 1<<12))
		}
		return m
	}
	return []fault{
		{"version", "a first version", "a fresh policy has version 1, want 0", func(p *faulty, _ uint64) { p.updates = 1 }},
		{"version", "two counts", "an update makes the version 2 of 0, want 1",
			relearn(func(p *faulty, m []policies.Metric) []policies.Metric {
				p.updates++
				return m
			})},
		{"version", "weights of version 0", "Weights have version 0, want that of the policy, 1", func(p *faulty, _ uint64) {
			p.weights = func() nn.State { return p.nets().State(0) }
		}},
		{"metrics", "none", "Learn returns no metrics", relearn(func(*faulty, []policies.Metric) []policies.Metric { return nil })},
		{"metrics", "twice", "metric train/loss occurs twice",
			relearn(func(_ *faulty, m []policies.Metric) []policies.Metric { return append(m, m[0]) })},
		{"metrics", "no group", `metric "Loss", want a name such as train/loss`,
			relearn(func(_ *faulty, m []policies.Metric) []policies.Metric {
				m[0].Name = "Loss"
				return m
			})},
		{"metrics", "not finite", "update 2: metric train/loss is NaN", relearn(func(p *faulty, m []policies.Metric) []policies.Metric {
			if p.updates == 3 {
				m[0].Value = math.NaN()
			}
			return m
		})},
		{"metrics", "infinite", "metric train/loss is -Inf", relearn(func(_ *faulty, m []policies.Metric) []policies.Metric {
			m[0].Value = math.Inf(-1)
			return m
		})},
		{"metrics", "another order", "update 1 has the metrics [train/grad_norm train/loss], update 0 has [train/loss train/grad_norm]",
			relearn(func(p *faulty, m []policies.Metric) []policies.Metric {
				if p.updates == 2 {
					slices.Reverse(m)
				}
				return m
			})},
		{"metrics", "one that comes later", "update 3 has the metrics [train/loss train/grad_norm], update 0 has [train/loss]",
			relearn(func(p *faulty, m []policies.Metric) []policies.Metric {
				if p.updates < 4 {
					m = m[:1]
				}
				return m
			})},
		{"allocations", "in every second update", "12 calls of Learn allocate 6 times", relearn(allocate)},
		{"allocations", "in Act", "12 calls of Act allocate 12 times", func(p *faulty, _ uint64) {
			p.act = func(a *policies.Act) error {
				if !a.Greedy {
					kept = append(kept[:0], make([]byte, 1<<12))
				}
				return p.toy.Act(a)
			}
		}},
		{"allocations", "in a greedy Act", "12 calls of a greedy Act allocate 12 times", func(p *faulty, _ uint64) {
			p.act = func(a *policies.Act) error {
				if a.Greedy {
					kept = append(kept[:0], make([]byte, 1<<12))
				}
				return p.toy.Act(a)
			}
		}},
	}
}

// prelearn replaces Learn by one that calls f first, whose error it returns.
func prelearn(f func(p *faulty, b *policies.Batch) error) func(p *faulty, seed uint64) {
	return func(p *faulty, _ uint64) {
		p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
			if err := f(p, b); err != nil {
				return nil, err
			}
			return p.toy.Learn(b)
		}
	}
}

func batchFaults() []fault {
	return []fault{
		{"batch is read", "rewards are changed in place", "Learn changes the column reward of its batch",
			prelearn(func(_ *faulty, b *policies.Batch) error {
				data.Standardize(b.Floats(policies.Reward))
				return nil
			})},
		{"batch is read", "ends are changed in place", "Learn changes the column terminated of its batch",
			prelearn(func(_ *faulty, b *policies.Batch) error {
				b.Bytes(policies.Terminated)[0] ^= 1
				return nil
			})},
		{"batch is read", "observations are changed in place", "Act changes its observations", func(p *faulty, _ uint64) {
			p.act = func(a *policies.Act) error {
				err := p.toy.Act(a)
				a.Obs[0]++
				return err
			}
		}},
		{"batch columns", "columns by their place", "Learn from the columns in another order and with one more",
			prelearn(func(p *faulty, b *policies.Batch) error {
				return b.Check(p.space.Learns...)
			})},
		{"batch columns", "the first column", "changes the metrics from", prelearn(func(p *faulty, b *policies.Batch) error {
			if b.Columns[0].Name != policies.Obs {
				p.net.Weights()[0]++
			}
			return nil
		})},
		{"batch columns", "the number of columns", "the order of the columns changes the policy",
			prelearn(func(p *faulty, b *policies.Batch) error {
				if len(b.Columns) > 4 && p.updates == 2 {
					p.updates++
				}
				return nil
			})},
		{"batch not finite", "rewards are not checked", "Learn from NaN in the column reward is no error",
			prelearn(func(_ *faulty, b *policies.Batch) error {
				for i, v := range b.Floats(policies.Reward) {
					if v != v {
						b.Floats(policies.Reward)[i] = 0
					}
				}
				return nil
			})},
		{"batch not finite", "infinities are not checked", "Learn from -Inf in the column reward is no error",
			prelearn(func(_ *faulty, b *policies.Batch) error {
				for i, v := range b.Floats(policies.Reward) {
					b.Floats(policies.Reward)[i] = max(v, -10)
				}
				return nil
			})},
		{"batch not finite", "another name", `want a *nn.NonFiniteError of tensor obs`, prelearn(func(p *faulty, b *policies.Batch) error {
			if b.CheckFinite() != nil {
				return p.blame(&nn.NonFiniteError{Tensor: "batch"})
			}
			return nil
		})},
		{"batch not finite", "another error", "is a *nn.NonFiniteError, want a *policies.UpdateError",
			prelearn(func(_ *faulty, b *policies.Batch) error {
				return b.CheckFinite()
			})},
		{"batch not finite", "another update", `error of algorithm "toy" and update 3, want a name and update 2`,
			prelearn(func(_ *faulty, b *policies.Batch) error {
				if err := b.CheckFinite(); err != nil {
					return &policies.UpdateError{Algorithm: "toy", Update: 3, Err: err}
				}
				return nil
			})},
		{"batch not finite", "a random number before the check", "changes the policy: before and after, toy/random is",
			prelearn(func(p *faulty, _ *policies.Batch) error {
				p.rng.Uint64()
				return nil
			})},
		{"batch not finite", "a version before the check", "makes the version 3, want 2 as before", func(p *faulty, _ uint64) {
			extra := uint64(0)
			p.version = func() uint64 { return p.updates + extra }
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				m, err := p.toy.Learn(b)
				if err != nil {
					extra++
				}
				return m, err
			}
		}},
		{"batch refused", "an empty batch passes", "Learn from an empty batch is no error", func(p *faulty, _ uint64) {
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				if b.N == 0 {
					return p.metrics, nil
				}
				return p.toy.Learn(b)
			}
		}},
		{"batch refused", "a panic", "Learn from a batch whose column terminated is missing panics",
			prelearn(func(_ *faulty, b *policies.Batch) error {
				if b.N > 0 {
					_ = b.Bytes(policies.Terminated)[0]
				}
				return nil
			})},
		{"batch refused", "a column that is not checked", "Learn from a batch whose column terminated has a row less is no error",
			func(p *faulty, _ uint64) {
				p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
					if c := b.Column(policies.Terminated); c != nil && c.Bytes != nil {
						c.Bytes = make([]uint8, b.N)
					}
					return p.toy.Learn(b)
				}
			}},
		{"batch refused", "an error without a name", `error "toy update 2: bad" does not name obs`, func(p *faulty, _ uint64) {
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				m, err := p.toy.Learn(b)
				if err != nil {
					err = p.blame(errors.New("bad"))
				}
				return m, err
			}
		}},
		{"batch refused", "any action will do", "Learn from the action 0.5 is no error", prelearn(func(_ *faulty, b *policies.Batch) error {
			for i, v := range b.Floats(policies.Action) {
				b.Floats(policies.Action)[i] = min(max(float32(math.Floor(float64(v))), 0), 2)
			}
			return nil
		})},
	}
}

// react replaces Act by f.
func react(f func(p *faulty, a *policies.Act) error) func(p *faulty, seed uint64) {
	return func(p *faulty, _ uint64) { p.act = func(a *policies.Act) error { return f(p, a) } }
}

func actFaults() []fault {
	return []fault{
		{"act lengths", "actions are not counted", "Act (greedy: false) with actions for a row more than observed is no error",
			react(func(p *faulty, a *policies.Act) error {
				b := *a
				b.Action = b.Action[:min(len(a.Obs)/2, len(a.Action))]
				return p.toy.Act(&b)
			})},
		{"act lengths", "a panic", "Act (greedy: true) with no memory for actions panics", react(func(p *faulty, a *policies.Act) error {
			if a.Greedy {
				a.Action[0] = 0
			}
			return p.toy.Act(a)
		})},
		{"act lengths", "extra columns are not counted", "an extra column less than Spec.Extra is no error",
			react(func(p *faulty, a *policies.Act) error {
				if len(a.Extra) == 0 {
					a.Extra = nil
				}
				return p.toy.Act(a)
			})},
		{"act lengths", "extra columns are cut", "too little memory for value is no error", react(func(p *faulty, a *policies.Act) error {
			a.Extra = nil
			return p.toy.Act(a)
		})},
		{"act lengths", "states are made", "no state is no error", react(func(p *faulty, a *policies.Act) error {
			if a.State == nil {
				a.State = make([]float32, len(a.Obs)/2)
			}
			return p.toy.Act(a)
		})},
		{"act lengths", "resets are passed over", "a reset less than rows is no error", react(func(p *faulty, a *policies.Act) error {
			b := *a
			b.Reset = nil
			return p.toy.Act(&b)
		})},
		{"act not finite", "NaN passes", "Act (greedy: true) with NaN observed is no error", react(func(p *faulty, a *policies.Act) error {
			for i, v := range a.Obs {
				if v != v {
					a.Obs[i] = 0
				}
			}
			return p.toy.Act(a)
		})},
		{"act not finite", "no name", `error "bad", want a *nn.NonFiniteError of tensor obs`, react(func(p *faulty, a *policies.Act) error {
			if p.toy.Act(a) != nil {
				return errors.New("bad")
			}
			return nil
		})},
		{"act not finite", "a table of observations", "Act with 1e+06 observed panics", react(func(p *faulty, a *policies.Act) error {
			if err := p.toy.Act(a); err != nil {
				return err
			}
			_ = make([]int, 10)[int(max(a.Obs[0], 0))]
			return nil
		})},
		{"greedy", "it draws", "a greedy Act draws 8 random numbers", react(func(p *faulty, a *policies.Act) error {
			if a.Rand != nil {
				for range len(a.Action) {
					a.Rand.Uint64()
				}
			}
			return p.toy.Act(a)
		})},
		{"greedy", "it needs a source", "greedy Act (a random source: false; extra columns: true): panic",
			react(func(p *faulty, a *policies.Act) error {
				_ = a.Rand.Uint64()
				return p.toy.Act(a)
			})},
		{"greedy", "it draws from its own source", "a greedy Act changes the policy: before and after, toy/random is",
			react(func(p *faulty, a *policies.Act) error {
				p.rng.Uint64()
				return p.toy.Act(a)
			})},
		{"greedy", "it depends on its own random numbers", "greedy actions for the same observations differ (extra columns: true)",
			react(func(p *faulty, a *policies.Act) error {
				err := p.toy.Act(a)
				for i := range a.Action {
					a.Action[i] = float32(p.rng.IntN(3))
				}
				return err
			})},
		{"greedy", "it depends on extra columns", "greedy actions for the same observations differ (extra columns: false)",
			react(func(p *faulty, a *policies.Act) error {
				err := p.toy.Act(a)
				if a.Extra == nil {
					a.Action[0] = 2 - a.Action[0]
					a.Action[1] = 1 - min(a.Action[1], 1)
				}
				return err
			})},
		{"greedy", "extra columns draw numbers", "without memory for the extra columns the actions are others",
			react(func(p *faulty, a *policies.Act) error {
				if a.Extra != nil && !a.Greedy {
					a.Rand.Uint64()
				}
				return p.toy.Act(a)
			})},
		{"actions in space", "another number", "is not in Discrete(2)", func(p *faulty, seed uint64) {
			respec(func(s *policies.Spec) { s.Action = envs.Discrete{N: 2} })(p, seed)
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) { return p.toy.Learn(b) }
		}},
		{"actions in space", "between two numbers", "(greedy: true) is not in Discrete(3)", react(func(p *faulty, a *policies.Act) error {
			err := p.toy.Act(a)
			if a.Greedy {
				a.Action[5] = 0.5
			}
			return err
		})},
		{"actions in space", "out of bounds", "is not in Box([0], [1])", respec(func(s *policies.Spec) { s.Action = envs.NewBox(0, 1, 1) })},
		{"actions in space", "infinite in a space without bounds", "action [+Inf] (greedy: false) is not in Box([-Inf], [+Inf])",
			func(p *faulty, seed uint64) {
				infinity := float32(math.Inf(1))
				respec(func(s *policies.Spec) { s.Action = envs.NewBox(-infinity, infinity, 1) })(p, seed)
				p.act = func(a *policies.Act) error {
					err := p.toy.Act(a)
					a.Action[0] = infinity
					return err
				}
			}},
		{"actions in space", "a row that is not written", "action [NaN]", react(func(p *faulty, a *policies.Act) error {
			last := len(a.Action) - 1
			before := a.Action[last]
			err := p.toy.Act(a)
			a.Action[last] = before
			return err
		})},
		{"actions in space", "an extra column that is not written", "leaves values in the column value that are not finite",
			react(func(p *faulty, a *policies.Act) error {
				b := *a
				b.Extra = nil
				return p.toy.Act(&b)
			})},
	}
}

// TestGradientFindsItsFaults: gradients of another loss, none, and losses that fail.
func TestGradientFindsItsFaults(t *testing.T) {
	gradient := check{gradientCheck, (*suite).gradient}
	for want, spoil := range map[string]func(p *toy, l *Loss){
		"of network 0 is ": func(p *toy, l *Loss) {
			eval := l.Eval
			l.Eval = func() (float64, error) {
				v, err := eval()
				for i := range p.net.Grad() {
					p.net.Grad()[i] *= 1.1
				}
				return v, err
			}
		},
		"loss squares: all gradients of network 0 are zero": func(p *toy, l *Loss) {
			eval := l.Eval
			l.Eval = func() (float64, error) {
				v, err := eval()
				p.net.ZeroGrad()
				return v, err
			}
		},
		"loss squares: toy update 0: ": func(p *toy, l *Loss) {
			l.Eval = func() (float64, error) { return 0, p.blame(errors.New("cause")) }
		},
	} {
		p := newToy(1)
		l := toyLoss(p, numbers(0))
		spoil(p, &l)
		cfg := good()
		cfg.Losses = func(*rand.Rand) []Loss { return []Loss{l} }
		if err := gradient.test(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("report %q, want %q", fmt.Sprint(err), want)
		}
	}
}
