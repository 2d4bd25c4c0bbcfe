package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/nn/kernels"
	"github.com/ditask/ditask/policies/policytest"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/task"
)

var (
	floors    = flag.Bool("floors", false, "measure the floors of the policies, for minutes, and print them as a table")
	onlyFloor = flag.String("floors.row", "", "measure only rows whose name contains this `text`")
)

// floor is a bound that a part of a policy should keep.
type floor struct {
	name    string // of the baselines too
	bound   float64
	unit    string
	least   bool // a rate, of which bound is the least; otherwise a time, of which it is the most
	measure func(tb testing.TB) float64
}

// TestFloors prints each measurement beside its floor. It does not fail where a floor is missed: that
// depends on the machine.
//
//	go test ./internal/bench -run TestFloors -v -args -floors
//
// Without -floors it measures a little, to see that the table can be made.
func TestFloors(t *testing.T) {
	rows, beside := table(), map[string][]string{}
	if *floors {
		beside = baselines(t)
		rows = slices.DeleteFunc(rows, func(f floor) bool { return !strings.Contains(f.name, *onlyFloor) })
	} else {
		rows = []floor{rows[0], {"no floor", 0, "Gflop/s", true, product256}, {"a rate", 1e-9, "steps/s", true, cartPole}}
	}
	text := report(t, rows, beside)
	for _, f := range rows {
		if strings.Count(text, "\n"+f.name+"  ") != 1 {
			t.Errorf("the row %q is not there, or twice", f.name)
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%s, %d processors, load %s\n"+
		"Times of one goroutine are of the processor, the least of many batches; those with threads or processes are of the clock.\n"+
		"A ratio of 1 or more: the floor is met.\n%s",
		processor(), runtime.NumCPU(), strings.Join(strings.Fields(string(load) + " ? ? ?")[:3], " "), text)
}

// report measures rows and returns them as a table.
func report(t *testing.T, rows []floor, beside map[string][]string) string {
	t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tfloor\tmeasured\tratio\tbeside\t")
	for _, f := range rows {
		got := f.measure(t)
		if !(got > 0) || math.IsInf(got, 0) {
			t.Errorf("%s: measured %v", f.name, got)
		}
		ratio := f.bound / got
		if f.least {
			ratio = got / f.bound
		}
		bound, shown := "-", "-"
		if f.bound > 0 {
			bound, shown = fmt.Sprintf("%v %s", f.bound, f.unit), fmt.Sprintf("%.2f", ratio)
		}
		fmt.Fprintf(w, "%s\t%s\t%.4g %s\t%s\t%s\t\n", f.name, bound, got, f.unit, shown, strings.Join(beside[f.name], ", "))
	}
	_ = w.Flush()
	return out.String()
}

// processor is the name of this machine's processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}

func table() []floor {
	return []floor{
		{"DQN update 4-64-64-2, batch 64", 35, "µs", false, dqnUpdate(4, 2, 64, 64)},
		{"DQN update 4-128-128-64-2, batch 64", 150, "µs", false, dqnUpdate(4, 2, 128, 128, 64)},
		{"DQN update 24-256-256-4, batch 64", 400, "µs", false, dqnUpdate(24, 4, 256, 256)},
		{"DQN act 4-64-64-2, batch 1", 0.4, "µs", false, act(1)},
		{"DQN act 4-64-64-2, batch 8", 1.1, "µs", false, act(8)},
		{"PPO minibatch 64", 120, "µs", false, ppoUpdate(64)},
		{"PPO minibatch 256", 250, "µs", false, ppoUpdate(256)},
		{"SAC update 3-256-256, batch 256", 3, "ms", false, sacUpdate(1)},
		{"SAC update, 2 threads, by the clock", 3, "ms", false, sacUpdate(2)},
		{"product 256 x 256 x 256", 0, "Gflop/s", true, product256},
		{"CartPole-v1, vector of 64", 20, "M steps/s", true, cartPole},
		{"CleanRL's dqn.py, 500k steps", 7, "s", false, wholeDQN},
		{"CleanRL's ppo.py, 500k steps", 2.6, "s", false, wholePPO},
		{"PPO on Pong, batches of 131,072", 600, "k steps/s", true, pongs(1)},
		{"PPO on Pong, 2 threads, by the clock", 600, "k steps/s", true, pongs(2)},
		{"updates of a learner with 3 others, by the clock", 0.9, "of one alone", true, distributed},
		{"replay, push and sample 64 of 100k", 3, "µs", false, replayUniform},
		{"prioritised replay, the same", 10, "µs", false, replayPrioritised},
	}
}

func clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// best is the least time of f, in seconds, over 60 batches of at least 20 ms, or without -floors over
// one of a millisecond.
func best(now func() time.Duration, f func()) float64 {
	batches, span := 1, time.Millisecond
	if *floors {
		batches, span = 60, 20*time.Millisecond
	}
	f()
	n := 1
	for {
		if took := measured(now, n, f); took >= span {
			break
		}
		n *= 2
	}
	least := math.Inf(1)
	for range batches {
		least = min(least, measured(now, n, f).Seconds()/float64(n))
	}
	return least
}

func measured(now func() time.Duration, n int, f func()) time.Duration {
	began := now()
	for range n {
		f()
	}
	return now() - began
}

// must ends the measurement with an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func space(n int) envs.Box { return envs.NewBox(-1, 1, n) }

func random(p policies.Policy, n int) *policies.Batch {
	return policytest.RandomBatch(p.Spec(), rand.New(rand.NewPCG(1, 1)), n)
}

// learn measures updates of a batch, in seconds.
func learn(tb testing.TB, now func() time.Duration, p policies.Policy, n int) float64 {
	tb.Helper()
	b := random(p, n)
	return best(now, func() {
		_, err := p.Learn(b)
		must(tb, err)
	})
}

func dqnUpdate(in, actions int, hidden ...int) func(testing.TB) float64 {
	return func(tb testing.TB) float64 {
		tb.Helper()
		return 1e6 * learn(tb, cpu, dqn.New(dqn.Config{Obs: space(in), Action: envs.Discrete{N: actions}, Hidden: hidden}), 64)
	}
}

func ppoUpdate(n int) func(testing.TB) float64 {
	return func(tb testing.TB) float64 {
		tb.Helper()
		return 1e6 * learn(tb, cpu, ppo.New(ppo.Config{Obs: space(4), Action: envs.Discrete{N: 2}}), n)
	}
}

// sacUpdate measures updates of critics and actor: with ActorEvery 2, the default, there are as many of
// both, but two of the actor at once.
func sacUpdate(threads int) func(testing.TB) float64 {
	return func(tb testing.TB) float64 {
		tb.Helper()
		now := cpu
		if threads > 1 {
			now = clock
		}
		s := sac.New(sac.Config{Obs: space(3), Action: space(1), Threads: threads, ActorEvery: 1})
		return 1e3 * learn(tb, now, s, 256)
	}
}

func act(n int) func(testing.TB) float64 {
	return func(tb testing.TB) float64 {
		tb.Helper()
		q := dqn.New(dqn.Config{Obs: space(4), Action: envs.Discrete{N: 2}, Hidden: []int{64, 64}})
		a := policies.Act{Obs: make([]float32, 4*n), Action: make([]float32, n), Rand: rand.New(rand.NewPCG(1, 1)), Greedy: true}
		return 1e6 * best(cpu, func() { must(tb, q.Act(&a)) })
	}
}

func matrix256(rng *rand.Rand) kernels.Matrix {
	m := kernels.Matrix{Rows: 256, Cols: 256, Stride: 256, Data: make([]float32, 256*256)}
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// flops256 is the number of operations of a product of 256 x 256 x 256, in units of 1e9.
const flops256 = 2 * 256 * 256 * 256 / 1e9

func product256(testing.TB) float64 {
	rng := rand.New(rand.NewPCG(1, 1))
	a, b, c := matrix256(rng), matrix256(rng), matrix256(rng)
	var w kernels.Workspace
	return flops256 / best(cpu, func() { kernels.Gemm(&w, c, 0, a, false, b, false) })
}

func cartPole(tb testing.TB) float64 {
	tb.Helper()
	const n = 64
	v := envs.CartPole(n)
	_, err := v.Reset(1)
	must(tb, err)
	actions, i := [2][]float32{make([]float32, n), make([]float32, n)}, 0
	for k := range n {
		actions[0][k], actions[1][k] = float32(k%2), float32((k+1)%2)
	}
	return n / 1e6 / best(cpu, func() {
		i++
		_, err := v.Step(actions[i%2])
		must(tb, err)
	})
}

// silent is a node that does not log.
type silent struct{ task.Node }

func (silent) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// whole trains for that many env steps and returns how long it took, in seconds.
func whole(tb testing.TB, now func() time.Duration, steps int, p policies.Policy, env envs.Vector, collect rl.CollectConfig,
	source data.Source, cfg rl.LearnConfig,
) float64 {
	tb.Helper()
	t := task.New[rl.Online](silent{task.Alone()})
	r := rl.New(t, p, rl.Config{Seed: 1})
	t.Use(r.Exchange(rl.ExchangeConfig{}), r.Collect(env, collect), r.Learn(source, cfg))
	t.Use(func(ctx context.Context, c *rl.Online, next task.Next) error {
		if c.EnvSteps >= steps {
			t.Finish("measured")
		}
		return next(ctx)
	})
	began := now()
	must(tb, t.Run(tb.Context()))
	return (now() - began).Seconds()
}

func wholeDQN(tb testing.TB) float64 {
	tb.Helper()
	env := envs.CartPole(1, envs.SameStep)
	q := dqn.New(dqn.Config{
		Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 1, Hidden: []int{120, 84}, Loss: dqn.MSE,
		Adam: nn.AdamConfig{Rate: 2.5e-4}, MaxGradNorm: -1, TargetEvery: 50, // 500 env steps, with an update for each 10
	})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 10_000, Seed: 1}),
		data.ReplayConfig{Batch: 128, Every: 10, StartAt: 10_000})
	return whole(tb, cpu, 500_000, q, env, rl.CollectConfig{}, replay, rl.LearnConfig{})
}

