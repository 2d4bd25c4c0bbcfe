package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// enter calls Barrier and returns a channel of its result.
func enter(ctx context.Context, r *router.Router, name string) <-chan error {
	out := make(chan error, 1) // one result
	go func() { out <- r.Barrier(ctx, name) }()
	return out
}

// returned is the result of a call, or an error if it still waits.
func returned(c <-chan error) error {
	synctest.Wait()
	select {
	case err := <-c:
		return err
	default:
		return errWaits
	}
}

var errWaits = errors.New("it still waits")

// A node passes a barrier as soon as another one that has passed it announces that, although the frame
// of a third is still under way.
func TestR6BarrierThatOnePassesAllPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, nil)
		defer j.close()
		j.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for round := range 3 {
			// The announcement is passed on: node.1 receives it from node.3 only.
			release := []func(){j.gates.hold(2, 1), j.gates.hold(0, 1)}
			late := enter(ctx, j.nodes[1], "b")
			j.each(func(_ int, r *router.Router) error { return r.Barrier(ctx, "b") }, 0, 2, 3)
			if err := returned(late); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			for _, fn := range release {
				fn()
			}
			synctest.Wait()
		}
	})
}

// The announcement of a node that has passed counts after the node has crashed or left, and so does
// the entry of a node that is gone.
func TestR6BarrierCountsNodesThatEnteredAndWent(t *testing.T) {
	for how, end := range map[string]func(j *job){
		"crash": func(j *job) { _ = j.nodes[0].Abandon() },
		"leave": func(j *job) { j.leave(0) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJob(t, 3, nil)
				defer j.close()
				j.start()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := returned(enter(ctx, j.nodes[0], "b")); !errors.Is(err, errWaits) {
					t.Fatal(err)
				}
				end(j)
				<-time.After(20 * time.Second) // long enough to be lost
				j.each(func(_ int, r *router.Router) error { return r.Barrier(ctx, "b") }, 1, 2)
				err := j.nodes[1].Barrier(ctx, "b") // the next round it has not entered
				want := map[string]string{"crash": "node.0 will not enter it", "leave": "waits for node.2"}[how]
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("next round: %v, want %s", err, want)
				}
			})
		})
	}
}

// A newcomer takes over the rounds of its peers, so that its first call enters the same round as theirs.
func TestR6NewcomerTakesOverTheRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.PeerTimeout = time.Second })
		defer j.close()
		j.start()
		for range 3 {
			j.each(func(_ int, r *router.Router) error { return r.Barrier(t.Context(), "b") })
		}
		_ = j.nodes[1].Abandon()
		<-time.After(3 * time.Second)
		j.make(1, 2)
		j.start(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := enter(ctx, j.nodes[1], "b")
		if err := returned(late); !errors.Is(err, errWaits) {
			t.Errorf("the newcomer passes a round by itself: %v", err)
		}
		if err := j.nodes[0].Barrier(ctx, "b"); err != nil {
			t.Error(err)
		}
		if err := returned(late); err != nil {
			t.Error(err)
		}
	})
}

// A newcomer waits at barriers for the nodes that it has met, but not for one that left before.
func TestR6NewcomerWaitsForThePresentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		j.leave(1)
		_ = j.nodes[2].Abandon()
		<-time.After(20 * time.Second)
		j.make(2, 2)
		j.start(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		j.each(func(_ int, r *router.Router) error { return r.Barrier(ctx, "b") }, 0, 2)
	})
}

func TestR6BarrierNamesTheMissingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var errs [2]error
		j.each(func(id int, r *router.Router) error { errs[id] = r.Barrier(ctx, "b"); return nil }, 0, 1)
		for id, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `barrier "b" waits for node.2: `) {
				t.Errorf("node.%d: %v", id, err)
			}
		}
	})
}

