package router

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// presence is a roster without sessions.
type presence map[int]*member

func (c presence) of(id int) *member            { return c[id] }
func (c presence) all() iter.Seq2[int, *member] { return maps.All(c) }
func (c presence) count() int                   { return len(c) }

// add makes nodes present, in incarnation 5, ready and with an address.
func (c presence) add(ids ...int) {
	for _, id := range ids {
		c[id] = &member{peer: Peer{ID: id, Incarnation: 5}, addrs: []string{fmt.Sprint("at", id)}, ready: true, seen: true}
	}
}

// rules is the membership of one node, and the peers that it sees.
func rules(cfg Config) (*membership, presence) {
	cfg.ensureDefaults()
	c := presence{}
	m := newMembership(&cfg, c)
	return &m, c
}

// secs is a clock.
func secs(n float64) int64 { return int64(n * float64(time.Second)) }

// Of the incarnations of a node the newest counts. One that has left, or was lost, does
// not return; a newer one does.
func TestRuleOfIncarnations(t *testing.T) {
	for name, c := range map[string]struct {
		present        bool // in incarnation 5
		was            former
		incarnation    uint64
		same, replaces bool
		code           string
	}{
		"an unknown node":             {incarnation: 1},
		"connected":                   {present: true, incarnation: 5, same: true},
		"older than a peer":           {present: true, incarnation: 4, code: RefuseStale},
		"newer than a peer":           {present: true, incarnation: 6, replaces: true},
		"has left":                    {was: former{incarnation: 5, err: errLeft}, incarnation: 5, code: RefuseClosed},
		"was given up":                {was: former{incarnation: 5, err: ErrLost}, incarnation: 5, code: RefuseLost},
		"older than one that is gone": {was: former{incarnation: 5, err: ErrLost}, incarnation: 4, code: RefuseStale},
		"older than one said to be gone, but alive": {was: former{incarnation: 5, hearsay: true, err: ErrLost}, incarnation: 4},
		"said to be gone":         {was: former{incarnation: 5, hearsay: true, err: ErrLost}, incarnation: 5, code: RefuseLost},
		"newer than one gone":     {was: former{incarnation: 5, err: ErrLost}, incarnation: 6},
		"back, and then older":    {present: true, was: former{incarnation: 4, err: ErrLost}, incarnation: 4, code: RefuseStale},
		"back, and in touch":      {present: true, was: former{incarnation: 4, err: ErrLost}, incarnation: 5, same: true},
		"newer than what is back": {present: true, was: former{incarnation: 4, err: ErrLost}, incarnation: 7, replaces: true},
	} {
		m, peers := rules(Config{Node: 1})
		if c.present {
			peers.add(3)
		}
		if c.was.incarnation > 0 {
			m.was[3] = c.was
		}
		same, replaces, no := m.classify(3, c.incarnation)
		code := ""
		if no != nil {
			code = no.Code
		}
		if same != c.same || replaces != c.replaces || code != c.code {
			t.Errorf("%s: same %v, replaces %v, refused %q", name, same, replaces, code)
		}
	}
}

// The number of a node's peers is bounded, and so is how often one node joins.
func TestRuleOfAdmission(t *testing.T) {
	m, peers := rules(Config{Node: 1, Expect: 4})
	for n := range newsBurst + 1 {
		if err := m.admits(3, 0); (err != nil) != (n == newsBurst) {
			t.Errorf("join %d: %v", n, err)
		}
	}
	if err := m.admits(3, secs(1)); err != nil {
		t.Errorf("a second later: %v", err)
	}
	for id := range maxPeers {
		peers[id+10] = &member{}
	}
	if err := m.admits(2, 0); err == nil || !strings.Contains(err.Error(), "takes no more") {
		t.Errorf("%v", err)
	}
}