func wholePPO(tb testing.TB) float64 {
	tb.Helper()
	env := envs.CartPole(4, envs.SameStep)
	p := ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1})
	rollout := data.NewRollout(data.RolloutConfig{Length: 128, Seed: 1})
	return whole(tb, cpu, 500_000, p, env, rl.CollectConfig{VectorSteps: 128}, rollout,
		rl.LearnConfig{Rate: policies.Linear(2.5e-4, 0, 500_000)})
}

// pongs is PPO with PufferLib's numbers: 1024 games of Pong, batches of 128 steps of each, minibatches
// of 8,192, once over.
func pongs(threads int) func(testing.TB) float64 {
	return func(tb testing.TB) float64 {
		tb.Helper()
		const games, length, steps = 1024, 128, 20 * 1024 * 128
		now := cpu
		if threads > 1 {
			now = clock
		}
		env := envs.NewSync(games, envs.SameStep, func(int) envs.Env[int] { return envs.NewPong(envs.PongConfig{}) })
		p := ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1, Threads: threads})
		rollout := data.NewRollout(data.RolloutConfig{Length: length, Seed: 1, Epochs: 1, Minibatches: 16})
		return steps / 1e3 / whole(tb, now, steps, p, env, rl.CollectConfig{VectorSteps: length}, rollout, rl.LearnConfig{})
	}
}

