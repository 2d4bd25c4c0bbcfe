package rl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/task"
)

// EvalConfig describes evaluations. The zero value works.
type EvalConfig struct {
	EverySteps   int // env steps of the job between evaluations; 0 means 1,000
	EveryUpdates int // the same in updates, for an offline run; 0 means 1,000
	Episodes     int // of one evaluation; 0 means 10
	// StopAt, if not 0, ends the run with success when the mean return is at least StopAt and that
	// of a second evaluation, of Confirm episodes, is too.
	StopAt  float64
	Confirm int // episodes; 0 means 100
	// MaxSteps, if not 0, ends an episode of an evaluation after that many time steps, with its return so far: a policy
	// may never end an episode of an environment without a time limit. A warning counts such episodes.
	MaxSteps int
}

func (c EvalConfig) defaults() (EvalConfig, error) {
	or := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	or(&c.Episodes, 10)
	or(&c.Confirm, 100)
	var faults []error
	if c.EverySteps < 0 || c.EveryUpdates < 0 || c.Episodes < 0 || c.Confirm < 0 || c.MaxSteps < 0 {
		faults = append(faults, fmt.Errorf(
			"eval config: EverySteps %d, EveryUpdates %d, Episodes %d, Confirm %d and MaxSteps %d must not be negative",
			c.EverySteps, c.EveryUpdates, c.Episodes, c.Confirm, c.MaxSteps))
	}
	if math.IsNaN(c.StopAt) {
		faults = append(faults, errors.New("eval config: StopAt is NaN"))
	}
	return c, errors.Join(faults...)
}

// Evaluate measures the policy's greedy actions in env at intervals of env steps of the job, or of updates of
// an offline run. It puts the result into the context's Eval, and the weights with the highest mean return
// into Best. Each environment plays its share of the episodes, equal except for a remainder, so that short
// episodes do not count more often than long ones. The environments must not be those of Collect.
//
// When StopAt is reached and confirmed, Evaluate finishes the task: Best then has the weights that
// reached it. A run that is resumed after that ends before its first step.
func (r *Run) Evaluate(env envs.Vector, cfg EvalConfig) task.Middleware[Online] {
	cfg, err := cfg.defaults()
	spec := r.policy.Spec()
	if err := errors.Join(err, suits(env, &spec)); err != nil {
		panic(err.Error())
	}
	e := &evaluate{r: r, env: env, cfg: cfg, act: newAct(&spec, env.Num()), behind: r.env != "" || r.source != nil}
	e.act.Greedy, e.act.Extra = true, nil
	r.stopAt = cfg.StopAt
	if !r.t.Has(Evaluator) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	r.evaluations = append(r.evaluations, e)
	return func(ctx context.Context, c *Online, next task.Next) error {
		if err := e.step(ctx, c); err != nil {
			return err
		}
		return next(ctx)
	}
}

// evaluationDue reports whether the first step of a resumed run must make an evaluation before it collects or learns.
func (r *Run) evaluationDue() bool {
	return r.step <= 1 && slices.ContainsFunc(r.evaluations, func(e *evaluate) bool { return e.due })
}

// markDue records the evaluations in which a lone run was interrupted, if they come after Collect or Learn in a step:
// the first step of the resumed run makes them before it collects and learns.
func (r *Run) markDue(c *Online) {
	if !alone(r.t) || !r.resumed || c.Best != nil && c.Best.Reached {
		return
	}
	for i, e := range r.evaluations {
		last := r.clockOf(&c.Eval)
		if text, ok := r.begin[numbered("evaluate", i+1)]; ok {
			var s evaluateState
			if err := json.Unmarshal([]byte(text), &s); err != nil { //nolint:musttag // written and read back by the fields' own names
				continue // Evaluate returns the error
			}
			last = s.Last
		}
		every, err := r.every("eval", e.cfg.EverySteps, e.cfg.EveryUpdates) // Evaluate returns the error
		e.due = err == nil && e.behind && r.clock(c)-last >= every
	}
}

type evaluate struct {
	r       *Run
	env     envs.Vector
	cfg     EvalConfig
	act     policies.Act
	joined  bool
	behind  bool // comes after Collect or Learn in the chain
	due     bool // a resumed run must evaluate before it collects or learns
	seeded  bool
	every   int
	last    int // the clock at the last evaluation
	quota   []int
	running []envs.Episode
	done    []bool
	cut     []bool // whether MaxSteps has ended the environment's episode in this step
	cuts    int    // such episodes of this evaluation
	ended   []envs.Episode
	from    []int32   // for each of those, the environment
	infos   []float64 // and the numbers of Config.Infos
}

