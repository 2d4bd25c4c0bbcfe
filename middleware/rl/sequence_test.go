package rl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/task"
)

// teller is a policy whose column value shows its input: the observation, plus a hundredth of its
// recurrent state, which counts the steps of the episode.
type teller struct{ version uint64 }

func (p *teller) Spec() policies.Spec {
	return policies.Spec{
		Obs: envs.NewBox(-1e6, 1e6, 2), Action: envs.Discrete{N: 2}, StateSize: 1, Bootstrap: policies.Value,
		Extra: []policies.Column{{Name: policies.Value, Kind: policies.Float32}}, Learns: []policies.Column{{Name: policies.Obs,
			Kind: policies.Float32, Shape: []int{2}}, {Name: policies.NextObs, Kind: policies.Float32, Shape: []int{2}}},
	}
}

func (p *teller) Act(a *policies.Act) error {
	for i := range a.Action {
		if a.Reset[i] {
			a.State[i] = 0
		}
		a.Action[i] = 1
		if a.Extra != nil {
			a.Extra[0][i] = a.Obs[2*i] + a.State[i]/100
		}
		a.State[i]++
	}
	return nil
}

func (p *teller) Learn(*policies.Batch) ([]policies.Metric, error) {
	p.version++
	return []policies.Metric{{Name: "train/told", Value: float64(p.version)}}, nil
}
func (p *teller) Version() uint64           { return p.version }
func (p *teller) Weights() nn.State         { return nn.State{Version: p.version} }
func (p *teller) Load(s nn.State) error     { p.version = s.Version; return nil }
func (p *teller) Save(*nn.Archive) error    { return nil }
func (p *teller) Restore(*nn.Archive) error { return nil }

// TestCollectedSequences: step t of environment k is row k*length+t; behind a truncated row, and behind
// the last one of a sequence, stands the value of what the next action would have seen.
func TestCollectedSequences(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.SameStep, envs.Disabled} {
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := rl.New(tk, new(teller), rl.Config{})
		var got []string
		tk.Use(run.Exchange(rl.ExchangeConfig{}),
			run.Collect(walks(mode, &walk{length: 2, cut: true}, &walk{length: 3}), rl.CollectConfig{VectorSteps: 4}),
			task.Step(func(_ context.Context, c *rl.Online) error {
				b := &c.Collected.Batch
				for i := range b.N {
					if next, behind := b.Floats(policies.NextObs)[2*i], b.Floats(policies.Obs)[2*i]+1; next != behind {
						t.Errorf("behind %v is %v", b.Floats(policies.Obs)[2*i], next)
					}
					got = append(got, fmt.Sprintf("%v %v%v value %.2f behind %.2f", b.Floats(policies.Obs)[2*i],
						b.Bytes(policies.Terminated)[i], b.Bytes(policies.Truncated)[i], b.Floats(policies.Value)[i],
						b.Floats(policies.Bootstrap)[i]))
				}
				return nil
			}))
		if err := tk.Run(t.Context(), task.MaxSteps(2)); err != nil {
			t.Fatal(err)
		}
		want := []string{
			// Two episodes of two steps, which are cut.
			"100 00 value 100.00 behind 0.00", "101 01 value 101.01 behind 102.02",
			"200 00 value 200.00 behind 0.00", "201 01 value 201.01 behind 202.02",
			// An episode of three steps that ends, and the beginning of the next one.
			"100 00 value 100.00 behind 0.00", "101 00 value 101.01 behind 0.00",
			"102 10 value 102.02 behind 0.00", "200 00 value 200.00 behind 201.01",
			// The second sequences continue.
			"300 00 value 300.00 behind 0.00", "301 01 value 301.01 behind 302.02",
			"400 00 value 400.00 behind 0.00", "401 01 value 401.01 behind 402.02",
			"201 00 value 201.01 behind 0.00", "202 10 value 202.02 behind 0.00",
			"300 00 value 300.00 behind 0.00", "301 00 value 301.01 behind 302.02",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%v:\n%s\nwant\n%s", mode, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// scaler is a teller that records the moments of discounted returns, and its updates.
type scaler struct {
	teller

	log []string
}

func (*scaler) ReturnDiscount() float64 { return 0.5 }

func (p *scaler) MergeReturns(m []float64) error {
	p.log = append(p.log, fmt.Sprintf("%.6f", m))
	return nil
}

func (p *scaler) Learn(b *policies.Batch) ([]policies.Metric, error) {
	p.log = append(p.log, fmt.Sprintf("learns from %v", b.Floats(policies.Reward)[:2]))
	return p.teller.Learn(b)
}

// TestReturnsOfSequences: with a discount of 0.5 the rewards 1 of the first environment have the
// returns 1 and 1.5 in each of its episodes of two steps, which are cut, and those of the second one
// 1, 1.5 and 1.75; an episode's begin anew, and continue in the next sequence. The policy gets their
// moments before it learns, and rewards as they are.
func TestReturnsOfSequences(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.SameStep, envs.Disabled} {
		tk := task.New[rl.Online](quiet{task.Alone()})
		p := new(scaler)
		run := rl.New(tk, p, rl.Config{})
		tk.Use(run.Exchange(rl.ExchangeConfig{}),
			run.Collect(walks(mode, &walk{length: 2, cut: true}, &walk{length: 3}), rl.CollectConfig{VectorSteps: 4}),
			run.Learn(data.NewSequences(data.SequencesConfig{Length: 4, Batch: 2}), rl.LearnConfig{}))
		if err := tk.Run(t.Context(), task.MaxSteps(2)); err != nil {
			t.Fatal(err)
		}
		want := []string{
			momentsOf(1, 1.5, 1, 1.5, 1, 1.5, 1.75, 1), "learns from [1 1]",
			momentsOf(1, 1.5, 1, 1.5, 1.5, 1.75, 1, 1.5), "learns from [1 1]",
		}
		if strings.Join(p.log, "\n") != strings.Join(want, "\n") {
			t.Errorf("%v:\n%s\nwant\n%s", mode, strings.Join(p.log, "\n"), strings.Join(want, "\n"))
		}
	}
}

// momentsOf are the number of values, their mean and their variance.
func momentsOf(values ...float64) string {
	n, mean, variance := float64(len(values)), 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / n
	}
	return fmt.Sprintf("%.6f", []float64{n, mean, variance})
}

