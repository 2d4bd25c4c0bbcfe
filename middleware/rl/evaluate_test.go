package rl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// scored is a lone task that evaluates two episodes every 10 env steps, and confirms a
// mean of 20 by three. lengths are those of the environment's episodes, from the second
// on, as the first is that of the seed; each evaluation leaves one that it has begun.
func scored(best *rl.Best, lengths ...int) (*task.Task[rl.Online], *dqn.DQN) {
	return scoredIn(rl.LogConfig{}, best, lengths...)
}

// scoredIn is scored with a log.
func scoredIn(log rl.LogConfig, best *rl.Best, lengths ...int) (*task.Task[rl.Online], *dqn.DQN) {
	q := tiny(1)
	tk := task.New[rl.Online](quiet{task.Alone()})
	env := &walk{fault: func(w *walk) { w.length = lengths[w.episodes-2] }}
	run := runOf(tk, q, "")
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Log(log), task.Step(func(_ context.Context, c *rl.Online) error {
		if tk.Steps() == 0 {
			c.Best = best
		}
		c.EnvSteps += 10
		return q.Load(nn.State{Version: uint64(c.EnvSteps), Tensors: q.Weights().Tensors})
	}), run.Evaluate(walks(envs.SameStep, env), rl.EvalConfig{EverySteps: 10, Episodes: 2, StopAt: 20, Confirm: 3}))
	return tk, q
}

// TestAnUnconfirmedScoreDoesNotEndTheRun, and the longer evaluation counts.
func TestAnUnconfirmedScoreDoesNotEndTheRun(t *testing.T) {
	tk, _ := scored(nil, 30, 30, 0, 6, 6, 9, 0, 20, 19, 0, 5, 6, 0)
	var evals []rl.Evaluation
	var best []float64
	tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Stopped || c.Best.Reached {
			t.Errorf("stopped with %+v", c.Eval)
		}
		evals, best = append(evals, c.Eval), append(best, c.Best.Mean)
		return nil
	}))
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range evals {
		got = append(got, fmt.Sprint(e.Version, " ", e.EnvSteps, " ", e.Episodes, " ", e.Mean, " ", e.Length))
	}
	if want := []string{"10 10 3 7 7", "20 20 2 19.5 19.5", "30 30 2 5.5 5.5"}; !slices.Equal(got, want) {
		t.Errorf("evaluations %q, want %q", got, want)
	}
	if !slices.Equal(best, []float64{7, 19.5, 19.5}) {
		t.Errorf("best %v", best)
	}
	if e := evals[1]; e.Std != 0.5 {
		t.Errorf("standard deviation %v, want 0.5", e.Std)
	}
	if o := tk.Outcome(); o.Reason != "max steps" {
		t.Errorf("outcome %+v", o)
	}
}

// TestBestIsTheConfirmedEvaluation: a higher mean over fewer episodes does not count.
func TestBestIsTheConfirmedEvaluation(t *testing.T) {
	tk, q := scored(&rl.Best{Evaluation: rl.Evaluation{Mean: 100, Version: 1}}, 20, 20, 0, 20, 20, 20)
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil {
		t.Fatal(err)
	}
	b := tk.Context().Best
	if b.Mean != 20 || !b.Reached || b.Version != 10 || b.Episodes != 3 || fmt.Sprint(b.Weights) != fmt.Sprint(q.Weights()) {
		t.Errorf("best %+v, reached %v", b.Evaluation, b.Reached)
	}
	if o := tk.Outcome(); !strings.HasPrefix(o.Reason, "mean return 20.0 over 3 episodes reached 20") || tk.Steps() != 1 {
		t.Errorf("outcome %+v after %d steps", o, tk.Steps())
	}
}

// TestEqualEvaluationsKeepTheFirst: weights are not replaced by others that are not
// better.
func TestEqualEvaluationsKeepTheFirst(t *testing.T) {
	tk, _ := scored(nil, 5, 5, 0, 5, 5, 0)
	if err := tk.Run(t.Context(), task.MaxSteps(2)); err != nil {
		t.Fatal(err)
	}
	if b := tk.Context().Best; b.Version != 10 {
		t.Errorf("best %+v, want that of version 10", b.Evaluation)
	}
}

// TestEvaluationNamesItsFault: node, env step and environment.
func TestEvaluationNamesItsFault(t *testing.T) {
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := runOf(tk, tiny(1), "")
	bad := &walk{length: 5, fault: func(*walk) { panic("broken") }}
	tk.Use(run.Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
		c.EnvSteps += 1000
		return nil
	}), run.Evaluate(walks(envs.SameStep, bad), rl.EvalConfig{}))
	err := tk.Run(t.Context(), task.MaxSteps(1))
	var e *envs.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "node 0: evaluate at env step 1000: step env Walk[0]: panic: broken") {
		t.Errorf("error %v", err)
	}
}

// TestEpisodeThatDoesNotEndIsNamed while the evaluation waits for it.
func TestEpisodeThatDoesNotEndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, log := logging()
		q := tiny(1)
		tk := task.New[rl.Online](node)
		run := runOf(tk, q, "")
		env := &walk{length: 70, fault: func(*walk) { <-time.After(time.Second) }}
		tk.Use(run.Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
			c.EnvSteps += 10
			return nil
		}), run.Evaluate(walks(envs.SameStep, env), rl.EvalConfig{EverySteps: 10, Episodes: 1}))
		if err := tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"an evaluation takes long\" for=11s env=Walk episodes=0 of=1 steps_of_the_longest_running=11", "for=21s", "for=41s",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in\n%s", want, log)
			}
		}
	})
}

// TestEpisodesAreCutAtMaxSteps: a policy that never ends an episode does not delay the run.
func TestEpisodesAreCutAtMaxSteps(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.NextStep, envs.SameStep, envs.Disabled} {
		node, log := logging()
		tk := task.New[rl.Online](node)
		run := runOf(tk, tiny(1), "")
		endless, five := &walk{length: 1 << 30}, &walk{length: 5}
		tk.Use(run.Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
			c.EnvSteps += 10
			return nil
		}), run.Evaluate(walks(mode, endless, five), rl.EvalConfig{EverySteps: 10, Episodes: 6, MaxSteps: 7}))
		if err := tk.Run(t.Context(), task.MaxSteps(2)); err != nil {
			t.Fatal(err)
		}
		if e := tk.Context().Eval; e.Episodes != 6 || e.Mean != 6 || e.Length != 6 || e.EnvSteps != 20 {
			t.Errorf("mode %v: %+v, want 6 episodes, of 7 and 5 steps in turn", mode, e)
		}
		const want = "the policy did not end episodes of an evaluation: they were cut\" env=Walk episodes=3 of=6 after_steps=7"
		if got := strings.Count(log.String(), want); got != 2 {
			t.Errorf("mode %v: %d of 2 lines %q in\n%s", mode, got, want, log)
		}
	}
}