func (e *evaluate) step(ctx context.Context, c *Online) error {
	if c.Stopped {
		return nil
	}
	t := e.r.t
	if !e.joined {
		e.joined = true
		var err error
		if e.every, err = e.r.every("eval", e.cfg.EverySteps, e.cfg.EveryUpdates); err != nil {
			return err
		}
		if err := e.r.join(c, "evaluate", e); err != nil {
			return err
		}
	}
	e.due = false
	if e.r.clock(c)-e.last < e.every {
		return nil
	}
	return e.whole(ctx, func() error { return e.measure(ctx, t, c) })
}

// whole calls do. If ctx ends meanwhile, it restores the environments, so that a resumed run makes
// this evaluation from its beginning.
func (e *evaluate) whole(ctx context.Context, do func() error) error {
	before, err := e.snapshot()
	if err != nil && !errors.Is(err, envs.ErrNoSnapshot) {
		return err
	}
	saved := err == nil
	err = do()
	if err == nil || ctx.Err() == nil || !saved {
		return err
	}
	return errors.Join(err, e.putBack(before))
}

// measure evaluates the policy and records the result.
func (e *evaluate) measure(ctx context.Context, t *task.Task[Online], c *Online) error {
	e.last = e.r.clock(c)
	result, err := e.run(ctx, t, c, e.cfg.Episodes)
	if err != nil {
		return err
	}
	var scores Scores
	left := scores.add(e)
	stopped := false
	reached := func() bool { return e.cfg.StopAt != 0 && result.Mean >= e.cfg.StopAt }
	if reached() {
		if result, err = e.run(ctx, t, c, e.cfg.Confirm); err != nil {
			return err
		}
		scores.First = len(scores.Returns)
		left += scores.add(e)
		stopped = reached()
	}
	if left > 0 {
		t.Logger().Warn("an evaluation has more episodes than are kept: only the first ones are in evaluations.csv",
			slog.Int("kept", MaxScores), slog.Int("left_out", left))
	}
	scores.Evaluation = result
	e.r.evaluated(&scores)
	c.Eval = result
	if stopped || c.Best == nil || result.Mean > c.Best.Mean {
		c.Best = &Best{Evaluation: result, Weights: e.r.policy.Weights(), Reached: stopped}
	}
	c.Stopped = c.Stopped || stopped
	if stopped && !e.r.lockstep { // in lockstep the learner ends the run
		t.Finish(fmt.Sprintf("mean return %.1f over %d episodes reached %v", result.Mean, result.Episodes, e.cfg.StopAt))
	}
	return nil
}

// evaluateState is the state of an evaluation.
type evaluateState struct {
	Env  []byte // nil before the first
	Last int
}

func (e *evaluate) fresh(c *Online) error {
	e.seeded, e.last = false, c.Eval.EnvSteps
	if e.r.offline {
		e.last = int(c.Eval.Version)
	}
	return nil
}

func (e *evaluate) state() (any, error) { return e.snapshot() }

func (e *evaluate) snapshot() (s evaluateState, err error) {
	s.Last = e.last
	if e.seeded {
		s.Env, err = snapshot(e.env)
	}
	return s, err
}

func (e *evaluate) resume(text []byte) error {
	var s evaluateState
	if err := json.Unmarshal(text, &s); err != nil { //nolint:musttag // written and read back by the fields' own names
		return err
	}
	return e.putBack(s)
}

func (e *evaluate) putBack(s evaluateState) error {
	e.last, e.seeded = s.Last, s.Env != nil
	if s.Env == nil {
		return nil
	}
	return putBack(e.env, s.Env)
}

