package faultlab_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// letter is the event that the nodes of a simulated job of tasks send each other.
type letter struct {
	Number, Order uint64
	Data          []byte
}

var (
	letters = []*task.Event[letter]{
		task.NewEvent[letter]("one"),
		task.NewEvent[letter]("two"),
		task.NewEvent[letter]("newest", task.Latest()),
		task.NewEvent[letter]("drop-oldest", task.DropOldest(4)),
		task.NewEvent[letter]("drop-newest", task.DropNewest(4)),
	}
	ask    = task.NewEvent[int]("ask")
	answer = task.NewEvent[int]("answer")
)

var taskRules = faultlab.Rules{Events: map[string]faultlab.Policy{
	"one": faultlab.Reliable, "two": faultlab.Reliable, "newest": faultlab.Latest,
	"drop-oldest": faultlab.DropOldest, "drop-newest": faultlab.DropNewest,
}}

// ending is the way in which one node ends the job.
type ending struct {
	node int
	how  string // finish, fail, panic, listener, preempt or cancel
	at   time.Duration
}

var errMeant = errors.New("meant to fail")

// jobSim is a job of whole tasks.
type jobSim struct {
	seed    uint64
	nodes   int
	cfg     parallel.Config
	slow    time.Duration // the longest that a listener takes
	endings []ending

	mu      sync.Mutex
	rnd     *rand.Rand
	began   time.Time
	records []faultlab.Record
	logs    strings.Builder
}

func (s *jobSim) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.Write(b)
}

func (s *jobSim) record(r faultlab.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.At = int64(time.Since(s.began))
	s.records = append(s.records, r)
}

func (s *jobSim) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rnd.Int64N(int64(d) + 1))
}

func (s *jobSim) chance(n int) int { return int(s.upTo(time.Duration(n - 1))) }

func newJobSim(seed uint64) *jobSim {
	r := rand.New(rand.NewPCG(seed, 21))
	s := &jobSim{seed: seed, nodes: 2 + r.IntN(4), rnd: rand.New(rand.NewPCG(seed, 22)),
		slow: []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond}[r.IntN(4)]}
	s.cfg = parallel.Config{Nodes: s.nodes, Topology: []string{"mesh", "star"}[r.IntN(2)], Logger: slog.New(slog.NewTextHandler(s, nil))}
	hows := []string{"finish", "finish", "finish", "fail", "panic", "listener", "preempt", "cancel"}
	for range 1 + r.IntN(2) {
		e := ending{r.IntN(s.nodes), hows[r.IntN(len(hows))], time.Duration(r.IntN(3000)) * time.Millisecond}
		if len(s.endings) > 0 && r.IntN(2) == 0 {
			e.at = s.endings[0].at // at the same moment
		}
		s.endings = append(s.endings, e)
	}
	return s
}

// jobNode is one task.
type jobNode struct {
	*task.Task[struct{}]
	s      *jobSim
	who    faultlab.Peer
	order  uint64
	number map[string]uint64
}

func (s *jobSim) play(ctx context.Context, pn *parallel.Node) (err error) {
	n := &jobNode{s: s, who: faultlab.Peer{Node: pn.ID(), Incarnation: 1}, number: map[string]uint64{}, Task: task.New[struct{}](pn)}
	s.record(faultlab.Record{Kind: faultlab.Begin, Who: n.who, Founder: true})
	defer func() {
		end := faultlab.Record{Kind: faultlab.End, Who: n.who, Out: faultlab.Success}
		switch {
		case errors.Is(err, task.ErrPreempted):
			end.Out, end.Err = faultlab.Preempted, err.Error()
		case err != nil:
			end.Out, end.Err = faultlab.Failure, err.Error()
		}
		s.record(end)
	}()
	for _, e := range letters {
		e.On(n.Task, func(ctx context.Context, l letter) error { return n.hear(ctx, e, l) })
	}
	ask.On(n.Task, func(ctx context.Context, v int) error {
		return answer.Emit(ctx, n.Task, v, task.To(fmt.Sprint("node.", task.Sender(ctx))))
	})
	n.OnFinish(func(context.Context, task.Outcome) error {
		s.record(faultlab.Record{Kind: faultlab.Finishing, Who: n.who})
		return nil
	})
	n.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		for _, e := range s.endings {
			if e.node == pn.ID() && time.Since(s.began) >= e.at {
				if err := n.endAs(ctx, e); err != nil {
					return err
				}
			}
		}
		return n.step(ctx)
	}))
	pause(ctx, s.upTo(2*time.Second))
	if err := n.Start(ctx); err != nil {
		return err
	}
	s.record(faultlab.Record{Kind: faultlab.Ready, Who: n.who})
	return n.Run(ctx)
}

// endAs ends the job. A preemption from outside ends the context of run.
func (n *jobNode) endAs(ctx context.Context, e ending) error {
	switch e.how {
	case "finish":
		n.Finish("it is time")
	case "fail":
		return errMeant
	case "panic":
		panic("meant to panic")
	case "listener":
		tripped := task.NewEvent[int]("trip")
		tripped.On(n.Task, func(context.Context, int) error { return errMeant })
		return tripped.Emit(ctx, n.Task, 1, task.OnlyLocal())
	case "preempt":
		n.Preempt("it is time")
	}
	return nil
}

