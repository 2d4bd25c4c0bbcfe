// Offline learns CartPole-v1 from a recording alone. First DQN learns for a while, and all that it tries goes to
// dataset files; then behaviour cloning and conservative Q-learning learn from these files, without an
// environment. It prints the mean returns of both beside that of the data.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/bc"
	"github.com/ditask/ditask/policies/cql"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

func main() {
	dir := flag.String("dir", "", "folder of the dataset files, which is kept; by default one that is removed")
	seed := flag.Uint64("seed", 1, "seed of all random numbers")
	flag.Parse()
	folder, remove := *dir, ""
	var err error
	if folder == "" {
		folder, err = os.MkdirTemp("", "offline")
		remove = folder
	}
	if err == nil {
		err = play(context.Background(), os.Stdout, folder, *seed)
	}
	if err = errors.Join(err, os.RemoveAll(remove)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var obs, actions = envs.CartPole(1).ObservationSpace(), envs.Discrete{N: 2}

func play(ctx context.Context, out io.Writer, dir string, seed uint64) error {
	if err := record(ctx, dir, seed); err != nil {
		return err
	}
	for _, learner := range []struct {
		name   string
		policy policies.Policy
	}{
		{"behaviour cloning", bc.New(bc.Config{Obs: obs, Action: actions, Seed: seed, Hidden: []int{128, 128}})},
		{"conservative Q-learning", cql.NewDiscrete(cql.DiscreteConfig{
			Obs: obs, Action: actions, Seed: seed, Hidden: []int{128, 128}, TargetEvery: 100, ConservativeWeight: 0.1,
			Adam: nn.AdamConfig{Rate: 1e-3},
		})},
	} {
		d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{dir}, Columns: learner.policy.Spec().Learns, Batch: 100, Seed: seed})
		if err != nil {
			return err
		}
		result, err := learn(ctx, learner.policy, d, seed)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-24s mean return %5.1f of %d episodes; the data has %5.1f over %d episodes in %d rows\n",
			learner.name, result.Mean, result.Episodes, d.Info().Return, d.Info().Episodes, d.Len())
	}
	return nil
}

// record has DQN learn, and writes what it collects to dir.
func record(ctx context.Context, dir string, seed uint64) error {
	q := dqn.New(dqn.Config{Obs: obs, Action: actions, Seed: seed, Double: true, NStep: 5, Tau: 0.01, Epsilon: policies.Linear(1, 0.1,
		10_000)})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: seed}), data.ReplayConfig{Batch: 64, Every: 2})
	t := task.New[rl.Online](task.Alone())
	r := rl.New(t, q, rl.Config{Seed: seed})
	t.Use(
		r.Exchange(rl.ExchangeConfig{}),
		r.Collect(envs.CartPole(8), rl.CollectConfig{}),
		r.Record(rl.RecordConfig{Dir: dir}),
		r.Learn(replay, rl.LearnConfig{}),
	)
	return t.Run(ctx, task.MaxSteps(2500)) // 20,000 env steps
}

// learn has a policy learn from the dataset alone, and plays 100 episodes at the end.
func learn(ctx context.Context, p policies.Policy, d *data.Dataset, seed uint64) (rl.Evaluation, error) {
	const updates = 20_000
	t := task.New[rl.Online](task.Alone())
	r := rl.New(t, p, rl.Config{Seed: seed})
	t.Use(
		r.Exchange(rl.ExchangeConfig{}),
		r.Learn(d, rl.LearnConfig{}),
		r.Evaluate(envs.CartPole(10), rl.EvalConfig{EveryUpdates: updates, Episodes: 100}),
		r.Stop(rl.StopConfig{Updates: updates}),
	)
	err := t.Run(ctx)
	return t.Context().Eval, err
}
