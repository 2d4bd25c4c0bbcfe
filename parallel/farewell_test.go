package parallel_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

// A node that has failed for the last time, before it joined, is started once more:
// who waited for it ends with its failure, though the job recovers.
func TestL12AFarewellEndsTheJob(t *testing.T) {
	dir, err := os.MkdirTemp("", "job") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	addr := "unix://" + filepath.Join(dir, "0")
	env := control.Env{JobID: "j", Token: "secret", Nodes: 2, Listen: addr, Incarnation: 1, AutoRecover: true, Retries: 3}
	waiting := join(t, env, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() {
		tk := task.New[struct{}](waiting)
		tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		ended <- tk.Run(t.Context())
	}()

	env = control.Env{
		JobID: "j", Token: "secret", NodeID: 1, Nodes: 2, Attach: []string{addr}, Incarnation: 1,
		AutoRecover: true, Farewell: "node 1, attempt 3, failed: no memory",
	}
	if _, err := parallel.Join(lookup(env), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "node.1 has failed for the last time") {
		t.Errorf("Join: %v", err)
	}
	err = <-ended
	remote, ok := errors.AsType[*task.RemoteError](err)
	if !ok || remote.Node != 1 || !strings.Contains(remote.Error(), "no memory") {
		t.Errorf("the other node ends with %v", err)
	}
}
