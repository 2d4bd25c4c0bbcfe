package rl_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// walk is an environment of a known course: the observation counts the steps
// of the episode, plus 100 for each episode; the reward is 1. It ends after
// length steps, terminated or, if cut, truncated.
type walk struct {
	length, episodes, steps int
	cut                     bool
	reward                  float64     // 0 means 1
	fault                   func(*walk) // called before each step
	obs                     [2]float32
}

func (w *walk) Name() string                 { return "Walk" }
func (w *walk) ObservationSpace() envs.Space { return envs.NewBox(-1e6, 1e6, 2) }
func (w *walk) ActionSpace() envs.Space      { return envs.Discrete{N: 2} }

func (w *walk) Reset(...uint64) ([]float32, envs.Info, error) {
	w.episodes++
	w.steps = 0
	w.obs = [2]float32{float32(100 * w.episodes), 1}
	return w.obs[:], envs.Info{}, nil
}

func (w *walk) Step(int) (envs.Step, error) {
	w.steps++
	w.obs[0] = float32(100*w.episodes + w.steps)
	if w.fault != nil {
		w.fault(w)
	}
	over := w.steps == w.length
	reward := w.reward
	if reward == 0 {
		reward = 1
	}
	return envs.Step{Obs: w.obs[:], Reward: reward, Terminated: over && !w.cut, Truncated: over && w.cut}, nil
}

// quiet is a node that logs nothing.
type quiet struct{ task.Node }

func (quiet) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// observed is a node whose report of its task can be read.
type observed struct {
	task.Node
	snapshot func() task.Snapshot
}

func (o *observed) Observe(fn func() task.Snapshot) { o.snapshot = fn }

func walks(mode envs.AutoresetMode, ws ...*walk) *envs.Sync {
	return envs.NewSync(len(ws), mode, func(i int) envs.Env[int] { return ws[i] })
}

func tiny(seed uint64, change ...func(*dqn.Config)) *dqn.DQN {
	cfg := dqn.Config{Obs: box(2), Action: two, Seed: seed, Hidden: []int{8}, Epsilon: policies.Constant(0)}
	for _, f := range change {
		f(&cfg)
	}
	return dqn.New(cfg)
}

var two = envs.Discrete{N: 2}

// box is a space of n values without bounds that matter.
func box(n int) envs.Space { return envs.NewBox(-1e30, 1e30, n) }

// runOf is the run of q in tk, with the seed of q, and its checkpoints in dir.
func runOf(tk *task.Task[rl.Online], q *dqn.DQN, dir string) *rl.Run {
	return rl.New(tk, q, rl.Config{Seed: q.Config().Seed, Dir: dir})
}

// metricOf is the metric of that name, or NaN.
func metricOf(all []policies.Metric, name string) float64 {
	for _, m := range all {
		if m.Name == name {
			return m.Value
		}
	}
	return math.NaN()
}

