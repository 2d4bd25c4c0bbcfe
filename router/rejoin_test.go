package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// together fails the test unless the nodes are connected, each with all others.
func (j *job) together(ids ...int) {
	j.t.Helper()
	for _, id := range ids {
		var have []int
		for _, p := range j.nodes[id].Peers() {
			have = append(have, p.ID)
		}
		if len(have) != len(ids)-1 {
			j.t.Errorf("node.%d of %v is connected with %v", id, ids, have)
		}
	}
}

// In an elastic job every node returns after it has left, at its old address: node 0, which dials
// no node, and one whose address the others have only from each other.
func TestR2EveryNodeComesBackAfterItHasLeft(t *testing.T) {
	for _, attach := range []string{"all lower nodes", "node 0"} {
		for _, leaver := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s dialled, node %d leaves", attach, leaver), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJob(t, 3, func(c *router.Config) {
						c.Elastic = true
						if attach == "node 0" {
							c.Attach = c.Attach[:min(len(c.Attach), 1)]
						}
					})
					defer j.close()
					j.start()
					for incarnation := range 3 { // again and again
						j.leave(leaver)
						<-time.After(time.Hour) // after any time
						j.make(leaver, uint64(incarnation)+2)
						began := time.Now()
						j.start(leaver)
						if after := time.Since(began); after > 15*time.Second {
							t.Errorf("back after %v", after)
						}
						synctest.Wait()
						j.together(0, 1, 2)
					}
				})
			})
		}
	}
}

// All nodes of an elastic job are replaced, one after the other; the last one is found by
// the second although the first is absent.
func TestR2AnyMemberTakesANodeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, func(c *router.Config) { c.Elastic = true; c.Attach = c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		j.leave(0)
		j.leave(1)
		<-time.After(time.Minute)
		j.make(1, 2) // dials node 0, which is away: the others call its old address
		j.start(1)
		synctest.Wait()
		j.together(1, 2, 3)
		j.make(0, 2)
		j.start(0)
		synctest.Wait()
		j.together(0, 1, 2, 3)
	})
}

// A node that returns at another address finds the job through any member that it
// reaches, and the connections with it are kept: not only those of its first incarnation.
func TestR2NodeComesBackAtAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, func(c *router.Config) { c.Elastic = true })
		defer j.close()
		j.start()
		j.leave(1)
		j.edit = func(c *router.Config) {
			c.Elastic, c.Listen, c.Attach = true, "mem://17", []string{"mem://3"}
		}
		j.make(1, 2)
		j.start(1)
		synctest.Wait()
		j.together(0, 1, 2, 3)
		for range 3 {
			j.gates.cut(1)
			j.gates.cut(17)
			<-time.After(5 * time.Second)
			j.together(0, 1, 2, 3)
		}
		if log := j.log.String(); strings.Contains(log, "was lost") {
			t.Error(log)
		}
	})
}

// A job that is not elastic does not call a node that has left.
func TestNodeThatLeftIsNotCalledInAFixedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		j.leave(0)
		<-time.After(time.Second)
		before := j.nodes[2].Stats()
		<-time.After(time.Minute)
		if after := j.nodes[2].Stats(); after.DialsFailed != before.DialsFailed {
			t.Errorf("%d calls", after.DialsFailed-before.DialsFailed)
		}
	})
}

// The same where the node that left had made the connection, and calls of it had failed.
func TestNodeThatLeftIsNotCalledAfterItsOwnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.Attach = []string{fmt.Sprint("mem://", 1-c.Node)} })
		defer j.close()
		var all sync.WaitGroup
		all.Go(func() { j.start(1) })
		synctest.Wait() // node 1 has called, and no node answered
		j.start(0)
		all.Wait()
		j.leave(0)
		<-time.After(time.Second)
		before := j.nodes[1].Stats()
		<-time.After(time.Minute)
		if after := j.nodes[1].Stats(); after.DialsFailed != before.DialsFailed {
			t.Errorf("%d calls", after.DialsFailed-before.DialsFailed)
		}
	})
}

// An address where a node has left is called at growing intervals, up to 5 s, even if the node had
// announced another address.
func TestCallsOfANodeThatLeftAreFew(t *testing.T) {
	for _, advertise := range []string{"", "mem://10"} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, func(c *router.Config) {
				if c.Elastic = true; c.Node == 0 {
					c.Advertise = advertise
				}
			})
			defer j.close()
			j.start()
			j.leave(0)
			<-time.After(time.Minute)
			before := j.nodes[1].Stats().DialsFailed
			<-time.After(100 * time.Second)
			if n := j.nodes[1].Stats().DialsFailed - before; n < 19 || n > 21 {
				t.Errorf("%d calls in 100 s, want one every 5 s", n)
			}
		})
	}
}

// A node that waits for others, or has no peer left, logs that repeatedly.
func TestLogOfANodeThatIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.Elastic = true })
		defer j.close()
		j.start()
		j.leave(0)
		<-time.After(time.Hour)
		if n := strings.Count(j.log.String(), `level=WARN msg="no other node of the job is connected" at=1 expected=1 `); n < 4 || n > 10 {
			t.Errorf("logged %d times:\n%s", n, j.log.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		j.edit = func(c *router.Config) { c.Elastic, c.Transport = true, gate{newGates(), 0} } // another network
		r := j.make(0, 2)
		if err := r.Start(ctx, nil); err == nil || !strings.Contains(err.Error(), "waited for node.1") {
			t.Errorf("it starts without peers: %v", err)
		}
	})
}

// A node is found by a lower one, which it does not dial, while the node that it dials is
// away.
func TestR2LowerNodeTakesAHigherOneBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Elastic = true; c.Attach = c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		j.leave(0)
		j.leave(2)
		<-time.After(time.Minute)
		j.make(2, 2)
		j.start(2)
		synctest.Wait()
		j.together(1, 2)
	})
}

// The address of a node that has left goes to another node. The first one comes back
// elsewhere, and is reached there.
func TestR2AddressThatGoesToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := func(c *router.Config) { c.Elastic = true; c.Attach = c.Attach[:min(len(c.Attach), 1)] }
		j := newJob(t, 5, func(c *router.Config) { first(c); c.Expect = 4 })
		defer j.close()
		j.start(0, 1, 2, 3)
		j.leave(1)
		j.edit = func(c *router.Config) { first(c); c.Listen = "mem://1" }
		j.make(4, 1)
		j.start(4)
		<-time.After(time.Minute)
		j.edit = func(c *router.Config) { first(c); c.Listen = "mem://11" }
		j.make(1, 2)
		j.start(1)
		<-time.After(time.Minute)
		j.together(0, 1, 2, 3, 4)
	})
}

// Where nodes that leave are not called, one that comes back is still reached by the nodes
// that learn of it.
func TestR2NodeIsReachedAgainWhenItIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Attach = c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		for incarnation := range uint64(2) {
			j.leave(1)
			<-time.After(time.Second)
			j.make(1, incarnation+2)
			j.start(1)
			<-time.After(time.Second)
			j.together(0, 1, 2)
		}
	})
}

// A node that another one has announced is called once, and not again while it is connected.
func TestNodeThatWasAnnouncedIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Attach = c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		<-time.After(time.Minute)
		j.gates.mu.Lock()
		defer j.gates.mu.Unlock()
		calls := 0
		for _, c := range j.gates.conns {
			if c.from == 2 && c.to == 1 {
				calls++
			}
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}
