package router

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Announced nodes that never connect are called less often the more they are, and forgotten. A node that
// is announced again is called again.
func TestR7NodesNeverMetAreCalledAtABoundedRateAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		count := func() (all int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, c := range n.calls {
				all += c
			}
			return all
		}
		r, err := New(Config{Node: maxNode, Expect: 4, Transport: n, JoinTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = r.Start(t.Context(), nil) }()
		const ghosts = 2000
		for i := range ghosts {
			r.learn([]Member{{ID: i, Incarnation: 1, Addrs: []string{fmt.Sprint(i)}},
				{ID: i + ghosts, Incarnation: 1, Addrs: []string{strings.Repeat("x", maxAddr+1)}}}, 1)
		}
		synctest.Wait()
		first := count()
		<-time.After(time.Minute)
		if all := count() - first; first != ghosts || all > 60*callsPerSecond+ghosts {
			t.Errorf("%d calls at once, %d more in a minute", first, all)
		}
		r.mu.Lock()
		if n := len(r.trouble); n > ghosts {
			t.Errorf("%d addresses in trouble", n)
		}
		r.mu.Unlock()
		<-time.After(2 * time.Minute)
		all := count()
		<-time.After(time.Hour)
		r.mu.Lock()
		if len(r.known)+len(r.reached)+len(r.trouble) > 0 || count() != all {
			t.Errorf("%d nodes are remembered, %d called, %d addresses, %d calls in an hour", len(r.known), len(r.reached), len(r.trouble),
				count()-all)
		}
		r.mu.Unlock()
		r.learn([]Member{{ID: 1, Incarnation: 1, Addrs: []string{"again"}}}, 1)
		synctest.Wait()
		if n.mu.Lock(); n.calls["again"] != 1 {
			t.Errorf("%d calls of a node that became known again", n.calls["again"])
		}
		n.mu.Unlock()
		_ = r.Close()
	})
}

// A node is announced at ever new addresses. Only the error of the last address is kept.
func TestR7TroubleWithAddressesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		r, err := New(Config{Node: 5, Transport: n, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(100) {
			r.learn([]Member{{ID: 1, Incarnation: i + 1, Addrs: []string{fmt.Sprint(i)}}}, 1)
			<-time.After(2 * time.Second)
		}
		r.mu.Lock()
		if len(r.trouble) > 1 || len(n.calls) < 50 {
			t.Errorf("%d addresses in trouble, %d were called", len(r.trouble), len(n.calls))
		}
		r.mu.Unlock()
		_ = r.Close()
	})
}

// A node is announced by others and then met: the announcement is forgotten, and a member that was
// never met does not change which nodes are expected.
func TestR7NodesNeverMetAreNotMembers(t *testing.T) {
	r := openRouter(t, Config{Node: 1, Expect: 3})
	r.learn([]Member{{ID: 7, Incarnation: 1}, {ID: 2, Incarnation: 3}}, 0)
	r.mu.Lock()
	if ids, unknown := r.expected(); fmt.Sprint(ids) != "[0 2]" || unknown != 0 {
		t.Errorf("expected: %v and %d more", ids, unknown)
	}
	r.mu.Unlock()
	admitted(t, r, 2, 2)
	if _, ok := r.known[2]; !ok {
		t.Error("an older incarnation has connected, and the newer one is forgotten")
	}
	admitted(t, r, 2, 4)
	if _, ok := r.known[2]; ok {
		t.Error("a connected node is remembered as one that has not connected")
	}
}