func TestP1CollectGivesTheSameTransitionsInEveryMode(t *testing.T) {
	type row struct {
		obs, next, reward     float32
		steps                 uint8
		terminated, truncated bool
	}
	// Two episodes of environment 0, two steps each, then one of the third.
	for _, c := range []struct {
		nstep int
		want  []row
	}{
		{1, []row{
			{100, 101, 1, 1, false, false}, {101, 102, 1, 1, true, false},
			{200, 201, 1, 1, false, false}, {201, 202, 1, 1, true, false}, {300, 301, 1, 1, false, false},
		}},
		{2, []row{
			{100, 102, 1.5, 2, true, false}, {101, 102, 1, 1, true, false},
			{200, 202, 1.5, 2, true, false}, {201, 202, 1, 1, true, false}, {300, 302, 1.5, 2, true, false},
		}},
	} {
		for _, mode := range []envs.AutoresetMode{envs.NextStep, envs.SameStep, envs.Disabled} {
			for _, cut := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d steps/%v/truncated %v", c.nstep, mode, cut), func(t *testing.T) {
					q := tiny(1, func(cfg *dqn.Config) { cfg.NStep, cfg.Gamma = c.nstep, 0.5 })
					tk := task.New[rl.Online](quiet{task.Alone()})
					var got []row
					episodes, envSteps := 0, 0
					run := runOf(tk, q, "")
					tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(mode, &walk{length: 2, cut: cut}), rl.CollectConfig{}),
						task.Step(func(_ context.Context, c *rl.Online) error {
							b := &c.Collected.Batch
							for i := range b.Len() {
								e := b.At(i)
								got = append(got, row{e.Obs[0], e.NextObs[0], e.Reward, uint8(e.Steps), e.Terminated, e.Truncated})
							}
							for _, e := range c.Collected.Episodes {
								if e != (envs.Episode{Return: 2, Length: 2}) {
									t.Errorf("episode %+v, want 2 and 2", e)
								}
								episodes++
							}
							envSteps = c.EnvSteps
							return nil
						}))
					if err := tk.Run(t.Context(), task.MaxSteps(9)); err != nil {
						t.Fatal(err)
					}
					for _, w := range c.want {
						if cut {
							w.terminated, w.truncated = false, w.terminated
						}
						if len(got) == 0 || got[0] != w {
							t.Fatalf("transitions %+v, want %+v next", got, w)
						}
						got = got[1:]
					}
					want := 9 // env steps; in NextStep mode every third is a reset
					if mode == envs.NextStep {
						want = 6
					}
					if envSteps != want || episodes != want/2 || tk.Context().Episodes != want/2 {
						t.Errorf("%d env steps and %d episodes, want %d and %d", envSteps, episodes, want, want/2)
					}
				})
			}
		}
	}
}

func TestP9EvaluationSpreadsItsQuota(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.NextStep, envs.SameStep, envs.Disabled} {
		// Returns are the lengths; without a quota the short ones would count more.
		env := walks(mode, &walk{length: 1}, &walk{length: 10}, &walk{length: 100}, &walk{length: 9})
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := runOf(tk, tiny(1), "")
		tk.Use(run.Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
			c.EnvSteps += 50
			return nil
		}), run.Evaluate(env, rl.EvalConfig{EverySteps: 100, Episodes: 9}))
		if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil {
			t.Fatal(err)
		}
		// Nine episodes over four environments: 3, 2, 2, 2.
		want := (3*1 + 2*10 + 2*100 + 2*9) / 9.0
		e := tk.Context().Eval
		if math.Abs(e.Mean-want) > 1e-9 || math.Abs(e.Length-want) > 1e-9 || e.Episodes != 9 || e.EnvSteps != 100 {
			t.Errorf("%v: %+v, want a mean of %v at 100", mode, e, want)
		}
	}
}

// trainer is a lone task that learns on walks; the parts can be inspected.
type trainer struct {
	q   *dqn.DQN
	buf *data.Replay
	run *rl.Run
	tk  *task.Task[rl.Online]
}

func newTrainer(env envs.Vector) *trainer {
	return newTrainerOn(quiet{task.Alone()}, rl.Config{Seed: 1}, env)
}

// newTrainerOn makes two updates in each step from the one on in which there are 20 rows.
func newTrainerOn(node task.Node, cfg rl.Config, env envs.Vector, more ...task.Middleware[rl.Online]) *trainer {
	r := &trainer{
		q:   tiny(cfg.Seed, func(c *dqn.Config) { c.Epsilon = policies.Linear(1, 0.1, 100) }),
		buf: replay(data.UniformConfig{Capacity: 200, Seed: cfg.Seed}, data.ReplayConfig{Batch: 16, StartAt: 20, Updates: 2, Every: env.Num()}),
		tk:  task.New[rl.Online](node),
	}
	r.run = rl.New(r.tk, r.q, cfg)
	r.tk.Use(r.run.Exchange(rl.ExchangeConfig{}))
	r.tk.Use(more...)
	r.tk.Use(r.run.Collect(env, rl.CollectConfig{}), r.run.Learn(r.buf, rl.LearnConfig{}))
	return r
}

func replay(buf data.UniformConfig, cfg data.ReplayConfig) *data.Replay {
	return data.NewReplay(data.NewUniform(buf), cfg)
}

