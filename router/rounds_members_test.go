package router

import (
	"fmt"
	"strings"
	"testing"
)

// The number of a barrier's round does not wrap around.
func TestBarrierHasALastRound(t *testing.T) {
	r := openRouter(t, Config{})
	r.rounds["b"] = maxRound - 1
	if err := r.Barrier(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if err := r.Barrier(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "is the last one") || r.rounds["b"] != maxRound {
		t.Errorf("%v, round %d", err, r.rounds["b"])
	}
}

// A newcomer takes over the newest round that its members can have, whatever one of them announces.
func TestR7RoundsThatANewcomerTakesOver(t *testing.T) {
	for _, c := range []struct {
		name    string
		members []uint64 // rounds; 0: it announces none
		want    uint64
	}{
		{"one member", []uint64{57}, 57},
		{"members in one round", []uint64{57, 57, 57}, 57},
		{"one is ahead, in a barrier", []uint64{57, 58, 57}, 58},
		{"one is behind", []uint64{58, 57, 58, 58}, 58},
		{"of two one is ahead", []uint64{57, 58}, 58},
		{"the first round", []uint64{0, 1, 0}, 1},
		{"no round", []uint64{0, 0}, 0},
		{"one of three says nonsense", []uint64{57, maxRound, 58}, 58},
		{"one of two says nonsense", []uint64{maxRound, 57}, 57},
		{"one of three says nothing", []uint64{57, 0, 58}, 58},
		{"only one of three says anything", []uint64{0, maxRound, 0}, 0},
		{"two of five", []uint64{maxRound, 57, 57, maxRound, 58}, 58},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openRouter(t, Config{Node: 99, Expect: len(c.members)})
			var all []*session
			for id, round := range c.members {
				s := admitted(t, r, id, 1)
				if round > 0 {
					if err := r.receiveBarrier(s, false, fmt.Appendf(nil, `{"name":"b","round":%d}`, round)); err != nil {
						t.Fatal(err)
					}
				}
				r.peerReady(s, true)
				r.note(func() { s.seen = true })
				if err := r.receiveBarrier(s, false, []byte(`{"name":"later","round":9}`)); err != nil { // it is no member of that
					t.Fatal(err)
				}
				all = append(all, s)
			}
			before := all[0].log.sent
			if err := r.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if r.rounds["b"] != c.want || r.rounds["later"] != 0 || r.offers != nil {
				t.Errorf("round %d, want %d", r.rounds["b"], c.want)
			}
			if told := all[0].log.sent - before; told != min(c.want, 1) {
				t.Errorf("its peers were notified %d times", told)
			}
		})
	}
}

// A member that leaves lags behind, and counts only if there is no other one. A member that was lost
// since counts.
func TestRoundsOfMembersThatLeave(t *testing.T) {
	for _, others := range []bool{true, false} {
		r := openRouter(t, Config{Node: 99, Expect: 100})
		rounds := []uint64{50, 50, 50, 70, 70}
		if !others {
			rounds = rounds[:3]
		}
		for id, round := range rounds {
			s := admitted(t, r, id, 1)
			if err := r.receiveBarrier(s, false, fmt.Appendf(nil, `{"name":"b","round":%d}`, round)); err != nil {
				t.Fatal(err)
			}
			r.peerReady(s, true)
			r.note(func() { s.seen = true })
			switch id {
			case 0, 1:
				r.peerLeaves(s)
			case 2:
				r.depart(s, Left, errLeft)
			case 3:
				r.lose(s, ErrLost)
			}
		}
		if err := r.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if want := rounds[len(rounds)-1]; r.rounds["b"] != want {
			t.Errorf("round %d, want %d", r.rounds["b"], want)
		}
	}
}

// Of the rounds that a peer which is gone had entered, those that this node is in are kept.
func TestRoundsOfAPeerThatIsGone(t *testing.T) {
	r := openRouter(t, Config{})
	s := admitted(t, r, 7, 1)
	for i := range 10 * maxUnfinished {
		s.barriers[fmt.Sprint(i)] = 1
	}
	r.rounds["5"], r.rounds["6"], r.passed["6"] = 1, 1, 1
	got := r.unfinished(s)
	if len(got) != maxUnfinished || got["5"] != 1 || got["6"] != 0 {
		t.Errorf("%d rounds, %v", len(got), got)
	}
}
