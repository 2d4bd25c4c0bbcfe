package rl_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// BenchmarkStep is a step of a lone node with eight CartPole: collecting only,
// and with one update of batch 64, net 128-128.
func BenchmarkStep(b *testing.B) {
	for _, updates := range []int{0, 1} {
		name := "collect"
		if updates > 0 {
			name = "collect+update"
		}
		b.Run(name, func(b *testing.B) {
			q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 1, Epsilon: policies.Constant(0.1)})
			tk := task.New[rl.Online](quiet{task.Alone()})
			run := runOf(tk, q, "")
			tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(envs.CartPole(8), rl.CollectConfig{}))
			if updates > 0 {
				tk.Use(run.Learn(replay(data.UniformConfig{Capacity: 20_000}, data.ReplayConfig{StartAt: 64, Every: 8}), rl.LearnConfig{}))
			}
			tk.Use(func(ctx context.Context, _ *rl.Online, next task.Next) error {
				if !b.Loop() {
					tk.Finish("measured")
				}
				return next(ctx)
			})
			b.ReportAllocs()
			if err := tk.Run(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(tk.Context().EnvSteps)/b.Elapsed().Seconds(), "envsteps/s")
		})
	}
}

// endless is a source that has the same batch, so many times in each step.
type endless struct {
	script
	batch *policies.Batch
	times int
}

func (s *endless) Next(dst *policies.Batch) bool {
	if s.at == s.times {
		s.at = 0
		return false
	}
	s.at++
	dst.InitLike(s.batch)
	dst.AppendBatch(s.batch)
	return true
}

// BenchmarkLearners is an update of a DQN with a net of 256-256 from that many rows by one learner, and by two
// that have half of the rows each, in one process and over unix sockets: in turn in the same run, so that ratio
// compares what the machine does at the same time.
func BenchmarkLearners(b *testing.B) {
	for _, rows := range []int{64, 512, 4096} {
		for _, sockets := range []bool{false, true} {
			b.Run(fmt.Sprintf("rows=%d/sockets=%v", rows, sockets), func(b *testing.B) {
				one, two := newBenchmarked(b, 1, rows, sockets), newBenchmarked(b, 2, rows/2, sockets)
				var took [2]time.Duration
				updates := 0
				for b.Loop() {
					for i, learners := range []*benchmarked{one, two} {
						began := time.Now()
						learners.step()
						took[i] += time.Since(began)
					}
					updates += perStep
				}
				one.stop()
				two.stop()
				b.ReportMetric(float64(updates)/took[0].Seconds(), "updates/s-1")
				b.ReportMetric(float64(updates)/took[1].Seconds(), "updates/s-2")
				b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "ratio")
			})
		}
	}
}

// perStep is the number of updates in a step of the benchmark.
const perStep = 20

// benchmarked are learners that take one step at a time.
type benchmarked struct {
	b     *testing.B
	begin []chan bool // of each learner: another step, or false for the end
	ended chan error
	wg    sync.WaitGroup
}

func newBenchmarked(b *testing.B, k, rows int, sockets bool) *benchmarked {
	b.Helper()
	x := &benchmarked{b: b, ended: make(chan error, k)} // one for each learner
	nodes, release := []task.Node{quiet{task.Alone()}}, func() error { return nil }
	switch dir := b.TempDir(); {
	case k > 1 && sockets:
		nodes = nodes[:0]
		for i := range k {
			nodes = append(nodes, restartable(b, dir, k, i, 1))
		}
	case k > 1:
		made, r := nodesOf(k)
		nodes, release = nodes[:0], r
		for _, node := range made {
			nodes = append(nodes, node)
		}
	}
	for i, node := range nodes {
		q := dqn.New(dqn.Config{Obs: box(8), Action: two, Seed: 1, Hidden: []int{256, 256}})
		batch := batchesOf(q, rand.New(rand.NewPCG(1, uint64(i))), rows, 1)[0]
		tk := task.New[rl.Online](node, rl.LearnerRoles(k, k)...)
		r := rl.New(tk, q, rl.Config{})
		begin := make(chan bool)
		x.begin = append(x.begin, begin)
		tk.Use(r.Exchange(rl.ExchangeConfig{Learners: k, EveryUpdates: 1 << 30}), func(ctx context.Context, _ *rl.Online, next task.Next) error {
			if !<-begin {
				tk.Finish("measured")
				return nil
			}
			err := next(ctx)
			x.ended <- err
			return err
		}, r.Learn(&endless{batch: batch, times: perStep}, rl.LearnConfig{}))
		x.wg.Go(func() {
			if err := tk.Run(context.WithoutCancel(b.Context())); err != nil {
				b.Error(err)
			}
		})
	}
	b.Cleanup(func() {
		if err := release(); err != nil {
			b.Error(err)
		}
	})
	x.step() // the first one allocates
	return x
}

// step has all learners take one.
func (x *benchmarked) step() {
	for _, begin := range x.begin {
		begin <- true
	}
	for range x.begin {
		if err := <-x.ended; err != nil {
			x.b.Fatal(err)
		}
	}
}

func (x *benchmarked) stop() {
	for _, begin := range x.begin {
		begin <- false
	}
	x.wg.Wait()
}