// Of two nodes that are announced to each other, the one with the higher id calls.
func TestRuleOfAnnouncements(t *testing.T) {
	wall := time.Unix(1e9, 0)
	soon := uint64(wall.Add(time.Hour).UnixNano())
	for name, c := range map[string]struct {
		cfg   Config
		edit  func(m *membership, peers presence)
		told  Member
		calls []call
		ahead []int
		known bool
	}{
		"a lower one":         {Config{Node: 4}, nil, Member{3, 5, []string{"a", "b"}}, []call{{3, 5, "a"}}, nil, true},
		"a higher one":        {Config{Node: 2}, nil, Member{3, 5, []string{"a"}}, nil, nil, true},
		"this one":            {Config{Node: 3}, nil, Member{3, 5, []string{"a"}}, nil, nil, false},
		"no id":               {Config{Node: 3}, nil, Member{-1, 5, []string{"a"}}, nil, nil, false},
		"too high an id":      {Config{Node: 3}, nil, Member{maxNode + 1, 5, nil}, nil, nil, false},
		"without an address":  {Config{Node: 4}, nil, Member{3, 5, nil}, nil, nil, true},
		"too long an address": {Config{Node: 4}, nil, Member{3, 5, []string{strings.Repeat("x", maxAddr+1)}}, nil, nil, true},
		"of a star":           {Config{Node: 4, Topology: Star}, nil, Member{3, 5, nil}, []call{{3, 5, ""}}, nil, true},
		"the hub of a star":   {Config{Node: 4, Topology: Star}, nil, Member{0, 5, []string{"a"}}, nil, nil, true},
		"in an hour":          {Config{Node: 4}, nil, Member{3, soon, []string{"a"}}, []call{{3, soon, "a"}}, nil, true},
		"from the far future": {
			Config{Node: 4, Incarnation: 1}, nil,
			Member{3, soon + uint64(maxAhead), []string{"a"}}, nil, []int{3}, false,
		},
		"told of before": {
			Config{Node: 4}, func(m *membership, _ presence) { m.known[3] = rumour{incarnation: 5} },
			Member{3, 5, []string{"a"}}, nil, nil, true,
		},
		"newer than told of": {
			Config{Node: 4}, func(m *membership, _ presence) { m.known[3] = rumour{incarnation: 4} },
			Member{3, 5, []string{"a"}}, []call{{3, 5, "a"}}, nil, true,
		},
		"connected": {
			Config{Node: 4}, func(_ *membership, p presence) { p.add(3) },
			Member{3, 5, []string{"a"}}, nil, nil, false,
		},
		"newer than connected": {
			Config{Node: 4}, func(_ *membership, p presence) { p.add(3) },
			Member{3, 6, []string{"a"}}, []call{{3, 6, "a"}}, nil, true,
		},
		"gone": {
			Config{Node: 4}, func(m *membership, _ presence) { m.was[3] = former{incarnation: 5} },
			Member{3, 5, []string{"a"}}, nil, nil, false,
		},
		"too many": {Config{Node: 4}, func(m *membership, _ presence) {
			for id := range maxPeers {
				m.known[id+10] = rumour{}
			}
		}, Member{3, 5, []string{"a"}}, nil, nil, false},
	} {
		if c.cfg.Incarnation == 0 {
			c.cfg.Incarnation = 2
		}
		m, peers := rules(c.cfg)
		if c.edit != nil {
			c.edit(m, peers)
		}
		calls, ahead := m.learn([]Member{c.told}, secs(7), wall)
		if _, known := m.known[c.told.ID]; !slices.Equal(calls, c.calls) || !slices.Equal(ahead, c.ahead) || known != c.known {
			t.Errorf("%s: calls %v, ahead %v, known %v", name, calls, ahead, known)
		}
	}
}

// An announced node is forgotten when it has connected, or has not connected in time, and then it is not called
// any more.
func TestRuleOfDoubt(t *testing.T) {
	m, peers := rules(Config{Node: 9, JoinTimeout: 10 * time.Second})
	calls, _ := m.learn([]Member{{1, 5, []string{"a"}}, {2, 5, []string{"b"}}, {3, 5, []string{"c"}}}, 0, time.Unix(1, 0))
	for _, c := range calls {
		if !m.reach(c) || m.reach(c) {
			t.Errorf("the calls of node.%d do not begin once", c.id)
		}
	}
	peers.add(1)
	m.met(peers[1])
	peers.add(3)
	peers[3].peer.Incarnation = 6
	m.met(peers[3])
	if len(m.known) != 1 || m.reached[3] != (reaching{incarnation: 6, addr: "at3"}) || m.calledInVain() != 1 {
		t.Errorf("known %v, called %v", m.known, m.reached)
	}
	if look := m.doubt(secs(20)); !look || len(m.known) != 1 || m.reached[2].over {
		t.Errorf("doubted too early: %v, %v", look, m.known)
	}
	if look := m.doubt(secs(20) + 1); !look || len(m.known) != 0 || !m.reached[2].over || m.reached[1].over {
		t.Errorf("believed too long: %v, %+v", look, m.reached)
	}
	if m.doubt(secs(30)) {
		t.Error("a Start that does not wait for the node checks again")
	}
	m.runningAt = 1
	if !m.doubt(secs(30)) {
		t.Error("a Start in a running job does not check again")
	}
	if m.start(secs(30)); m.doubt(secs(31)) {
		t.Error("there is no Start any more")
	}
}

