package rl_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// TestNStepReturnsEndAtAReplacedEnvironment: the pending transitions of the faulty one do not lead to
// the first observation of the next, and its episode does not count.
func TestNStepReturnsEndAtAReplacedEnvironment(t *testing.T) {
	bad := &walk{length: 10, fault: func(w *walk) {
		if w.steps == 4 {
			panic("broken")
		}
	}}
	env := envs.ReplaceFaulty(walks(envs.SameStep, bad), func(int, *envs.Error) envs.Env[int] { return &walk{length: 5, episodes: 5} })
	q := tiny(1, func(cfg *dqn.Config) { cfg.NStep = 3 })
	tk := task.New[rl.Online](quiet{task.Alone()})
	type span struct {
		from, to float32
		steps    int
	}
	var got []span
	var episodes []envs.Episode
	run := runOf(tk, q, "")
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(env, rl.CollectConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
		b := &c.Collected.Batch
		for i := range b.Len() {
			e := b.At(i)
			got = append(got, span{e.Obs[0], e.NextObs[0], e.Steps})
		}
		episodes = append(episodes, c.Collected.Episodes...)
		return nil
	}))
	if err := tk.Run(t.Context(), task.MaxSteps(9)); err != nil {
		t.Fatal(err)
	}
	want := []span{{100, 103, 3}, {600, 603, 3}, {601, 604, 3}, {602, 605, 3}, {603, 605, 2}, {604, 605, 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("transitions %v, want %v", got, want)
	}
	if len(episodes) != 1 || episodes[0] != (envs.Episode{Return: 5, Length: 5}) {
		t.Errorf("episodes %v, want one of 5", episodes)
	}
	if c := tk.Context(); c.EnvSteps != 8 { // nine, except for the one that broke
		t.Errorf("%d env steps, want 8", c.EnvSteps)
	}
}

// TestCollectTakesSoManyVectorSteps: one trajectory has the transitions of all of them.
func TestCollectTakesSoManyVectorSteps(t *testing.T) {
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := runOf(tk, tiny(1), "")
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 4}, &walk{length: 4}),
		rl.CollectConfig{VectorSteps: 5}),
		task.Step(func(_ context.Context, c *rl.Online) error {
			if tr := c.Collected; tr.Batch.Len() != 10 || tr.EnvSteps != 10 || tr.Collects != 1 {
				t.Errorf("%d transitions, %d env steps, %d collects", tr.Batch.Len(), tr.EnvSteps, tr.Collects)
			}
			return nil
		}))
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil {
		t.Fatal(err)
	}
	if c := tk.Context(); c.EnvSteps != 30 || c.Episodes != 6 {
		t.Errorf("%d env steps, %d episodes; want 30 and 6", c.EnvSteps, c.Episodes)
	}
}

// TestNothingIsCollectedOrLearnedInAStepThatEndsTheRun, so that the weights stay as
// they were evaluated.
func TestNothingIsCollectedOrLearnedInAStepThatEndsTheRun(t *testing.T) {
	q, buf := tiny(1), replay(data.UniformConfig{Capacity: 100}, data.ReplayConfig{Batch: 2, StartAt: 2})
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := runOf(tk, q, "")
	stop := false
	tk.Use(run.Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Stopped = stop; stop {
			c.Collected = &rl.Trajectory{Collects: 1}
			c.Collected.Batch.Init(policies.TransitionColumns(2, 1)...)
			c.Collected.Batch.Append(policies.Transition{Obs: []float32{1, 2}, NextObs: []float32{1, 2}, Action: []float32{0}, Steps: 1})
		}
		return nil
	}), run.Collect(walks(envs.SameStep, &walk{length: 4}), rl.CollectConfig{}), run.Learn(buf, rl.LearnConfig{}))
	tk.Use(task.Step(func(context.Context, *rl.Online) error {
		stop = tk.Steps() >= 4
		return nil
	}))
	if err := tk.Run(t.Context(), task.MaxSteps(10)); err != nil {
		t.Fatal(err)
	}
	if c := tk.Context(); c.EnvSteps != 5 || buf.Len() != 5 || q.Version() != 4 {
		t.Errorf("%d env steps, %d kept, %d updates; want 5, 5, 4", c.EnvSteps, buf.Len(), q.Version())
	}
}