func TestLearnUpdatesAfterEachCollect(t *testing.T) {
	r := newTrainer(walks(envs.SameStep, &walk{length: 5}, &walk{length: 7}))
	if err := r.tk.Run(t.Context(), task.MaxSteps(30)); err != nil {
		t.Fatal(err)
	}
	c := r.tk.Context()
	// There are twenty transitions after 10 steps; 21 steps with two updates.
	if c.EnvSteps != 60 || c.Updates != 42 || r.q.Version() != 42 || c.PolicyVersion != 42 || r.buf.Len() != 60 {
		t.Errorf("env steps %d, updates %d, version %d, acting with %d, buffer %d; want 60, 42, 42, 42, 60",
			c.EnvSteps, c.Updates, r.q.Version(), c.PolicyVersion, r.buf.Len())
	}
	if epsilon := metricOf(c.Explored, "rollout/exploration_rate"); math.Abs(epsilon-(1-0.9*0.58)) > 1e-9 {
		t.Errorf("epsilon %v at env step 58", epsilon)
	}
}

func TestStopAtEndsWithTheEvaluatedWeights(t *testing.T) {
	q := tiny(1, func(c *dqn.Config) { c.Epsilon = policies.Constant(0.1) })
	tk := task.New[rl.Online](quiet{task.Alone()})
	eval := &walk{length: 3}
	eval.fault = func(w *walk) {
		if tk.Context().EnvSteps >= 60 {
			w.length = 30
		}
	}
	dir := t.TempDir()
	run := runOf(tk, q, dir)
	tk.Use(run.Exchange(rl.ExchangeConfig{}),
		run.Evaluate(walks(envs.SameStep, eval), rl.EvalConfig{EverySteps: 20, Episodes: 2, StopAt: 25, Confirm: 7}),
		run.Collect(walks(envs.NextStep, &walk{length: 5}), rl.CollectConfig{}),
		run.Learn(replay(data.UniformConfig{Capacity: 200}, data.ReplayConfig{Batch: 4, StartAt: 4}),
			rl.LearnConfig{}), run.Checkpoint(rl.CheckpointConfig{}))
	if err := tk.Run(t.Context(), task.MaxSteps(1000)); err != nil {
		t.Fatal(err)
	}
	c := tk.Context()
	if c.Eval.EnvSteps != 60 || c.Eval.Episodes != 7 || c.Eval.Mean != 30 || c.EnvSteps != 60 {
		t.Errorf("evaluation %+v, at env step %d; want 7 episodes of 30 at 60", c.Eval, c.EnvSteps)
	}
	if o := tk.Outcome(); o.Kind != task.Success || o.Reason != "mean return 30.0 over 7 episodes reached 25" {
		t.Errorf("outcome %+v", o)
	}
	if c.Best == nil || c.Best.Version != q.Version() || fmt.Sprint(c.Best.Weights) != fmt.Sprint(q.Weights()) {
		t.Error("the weights have changed after they were evaluated")
	}
	best, err := rl.LoadBest(dir)
	if err != nil || fmt.Sprint(best.Weights) != fmt.Sprint(q.Weights()) || !best.Equal(&c.Eval) {
		t.Errorf("the saved best is %+v, %v", best, err)
	}
}

func TestP7NonFiniteEndsTheRun(t *testing.T) {
	for _, c := range []struct {
		name, tensor string
		fault        func(*walk)
	}{
		{"observation", "obs", func(w *walk) { w.obs[1] = float32(math.NaN()) }},
		{"reward", "reward", func(w *walk) { w.reward = math.Inf(1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &walk{length: 5}
			dir := t.TempDir()
			var r *trainer
			r = newTrainerOn(quiet{task.Alone()}, rl.Config{Seed: 1, Dir: dir}, walks(envs.SameStep, w),
				func(ctx context.Context, _ *rl.Online, next task.Next) error {
					if r.tk.Steps() == 40 {
						w.fault = c.fault
					}
					return next(ctx)
				})
			r.tk.Use(r.run.Checkpoint(rl.CheckpointConfig{EveryUpdates: 10}))
			err := r.tk.Run(t.Context(), task.MaxSteps(100))
			var e *nn.NonFiniteError
			// The observation may be met as the next one first.
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "node 0: ") || strings.TrimPrefix(e.Tensor, "next_") != c.tensor {
				t.Fatalf("error %v, want tensor %s and the node", err, c.tensor)
			}
			again := resumed(t, 9, dir)
			if again.q.Version() == 0 {
				t.Error("the last good checkpoint has no updates")
			}
			if err := again.q.Weights().CheckFinite(); err != nil {
				t.Errorf("the last good checkpoint: %v", err)
			}
		})
	}
}