func (e *evaluate) run(ctx context.Context, t *task.Task[Online], c *Online, episodes int) (Evaluation, error) {
	result := Evaluation{Version: e.r.policy.Version(), EnvSteps: c.EnvSteps, Episodes: episodes}
	var err error
	if !e.seeded {
		e.seeded = true
		_, err = e.env.Reset(derive(e.r.cfg.Seed, t.NodeID(), streamEval))
	}
	if err == nil {
		err = e.play(ctx, episodes)
	}
	if err != nil {
		return result, e.r.onNode(fmt.Errorf("evaluate at %s: %w", e.r.now(c), err))
	}
	n := float64(len(e.ended))
	for _, ep := range e.ended {
		result.Mean += ep.Return
		result.Length += float64(ep.Length)
	}
	result.Mean, result.Length = result.Mean/n, result.Length/n
	for _, ep := range e.ended {
		result.Std += (ep.Return - result.Mean) * (ep.Return - result.Mean) / n
	}
	result.Std = math.Sqrt(result.Std)
	result.Infos = InfoMeans(e.r.cfg.Infos, e.infos)
	return result, nil
}

// play fills e.ended with that many episodes.
func (e *evaluate) play(ctx context.Context, episodes int) error {
	n := e.env.Num()
	e.quota, e.running = slices.Grow(e.quota[:0], n)[:n], slices.Grow(e.running[:0], n)[:n]
	e.done, e.ended, e.from = slices.Grow(e.done[:0], n)[:n], e.ended[:0], e.from[:0]
	e.infos = e.infos[:0]
	e.cut, e.cuts = slices.Grow(e.cut[:0], n)[:n], 0
	for i := range n {
		e.quota[i] = episodes / n
		if i < episodes%n {
			e.quota[i]++
		}
		e.running[i], e.done[i], e.act.Reset[i] = envs.Episode{}, false, true
	}
	obs, err := e.env.Reset()
	if err != nil {
		return err
	}
	copy(e.act.Obs, obs)
	began, quiet := time.Now(), patience
	for len(e.ended) < episodes {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if took := time.Since(began); took > quiet {
			quiet *= 2
			longest := slices.MaxFunc(e.running, func(a, b envs.Episode) int { return a.Length - b.Length })
			e.r.t.Logger().Warn("an evaluation takes long", slog.Duration("for", took.Round(time.Second)), slog.String("env", e.env.Name()),
				slog.Int("episodes", len(e.ended)), slog.Int("of", episodes), slog.Int("steps_of_the_longest_running", longest.Length))
		}
		if err := e.once(); err != nil {
			return err
		}
	}
	if e.cuts > 0 {
		e.r.t.Logger().Warn("the policy did not end episodes of an evaluation: they were cut", slog.String("env", e.env.Name()),
			slog.Int("episodes", e.cuts), slog.Int("of", episodes), slog.Int("after_steps", e.cfg.MaxSteps))
	}
	return nil
}

// once takes one step of the vector.
func (e *evaluate) once() error {
	if e.env.Autoreset() == envs.Disabled {
		obs, err := e.env.ResetSome(e.done)
		if err != nil {
			return err
		}
		copy(e.act.Obs, obs)
	}
	if err := e.r.policy.Act(&e.act); err != nil {
		return err
	}
	res, err := e.env.Step(e.act.Action)
	if err != nil {
		return err
	}
	for i := range e.done {
		e.done[i], e.cut[i] = res.Terminated[i] || res.Truncated[i], false
		if res.Reset[i] {
			e.running[i] = envs.Episode{}
			continue
		}
		e.running[i].Return += res.Rewards[i]
		e.running[i].Length++
		e.cut[i] = !e.done[i] && e.running[i].Length == e.cfg.MaxSteps
		if !e.done[i] && !e.cut[i] {
			continue
		}
		if e.quota[i] > 0 {
			if err := e.count(i, res.Infos[i]); err != nil {
				return err
			}
		}
		e.running[i] = envs.Episode{}
	}
	copy(e.act.Obs, res.Obs)
	copy(e.act.Reset, e.done)
	if !slices.Contains(e.cut, true) {
		return nil
	}
	obs, err := e.env.ResetSome(e.cut)
	if err != nil {
		return err
	}
	copy(e.act.Obs, obs)
	for i, cut := range e.cut {
		e.act.Reset[i] = e.act.Reset[i] || cut
	}
	return nil
}

// count adds the episode that has ended in environment i, or was cut.
func (e *evaluate) count(i int, info envs.Info) (err error) {
	if e.cut[i] {
		e.cuts++
	}
	e.quota[i]--
	e.ended, e.from = append(e.ended, e.running[i]), append(e.from, int32(i))
	e.infos, err = AppendInfos(e.infos, e.r.cfg.Infos, e.env.Name(), i, info)
	return err
}