// transitions are n rows of CartPole.
func transitions(n int) *policies.Batch {
	b := new(policies.Batch)
	b.Init(policies.TransitionColumns(4, 1)...)
	b.Resize(n)
	return b
}

func replayUniform(tb testing.TB) float64 {
	tb.Helper()
	buf, one, dst := data.NewUniform(data.UniformConfig{}), transitions(1), new(policies.Batch)
	must(tb, buf.Add(transitions(100_000)))
	return 1e6 * best(cpu, func() { must(tb, errors.Join(buf.Add(one), buf.Sample(dst, 64))) })
}

func replayPrioritised(tb testing.TB) float64 {
	tb.Helper()
	buf, one, dst := data.NewPrioritised(data.PrioritisedConfig{}), transitions(1), new(policies.Batch)
	must(tb, buf.Add(transitions(100_000)))
	index, priorities := make([]uint64, 1), make([]float32, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(100_000) { // as different as they are after some training
		index[0], priorities[0] = i, rng.Float32()
		must(tb, buf.Update(index, priorities))
	}
	return 1e6 * best(cpu, func() { must(tb, errors.Join(buf.Add(one), buf.Sample(dst, 64, 0.4))) })
}

// varTrain is set in the environment of processes that take part in a training.
const varTrain = "DITASK_BENCH_TRAIN"

// distributed is the updates a second of a learner with an evaluator and two collectors, in a process
// each, beside those of one process that does everything. There are 8 env steps for each update.
func distributed(tb testing.TB) float64 {
	tb.Helper()
	t := tb.(*testing.T)
	var alone, four float64
	for range 3 { // in turn, so that both find the same machine
		alone = max(alone, train(tb, silent{task.Alone()}, 1))
		t.Run("four processes", func(t *testing.T) {
			t.Setenv(varTrain, "1")
			node, _ := joined(t, "unix", 4)
			four = max(four, train(t, node, 4))
		})
	}
	return four / alone
}

func train(tb testing.TB, node task.Node, nodes int) float64 {
	tb.Helper()
	rate, err := training(tb.Context(), node, nodes)
	must(tb, err)
	return rate
}

// training is the program of each process of distributed. On the learner it returns updates a second.
func training(ctx context.Context, node task.Node, nodes int) (rate float64, err error) {
	const warm, all = 1000, 11_000 // updates
	env := envs.CartPole(8)
	q := dqn.New(dqn.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 1})
	t := task.New[rl.Online](node, rl.Roles(nodes)...)
	r := rl.New(t, q, rl.Config{Seed: 1})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Seed: 1}), data.ReplayConfig{Batch: 64, Every: 8})
	t.Use(
		r.Exchange(rl.ExchangeConfig{}), r.Evaluate(envs.CartPole(8), rl.EvalConfig{EverySteps: 20_000}),
		r.Collect(env, rl.CollectConfig{}), r.Learn(replay, rl.LearnConfig{}),
	)
	var began time.Time
	t.Use(func(ctx context.Context, c *rl.Online, next task.Next) error {
		switch {
		case !t.Has(rl.Learner):
		case c.Updates >= warm && began.IsZero():
			began = time.Now()
		case c.Updates >= all:
			rate = (all - warm) / time.Since(began).Seconds()
			t.Finish("measured")
		}
		return next(ctx)
	})
	return rate, t.Run(ctx)
}

// trainer is the main function of the other processes of distributed.
func trainer(ctx context.Context, node *parallel.Node) error {
	_, err := training(ctx, node, 4)
	return err
}
