package router

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hubOf is the hub of a star with that many leaves, from node 1 on.
func hubOf(t *testing.T, leaves int) *Router {
	t.Helper()
	hub := openRouter(t, Config{Topology: Star})
	for id := range leaves {
		if _, err := hub.admit(hello{Node: id + 1, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return hub
}

// tube is what one leaf has of a pipe through the hub.
type tube struct {
	net.Conn
	ended chan string // the hub's last message
}

// asks makes a leaf ask the hub for a pipe, and the other leaf call back if answers is set. It
// returns both ends.
func asks(t *testing.T, hub *Router, from, to int, answers bool) (ends [2]tube) {
	var near [2]net.Conn
	for i := range ends {
		mine, theirs := net.Pipe()
		near[i] = mine
		ends[i] = tube{theirs, make(chan string, 1)} // one result
		t.Cleanup(func() { _ = theirs.Close() })
		go func() { b, _ := io.ReadAll(theirs); ends[i].ended <- string(b) }()
	}
	go func() {
		if kept, _ := hub.relay(near[0], hello{Node: from, Incarnation: 1, Target: to}); !kept {
			_ = near[0].Close()
		}
	}()
	synctest.Wait()
	if !answers {
		return ends
	}
	hub.mu.Lock()
	var ticket string
	for k := range hub.tickets {
		ticket = k
	}
	hub.mu.Unlock()
	if kept, _ := hub.relayed(near[1], hello{Node: to, Incarnation: 1, Ticket: ticket}); !kept {
		_ = near[1].Close()
	}
	synctest.Wait()
	return ends
}

func (c tube) open() bool {
	synctest.Wait()
	return len(c.ended) == 0
}

func (r *Router) pipeCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pipes)
}

// A leaf has one pipe to each other leaf: when it asks again, the one before ends.
func TestR7LeafHasOnePipeToEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := hubOf(t, 3)
		other := asks(t, hub, 1, 3, true)
		back := asks(t, hub, 2, 1, true)
		var all [][2]tube
		for range 20 {
			all = append(all, asks(t, hub, 1, 2, true))
			all = append(all, asks(t, hub, 1, 2, false)) // and one that is never answered
		}
		last := asks(t, hub, 1, 2, true)
		for i, p := range all {
			if p[0].open() || i%2 == 0 && p[1].open() {
				t.Errorf("pipe %d is open", i)
			}
		}
		for name, p := range map[string][2]tube{"the last one": last, "to another leaf": other, "of the other leaf": back} {
			if !p[0].open() || !p[1].open() {
				t.Errorf("%s is closed", name)
			}
		}
		if n := hub.pipeCount(); n != 3 || len(hub.tickets) != 0 {
			t.Errorf("%d pipes, %d tickets", n, len(hub.tickets))
		}
		_ = last[0].Close()
		if last[1].open() || hub.pipeCount() != 2 {
			t.Errorf("%d pipes when one has ended", hub.pipeCount())
		}
	})
}

// The pipes of a leaf that is gone end, when there was time to read what it had sent.
func TestR7PipesOfALeafThatIsGoneEnd(t *testing.T) {
	for _, gone := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			hub := hubOf(t, 3)
			p, others := asks(t, hub, 1, 2, true), asks(t, hub, 3, 1+2-gone, true)
			hub.mu.Lock()
			s := hub.peers[gone]
			hub.mu.Unlock()
			hub.lose(s, ErrLost)
			<-time.After(hubWithin - time.Millisecond)
			if !p[0].open() {
				t.Error("the pipe is closed at once")
			}
			<-time.After(2 * time.Millisecond)
			if p[0].open() || p[1].open() || !others[0].open() || hub.pipeCount() != 1 {
				t.Errorf("open: %v, %v, another one: %v; %d pipes", p[0].open(), p[1].open(), others[0].open(), hub.pipeCount())
			}
		})
	}
}

// The hub makes a bounded number of pipes; a leaf that has one may ask again.
func TestR7PipesOfAHubAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := hubOf(t, 3)
		old := asks(t, hub, 1, 2, true)
		for i := range maxPipes - 1 {
			hub.pipes[pipeKey{i, -1}] = &pipe{end: func() {}}
		}
		if p := asks(t, hub, 2, 3, false); p[0].open() {
			t.Error("one more pipe is in the making")
		} else if got := <-p[0].ended; !strings.Contains(got, "the hub connects as many as it can just now") {
			t.Error(got)
		}
		again := asks(t, hub, 1, 2, true)
		if old[0].open() || !again[0].open() || hub.pipeCount() != maxPipes {
			t.Errorf("open: %v, %v; %d pipes", old[0].open(), again[0].open(), hub.pipeCount())
		}
	})
}

// A node that is not the hub does not pass a leaf's call on: the other node would treat that as malformed,
// and lose this one.
func TestR7NodeThatIsNoHubMakesNoPipe(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		hub  int // the node that answered at the attach address
		asks bool
	}{
		"of a mesh":          {Config{}, 0, false},
		"a leaf, to a leaf":  {Config{Topology: Star, Attach: []string{"hub"}}, 9, true},
		"a leaf, to its hub": {Config{Topology: Star, Attach: []string{"hub"}}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRouter(t, c.cfg)
				r.attached["hub"] = c.hub
				for id := range 2 {
					if _, err := r.admit(hello{Node: id + 1, Incarnation: 1}); err != nil {
						t.Fatal(err)
					}
				}
				before := r.peers[2].log.sent
				p := asks(t, r, 1, 2, false)
				if sent := r.peers[2].log.sent > before; sent != c.asks {
					t.Errorf("node 2 is called: %v", sent)
				}
				if !c.asks {
					if got, want := <-p[0].ended, fmt.Sprintf("node.%d makes no pipe from node.1 to node.2", r.cfg.Node); !strings.Contains(got, want) {
						t.Errorf("%s, want %s", got, want)
					}
				}
			})
		})
	}
}
