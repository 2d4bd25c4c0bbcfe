package router

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// A newer incarnation takes the place of the one that is connected, an older one is refused, and a
// node that is closing takes none.
func TestIncarnationsOfAConnectedNode(t *testing.T) {
	r := openRouter(t, Config{Node: 1})
	changes := make(chan Change, 1) // one loss
	r.Watch(func(c Change) { changes <- c })
	s, err := r.admit(hello{Node: 7, Incarnation: 5})
	if err != nil {
		t.Fatal(err)
	}
	if got, no := r.find(hello{Node: 7, Incarnation: 5}); got != s || no != nil {
		t.Errorf("the same: %v, %+v", got, no)
	}
	if got, no := r.find(hello{Node: 7, Incarnation: 4}); got != nil || no == nil || no.Code != RefuseStale {
		t.Errorf("an older one: %v, %+v", got, no)
	}
	if got, no := r.find(hello{Node: 7, Incarnation: 6}); got != nil || no != nil || r.peers[7] != nil {
		t.Errorf("a newer one: %v, %+v", got, no)
	}
	if c := <-changes; c.Kind != Lost || !errors.Is(c.Err, ErrReplaced) || c.Peer.Incarnation != 5 {
		t.Errorf("%+v", c)
	}
	r.closed = true
	if got, no := r.find(hello{Node: 7, Incarnation: 6}); got != nil || no == nil || no.Code != RefuseClosed {
		t.Errorf("closing: %v, %+v", got, no)
	}
	if _, err := r.admit(hello{Node: 7, Incarnation: 6}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := r.Channel(Spec{Name: "e"}, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := r.Start(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	r.closed = false
}

// A peer is new when it is admitted, however long this node has been there, and what was known of
// an older incarnation's address gives way to its own, if it has one.
func TestPeerThatIsAdmitted(t *testing.T) {
	for _, addrs := range [][]string{{"new"}, nil} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{})
			<-time.After(time.Minute)
			r.reached[7] = reaching{4, "old", false}
			r.reached[8] = reaching{6, "newest", false}
			for node := 7; node < 9; node++ {
				s, err := r.admit(hello{Node: node, Incarnation: 5, Addrs: addrs, Labels: []string{"actor"}})
				if err != nil || s.lastReceived.Load() != r.clock() || !slices.Equal(s.peer.Labels, []string{"actor"}) ||
					!slices.Equal(s.addrs, addrs) {
					t.Errorf("%+v, received at %d of %d, %v", s.peer, s.lastReceived.Load(), r.clock(), err)
				}
			}
			want := reaching{5, "new", false}
			if addrs == nil {
				want.addr = "old"
			}
			if r.reached[7] != want || r.reached[8] != (reaching{6, "newest", false}) {
				t.Errorf("%+v", r.reached)
			}
			delete(r.reached, 7)
		})
	}
}

// The state that is kept of a peer that has departed.
func TestStateOfADepartedPeer(t *testing.T) {
	for name, c := range map[string]struct {
		kind             ChangeKind
		ready, withdrawn bool
		left             bool // messages sent to it are not losses
	}{
		"lost": {Lost, true, false, false}, "lost before it was ready": {Lost, false, false, false},
		"lost as it leaves": {Lost, true, true, true}, "left": {Left, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRouter(t, Config{})
				ch := event(t, r, Spec{Name: "e"})
				<-time.After(time.Second)
				s := listener(t, r, 7, 5)
				s.ready, s.withdrawn, s.addrs, s.barriers["b"] = c.ready, c.withdrawn, []string{"a"}, 3
				woken := r.changed.wait()
				r.depart(s, c.kind, ErrLost)
				want := former{incarnation: 5, ready: c.ready, withdrawn: c.withdrawn, addrs: []string{"a"}, err: ErrLost}
				want.barriers = map[string]uint64{"b": 3}
				if c.kind == Lost {
					want.lostAt = r.clock()
					want.sayAt = want.lostAt + int64(10*time.Second)
				}
				if !reflect.DeepEqual(r.was[7], want) {
					t.Errorf("%+v, want %+v", r.was[7], want)
				}
				if r.peers[7] != nil || ch.c.absences[7].left != c.left || len(ch.c.targets.Load().out) != 0 {
					t.Errorf("connected %v, %+v", r.peers[7], ch.c.absences[7])
				}
				select {
				case <-woken:
				default:
					t.Error("the waiting goroutines are not woken")
				}
			})
		})
	}
}

// The late end of an older incarnation does not change the present one, and is reported once.
func TestOlderIncarnationGoesLate(t *testing.T) {
	r := openRouter(t, Config{})
	changes := 0
	r.Watch(func(Change) { changes++ })
	older := newSession(r, Peer{ID: 7, Incarnation: 1}, nil)
	newer, err := r.admit(hello{Node: 7, Incarnation: 2})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.depart(older, Lost, ErrLost)
	}
	if r.peers[7] != newer || changes != 1 {
		t.Errorf("connected %v, %d changes", r.peers[7], changes)
	}
}