func (n *jobNode) step(ctx context.Context) error {
	if n.s.chance(16) == 0 && n.s.nodes > 1 {
		return n.question(ctx)
	}
	n.emit(ctx)
	if n.s.chance(4) == 0 {
		pause(ctx, n.s.upTo(100*time.Millisecond))
	}
	return nil
}

// question asks another node and waits for its answer: the end of the run may come
// first.
func (n *jobNode) question(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no answer within a minute"))
	defer cancel()
	got := make(chan struct{})
	l := answer.Once(n.Task, func(context.Context, int) error { close(got); return nil })
	defer l.Off()
	to := (n.who.Node + 1 + n.s.chance(n.s.nodes-1)) % n.s.nodes
	if err := ask.Emit(ctx, n.Task, 1, task.To(fmt.Sprint("node.", to))); err != nil {
		return err
	}
	select {
	case <-got:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *jobNode) emit(ctx context.Context) {
	e := letters[n.s.chance(len(letters))]
	n.order++
	n.number[e.Name()]++
	data := make([]byte, []int{0, 0, 10, 100, 5000, 50_000, 300_000}[n.s.chance(7)])
	for i := range data {
		data[i] = byte(n.order) + byte(i)
	}
	r := faultlab.Record{Kind: faultlab.Emit, Who: n.who, Event: e.Name(), Number: n.number[e.Name()], Order: n.order, Bytes: len(data),
		Sum: faultlab.Sum(data)}
	opts := []task.EmitOption{task.OnlyRemote()}
	if n.s.chance(8) == 0 && e.Name() != "newest" {
		r.To = []int{n.s.chance(n.s.nodes)}
		opts = append(opts, task.To(fmt.Sprint("node.", r.To[0])))
	}
	n.s.record(r)
	err := e.Emit(ctx, n.Task, letter{r.Number, r.Order, data}, opts...)
	r.Kind, r.To = faultlab.Sent, nil
	if err != nil {
		r.Err = err.Error()
	}
	n.s.record(r)
}

func (n *jobNode) hear(ctx context.Context, e *task.Event[letter], l letter) error {
	n.s.record(faultlab.Record{
		Kind: faultlab.Hear, Who: n.who, From: faultlab.Peer{Node: task.Sender(ctx), Incarnation: 1}, Event: e.Name(),
		Number: l.Number, Order: l.Order, Bytes: len(l.Data), Sum: faultlab.Sum(l.Data),
	})
	if n.s.slow > 0 && n.s.chance(4) == 0 {
		pause(ctx, n.s.upTo(n.s.slow))
	}
	return nil
}

// run runs the job, and returns the faults of it.
func (s *jobSim) run(t *testing.T) (faultlab.Report, error) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	hows := map[string]bool{}
	for _, e := range s.endings {
		hows[e.how] = true
		switch e.how {
		case "fail", "panic", "listener":
			s.records = append(s.records, faultlab.Record{Kind: faultlab.Fault, Event: e.how, Nodes: []int{e.node}, Grave: true})
		case "preempt", "cancel":
			s.records = append(s.records, faultlab.Record{Kind: faultlab.Fault, Event: e.how, Grave: true})
		}
		if e.how == "cancel" {
			stop := time.AfterFunc(e.at+2*time.Second, func() { cancel(&task.PreemptError{Node: e.node, Reason: "from outside"}) })
			defer stop.Stop()
		}
	}
	err := parallel.Run(ctx, s.cfg, s.play)
	report, judged := faultlab.Check(taskRules, s.records)
	var outs []string
	for _, r := range s.records {
		if r.Kind == faultlab.End && !slices.Contains(outs, r.Out) {
			outs = append(outs, r.Out)
		}
	}
	slices.Sort(outs)
	fails := hows["fail"] || hows["panic"] || hows["listener"]
	preempts := hows["preempt"] || hows["cancel"]
	switch {
	case !fails && !preempts && err != nil:
		judged = errors.Join(judged, fmt.Errorf("no node failed, but the error is: %w", err))
	case len(s.endings) == 1 && fails && !slices.Equal(outs, []string{faultlab.Failure}):
		judged = errors.Join(judged, fmt.Errorf("a node failed, and nodes end as %v", outs))
	case len(s.endings) == 1 && preempts && !slices.Equal(outs, []string{faultlab.Preempted}):
		judged = errors.Join(judged, fmt.Errorf("a node was preempted, and nodes end as %v", outs))
	}
	if took := time.Since(s.began); took > 3*time.Minute {
		judged = errors.Join(judged, fmt.Errorf("the job took %v", took))
	}
	return report, judged
}

// TestL14SimulatedEnds runs many jobs of whole tasks in virtual time, which one or
// two nodes end, in different ways and often at the same moment, while all emit:
// every event that was emitted before a success arrives, and every node ends, with the outcome
// that belongs to the end.
func TestL14SimulatedEnds(t *testing.T) {
	seeds(t, 1500, 40, func(t *testing.T, seed uint64) (report faultlab.Report) {
		synctest.Test(t, func(t *testing.T) {
			s := newJobSim(seed)
			s.began = time.Now()
			var err error
			if report, err = s.run(t); err != nil {
				t.Errorf("seed %d: go test ./internal/faultlab -run SimulatedEnds -faultlab.seed=%d\n%v\nnodes %d, %s, slow %v, %+v\n%s", seed, seed,
					err, s.nodes, s.cfg.Topology, s.slow, s.endings, s.logs.String())
			}
		})
		return report
	})
}
