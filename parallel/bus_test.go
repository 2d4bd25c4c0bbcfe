package parallel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/task"
)

// pairOfRouters makes two routers of incarnation 5; join starts them.
func pairOfRouters(t *testing.T) (nodes [2]*router.Router, join func()) {
	t.Helper()
	network := memory.New()
	for id := range nodes {
		cfg := router.Config{
			Job: "j", Node: id, Expect: 2, Transport: network, Incarnation: 5, Listen: fmt.Sprint("mem://", id),
			PeerTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler),
		}
		if id == 1 {
			cfg.Attach = []string{"mem://0"}
		}
		var err error
		if nodes[id], err = router.New(cfg); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, func() {
		var starting sync.WaitGroup
		for _, r := range nodes {
			starting.Go(func() {
				if err := r.Start(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		starting.Wait()
	}
}

// startedPair is two nodes of env that have started; channels, if any, come before.
func startedPair(t *testing.T, env control.Env, before func(nodes [2]*Node)) (nodes [2]*Node) {
	t.Helper()
	routers, _ := pairOfRouters(t)
	env.Nodes = 2
	for id, r := range routers {
		env.NodeID = id
		nodes[id] = newNode(env, r, slog.New(slog.DiscardHandler))
	}
	if before != nil {
		before(nodes)
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			if err := n.bus.Start(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return nodes
}

// A node that fails and is started again does not leave the job, so that the others wait for it.
// In all other cases it leaves.
func TestOnlyAFailureThatIsRecoveredTakesNoLeave(t *testing.T) {
	failure, preempted := errors.New("no memory"), &task.PreemptError{Node: 1, Reason: "SIGTERM"}
	for _, c := range []struct {
		name    string
		retries int
		err     error
		leaves  bool
	}{
		{"failure", 1, failure, false},
		{"the last failure", 0, failure, true},
		{"told to end", 1, preempted, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			left := false
			nodes := startedPair(t, control.Env{AutoRecover: true, Retries: c.retries}, func(nodes [2]*Node) {
				nodes[0].bus.Watch(func(p task.PeerChange) { left = left || p.Event == task.PeerLeft })
			})
			err := call(t.Context(), nodes[1], func(context.Context, *Node) error { return c.err })
			synctest.Wait()
			if !errors.Is(err, c.err) || left != c.leaves {
				t.Errorf("%s: left %v: %v", c.name, left, err)
			}
			_ = nodes[0].bus.Close()
			<-time.After(time.Minute) // the rest of the connection ends
		})
	}
}

// The other nodes are notified of a node's failure when it has drained, unless it is started again.
func TestOtherNodesAreNotifiedOfAFailureAfterTheDrain(t *testing.T) {
	if newNode(control.Env{}, nil, nil).hasTold() {
		t.Error("a lone node has notified others")
	}
	for _, c := range []struct {
		name    string
		retries int
		drain   func(ctx context.Context, b *bus) error
		want    bool
	}{
		{"not drained", 0, func(context.Context, *bus) error { return nil }, false},
		{"drained", 0, func(ctx context.Context, b *bus) error { return b.Drain(ctx, false) }, true},
		{"drained, and restarted", 1, func(ctx context.Context, b *bus) error { return b.Drain(ctx, false) }, false},
		{"not drained in time", 0, func(ctx context.Context, b *bus) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := b.Drain(ctx, true); err == nil { // the other one does not drain
				return errors.New("drained")
			}
			return nil
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := startedPair(t, control.Env{AutoRecover: true, Retries: c.retries}, nil)
			if err := c.drain(t.Context(), nodes[1].bus); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if got := nodes[1].hasTold(); got != c.want {
				t.Errorf("%s: notified %v", c.name, got)
			}
			_, _ = nodes[0].bus.Close(), nodes[1].bus.Close()
		})
	}
}

// A node that sent messages to a peer that was lost reports them at its end, unless the
// job recovers: then they were reported when the peer was lost.
func TestMessagesToALostPeerAreReportedAtTheEnd(t *testing.T) {
	for _, recovers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			spec := task.ChannelSpec{Name: "e", Fingerprint: 1}
			var sender task.Channel
			nodes := startedPair(t, control.Env{AutoRecover: recovers}, func(nodes [2]*Node) {
				receiver, err := nodes[1].bus.Channel(spec, func(*task.Inbound) error { return nil }) // it keeps the credit
				if err != nil {
					t.Fatal(err)
				}
				receiver.Listen(true)
				if sender, err = nodes[0].bus.Channel(spec, nil); err != nil {
					t.Fatal(err)
				}
			})
			for want, match := range map[int]func(task.Peer) bool{
				1: func(p task.Peer) bool { return p.ID == 1 },
				0: func(p task.Peer) bool { return p.ID != 1 },
			} {
				if n, err := sender.Send(t.Context(), router.Bytes{}, match); n != want || err != nil {
					t.Errorf("sent to %d, want %d: %v", n, want, err)
				}
			}
			synctest.Wait()
			_ = nodes[1].bus.Abandon()
			nodes[0].peerGone(control.Lost{Node: 1, Incarnation: 5, Reason: "killed"})
			<-time.After(time.Minute)
			err := nodes[0].bus.Close()
			lost, ok := errors.AsType[*router.PeerError](err)
			if ok == recovers || ok && lost.Node != 1 {
				t.Errorf("recovers %v: %v", recovers, err)
			}
		})
	}
}

// A node that sends a payload of another type is lost to the others, by its id, with the event and the
// message. The task of a job that recovers continues, and receives the messages of other nodes.
func TestR7PayloadThatDoesNotDecodeEndsItsSender(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			routers, _ := pairOfRouters(t)
			log := &logtest.Buffer{}
			env := control.Env{Nodes: 2, AutoRecover: recovers, Retries: 3}
			honest := newNode(env, routers[0], slog.New(slog.NewTextHandler(log, nil)))
			event := task.NewEvent[[]string]("texts")
			tk := task.New[struct{}](honest)
			var received [][]string
			event.On(tk, func(_ context.Context, v []string) error { received = append(received, v); return nil })
			codec, err := honest.Codec().Payload(reflect.TypeFor[[]string]())
			if err != nil {
				t.Fatal(err)
			}
			spec := router.Spec{Name: "texts", Fingerprint: codec.Fingerprint(), Schema: codec.Schema()}
			out, err := routers[1].Channel(spec, func(*router.Message) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			var starting sync.WaitGroup
			starting.Go(func() {
				if err := routers[1].Start(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
			if err := tk.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			starting.Wait()
			synctest.Wait()
			for _, payload := range []string{"\x81\x61x", "\x81\x07"} { // a list of a text, a list of a number
				if _, err := out.Send(t.Context(), router.Bytes(payload), nil); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			why := `node.1: malformed frame: event "texts", message 2: the payload does not decode: payload: decode []string: `
			if len(received) != 1 || received[0][0] != "x" || tk.Finished() == recovers {
				t.Errorf("received %q, finished: %v", received, tk.Finished())
			}
			said := tk.Outcome().Reason
			if recovers {
				said = strings.ReplaceAll(log.String(), `\"`, `"`)
			}
			if !strings.Contains(said, why) {
				t.Errorf("%s, want %s", said, why)
			}
			_, _ = routers[1].Abandon(), tk.Close(t.Context())
			<-time.After(time.Minute) // the rest of the connection ends
		})
	}
}

// The transport of the router is closed once, after the router, at any end of the node.
func TestTransportIsClosedOnce(t *testing.T) {
	for name, end := range map[string]func(b *bus) error{"closed": (*bus).Close, "abandoned": (*bus).Abandon} {
		synctest.Test(t, func(t *testing.T) {
			nodes := startedPair(t, control.Env{}, nil)
			closed := 0
			nodes[0].bus.below = func() { closed++ }
			if err := errors.Join(end(nodes[0].bus), end(nodes[0].bus)); err != nil || closed != 1 {
				t.Errorf("%s: closed %d times: %v", name, closed, err)
			}
			_ = nodes[1].bus.Close()
		})
	}
}

// An event that was declared before is an error of the bus.
func TestAnEventIsDeclaredOnceOnTheBus(t *testing.T) {
	nodes, _ := pairOfRouters(t)
	defer func() { _, _ = nodes[0].Close(), nodes[1].Close() }()
	b := newNode(control.Env{Nodes: 2}, nodes[0], nil).bus
	for again := range 2 {
		c, err := b.Channel(task.ChannelSpec{Name: "e"}, nil)
		if (err != nil) != (again == 1) || (c != nil) != (again == 0) {
			t.Errorf("declaration %d: %v, %v", again, c, err)
		}
	}
}

// A node that does not wait for others may return at any time.
func TestWhichNodesMayReturnBeforeTheyHaveJoined(t *testing.T) {
	nodes, _ := pairOfRouters(t)
	defer func() { _, _ = nodes[0].Close(), nodes[1].Close() }()
	failure := errors.New("no memory")
	for _, c := range []struct {
		env   control.Env
		lone  bool
		err   error
		fails bool
	}{
		{control.Env{Nodes: 2}, false, nil, true},
		{control.Env{Nodes: 2, Topology: "star"}, false, nil, true},
		{control.Env{Nodes: 2, Topology: "alone"}, false, nil, false},
		{control.Env{Nodes: 1}, false, nil, false},
		{control.Env{}, false, nil, false},
		{control.Env{Nodes: 2}, true, nil, false},
		{control.Env{Nodes: 2}, true, failure, true},
		{control.Env{Nodes: 2, Topology: "alone"}, false, failure, true},
	} {
		r := nodes[0]
		if c.lone {
			r = nil
		}
		err := newNode(c.env, r, nil).returned(t.Context(), c.err)
		if (err != nil) != c.fails || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%+v, lone %v: %v", c.env, c.lone, err)
		}
	}
}

// The router's counts of a peer's messages are converted to the terms of package task.
func TestUnsentMessagesByReason(t *testing.T) {
	got := unsent([]router.StreamStats{
		{Event: "kept", Peer: 1, Sent: 9},
		{Event: "mixed", Peer: 1, Oldest: 1, Newest: 2, Abandoned: 3, Replaced: 4},
		{Event: "latest", Peer: 2, Replaced: 5},
		{Event: "oldest", Peer: 3, Oldest: 6},
	})
	want := []string{"mixed 1 4 map[newest:2 oldest:1 peer gone:3]", "latest 2 5 map[]", "oldest 3 0 map[oldest:6]"}
	var text []string
	for _, u := range got {
		text = append(text, fmt.Sprint(u.Event, " ", u.Peer, u.Skipped, u.Dropped))
	}
	if !slices.Equal(text, want) {
		t.Errorf("%q, want %q", text, want)
	}
}