// Nodes that are done wait for each other, and continue to receive meanwhile.
func TestDoneWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		j.start()
		done := make([]chan error, 3)
		finish := func(id int) {
			done[id] = make(chan error, 1) // one result
			go func() { done[id] <- j.nodes[id].Done(t.Context()) }()
		}
		finish(0)
		finish(1)
		for _, id := range []int{0, 1} {
			if err := returned(done[id]); !errors.Is(err, errWaits) {
				t.Errorf("node.%d: %v", id, err)
			}
		}
		for _, id := range []int{0, 2} { // a done node may still send
			if _, err := out[id].Send(t.Context(), router.Bytes(fmt.Sprint(id)), nil); err != nil {
				t.Error(err)
			}
		}
		<-time.After(35 * time.Second)
		if got := in[1].all(); got != "0 2" && got != "2 0" {
			t.Errorf("node.1 has received %q", got)
		}
		// The warning is due after 10 s and 20 s.
		if n := strings.Count(j.log.String(), `this node is done and waits for the others" at=0 missing=node.2 waited=`); n != 2 {
			t.Errorf("logged %d times:\n%s", n, j.log.String())
		}
		finish(2)
		for id := range done {
			if err := returned(done[id]); err != nil {
				t.Errorf("node.%d: %v", id, err)
			}
		}
	})
}

// A node that has left is not waited for; one that was done and is lost must be done again; a
// newcomer receives which nodes are done.
func TestDoneAndNodesThatGoAndCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, func(c *router.Config) { c.PeerTimeout = time.Second })
		defer j.close()
		j.start()
		wait := func(id int) <-chan error {
			out := make(chan error, 1) // one result
			go func() { out <- j.nodes[id].Done(t.Context()) }()
			return out
		}
		_, _, zero := wait(1), wait(2), wait(0)
		synctest.Wait()
		j.leave(1)
		_ = j.nodes[2].Abandon()
		<-time.After(3 * time.Second)
		three := wait(3)
		for name, c := range map[string]<-chan error{"node.0": zero, "node.3": three} {
			if err := returned(c); !errors.Is(err, errWaits) {
				t.Errorf("%s does not wait for the node that is lost: %v", name, err)
			}
		}
		j.make(2, 2)
		j.start(2)
		two := wait(2)
		for name, c := range map[string]<-chan error{"node.0": zero, "node.3": three, "node.2": two} {
			if err := returned(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestDoneNamesTheOthersWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		if err := j.nodes[0].Done(t.Context()); !errors.Is(err, router.ErrNotStarted) {
			t.Error(err)
		}
		j.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := j.nodes[0].Done(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "done, but not node.1, node.2: ") {
			t.Error(err)
		}
	})
}

// A barrier that a done node has not entered can never be passed.
func TestR6BarrierFailsAtOnceForADoneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		entered := enter(ctx, j.nodes[2], "entered") // it counts although the node is done afterwards
		synctest.Wait()
		go func() { _ = j.nodes[2].Done(ctx) }()
		synctest.Wait()
		j.each(func(_ int, r *router.Router) error { return r.Barrier(ctx, "entered") }, 0, 1)
		if err := returned(entered); err != nil {
			t.Error(err)
		}
		err := returned(enter(ctx, j.nodes[0], "b"))
		if want := `barrier "b": node.2 will not enter it: it is done with its own part of the job`; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		cancel()
	})
}

// A node that is leaving, and one that ends without having been done, are not waited
// for.
func TestDoneDoesNotWaitForNodesThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		done := make(chan error, 1) // one result
		go func() { done <- j.nodes[0].Done(t.Context()) }()
		if err := j.nodes[1].Leave(t.Context()); err != nil { // but does not close yet
			t.Error(err)
		}
		if err := returned(done); !errors.Is(err, errWaits) {
			t.Errorf("node.2 is not done: %v", err)
		}
		if err := errors.Join(j.nodes[2].Drain(t.Context(), false), j.nodes[2].Close()); err != nil {
			t.Error(err)
		}
		if err := returned(done); err != nil {
			t.Error(err)
		}
	})
}