func TestP8FaultyEnvironmentEndsTheRun(t *testing.T) {
	bad := &walk{length: 5, fault: func(w *walk) {
		if w.episodes == 2 {
			panic("broken")
		}
	}}
	r := newTrainer(walks(envs.SameStep, &walk{length: 5}, bad))
	err := r.tk.Run(t.Context(), task.MaxSteps(100))
	var e *envs.Error
	if !errors.As(err, &e) || e.Index != 1 || !strings.Contains(err.Error(),
		"node 0: collect at env step 10: step env Walk[1]: panic: broken\ngoroutine ") {
		t.Errorf("error %v", err)
	} else if !strings.Contains(err.Error(), "rl_test.go:") {
		t.Errorf("the stack does not have the place of the panic: %v", err)
	}
}

func TestLearnDropsOldRows(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		want  []uint64
	}{{0, []uint64{1, 50, 95, 100}}, {10, []uint64{95, 100}}} {
		node := &observed{Node: quiet{task.Alone()}}
		tk := task.New[rl.Online](node)
		q := tiny(1)
		if err := q.Load(nn.State{Version: 100, Tensors: q.Weights().Tensors}); err != nil {
			t.Fatal(err)
		}
		run, buf := runOf(tk, q, ""), replay(data.UniformConfig{Capacity: 10}, data.ReplayConfig{Batch: 5})
		var seen rl.Lag
		tk.Use(run.Exchange(rl.ExchangeConfig{}), func(ctx context.Context, c *rl.Online, next task.Next) error {
			c.Collected = new(rl.Trajectory)
			c.Collected.Batch.Init(policies.TransitionColumns(2, 1)...)
			for _, v := range []uint64{1, 50, 95, 100} {
				c.Collected.Batch.Append(policies.Transition{Obs: []float32{0, 0}, NextObs: []float32{0, 0}, Action: []float32{0}, Steps: 1,
					Version: v})
			}
			err := next(ctx)
			seen = c.Lag
			if got := node.snapshot().Lag; got != c.Lag.Mean {
				t.Errorf("the node reports a lag of %v, want %v", got, c.Lag.Mean)
			}
			return err
		}, run.Learn(buf, rl.LearnConfig{MaxLag: c.limit}))
		if err := tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
			t.Fatal(err)
		}
		if seen.Max != 99 || seen.Mean != (99+50+5)/4. || buf.Len() != len(c.want) {
			t.Errorf("limit %d: lag %+v, %d kept, want %d", c.limit, seen, buf.Len(), len(c.want))
		}
	}
}