// clipped is a policy with a clip range.
type clipped struct {
	*dqn.DQN
	clip []float64 // the values that were set
}

func (c *clipped) SetClip(clip float64) { c.clip = append(c.clip, clip) }

func TestClipScheduleReachesThePolicy(t *testing.T) {
	p, buf := &clipped{DQN: tiny(1)}, replay(data.UniformConfig{Capacity: 100}, data.ReplayConfig{Batch: 4, StartAt: 4, Updates: 1})
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := rl.New(tk, p, rl.Config{})
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 4}), rl.CollectConfig{}),
		run.Learn(buf, rl.LearnConfig{Clip: policies.Linear(0.4, 0, 8)}))
	if err := tk.Run(t.Context(), task.MaxSteps(4)); err != nil {
		t.Fatal(err)
	}
	if want := []float64{0.35, 0.3, 0.25, 0.2}; !slices.EqualFunc(p.clip, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("clip ranges %v, want %v", p.clip, want)
	}
}

// TestRateScheduleReachesTheOptimiser: at a rate of 0 the weights do not change.
func TestRateScheduleReachesTheOptimiser(t *testing.T) {
	q, buf := tiny(1), replay(data.UniformConfig{Capacity: 100}, data.ReplayConfig{Batch: 4, StartAt: 10, Updates: 2})
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := runOf(tk, q, "")
	rate := func(envSteps int) float64 {
		if envSteps > 20 {
			return 0
		}
		return float64(envSteps) / 1000
	}
	var before string
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 4}), rl.CollectConfig{}),
		run.Learn(buf, rl.LearnConfig{Rate: rate}),
		task.Step(func(_ context.Context, c *rl.Online) error {
			if c.EnvSteps < 10 {
				return nil
			}
			if got, want := metricOf(c.Trained.Metrics, "train/learning_rate"), rate(c.EnvSteps); math.Abs(got-want) > 1e-12 {
				t.Errorf("rate %v at env step %d, want %v", got, c.EnvSteps, want)
			}
			now := fmt.Sprint(q.Weights().Tensors)
			if changed := now != before; changed != (c.EnvSteps <= 20) {
				t.Errorf("at env step %d the weights have changed: %v", c.EnvSteps, changed)
			}
			before = now
			return nil
		}))
	if err := tk.Run(t.Context(), task.MaxSteps(25)); err != nil {
		t.Fatal(err)
	}
}

// TestResumedRunWithoutStatesDoesNotRepeatItself: the episodes that a node begins again depend on the
// job's progress.
func TestResumedRunWithoutStatesDoesNotRepeatItself(t *testing.T) {
	collect := func(envSteps int, epsilon float64) (text string) {
		q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{8}, Epsilon: policies.Constant(epsilon)})
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := runOf(tk, q, "")
		tk.Use(run.Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
			if tk.Steps() == 0 {
				c.EnvSteps = envSteps
			}
			return nil
		}), run.Collect(envs.CartPole(1, envs.SameStep), rl.CollectConfig{}))
		tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
			e := c.Collected.Batch.At(0)
			if epsilon == 0 {
				text += fmt.Sprint(e.Obs)
			} else {
				text += fmt.Sprint(e.Action)
			}
			return nil
		}))
		if err := tk.Run(t.Context(), task.MaxSteps(30)); err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, epsilon := range []float64{0, 1} { // observations, then random actions
		first, later, again := collect(0, epsilon), collect(1000, epsilon), collect(1000, epsilon)
		if first == later || later != again {
			t.Errorf("epsilon %v: a run that begins at env step 1,000 repeats the first steps, or not itself", epsilon)
		}
	}
}