// TestSequencesNeedTheirEnvironments: a reset in a separate step would leave gaps in the sequences.
func TestSequencesNeedTheirEnvironments(t *testing.T) {
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := rl.New(tk, new(teller), rl.Config{})
	for want, cfg := range map[string]rl.CollectConfig{
		"rl: Walk is reset in steps of its own":                                                {},
		"rl: RandomSteps is 10, but the policy must choose all actions: it adds value float32": {RandomSteps: 10},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, want) {
					t.Errorf("panic %q, want %q", p, want)
				}
			}()
			run.Collect(walks(envs.NextStep, &walk{length: 2}), cfg)
		}()
	}
}

// TestRandomStepsComeFirst: until that many env steps of the job, the policy is not asked.
func TestRandomStepsComeFirst(t *testing.T) {
	q := tiny(1)
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := rl.New(tk, q, rl.Config{})
	random := map[float32]int{}
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{RandomSteps: 100}),
		task.Step(func(_ context.Context, c *rl.Online) error {
			if c.EnvSteps <= 100 {
				random[c.Collected.Batch.Floats(policies.Action)[0]]++
			}
			if asked := len(c.Explored) > 0; asked != (c.EnvSteps > 100) {
				t.Errorf("at env step %d the policy was asked: %v", c.EnvSteps, asked)
			}
			return nil
		}))
	if err := tk.Run(t.Context(), task.MaxSteps(110)); err != nil {
		t.Fatal(err)
	}
	if random[0] < 20 || random[1] < 20 {
		t.Errorf("random actions %v", random)
	}
}

// onPolicy is a lone run of PPO on CartPole, as it is or normalised.
func onPolicy(dir string, resume bool, cfg *normalize.Config) (policies.Policy, *task.Task[rl.Online]) {
	env := envs.CartPole(4, envs.SameStep)
	var p policies.Policy = ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1, Hidden: []int{16}})
	rollout := data.NewRollout(data.RolloutConfig{Length: 32, Seed: 1})
	if cfg != nil {
		n := normalize.New(p, *cfg)
		rollout.ScaleRewards(n.ScaleRewards)
		p = n
	}
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := rl.New(tk, p, rl.Config{Seed: 1, Dir: dir, MustResume: resume})
	tk.Use(run.Exchange(rl.ExchangeConfig{}),
		run.Collect(env, rl.CollectConfig{VectorSteps: 32}),
		run.Learn(rollout, rl.LearnConfig{Rate: policies.Linear(1e-3, 0, 10_000)}),
		run.Evaluate(envs.CartPole(2), rl.EvalConfig{EverySteps: 1000, Episodes: 3}),
		run.Checkpoint(rl.CheckpointConfig{}))
	return p, tk
}