func TestMiddlewareNeedExchange(t *testing.T) {
	env := func() envs.Vector { return walks(envs.NextStep, &walk{length: 5}) }
	buf := replay(data.UniformConfig{Capacity: 10}, data.ReplayConfig{Batch: 4})
	for name, m := range map[string]func(*rl.Run) task.Middleware[rl.Online]{
		"Collect":    func(r *rl.Run) task.Middleware[rl.Online] { return r.Collect(env(), rl.CollectConfig{}) },
		"Evaluate":   func(r *rl.Run) task.Middleware[rl.Online] { return r.Evaluate(env(), rl.EvalConfig{}) },
		"Learn":      func(r *rl.Run) task.Middleware[rl.Online] { return r.Learn(buf, rl.LearnConfig{}) },
		"Checkpoint": func(r *rl.Run) task.Middleware[rl.Online] { return r.Checkpoint(rl.CheckpointConfig{}) },
		"Log":        func(r *rl.Run) task.Middleware[rl.Online] { return r.Log(rl.LogConfig{}) },
	} {
		tk := task.New[rl.Online](quiet{task.Alone()})
		tk.Use(m(runOf(tk, tiny(1), t.TempDir())))
		if err := tk.Run(t.Context(), task.MaxSteps(1)); err == nil || !strings.Contains(err.Error(), "rl: Exchange must come first") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWrongConfigsPanic, with what is wrong: also environments that do not suit the policy.
func TestWrongConfigsPanic(t *testing.T) {
	continuous := envs.NewSync(1, envs.SameStep, func(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) })
	three := tiny(1, func(c *dqn.Config) { c.Obs, c.Action = box(4), envs.Discrete{N: 3} })
	run := func(q *dqn.DQN) *rl.Run { return runOf(task.New[rl.Online](quiet{task.Alone()}), q, "") }
	walk := walks(envs.NextStep, &walk{length: 5})
	for name, f := range map[string]func(){
		"eval config: EverySteps -1": func() {
			run(tiny(1)).Evaluate(walk,
				rl.EvalConfig{EverySteps: -1})
		},
		"rl: CartPole-v1 has 4 observed values, the policy 2": func() {
			run(tiny(1)).Collect(envs.CartPole(1),
				rl.CollectConfig{})
		},
		"rl: CartPole-v1 has actions in Discrete(2), the policy in Discrete(3)": func() {
			run(three).Evaluate(envs.CartPole(1),
				rl.EvalConfig{})
		},
		"rl: Pendulum-v1 has actions in Box([-2], [2]), the policy in Discrete(2)": func() {
			run(tiny(1, func(c *dqn.Config) { c.Obs = box(3) })).Collect(continuous, rl.CollectConfig{})
		},
		"rl: collect config: VectorSteps -1, Episodes 0 and RandomSteps 0 must not be negative": func() {
			run(tiny(1)).Collect(walk,
				rl.CollectConfig{VectorSteps: -1})
		},
		"rl: collect config: VectorSteps is 2 and Episodes is 3: set one": func() {
			run(tiny(1)).Collect(walk,
				rl.CollectConfig{VectorSteps: 2, Episodes: 3})
		},
		"rl: checkpoint config: EveryUpdates -2 must not be negative": func() { run(tiny(1)).Checkpoint(rl.CheckpointConfig{EveryUpdates: -2}) },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, name) {
					t.Errorf("panic %q, want %q", p, name)
				}
			}()
			f()
		}()
	}
}

func TestP3SameSeedSameFiles(t *testing.T) {
	files := func(seed uint64) (string, string) {
		q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: seed, Hidden: []int{16}, NStep: 2, Epsilon: policies.Linear(1, 0.1, 1000)})
		dir := t.TempDir()
		table, lines := filepath.Join(dir, "progress.csv"), filepath.Join(dir, "metrics.jsonl")
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := runOf(tk, q, "")
		tk.Use(run.Exchange(rl.ExchangeConfig{}),
			run.Log(rl.LogConfig{EverySteps: 200, CSV: table, JSON: lines, Untimed: true}),
			run.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 500}),
			run.Collect(envs.CartPole(4), rl.CollectConfig{}),
			run.Learn(replay(data.UniformConfig{Capacity: 500, Seed: seed}, data.ReplayConfig{Batch: 32, StartAt: 100, Every: 4}), rl.LearnConfig{}))
		if err := tk.Run(t.Context(), task.MaxSteps(500)); err != nil {
			t.Fatal(err)
		}
		return contentOf(t, table), contentOf(t, lines)
	}
	csv1, json1 := files(7)
	csv2, json2 := files(7)
	if csv1 != csv2 || json1 != json2 {
		t.Errorf("two runs with one seed differ:\n%s\n%s", csv1, csv2)
	}
	if csv3, _ := files(8); csv1 == csv3 {
		t.Error("another seed gives the same numbers")
	}
}