// The end of a connection is logged while its session continues.
func TestLogOfTheEndOfAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(r *Router, s *session)
		says bool
	}{
		"goes on": {func(*Router, *session) {}, true},
		"lost":    {func(_ *Router, s *session) { s.err = ErrLost }, false},
		"closed":  {func(r *Router, _ *session) { r.closed = true }, false},
	} {
		var log logtest.Buffer
		r := openRouter(t, Config{})
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		s := newSession(r, Peer{ID: 7, Incarnation: 1}, nil)
		c.edit(r, s)
		r.linkEnded(s, io.ErrUnexpectedEOF)
		if got := strings.Contains(log.String(), `waiting for a new one" peer=node.7 err="unexpected EOF"`); got != c.says {
			t.Errorf("%s: %s", name, log.String())
		}
		r.closed = false
	}
}

// A peer that announces twice that it is ready joins once, and the waiting nodes are notified.
func TestPeerJoinsOnce(t *testing.T) {
	r := openRouter(t, Config{})
	var kinds []ChangeKind
	r.Watch(func(c Change) { kinds = append(kinds, c.Kind) })
	s, err := r.admit(hello{Node: 7, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []bool{true, false} {
		if r.peerReady(s, before); !r.runs(r.clock()) || !s.ready || !s.seenDue {
			t.Errorf("running %v, ready %v, answer due %v", r.runs(r.clock()), s.ready, s.seenDue)
		}
	}
	if !slices.Equal(kinds, []ChangeKind{Joined}) {
		t.Errorf("changes %v", kinds)
	}
}

// A leaf of a star whose hub is lost ends its pipes through the hub at once. A leaf whose hub has left
// in order does not, and neither does a node that has lost a peer which is no hub.
func TestPipesEndWithTheHub(t *testing.T) {
	for name, c := range map[string]struct {
		topology Topology
		lost     int
		kind     ChangeKind
		cut      bool
	}{
		"hub lost": {Star, 0, Lost, true}, "hub left": {Star, 0, Left, false}, "leaf lost": {Star, 2, Lost, false},
		"mesh": {Mesh, 0, Lost, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{Node: 3, Topology: c.topology, Attach: []string{"hub"}})
			r.attached["hub"] = 0
			all := map[int]*session{0: listener(t, r, 0, 1), 1: listener(t, r, 1, 1), 2: listener(t, r, 2, 1)}
			conn := newSlowConn()
			l, err := all[1].attach(conn, true, 0)
			if err != nil {
				t.Fatal(err)
			}
			r.depart(all[c.lost], c.kind, ErrLost)
			synctest.Wait()
			all[1].mu.Lock()
			if l.closed != c.cut || c.cut && !errors.Is(l.why, errHubLost) {
				t.Errorf("%s: cut %v: %v", name, l.closed, l.why)
			}
			all[1].mu.Unlock()
			l.close()
			close(conn.letGo)
		})
	}
}

// The peers are listed in the order of their ids, and so are those that an event goes to: all
// senders take their mutexes in that order.
func TestPeersAreInOrder(t *testing.T) {
	r := openRouter(t, Config{Node: 100})
	ch := event(t, r, Spec{Name: "e"})
	for node := range 20 {
		listener(t, r, node, 1).ready = true
	}
	var targets []int
	for _, o := range ch.c.targets.Load().out {
		targets = append(targets, o.s.peer.ID)
	}
	var peers []int
	for _, p := range r.Peers() {
		peers = append(peers, p.ID)
	}
	if !slices.IsSorted(targets) || !slices.IsSorted(peers) || len(targets) != 20 || len(peers) != 20 {
		t.Errorf("%v and %v", targets, peers)
	}
}

// In a star, only a leaf reaches announced nodes, and not the hub; a node that is alone
// reaches none.
func TestNodesThatAStarReaches(t *testing.T) {
	for name, c := range map[string]struct {
		node     int
		topology Topology
		want     []int
	}{"leaf": {3, Star, []int{1, 2}}, "hub": {0, Star, nil}, "alone": {3, Alone, nil}} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{Node: c.node, Topology: c.topology, Transport: &nowhere{calls: map[string]int{}}})
			for id := range 5 {
				r.learn([]Member{{ID: id, Incarnation: 1, Addrs: []string{fmt.Sprint(id)}}}, 9)
			}
			r.mu.Lock()
			var got []int
			for id := range r.reached {
				got = append(got, id)
			}
			known := len(r.known)
			r.mu.Unlock()
			if slices.Sort(got); !slices.Equal(got, c.want) || (known == 0) != (c.topology == Alone) {
				t.Errorf("%s: reaches %v, knows %d", name, got, known)
			}
		})
	}
}
