package connect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
)

// lookupIn reads the environment that a launcher gives a node.
func lookupIn(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range environ {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// lostLine is the line of a control socket that node 1 is lost.
func lostLine(t *testing.T, final bool) string {
	t.Helper()
	lost := &control.Lost{Node: 1, Incarnation: 5, Reason: "exit code 3", Final: final}
	line, err := control.Message{Type: control.TypeLost, Lost: lost}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// A node loses another one whose process has ended when a third process reports that, with the reason,
// and with whether the job has failed.
func TestAFarewellHasTheReason(t *testing.T) {
	for _, final := range []bool{false, true} {
		t.Run(fmt.Sprint("final ", final), func(t *testing.T) {
			both, env := nodes(t, nil)
			lost := make(chan error, 1)
			both[0].Watch(func(c router.Change) {
				if c.Kind == router.Lost && c.Peer.ID == 1 {
					lost <- c.Err
				}
			})
			start(t, both)
			_ = both[1].Abandon()
			if err := Farewell(t.Context(), lookupIn(env.Encode()), strings.NewReader(lostLine(t, final))); err != nil {
				t.Error(err)
			}
			err := <-lost
			if _, failed := errors.AsType[*router.FailedError](err); failed != final || err.Error() != "node.1: lost: exit code 3" {
				t.Errorf("%v, the job has failed: %v", err, failed)
			}
		})
	}
}

func TestFaultsOfAFarewell(t *testing.T) {
	const notOne = "a launcher runs this, for one of its nodes: "
	node := control.Env{JobID: "j", Token: "secret", NodeID: 1, Nodes: 2}
	open := control.Env{JobID: "j", NodeID: 1, Nodes: 2, Listen: "tcp://0.0.0.0:0"}
	for _, c := range []struct {
		environ    []string
		line, want string
	}{
		{[]string{"DITASK_NODE_ID=1", "DITASK_NODES=x"}, lostLine(t, false), `DITASK_NODES="x": invalid syntax`},
		{[]string{"DITASK_JOB_ID=j"}, lostLine(t, false), notOne},
		{node.Encode(), "", notOne + "EOF"},
		{node.Encode(), "{\"type\":\"hello\"}\n", notOne + "no node, or no line"},
		{open.Encode(), lostLine(t, false), "tcp://0.0.0.0:0 is open to other machines and the job has no token"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that one that continues does not take long
		if err := Farewell(ctx, lookupIn(c.environ), strings.NewReader(c.line)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// Over sockets a farewell is sent to the nodes that the node has dialled, and through a server to all.
func TestAFarewellThatNothingReceives(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := leak.Check(t).Dir
	env := control.Env{JobID: "j", Token: "secret", NodeID: 1, Nodes: 2, Listen: "unix://" + filepath.Join(dir, "none", "s")}
	err := Farewell(ctx, lookupIn(env.Encode()), strings.NewReader(lostLine(t, false)))
	if err == nil || !strings.HasPrefix(err.Error(), "listen on unix://") {
		t.Errorf("over sockets: %v", err)
	}
	env.Bus, env.Listen = "nats://127.0.0.1:1", "bus://node.1"
	err = Farewell(ctx, lookupIn(env.Encode()), strings.NewReader(lostLine(t, false)))
	if err == nil || !strings.HasPrefix(err.Error(), "no node has received the farewell of node.1") {
		t.Errorf("through a server: %v", err)
	}
}

// Through a server a farewell calls each other node once, and not more than 64 of them.
func TestAFarewellCallsTheOtherNodesOfTheServer(t *testing.T) {
	for _, c := range []struct {
		node, nodes int
		attach      string
		want        string
	}{
		{1, 4, "", "bus://node.0 bus://node.2 bus://node.3"},
		{0, 1, "", ""},
		{3, 4, "bus://node.2", "bus://node.2 bus://node.0 bus://node.1"},
		{3, 0, "bus://node.2", "bus://node.2"}, // the number of nodes is not known
	} {
		env := control.Env{NodeID: c.node, Nodes: c.nodes, Attach: strings.Fields(c.attach)}
		if got := strings.Join(onServer(env), " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if got := strings.Join(env.Attach, " "); got != c.attach {
			t.Errorf("%+v: the environment has %s", c, got)
		}
	}
	got := onServer(control.Env{NodeID: 2, Nodes: 1000})
	if len(got) != 64 || got[63] != "bus://node.64" || len(slices.Compact(slices.Clone(got))) != 64 {
		t.Errorf("%d nodes are called, the last one is %s", len(got), got[len(got)-1])
	}
}
