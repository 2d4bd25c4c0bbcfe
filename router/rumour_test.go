package router

import (
	"log/slog"
	"strings"
	"testing"
)

// A peer of a version without farewells receives none, one that has sent a farewell does not receive it
// again, and no peer receives it twice.
func TestAFarewellIsPassedOnOnce(t *testing.T) {
	r, err := New(Config{Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	sent := func(s *session) uint64 { s.mu.Lock(); defer s.mu.Unlock(); return s.log.sent }
	var peers [3]*session
	for i := range peers {
		h := hello{Node: i + 1, Incarnation: 1, Features: []string{featureFarewell}}
		if i == 1 {
			h.Features = nil
		}
		if peers[i], err = r.admit(h); err != nil {
			t.Fatal(err)
		}
	}
	var before [3]uint64
	for i, s := range peers {
		before[i] = sent(s)
	}
	for range 2 {
		for _, f := range []Farewell{
			{Node: 9, Incarnation: 5, Reason: strings.Repeat("é", 5000)}, {Node: 9, Incarnation: 4},
			{Node: 0, Incarnation: 7}, {Node: -1, Incarnation: 7},
		} {
			r.applyFarewell(f, 3)
		}
	}
	for i, want := range []uint64{1, 0, 0} {
		if n := sent(peers[i]) - before[i]; n != want {
			t.Errorf("sent node.%d %d frames, want %d", i+1, n, want)
		}
	}
}

// The number of remembered farewells is bounded.
func TestFarewellsOfMoreNodesThanThereCanBe(t *testing.T) {
	r, err := New(Config{Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for id := range 2 * maxPeers {
		r.applyFarewell(Farewell{Node: id + 1, Incarnation: 1}, 0)
	}
	r.mu.Lock()
	if len(r.farewells) != maxFormer {
		t.Errorf("%d", len(r.farewells))
	}
	r.mu.Unlock()
	_ = r.Close()
	if len(r.was) > maxFormer {
		t.Errorf("%d", len(r.was))
	}
	if r.applyFarewell(Farewell{Node: 1, Incarnation: 2}, 0); r.farewells[1].incarnation == 2 {
		t.Error("received after Close")
	}
}
