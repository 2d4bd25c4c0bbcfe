package rl_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

// nodesOf are the n nodes of a job in this process, in order of their ids. release
// is to be called when their tasks have ended.
func nodesOf(n int) (nodes []*parallel.Node, release func() error) {
	made, over, ended := make(chan *parallel.Node), make(chan struct{}), make(chan error)
	cfg := parallel.Config{Nodes: n, Recover: true, Logger: slog.New(slog.DiscardHandler)}
	go func() {
		ended <- parallel.Run(context.Background(), cfg, func(_ context.Context, node *parallel.Node) error {
			made <- node
			<-over
			return nil
		})
	}()
	nodes = make([]*parallel.Node, n)
	for range nodes {
		node := <-made
		nodes[node.ID()] = node
	}
	return nodes, func() error { close(over); return <-ended }
}

// crash disconnects a node: no message that its task sends from now on is received.
func crash(t *testing.T, node task.Node) {
	t.Helper()
	if err := node.Bus().Close(); err != nil {
		t.Log("crash:", err)
	}
}

// restartable makes node id of a job of n on sockets in dir. A node can be made again
// when it has crashed, as a new incarnation: it then dials all others, which take it
// for one that has left.
func restartable(t testing.TB, dir string, n, id int, incarnation uint64) *parallel.Node {
	t.Helper()
	addr := func(id int) string { return "unix://" + filepath.Join(dir, fmt.Sprint(id)) }
	env := control.Env{JobID: "j", Token: "secret", NodeID: id, Nodes: n, Listen: addr(id), Incarnation: incarnation, AutoRecover: true}
	for k := range n {
		if k != id && (incarnation > 1 || k > 0 && (id == 0 || k < id)) {
			env.Attach = append(env.Attach, addr(k))
		}
	}
	lookup := func(name string) (string, bool) {
		for _, kv := range env.Encode() {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
	node, err := parallel.Join(lookup, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Bus().Close() })
	return node
}

// logged is a node with its own log.
type logged struct {
	task.Node
	log *slog.Logger
}

func (l logged) Logger() *slog.Logger { return l.log }
