package router_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// farewell is the configuration of a process that sends the farewell of a node.
func (j *job) farewell(id int) router.Config {
	cfg := router.Config{
		Job: "j", Token: []byte("secret"), Node: id, Incarnation: 1, Expect: len(j.nodes), Transport: gate{j.gates, id},
		Listen: fmt.Sprint("mem://", id),
	}
	for k := range id {
		cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
	}
	if j.edit != nil {
		j.edit(&cfg)
	}
	return cfg
}

// failed reports whether an error means that the job has failed.
func failed(err error) bool { _, ok := errors.AsType[*router.FailedError](err); return ok }

// losses watches the losses of one node by the others.
func (j *job) losses(of int) map[int]chan error {
	out := map[int]chan error{}
	for id, r := range j.nodes {
		if id == of {
			continue
		}
		c := make(chan error, 16) // more than any of these tests makes
		out[id] = c
		r.Watch(func(ch router.Change) {
			if ch.Kind == router.Lost && ch.Peer.ID == of {
				c <- ch.Err
			}
		})
	}
	return out
}

// All nodes lose a node whose process has ended when another process sends its farewell: those that it
// dials, those that dial it, and those that receive its announcement from another node.
func TestR5AFarewellIsReceivedByAllNodes(t *testing.T) {
	oneAddress := func(c *router.Config) { c.Attach = c.Attach[:min(len(c.Attach), 1)] }
	star := func(c *router.Config) { c.Topology = router.Star; oneAddress(c) }
	for _, c := range []struct {
		name string
		edit func(*router.Config)
	}{{"mesh", nil}, {"mesh, node 0 dialled", oneAddress}, {"star", star}} {
		for _, dead := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s, node %d", c.name, dead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJob(t, 4, c.edit)
					defer j.close()
					lost := j.losses(dead)
					j.start()
					synctest.Wait()
					_ = j.nodes[dead].Abandon()
					began := time.Now()
					if err := router.SendFarewell(t.Context(), j.farewell(dead), "killed by signal: killed", false); err != nil {
						t.Error(err)
					}
					after(t, began, time.Second)
					for id, c := range lost {
						if err := <-c; !errors.Is(err, router.ErrLost) || failed(err) ||
							err.Error() != fmt.Sprintf("node.%d: lost: killed by signal: killed", dead) {
							t.Errorf("node.%d: %v", id, err)
						}
					}
					after(t, began, time.Second)
				})
			})
		}
	}
}

// The next incarnation joins after the farewell of the one before, and during it, and a
// late farewell does not concern it.
func TestAFarewellIsAboutAnIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		lost := j.losses(2)
		j.start()
		_ = j.nodes[2].Abandon()
		cfg := j.farewell(2)
		if err := router.SendFarewell(t.Context(), cfg, "exit code 3", false); err != nil {
			t.Error(err)
		}
		j.make(2, 2)
		j.start(2)
		synctest.Wait()
		j.together(0, 1, 2)
		cfg.Listen = "" // the new one has it
		if err := router.SendFarewell(t.Context(), cfg, "exit code 3", true); err != nil {
			t.Error(err)
		}
		<-time.After(10 * time.Second)
		j.together(0, 1, 2)
		for id, c := range lost {
			if len(c) != 1 {
				t.Errorf("node.%d: lost %d times", id, len(c))
			}
		}
	})
}

// A farewell that is final reports the loss of a failed job, even if the loss was reported before.
func TestAFinalFarewellReportsTheFailureOfTheJob(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, nil)
			defer j.close()
			lost := j.losses(2)
			j.start()
			_ = j.nodes[2].Abandon()
			if silent {
				<-time.After(time.Minute)
			}
			if err := router.SendFarewell(t.Context(), j.farewell(2), "node 2 failed: killed", true); err != nil {
				t.Error(err)
			}
			for id, c := range lost {
				if silent {
					if err := <-c; failed(err) {
						t.Errorf("node.%d: by silence: %v", id, err)
					}
				}
				if err := <-c; !failed(err) || !errors.Is(err, router.ErrLost) || err.Error() != "node.2: lost: node 2 failed: killed" {
					t.Errorf("node.%d: %v", id, err)
				}
			}
		})
	}
}