// TestP4OnPolicyRunGoesOnExactly: unfinished episodes, the order of the minibatches, the exploration, and what
// observations and rewards are normalised by are in the checkpoint.
func TestP4OnPolicyRunGoesOnExactly(t *testing.T) {
	t.Run("raw", func(t *testing.T) { goesOnExactly(t, nil) })
	t.Run("normalised", func(t *testing.T) { goesOnExactly(t, &normalize.Config{Rewards: true}) })
}

func goesOnExactly(t *testing.T, cfg *normalize.Config) {
	result := func(dir string, resume bool, steps int) string {
		p, tk := onPolicy(dir, resume, cfg)
		if err := tk.Run(t.Context(), task.MaxSteps(steps)); err != nil {
			t.Fatal(err)
		}
		c := tk.Context()
		end := fmt.Sprint(c.EnvSteps, c.Episodes, c.Updates, c.Eval, p.Weights())
		if n, ok := p.(*normalize.Policy); ok {
			end = fmt.Sprint(*n.Returns(), end)
		}
		return end
	}
	want := result(t.TempDir(), false, 20)
	for _, cut := range []int{1, 7, 19} {
		dir := t.TempDir()
		result(dir, false, cut)
		if got := result(dir, true, 20-cut); got != want {
			t.Errorf("a run cut at step %d ends with %.200s\n20 steps with %.200s", cut, got, want)
		}
	}
}

// TestOnPolicyJobInLockstep: with several collectors the learner has the sequences of all in each
// step, and the weights that chose the actions are never behind.
func TestOnPolicyJobInLockstep(t *testing.T) {
	const nodes = 4
	made, release := nodesOf(nodes)
	errs := make(chan error, nodes)
	var updates []int
	var learner *normalize.Policy
	for _, node := range made {
		env := envs.CartPole(2, envs.SameStep)
		p := normalize.New(ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1, Hidden: []int{16}}),
			normalize.Config{Rewards: true})
		tk := task.New[rl.Online](node, rl.Roles(nodes)...)
		run := rl.New(tk, p, rl.Config{Seed: 1})
		tk.Use(run.Exchange(rl.ExchangeConfig{Synchronous: nodes}),
			run.Collect(env, rl.CollectConfig{VectorSteps: 16}),
			run.Learn(data.NewRollout(data.RolloutConfig{Length: 16, Epochs: 2, Minibatches: 2}), rl.LearnConfig{}),
			task.Step(func(_ context.Context, c *rl.Online) error {
				if tk.Has(rl.Learner) {
					learner = p
					updates = append(updates, c.Trained.Updates)
					if c.Collected.Batch.N != 2*2*16 || c.Lag.Max != 0 {
						t.Errorf("%d rows, lag %v; want %d and 0", c.Collected.Batch.N, c.Lag, 2*2*16)
					}
				}
				return nil
			}))
		go func() { errs <- tk.Run(within(t), task.MaxSteps(5)) }()
	}
	var err error
	for range made {
		err = errors.Join(err, <-errs)
	}
	if err := errors.Join(err, release()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(updates) != "[4 4 4 4 4]" {
		t.Errorf("updates %v", updates)
	}
	for what, m := range map[string]*envs.Moments{"observations": learner.Moments(), "returns": learner.Returns()} {
		if n := 5 * 2 * 2 * 16; int(m.Count+0.5) != n || m.Var[0] == 0 {
			t.Errorf("%s: the moments %v, want those of %d", what, *m, n)
		}
	}
}

// TestOtherColumnsAreRefused: the learner checks the data of another node when it receives it,
// and its error names that node.
func TestOtherColumnsAreRefused(t *testing.T) {
	nodes, release := nodesOf(2)
	learner, collector := task.New[rl.Online](nodes[0], rl.Roles(2)...), task.New[rl.Online](nodes[1], rl.Roles(2)...)
	run := runOf(learner, tiny(1), "")
	learner.Use(run.Exchange(rl.ExchangeConfig{}), run.Learn(replay(data.UniformConfig{}, data.ReplayConfig{}), rl.LearnConfig{}))
	collector.Use(task.Step(func(ctx context.Context, _ *rl.Online) error {
		tr := rl.Trajectory{Seq: 1, Collects: 1}
		tr.Batch.Init(policies.TransitionColumns(7, 1)...)
		if err := rl.Transitions.Emit(ctx, collector, tr, task.OnlyRemote()); err != nil {
			return nil //nolint:nilerr // the learner has ended
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	ended := make(chan error, 1)
	go func() { ended <- collector.Run(within(t)) }()
	err := learner.Run(within(t))
	const want = "node 0: the data of node 1 does not fit this policy: " +
		`batch with the column "obs" of float32 [7], want obs float32 [2]`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the collector ended in order")
	}
	_ = release()
}
