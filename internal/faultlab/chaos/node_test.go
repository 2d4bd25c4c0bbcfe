//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/cli"
	"github.com/ditask/ditask/internal/cli/job"
	"github.com/ditask/ditask/internal/faultlab"
	"github.com/ditask/ditask/internal/faultlab/hostile"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// The environment variables by which a round configures its nodes.
const (
	varDir    = "CHAOS_DIR"    // folder of the records, and of the file stop
	varPace   = "CHAOS_PACE"   // the longest pause between two emits
	varBig    = "CHAOS_BIG"    // the size of the largest message
	varJump   = "CHAOS_JUMP"   // seconds by which the clock jumps
	varRoutes = "CHAOS_ROUTES" // address=address ...: where this job's lines begin
	varLoud   = "CHAOS_LOUD"   // lines of log after each emit
	varAgain  = "CHAOS_AGAIN"  // this launcher is not the first of its node
	varSlow   = "CHAOS_SLOW"   // the longest time in ms that a node takes before parallel.Main

	varHostile = "CHAOS_HOSTILE" // a hostile node will join
)

// Letter is the event that nodes send each other.
type Letter struct {
	Incarnation   uint64
	Number, Order uint64
	Data          []byte
}

var events = []*task.Event[Letter]{
	task.NewEvent[Letter]("one"),
	task.NewEvent[Letter]("two"),
	task.NewEvent[Letter]("newest", task.Latest()),
	task.NewEvent[Letter]("drop-oldest", task.DropOldest(16)),
	task.NewEvent[Letter]("drop-newest", task.DropNewest(16)),
}

var rules = faultlab.Rules{Events: map[string]faultlab.Policy{
	"one": faultlab.Reliable, "two": faultlab.Reliable, "newest": faultlab.Latest,
	"drop-oldest": faultlab.DropOldest, "drop-newest": faultlab.DropNewest,
}}

func TestMain(m *testing.M) {
	switch id := os.Getenv(control.VarNodeID); {
	case id != "" && slices.Equal(os.Args[1:], job.FarewellArgs()): // ditask, instead of a node
		reroute(id)
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	case id != "":
		tellGauges("node " + id)
		if os.Getenv(varSoak) != "" {
			parallel.Main(soak)
		}
		reroute(id)
		start()
		parallel.Main(play)
	case os.Getenv(varDir) != "": // ditask itself, whose clock can jump too
		if !slices.Equal(os.Args[1:], job.WatchArgs()) {
			tellGauges("launcher")
		}
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// start waits, as a program does that loads its data first.
func start() {
	if most, err := strconv.Atoi(os.Getenv(varSlow)); err == nil && most > 0 {
		<-time.After(time.Duration(most/4+rand.IntN(most)) * time.Millisecond)
	}
}

// reroute puts lines that can fail between this node and those that it dials. A
// route "2>tcp://a=tcp://b" is for node 2, "*>..." for each node that receives the
// address from another node.
func reroute(id string) {
	attach, advertise := os.Getenv(control.VarAttach), os.Getenv(control.VarAdvertise)
	for route := range strings.FieldsSeq(os.Getenv(varRoutes)) {
		from, rest, _ := strings.Cut(route, ">")
		addr, line, _ := strings.Cut(rest, "=")
		switch {
		case from == id:
			attach = strings.ReplaceAll(attach, addr, line)
		case from == "*" && addr == advertise:
			advertise = line
		}
	}
	_ = os.Setenv(control.VarAttach, attach)
	_ = os.Setenv(control.VarAdvertise, advertise)
}

// node is one process of a job.
type node struct {
	*task.Task[struct{}]
	who     faultlab.Peer
	records *faultlab.Writer
	rnd     *rand.Rand
	order   uint64
	number  map[string]uint64
	size    int
	big     int
	pace    time.Duration
}

func (n *node) record(r faultlab.Record) {
	r.Who, r.At = n.who, now()
	if err := n.records.Write(r); err != nil {
		panic(err) // the checker needs the records
	}
}

// word is the content of the lines of a loud node.
const word = "a word and "

func play(ctx context.Context, pn *parallel.Node) (err error) {
	env, _, err := control.Parse(os.LookupEnv)
	if err != nil {
		return err
	}
	n := &node{who: faultlab.Peer{Node: pn.ID(), Incarnation: env.Incarnation}, number: map[string]uint64{},
		rnd: rand.New(rand.NewPCG(pn.Seed(), env.Incarnation)), size: max(pn.Size(), 4)}
	dir := os.Getenv(varDir)
	if n.records, err = faultlab.NewWriter(filepath.Join(dir, fmt.Sprintf("%d-%d.records", n.who.Node, n.who.Incarnation))); err != nil {
		return err
	}
	defer n.records.Close()
	if n.pace, err = time.ParseDuration(os.Getenv(varPace)); err != nil {
		return err
	}
	if _, err = fmt.Sscan(os.Getenv(varBig), &n.big); err != nil {
		return err
	}
	n.record(faultlab.Record{Kind: faultlab.Begin, Founder: pn.Attempt() == 0 && os.Getenv(varAgain) == "", Count: uint64(os.Getpid())})
	defer func() {
		end := faultlab.Record{Kind: faultlab.End, Out: faultlab.Success}
		switch {
		case errors.Is(err, task.ErrPreempted):
			end.Out, end.Err = faultlab.Preempted, err.Error()
		case err != nil:
			end.Out, end.Err = faultlab.Failure, err.Error()
		}
		n.record(end)
	}()
	n.Task = task.New[struct{}](pn)
	for _, e := range events {
		e.On(n.Task, func(ctx context.Context, l Letter) error { return n.hear(ctx, e, l) }, task.Borrowed())
	}
	n.OnFinish(func(context.Context, task.Outcome) error {
		n.record(faultlab.Record{Kind: faultlab.Finishing})
		return nil
	})
	hostileJoins := os.Getenv(varHostile) != ""
	if hostileJoins {
		bag.On(n.Task, func(context.Context, hostile.Bag) error { return nil })
	}
	entered := ""
	loud := len(os.Getenv(varLoud)) > 0
	n.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		if loud {
			fmt.Println(strings.Repeat(word, 30))
		}
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			n.Finish("told to stop")
			return nil
		}
		if hostileJoins {
			if name, err := os.ReadFile(filepath.Join(dir, "barrier")); err == nil && string(name) != entered {
				entered = string(name)
				n.meet(ctx, pn, entered)
			}
		}
		n.emit(ctx)
		if n.rnd.IntN(50) == 0 { // so that there is always something in progress
			for range 20 {
				n.emit(ctx)
			}
		}
		pause(ctx, time.Duration(n.rnd.Int64N(int64(n.pace))))
		return nil
	}))
	if err = n.Start(ctx); err != nil {
		return err
	}
	n.record(faultlab.Record{Kind: faultlab.Ready})
	return n.Run(ctx)
}