// Nodes that wait for a node whose process ended before it joined end with a final farewell; with any
// other they continue to wait for the next incarnation.
func TestAFarewellBeforeTheNodeWasMet(t *testing.T) {
	for _, final := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, nil)
			defer j.close()
			started := make(chan error, 2)
			for _, r := range j.nodes[:2] {
				go func() { started <- r.Start(t.Context(), nil) }()
			}
			synctest.Wait()
			if err := router.SendFarewell(t.Context(), j.farewell(2), "exit code 3", final); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if !final {
				j.make(2, 2)
				j.start(2)
			}
			for range 2 {
				if err := <-started; failed(err) != final || !final && err != nil {
					t.Errorf("final %v: %v", final, err)
				}
			}
		})
	}
}

// A node that has left in order is not lost by a farewell.
func TestAFarewellAfterALeaveIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		lost := j.losses(2)
		j.start()
		j.leave(2)
		if err := router.SendFarewell(t.Context(), j.farewell(2), "exit code 3", true); err != nil {
			t.Error(err)
		}
		<-time.After(2 * time.Second)
		for id, c := range lost {
			if len(c) > 0 {
				t.Errorf("node.%d: %v", id, <-c)
			}
		}
	})
}

// A farewell is received only from a process that has the job's token, and one that no node receives
// ends with its context.
func TestR7AFarewellNeedsTheToken(t *testing.T) {
	for _, edit := range []func(*router.Config){
		func(c *router.Config) { c.Token = []byte("another") },
		func(c *router.Config) { c.Attach = []string{"mem://9"} },
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, nil)
			defer j.close()
			lost := j.losses(1)
			j.start()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			cfg := j.farewell(1)
			cfg.Listen = ""
			edit(&cfg)
			if err := router.SendFarewell(ctx, cfg, "exit code 3", true); err == nil ||
				!strings.Contains(err.Error(), "no node has received the farewell of node.1 (mem://") {
				t.Error(err)
			}
			synctest.Wait()
			if len(lost[0]) > 0 {
				t.Error(<-lost[0])
			}
		})
	}
}

// The process that sends a farewell need not listen, if it dials a node.
func TestAFarewellWhoseAddressIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		lost := j.losses(1)
		j.start()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		cfg := j.farewell(1)
		cfg.Listen, cfg.Attach = "mem://0", nil
		if err := router.SendFarewell(ctx, cfg, "exit code 3", false); err == nil || !strings.HasPrefix(err.Error(), "listen on mem://0: ") {
			t.Error(err)
		}
		_ = j.nodes[1].Abandon()
		cfg.Attach = []string{"mem://0"}
		if err := router.SendFarewell(t.Context(), cfg, "exit code 3", false); err != nil {
			t.Error(err)
		}
		if err := <-lost[0]; !errors.Is(err, router.ErrLost) {
			t.Error(err)
		}
	})
}

// lateTransport is a network in which one address does not exist from the beginning.
type lateTransport struct {
	router.Transport
	addr  string
	there *atomic.Bool
}

func (c lateTransport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == c.addr && !c.there.Load() {
		return nil, errors.New("not yet")
	}
	return c.Transport.Dial(ctx, addr)
}

// In a job of unknown size, a farewell also reaches the nodes that are slow to receive it.
func TestAFarewellInAJobOfUnknownSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		_ = j.nodes[2].Abandon()
		cfg := j.farewell(2)
		late := lateTransport{cfg.Transport, "mem://1", new(atomic.Bool)}
		time.AfterFunc(100*time.Millisecond, func() { late.there.Store(true) })
		cfg.Expect, cfg.Transport = 0, late
		if err := router.SendFarewell(t.Context(), cfg, "exit code 3", false); err != nil {
			t.Error(err)
		}
		if !late.there.Load() {
			t.Error("it does not wait for node.1")
		}
	})
}

// A farewell that one node has received is no failure when its context ends, though others have
// not.
func TestAFarewellThatSomeHaveReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		_ = j.nodes[2].Abandon()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		cfg := j.farewell(2)
		cfg.Listen, cfg.Attach = "", []string{"mem://0"}
		if err := router.SendFarewell(ctx, cfg, "exit code 3", false); err != nil {
			t.Error(err)
		}
	})
}

// A farewell is sent again to a node that does not answer yet.
func TestAFarewellToANodeThatBeginsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		said := make(chan error, 1) // one result
		go func() { said <- router.SendFarewell(ctx, j.farewell(1), "exit code 3", true) }()
		<-time.After(5 * time.Second)
		if err := j.nodes[0].Start(ctx, nil); !failed(err) {
			t.Error(err)
		}
		if err := <-said; err != nil {
			t.Error(err)
		}
	})
}
