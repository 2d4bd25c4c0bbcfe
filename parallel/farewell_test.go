package parallel_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/connect"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

// A node has failed for the last time, before it joined or while it runs, and
// another process notifies the job: the nodes of other launchers end with its failure, though
// the job recovers.
func TestL12AFarewellEndsTheJob(t *testing.T) {
	for _, met := range []bool{false, true} {
		dir, err := os.MkdirTemp("", "job") //nolint:usetesting // the path of a socket is short
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		addr := "unix://" + filepath.Join(dir, "0")
		env := control.Env{JobID: "j", Token: "secret", Nodes: 2, Listen: addr, Incarnation: 1, AutoRecover: true, Retries: 3}
		works := make(chan struct{})
		ended := make(chan error, 1)
		waiting := join(t, env, slog.New(slog.DiscardHandler))
		go func() {
			tk := task.New[struct{}](waiting)
			tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
				close(works)
				<-ctx.Done()
				return context.Cause(ctx)
			}))
			ended <- tk.Run(t.Context())
		}()
		env = control.Env{JobID: "j", Token: "secret", NodeID: 1, Nodes: 2, Attach: []string{addr}, Incarnation: 1, AutoRecover: true}
		if met {
			dies, below, err := connect.Router(env, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if err := dies.Start(t.Context(), nil); err != nil {
				t.Error(err)
			}
			<-works
			_ = dies.Abandon() // it has sent no messages
			below()
		}
		m := control.Message{Type: control.TypeLost, Lost: &control.Lost{Node: 1, Incarnation: 1, Reason: "exit code 1: no memory", Final: true}}
		line, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		over := false
		for !over { // the other node may not listen yet
			farewell := connect.Farewell(t.Context(), lookup(env), strings.NewReader(string(line)))
			select {
			case err = <-ended:
				over = true
			default:
				over = farewell == nil || met
			}
			if over && farewell != nil {
				t.Errorf("met %v: %v", met, farewell)
			}
		}
		if err == nil {
			err = <-ended
		}
		if remote, ok := errors.AsType[*task.RemoteError](err); met && (!ok || remote.Node != 1) || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("met %v: the other node ends with %v", met, err)
		}
	}
}