// A newcomer waits for all expected nodes, unless more than half of them agree that the job runs, or
// one announces that and the others have not come in time. Then it waits for the present nodes, and
// for a while for those that others have announced.
func TestRuleOfANewcomersWait(t *testing.T) {
	m, peers := rules(Config{Node: 4, Expect: 5, PeerTimeout: 8 * time.Second, JoinTimeout: time.Minute})
	at := func(now float64, want ...string) {
		t.Helper()
		if got := m.lacks(secs(now)); !slices.Equal(got, want) {
			t.Errorf("after %v s it lacks %v, want %v", now, got, want)
		}
	}
	at(0, "node.0", "node.1", "node.2", "node.3")
	peers.add(0, 1)
	peers[1].seen = false
	at(1, "node.1 (connected, not ready)", "node.2", "node.3")
	peers[1].seen = true
	peers[0].ready = false
	if !m.isReady(peers[0], true, secs(1)) || m.isReady(peers[0], true, secs(2)) {
		t.Error("a peer does not join once")
	}
	m.trouble["x"] = "no answer"
	at(2, "node.2", "node.3 (x: no answer)")
	_, _ = m.learn([]Member{{2, 5, nil}, {7, 5, nil}}, secs(3), time.Unix(1, 0))
	at(8.9, "node.2", "node.3 (x: no answer)")
	at(9, "node.2", "node.7") // one peer has said 8 s ago that the job runs
	at(12, "node.2")          // as node.7 is not expected, it has 8 s; node.2 has 30 s
	at(33, "node.2")
	at(33.1)
	_ = m.isReady(peers[1], true, secs(34))
	peers.add(2)
	_ = m.isReady(peers[2], true, secs(34))
	m.runningAt = secs(34)
	at(34) // three of four agree
	if m.start(secs(34)); !m.running || m.readyAt != secs(34) || !m.joining(secs(65)) || m.joining(secs(66)) {
		t.Errorf("running %v since %d", m.running, m.readyAt)
	}
	delete(peers, 2)
	m.was[2] = former{incarnation: 5, lostAt: 1, err: ErrLost}
	m.was[3] = former{incarnation: 5, err: errLeft}
	if got := m.members(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("members %v", got)
	}
	peers[1].done = true
	if got := m.undone(); !slices.Equal(got, []string{"node.0", "node.2"}) {
		t.Errorf("undone %v", got)
	}
}

// Without a number of expected nodes the attach addresses count: each has to answer, or to fail
// in a job that runs.
func TestRuleOfANewcomersWaitForAddresses(t *testing.T) {
	m, peers := rules(Config{Node: 4, Attach: []string{"a", "b"}})
	peers.add(0)
	peers[0].running = true
	m.attached["a"] = 0
	if got := m.lacks(1); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v", got)
	}
	m.runningAt = 1
	if m.runs(2) {
		t.Error("an address has neither answered nor failed")
	}
	m.trouble["b"] = "no answer"
	if got := m.lacks(2); len(got) > 0 || !m.runs(2) {
		t.Errorf("%v", got)
	}
}

// The state that is kept of a departed node has the reason of its end. The oldest states are forgotten, but not
// those of nodes that have returned or are expected.
func TestRuleOfTheFormer(t *testing.T) {
	m, peers := rules(Config{Node: 0, Expect: 2})
	peers.add(1, 5)
	one := peers[1]
	delete(peers, 1)
	if forgotten := m.left(one, Lost, ErrLost, map[string]uint64{"b": 2}, secs(3)); forgotten != nil {
		t.Errorf("forgotten %v", forgotten)
	}
	if f := m.was[1]; f.lostAt != secs(3) || f.sayAt != secs(3)+int64(logAfter) || !f.ready || f.barriers["b"] != 2 ||
		!errors.Is(f.err, ErrLost) || f.addrs[0] != "at1" || len(m.formers) != 0 {
		t.Errorf("%+v, %v", f, m.formers)
	}
	if _ = m.left(one, Left, errLeft, nil, secs(3)); m.was[1].lostAt != 0 {
		t.Error("a node that has left was lost")
	}
	for id := range maxFormer {
		if forgotten := m.left(&member{peer: Peer{ID: id + 5}}, Left, errLeft, nil, 0); len(forgotten) > 0 {
			t.Fatalf("forgotten %v", forgotten)
		}
	}
	m.farewells[6], m.reached[6] = knownFarewell{}, reaching{}
	if forgotten := m.remember(5); forgotten != nil { // the newest again
		t.Errorf("forgotten %v", forgotten)
	}
	_, known := m.farewells[6]
	if forgotten := m.remember(9999); !slices.Equal(forgotten, []int{6}) || !known || len(m.farewells) != 0 ||
		!m.reached[6].over || m.was[6].err != nil {
		t.Errorf("forgotten %v", forgotten)
	}
	m.formers = slices.Insert(m.formers, 0, 5)
	if forgotten := m.remember(10000); !slices.Equal(forgotten, []int{7}) || m.was[5].err == nil {
		t.Errorf("forgotten %v", forgotten)
	}
}

// Lost peers, and the lack of any peer, are logged after 10 s and then at growing intervals.
func TestRuleOfReminders(t *testing.T) {
	m, peers := rules(Config{Node: 0, Expect: 3})
	m.was[1] = former{lostAt: secs(1), sayAt: secs(11)}
	said := func(now float64, alone time.Duration, want ...time.Duration) {
		t.Helper()
		got, away := m.reminders(secs(now))
		if got != alone || !slices.Equal(slices.Collect(maps.Values(away)), want) {
			t.Errorf("after %v s: alone for %v, away %v", now, got, away)
		}
	}
	said(0, 0)
	m.start(0)
	said(1, 0)
	said(10.9, 0)
	said(11, 10*time.Second, 10*time.Second)
	said(20.9, 0)
	said(21, 20*time.Second, 20*time.Second)
	peers.add(2)
	said(41, 0, 40*time.Second)
	delete(peers, 2)
	said(42, 0)
	peers.add(1)
	said(99, 0)
}