// meet enters a barrier, and leaves it.
func (n *node) meet(ctx context.Context, pn *parallel.Node, name string) {
	ctx, cancel := context.WithTimeout(ctx, barrierWithin)
	defer cancel()
	n.record(faultlab.Record{Kind: faultlab.BarrierIn, Event: name, Number: 1})
	out := faultlab.Record{Kind: faultlab.BarrierOut, Event: name, Number: 1}
	if err := pn.Barrier(ctx, name); err != nil {
		out.Err = err.Error()
	}
	n.record(out)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// emit sends one message, and records any error; the task continues.
func (n *node) emit(ctx context.Context) {
	e := events[n.rnd.IntN(len(events))]
	n.order++
	n.number[e.Name()]++
	sizes := []int{0, 0, 1, 64, 64, 64, 1000, 1000, 5000, 40 << 10, 64 << 10, 100 << 10, 300 << 10, n.big}
	data := make([]byte, min(sizes[n.rnd.IntN(len(sizes))], n.big))
	for i := range data {
		data[i] = byte(n.order) ^ byte(i*7)
	}
	r := faultlab.Record{Kind: faultlab.Emit, Event: e.Name(), Number: n.number[e.Name()], Order: n.order, Bytes: len(data),
		Sum: faultlab.Sum(data)}
	opts := []task.EmitOption{task.OnlyRemote()}
	if n.rnd.IntN(8) == 0 && e.Name() != "newest" {
		to := n.rnd.IntN(n.size)
		r.To = []int{to}
		opts = append(opts, task.To(fmt.Sprint("node.", to)))
	}
	n.record(r)
	err := e.Emit(ctx, n.Task, Letter{n.who.Incarnation, r.Number, r.Order, data}, opts...)
	r = faultlab.Record{Kind: faultlab.Sent, Event: r.Event, Number: r.Number, Order: r.Order}
	if err != nil {
		r.Err = err.Error()
		// Once ctx has ended its cause may name a node, and others have not been reached.
		if lost, ok := errors.AsType[*router.PeerError](err); ok && !strings.Contains(r.Err, "\n") && ctx.Err() == nil {
			r.Failed = []int{lost.Node}
		}
	}
	n.record(r)
}

func (n *node) hear(ctx context.Context, e *task.Event[Letter], l Letter) error {
	n.record(faultlab.Record{
		Kind: faultlab.Hear, From: faultlab.Peer{Node: task.Sender(ctx), Incarnation: l.Incarnation}, Event: e.Name(),
		Number: l.Number, Order: l.Order, Bytes: len(l.Data), Sum: faultlab.Sum(l.Data),
	})
	return nil
}
