// Lockstep is a job for tests: its nodes learn in lockstep, with the algorithm of its first argument, up to
// the number of updates of its second, and write the rows of their log and their state then to the file result;
// list lists the algorithms. An algorithm whose name begins with offline learns from a dataset file, on one node. With the
// further argument rarely there is no checkpoint before the end, and with together two nodes learn.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

func main() {
	if slices.Equal(os.Args[1:], []string{"list"}) {
		for _, name := range names() {
			fmt.Println(name)
		}
		return
	}
	parallel.Main(play)
}

func play(ctx context.Context, node *parallel.Node) error {
	l, err := find(os.Args[1])
	if err != nil {
		return err
	}
	updates, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	saves := rl.CheckpointConfig{EveryUpdates: 25, Every: time.Second}
	if slices.Contains(os.Args, "rarely") {
		saves = rl.CheckpointConfig{EveryUpdates: updates, Every: -1}
	}
	learners := 1
	if slices.Contains(os.Args, "together") {
		learners = 2
	}
	fmt.Printf("node %d pid %d\n", node.ID(), os.Getpid())
	t := task.New[rl.Online](node, rl.LearnerRoles(node.Size(), learners)...)
	r := rl.New(t, l.policy, rl.Config{Seed: seed, Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(r.Exchange(rl.ExchangeConfig{Synchronous: node.Size(), Learners: learners}))
	logs := rl.LogConfig{EverySteps: 50, CSV: filepath.Join(node.Dir(), "progress.csv"), Untimed: true}
	if l.source == nil {
		if err := l.open(node.Dir()); err != nil {
			return err
		}
		logs.EverySteps, logs.EveryUpdates = 0, 15
		t.Use(r.Learn(l.source, rl.LearnConfig{}), r.Evaluate(l.envs(3), rl.EvalConfig{EveryUpdates: 30, Episodes: 4}))
	} else {
		t.Use(
			r.Evaluate(l.envs(3), rl.EvalConfig{EverySteps: 100, Episodes: 4}),
			r.Collect(l.envs(2), l.collect),
			r.Learn(l.source, rl.LearnConfig{}),
		)
	}
	if node.ID() > 0 {
		t.Use(r.Checkpoint(saves))
		return t.Run(ctx)
	}
	t.Use(r.Log(logs), r.Stop(rl.StopConfig{Updates: updates}), r.Checkpoint(saves))
	t.Use(func(ctx context.Context, c *rl.Online, next task.Next) error {
		err := next(ctx)
		fmt.Printf("updates %d\n", c.Updates)
		return err
	})
	if err := t.Run(ctx); err != nil {
		return err
	}
	rows, err := os.ReadFile(logs.CSV)
	if err != nil {
		return err
	}
	c := t.Context()
	text := fmt.Sprintln(c.EnvSteps, c.Episodes, c.Updates, c.Explored, c.Eval, c.Best.Evaluation, c.Best.Weights, l.policy.Weights())
	text = string(rows) + text
	return os.WriteFile(filepath.Join(node.Dir(), "result"), []byte(text), 0o600)
}