// contentOf is the content of a file.
func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLogWritesTheNamesOfStableBaselines(t *testing.T) {
	var terminal bytes.Buffer
	dir := t.TempDir()
	table, lines := filepath.Join(dir, "logs", "progress.csv"), filepath.Join(dir, "logs", "metrics.jsonl")
	now := time.Unix(0, 0)
	clock := func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	r := newTrainer(walks(envs.SameStep, &walk{length: 5}, &walk{length: 5}))
	r.tk.Use(r.run.Log(rl.LogConfig{EverySteps: 40, Terminal: &terminal, CSV: table, JSON: lines, Clock: clock}),
		r.run.Evaluate(walks(envs.SameStep, &walk{length: 8}), rl.EvalConfig{EverySteps: 50}))
	if err := r.tk.Run(t.Context(), task.MaxSteps(35)); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(contentOf(t, table))).ReadAll()
	if err != nil || len(rows) != 4 { // header, at 40, after the evaluation of 50, at the end
		t.Fatalf("%d rows, %v: %v", len(rows), err, rows)
	}
	last := map[string]float64{}
	decoder := json.NewDecoder(strings.NewReader(contentOf(t, lines)))
	for range 3 {
		last = map[string]float64{}
		if err := decoder.Decode(&last); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]float64{
		"time/total_timesteps": 70, "time/episodes": 14, "time/time_elapsed": 3, "time/fps": 70. / 3,
		"rollout/ep_rew_mean": 5, "rollout/ep_len_mean": 5, "train/n_updates": 52, "train/learning_rate": 1e-3,
		"eval/mean_reward": 8, "eval/std_reward": 0, "eval/mean_ep_length": 8,
	} {
		if got, ok := last[name]; !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"rollout/exploration_rate", "train/loss", "train/policy_lag"} {
		if last[name] <= 0 || !slices.Contains(rows[0], name) {
			t.Errorf("%s is %v; header %v", name, last[name], rows[0])
		}
	}
	if text := strings.Split(terminal.String(), "\n"); !strings.HasPrefix(text[2],
		"steps       70  reward     5.0  epsilon 0.39  updates      52  loss") {
		t.Errorf("terminal %q", text)
	}
}

func TestP4LoneRunGoesOnExactly(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.NextStep, envs.SameStep, envs.Disabled} {
		run := func(dir string, resume bool, steps int) string {
			q := dqn.New(dqn.Config{
				Obs: box(4), Action: two, Seed: 1, Hidden: []int{16}, NStep: 3, Double: true, Dueling: true, TargetEvery: 50,
				Epsilon: policies.Linear(1, 0.1, 1000),
			})
			tk := task.New[rl.Online](quiet{task.Alone()})
			r := rl.New(tk, q, rl.Config{Seed: 1, Dir: dir, Resume: resume, MustResume: resume})
			tk.Use(r.Exchange(rl.ExchangeConfig{}),
				r.Evaluate(envs.CartPole(3, mode), rl.EvalConfig{EverySteps: 200, Episodes: 4}),
				r.Collect(envs.CartPole(4, mode), rl.CollectConfig{RandomSteps: 50}),
				r.Learn(replay(data.UniformConfig{Capacity: 500, Seed: 1}, data.ReplayConfig{Batch: 32, StartAt: 100, Every: 7, Updates: 2}),
					rl.LearnConfig{}),
				r.Checkpoint(rl.CheckpointConfig{}))
			if err := tk.Run(t.Context(), task.MaxSteps(steps)); err != nil {
				t.Fatal(err)
			}
			c := tk.Context()
			return fmt.Sprint(c.EnvSteps, c.Episodes, c.Updates, c.Explored, c.Eval, c.Best, q.Weights())
		}
		want := run(t.TempDir(), false, 300)
		for cut := 135; cut < 147; cut++ { // at the end of some episode, too
			dir := t.TempDir()
			run(dir, false, cut)
			if got := run(dir, true, 300-cut); got != want {
				t.Errorf("%v: a run cut at step %d ends with %.200s\n300 steps with %.200s", mode, cut, got, want)
			}
		}
	}
}

// TestCheckpointTriesItsFolderAtTheStart: if nothing can be written there, the run ends with
// an error before the first update, with the remedy.
func TestCheckpointTriesItsFolderAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(file, "run")
	r := savingTrainer(quiet{task.Alone()}, dir, rl.CheckpointConfig{})
	err := r.tk.Run(t.Context(), task.MaxSteps(100))
	if err == nil || !strings.Contains(err.Error(), ": rl.Checkpoint: node 0: checkpoint folder "+dir+": ") || !strings.Contains(err.Error(),
		"--dir") || r.tk.Context().Updates != 0 {
		t.Errorf("%d updates, %v", r.tk.Context().Updates, err)
	}
}

