package parallel

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// A node has its place in the job from its environment.
func TestPlaceOfANode(t *testing.T) {
	nodes, _ := pairOfRouters(t)
	defer func() { _, _ = nodes[0].Close(), nodes[1].Close() }()
	for _, c := range []struct {
		env    control.Env
		router *router.Router
		want   string
	}{
		{control.Env{JobID: "j", Nodes: 9, Labels: []string{"blue"}, Attempt: 2}, nil, "j 0 0 1 2 [standalone blue] true"},
		{control.Env{JobID: "j", NodeID: 5, LocalID: 1, Nodes: 9, Labels: []string{"blue"}}, nodes[0],
			"j 5 1 9 0 [distributed node.5 mesh blue] false"},
		{control.Env{JobID: "j", Topology: "star"}, nodes[0], "j 0 0 0 0 [distributed node.0 star] false"},
	} {
		n := newNode(c.env, c.router, slog.New(slog.DiscardHandler))
		if got := fmt.Sprint(n.JobID(), " ", n.ID(), n.LocalID(), n.Size(), n.Attempt(), n.Labels(), n.Bus() == nil); got != c.want {
			t.Errorf("%+v: %s, want %s", c.env, got, c.want)
		}
	}
}

// The seeds of the nodes are the first numbers of splitmix64.
func TestSeedsOfTheNodes(t *testing.T) {
	for id, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := newNode(control.Env{NodeID: id}, nil, nil).Seed(); got != want {
			t.Errorf("node %d: seed %x, want %x", id, got, want)
		}
	}
	n := newNode(control.Env{Seed: -1}, nil, nil)
	if n.JobSeed() != 1<<64-1 || n.Seed() == newNode(control.Env{}, nil, nil).Seed() {
		t.Errorf("seeds %x and %x", n.JobSeed(), n.Seed())
	}
}

func TestNameOfANodeHasItsRoles(t *testing.T) {
	n := newNode(control.Env{NodeID: 2, Labels: []string{"blue"}}, nil, nil)
	if n.name() != "node.2" {
		t.Errorf("before its start: %s", n.name())
	}
	n.announce([]string{"standalone", "blue", "learner", "evaluator"})
	if n.name() != "node.2 (learner) (evaluator)" {
		t.Errorf("after its start: %s", n.name())
	}
}

func TestANodeIsClaimedOnce(t *testing.T) {
	n := newNode(control.Env{}, nil, nil)
	if !n.Claim() || n.Claim() {
		t.Error("want the first claim only")
	}
}

func TestPayloadThatCannotTravelIsAnError(t *testing.T) {
	codec := newNode(control.Env{}, nil, nil).Codec()
	if p, err := codec.Payload(reflect.TypeFor[chan int]()); err == nil || p != nil {
		t.Errorf("a channel: %v, %v", p, err)
	}
	if p, err := codec.Payload(reflect.TypeFor[int]()); err != nil || p == nil {
		t.Errorf("a number: %v, %v", p, err)
	}
}

func TestRunRefusesAnInvalidConfig(t *testing.T) {
	for want, cfg := range map[string]Config{"parallel: -1 nodes": {Nodes: -1}, "parallel: ": {Topology: "ring"}} {
		err := Run(t.Context(), cfg, func(context.Context, *Node) error { t.Error("it ran"); return nil })
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// All nodes of Run have the settings of its Config, and the same job.
func TestRunGivesEachNodeItsPlace(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		var mu sync.Mutex
		got := map[string]bool{}
		cfg := Config{
			Nodes: n, Topology: "star", Labels: []string{"blue"}, Dir: t.TempDir(), Seed: 9, Recover: true,
			Join: time.Minute, Logger: slog.New(slog.DiscardHandler),
		}
		err := Run(t.Context(), cfg, func(ctx context.Context, node *Node) error {
			if node.Dir() != cfg.Dir || node.JobSeed() != 9 || !strings.HasPrefix(node.JobID(), "run-") || node.Size() != max(n, 1) {
				t.Errorf("node %d of %d: folder %s, seed %d, job %s, size %d", node.ID(), n, node.Dir(), node.JobSeed(), node.JobID(), node.Size())
			}
			mu.Lock()
			got[fmt.Sprint(node.ID(), node.LocalID(), node.Labels())] = true
			mu.Unlock()
			tk := task.New[struct{}](node)
			tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { return node.Barrier(ctx, "b") }))
			return tk.Run(ctx, task.MaxSteps(1))
		})
		want := map[string]bool{"0 0 [standalone blue]": true}
		if n > 1 {
			want = map[string]bool{}
			for id := range n {
				want[fmt.Sprintf("%d %d [distributed node.%d star blue]", id, id, id)] = true
			}
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d nodes: %v: %v, want %v", n, err, got, want)
		}
	}
}

func TestDialsOfANodeOfRun(t *testing.T) {
	for topology, want := range map[router.Topology][3]int{router.Mesh: {0, 1, 2}, router.Star: {0, 1, 1}} {
		var got [3]int
		for id := range got {
			got[id] = attachTo(topology, id)
		}
		if got != want {
			t.Errorf("%v: %v, want %v", topology, got, want)
		}
	}
}

// A replay ends with the function of its node.
func TestCallEndsAReplay(t *testing.T) {
	r := newNode(control.Env{NodeID: 1, Nodes: 2, Replay: "x"}, nil, slog.New(slog.DiscardHandler))
	if err := call(t.Context(), r, func(context.Context, *Node) error { return nil }); err != nil {
		t.Error(err)
	}
	if r.replay.ctx.Err() == nil {
		t.Error("the replay has not ended")
	}
}
