package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
	"github.com/ditask/ditask/parallel/trace"
	"github.com/ditask/ditask/task"
)

// join makes the node of env in this process.
func join(t *testing.T, env control.Env, log *slog.Logger) *parallel.Node {
	t.Helper()
	n, err := parallel.Join(lookup(env), log)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lookup returns the variables of env.
func lookup(env control.Env) func(name string) (string, bool) {
	kv := map[string]string{}
	for _, s := range env.Encode() {
		k, v, _ := strings.Cut(s, "=")
		kv[k] = v
	}
	return func(name string) (string, bool) { v, ok := kv[name]; return v, ok }
}

// job is two nodes on unix sockets; each runs its function once.
func job(t *testing.T, traceDir string, fns ...func(ctx context.Context, n *parallel.Node) error) []error {
	t.Helper()
	dir, err := os.MkdirTemp("", "job") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	var addrs []string
	for id := range fns {
		addrs = append(addrs, "unix://"+filepath.Join(dir, fmt.Sprint(id)))
	}
	for id, fn := range fns {
		n := join(t, control.Env{
			JobID: "j", Token: "secret", NodeID: id, Nodes: len(fns), Listen: addrs[id], Attach: addrs[:id], Incarnation: 1, Seed: 7,
			Trace: traceDir, Labels: []string{"blue"},
		}, slog.New(slog.DiscardHandler))
		wg.Go(func() { errs[id] = fn(t.Context(), n) })
	}
	wg.Wait()
	return errs
}

// received is what a node receives, in order.
type received struct {
	mu    sync.Mutex
	lines []string
}

func (h *received) notef(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

var errCrash = errors.New("crashed on purpose")

// crasher is a node that records the received messages, and fails at the hundredth.
func crasher(h *received) func(ctx context.Context, n *parallel.Node) error {
	return func(ctx context.Context, n *parallel.Node) error {
		tk := task.New[struct{}](n)
		small.On(tk, func(ctx context.Context, v int) error {
			h.notef("small %d: %d from %d", task.Version(ctx), v, task.Sender(ctx))
			if task.Version(ctx) == 100 {
				return errCrash
			}
			return reply.Emit(ctx, tk, v, task.To("node.0"))
		})
		weights.On(tk, func(ctx context.Context, v []float32) error {
			h.notef("weights %d: %d numbers, %v", task.Version(ctx), len(v), v[0])
			return nil
		})
		h.notef("size %d, seed %d, labels %v", n.Size(), n.Seed(), n.Labels())
		tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { <-ctx.Done(); return context.Cause(ctx) }))
		return tk.Run(ctx)
	}
}

// feeder emits values before and after it is ready; the crash ends it.
func feeder(ctx context.Context, n *parallel.Node) error {
	tk := task.New[struct{}](n)
	tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		for i := range 200 {
			if i == 20 {
				if err := weights.Emit(ctx, tk, append([]float32{1}, make([]float32, 200_000)...)); err != nil {
					return err
				}
			}
			if err := small.Emit(ctx, tk, i*i); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	return tk.Run(ctx)
}

// TestReplayDeliversTheSameMessages records a node that crashes, and replays the crash
// in a lone node.
func TestReplayDeliversTheSameMessages(t *testing.T) {
	dir := t.TempDir()
	var first received
	errs := job(t, dir, feeder, crasher(&first))
	if !errors.Is(errs[1], errCrash) {
		t.Fatal(errs)
	}
	for _, fast := range []bool{true, false} {
		var again received
		node := join(t, control.Env{
			JobID: "j", NodeID: 1, Nodes: 2, Seed: 7, Labels: []string{"blue"}, Replay: trace.Path(dir, 1, 0), ReplayFast: fast,
		}, slog.New(slog.DiscardHandler))
		var joined atomic.Int64
		node.Bus().Watch(func(c task.PeerChange) {
			if c.Event == task.PeerJoined && c.Peer.ID == 0 {
				joined.Add(1)
			}
		})
		if err := crasher(&again)(t.Context(), node); !errors.Is(err, errCrash) {
			t.Errorf("fast %v: %v", fast, err)
		}
		if joined.Load() != 1 {
			t.Errorf("fast %v: node 0 joined %d times", fast, joined.Load())
		}
		// Events of one name keep their order; two names may change places, because a
		// large payload takes longer.
		for _, event := range []string{"small", "weights", "size"} {
			pick := func(h *received) []string {
				return slices.DeleteFunc(slices.Clone(h.lines), func(s string) bool { return !strings.HasPrefix(s, event) })
			}
			want, got := pick(&first), pick(&again)
			both := min(len(got), len(want))
			if !slices.Equal(got[:both], want[:both]) || event == "small" && len(got) < 100 {
				t.Errorf("fast %v: received\n%v\nwant\n%v", fast, got, want)
			}
		}
	}
}

// TestReplayRefusesAnotherProgram has an event of another shape.
func TestReplayRefusesAnotherProgram(t *testing.T) {
	dir := t.TempDir()
	var h received
	_ = job(t, dir, feeder, crasher(&h))
	node := join(t, control.Env{JobID: "j", NodeID: 1, Nodes: 2, Replay: trace.Path(dir, 1, 0), ReplayFast: true},
		slog.New(slog.DiscardHandler))
	tk := task.New[struct{}](node)
	task.NewEvent[string](small.Name()).On(tk, func(context.Context, string) error { return nil })
	tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { <-ctx.Done(); return context.Cause(ctx) }))
	if err := tk.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `event "small" differs: the record has int64`) {
		t.Error(err)
	}
}

func TestErrorOfAMissingRecord(t *testing.T) {
	node := join(t, control.Env{JobID: "j", NodeID: 1, Nodes: 2, Replay: filepath.Join(t.TempDir(), "none")}, slog.New(slog.DiscardHandler))
	var h received
	if err := crasher(&h)(t.Context(), node); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestMetricsAreBounded runs a job with more nodes than the limit for metrics of each peer.
func TestMetricsAreBounded(t *testing.T) {
	const n = 18
	cfg := parallel.Config{Nodes: n, Logger: slog.New(slog.DiscardHandler)}
	err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
		tk := task.New[struct{}](node)
		small.On(tk, func(context.Context, int) error { return nil })
		tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
			if err := small.Emit(ctx, tk, 1, task.OnlyRemote()); err != nil {
				return err
			}
			if err := node.Barrier(ctx, "spoken"); err != nil || node.ID() != 0 {
				return err
			}
			sent, peers := 0, 0
			for _, s := range node.Metrics() {
				switch s.Name {
				case metrics.EventsSent:
					if sent++; s.Label("peer") != "all" || s.Label("event") != "small" || s.Value != n-1 {
						t.Errorf("%+v", s)
					}
				case metrics.PeerUp:
					peers++
				}
			}
			if sent != 1 || peers != n-1 {
				t.Errorf("%d series of an event, %d of peers", sent, peers)
			}
			return nil
		}))
		return tk.Run(ctx, task.MaxSteps(1))
	})
	if err != nil {
		t.Error(err)
	}
}