// TestNamesOfMiddleware: errors and logs have the name of the method.
func TestNamesOfMiddleware(t *testing.T) {
	tk := task.New[rl.Online](task.Alone())
	var got []string
	tk.Wrap(func(name string, m task.Middleware[rl.Online]) task.Middleware[rl.Online] {
		got = append(got, name)
		return m
	})
	run, env := runOf(tk, tiny(1), t.TempDir()), walks(envs.SameStep, &walk{length: 5})
	tk.Use(
		run.Exchange(rl.ExchangeConfig{}), run.Evaluate(env, rl.EvalConfig{}), run.Collect(env, rl.CollectConfig{}),
		run.Learn(replay(data.UniformConfig{Capacity: 10}, data.ReplayConfig{Batch: 1}), rl.LearnConfig{}),
		run.Checkpoint(rl.CheckpointConfig{}), run.Log(rl.LogConfig{}),
	)
	if err := tk.Run(t.Context(), task.MaxSteps(0)); err != nil {
		t.Fatal(err)
	}
	want := []string{"rl.Exchange", "rl.Evaluate", "rl.Collect", "rl.Learn", "rl.Checkpoint", "rl.Log"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestResumedRunCollectsAnew: without the data, and with environments that cannot be saved, it
// begins new episodes and fills its buffer again.
func TestResumedRunCollectsAnew(t *testing.T) {
	dir := t.TempDir()
	r := savingTrainer(quiet{task.Alone()}, dir, rl.CheckpointConfig{WithoutData: true})
	if err := r.tk.Run(t.Context(), task.MaxSteps(30)); err != nil {
		t.Fatal(err)
	}
	again := resumed(t, 1, dir)
	if again.tk.Context().EnvSteps != 30 || again.buf.Len() != 0 {
		t.Errorf("%d env steps and %d rows, want 30 and 0", again.tk.Context().EnvSteps, again.buf.Len())
	}
	if err := r.run.Exchange(rl.ExchangeConfig{}); err == nil {
		t.Error("no middleware")
	}
}

// resumed is a trainer that has taken over the checkpoint in dir, and stopped before its first step.
func resumed(t *testing.T, seed uint64, dir string) *trainer {
	t.Helper()
	r := resumable(seed, dir)
	if err := r.tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
		t.Fatal(err)
	}
	return r
}

// resumable is a trainer that takes over the checkpoint in dir, and collects nothing.
func resumable(seed uint64, dir string) *trainer {
	return newTrainerOn(quiet{task.Alone()}, rl.Config{Seed: seed, Dir: dir, MustResume: true}, walks(envs.SameStep, &walk{length: 5}),
		task.Step(func(_ context.Context, c *rl.Online) error {
			c.Stopped = true
			return nil
		}))
}

func TestP4DamagedCheckpointIsRefused(t *testing.T) {
	dir := t.TempDir()
	r := savingTrainer(quiet{task.Alone()}, dir, rl.CheckpointConfig{})
	if err := r.tk.Run(t.Context(), task.MaxSteps(30)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != rl.CheckpointFile {
		t.Fatalf("files %v, %v", entries, err)
	}
	path := filepath.Join(dir, rl.CheckpointFile)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 7, len(file) / 2, len(file) - 1} {
		// A process that is killed during a save leaves a temporary file beside the checkpoint.
		if err := os.WriteFile(filepath.Join(dir, "."+rl.CheckpointFile+".123"), file[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		resumed(t, 2, dir)
	}
	if err := os.WriteFile(path, file[:len(file)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := resumable(2, dir).tk.Run(t.Context(), task.MaxSteps(1)); !errors.Is(err, nn.ErrArchive) {
		t.Errorf("a file that is cut: %v", err)
	}
	if _, err := rl.LoadBest(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no best: %v", err)
	}
}

// FuzzLoadBest reads a file that another program has written.
func FuzzLoadBest(f *testing.F) {
	for _, meta := range []string{`{"env_steps":1,"episodes":2,"mean":3}`, `{"mean":"x"}`, `{"mean":1e999}`, ``} {
		var a nn.Archive
		a.Put("best", nn.State{Version: 7, Tensors: []nn.Tensor{{Name: "w", Shape: []int{2, 1}, Data: []float32{1, 2}}}})
		a.SetText("rl/evaluation", meta)
		file, err := a.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := os.WriteFile(filepath.Join(dir, rl.BestFile), file, 0o600); err != nil {
			t.Fatal(err)
		}
		best, err := rl.LoadBest(dir)
		if (best == nil) != (err != nil) {
			t.Fatalf("%v, %v", best, err)
		}
	})
}
