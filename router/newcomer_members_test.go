package router

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A newcomer waits for an expected member that it has not met for half of the time that it has to
// join, and for any other as long as a peer may be silent.
func TestR7MissingMemberDoesNotDelayOthers(t *testing.T) {
	for _, c := range []struct {
		id         int
		join, want time.Duration
	}{
		{7, time.Minute, 8 * time.Second},
		{3, time.Minute, 30 * time.Second},
		{3, 10 * time.Second, 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{Node: 2, Expect: 4, PeerTimeout: 8 * time.Second, Heartbeat: time.Second, JoinTimeout: c.join})
			for id := range 2 {
				s := admitted(t, r, id, 1)
				r.peerReady(s, true)
				r.note(func() { s.seen = true })
			}
			r.learn([]Member{{ID: c.id, Incarnation: 1}}, 0)
			r.wg.Go(r.tick)
			began := time.Now()
			err := r.await(t.Context(), func() (bool, error) { return len(r.lacks(r.clock())) == 0, nil })
			if took := time.Since(began); err != nil || took <= c.want || took > c.want+time.Second {
				t.Errorf("node.%d: waited %v, want %v: %v", c.id, took, c.want, err)
			}
		})
	}
}

// One member of four announces that the job runs, and announces no other member: the newcomer waits
// until it has met the other members as well, however late they are, while a running one can still arrive.
func TestR7OneMemberAloneDoesNotStartANewcomer(t *testing.T) {
	for _, c := range []struct {
		name         string
		node, expect int
		attach       []string
		said         []int // peers that announce that the job runs
		wait         time.Duration
	}{
		{"one that is not expected", 1, 4, nil, []int{4}, 8 * time.Second},
		{"many that are not expected", 1, 4, nil, []int{4, 5, 6, 7}, 8 * time.Second},
		{"one of three", 1, 4, nil, []int{0}, 8 * time.Second},
		{"two of three", 1, 4, nil, []int{0, 2}, 0},
		{"one of two", 1, 3, nil, []int{0}, 8 * time.Second},
		{"the other one", 1, 2, nil, []int{0}, 0},
		{"an additional node, two of three", 9, 3, nil, []int{0, 1}, 0},
		{"an additional node, one of three", 9, 3, nil, []int{0}, 8 * time.Second},
		{"no number, an address that does not answer", 1, 0, []string{"mem://8"}, []int{0}, 8 * time.Second},
		{"no number, no address", 1, 0, nil, []int{0}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRouter(t, Config{
					Node: c.node, Expect: c.expect, Attach: c.attach, PeerTimeout: 8 * time.Second,
					Heartbeat: time.Second, JoinTimeout: time.Hour,
				})
				for _, id := range c.said {
					s := admitted(t, r, id, 1)
					r.peerReady(s, true)
					r.note(func() { s.seen = true })
				}
				r.wg.Go(r.tick)
				began := time.Now()
				err := r.await(t.Context(), func() (bool, error) { return len(r.lacks(r.clock())) == 0, nil })
				if took := time.Since(began); err != nil || took < c.wait || took > c.wait+time.Second {
					t.Errorf("waited %v, want %v; %v", took, c.wait, err)
				}
			})
		})
	}
}

// A false member is not believed once all expected nodes have been met: a barrier waits for all of
// them.
func TestR7MembersOfANewcomerAreTheExpectedOnes(t *testing.T) {
	r := openRouter(t, Config{Node: 1, Expect: 4})
	for _, id := range []int{4, 0, 2, 3} {
		s := admitted(t, r, id, 1)
		r.peerReady(s, id == 4)
		r.note(func() { s.seen = true })
	}
	if err := r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.note(func() { r.peers[0].ready = false })
	if got := r.members(); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("members %v", got)
	}
}
