package router

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// membership is the state of the other nodes of a job as one node knows it, and the rules that follow
// from it: which nodes are expected, present, gone and forgotten, which incarnation counts, which
// announcements and farewells are believed, and the nodes that a newcomer waits for. It has no
// goroutine, lock, clock or network. Its methods take events, with the clock at that time where it
// counts, and return the actions for the router. The router's mutex guards it.
type membership struct {
	job     *Config // of this node: ids, times and the topology; nothing of it is called
	present roster

	was       map[int]former        // peers that are gone, by node id
	formers   []int                 // nodes of which something is kept that are not expected: see remember
	known     map[int]rumour        // nodes that others announced and that are not connected
	reached   map[int]reaching      // those that keepReaching calls
	farewells map[int]knownFarewell // the newest farewell of each node, by node id
	hearsay   map[int]*report       // farewells that others have said and that are looked into: the next one of each node
	attached  map[string]int        // attach address -> node id that answered there
	trouble   map[string]string     // address -> why it cannot be reached
	joins     paces                 // of new sessions
	news      paces                 // of farewells

	beenReady bool  // Start has returned
	readyAt   int64 // clock of that
	running   bool  // the job ran when this node joined; set when Start returns, see runs
	runningAt int64 // clock at which a peer first said that the job runs; 0: none has
	aloneAt   int64 // clock since which no peer is present; 0: one is
	sayAlone  int64 // clock at which the log reports that no peer is present
}

// roster has the peers that are connected, or are expected to be again.
type roster interface {
	of(id int) *member // nil: it is not present
	all() iter.Seq2[int, *member]
	count() int
}

// member is a present peer, and what it has said of itself.
type member struct {
	peer  Peer
	addrs []string // where the peer can be dialled

	ready, seen, fin bool
	running          bool              // it had been ready before it met this node, a newcomer
	withdrawn        bool              // it leaves: it is sent no more messages
	done             bool              // it has done its part of the job
	quiet            bool              // it has sent all that it will, as this node leaves
	late             bool              // it has come when this node had sent everything
	barriers         map[string]uint64 // rounds at which it has arrived
}

func newMembership(job *Config, present roster) membership {
	return membership{
		job: job, present: present, was: map[int]former{}, known: map[int]rumour{}, reached: map[int]reaching{},
		farewells: map[int]knownFarewell{}, hearsay: map[int]*report{}, attached: map[string]int{}, trouble: map[string]string{},
	}
}

// classify reports whether a node that says hello is a peer already, in this incarnation or in
// an older one, which the new one replaces; or why it is refused.
func (m *membership) classify(id int, incarnation uint64) (same, replaces bool, no *refusal) {
	p := m.present.of(id)
	gone, wasHere := m.was[id]
	switch {
	case p != nil && incarnation == p.peer.Incarnation:
		return true, false, nil
	case p != nil && incarnation < p.peer.Incarnation, incarnation < gone.incarnation && !gone.hearsay:
		return false, false, &refusal{RefuseStale, fmt.Sprintf("a newer node.%d has joined", id)}
	case p != nil:
		return false, true, nil
	case wasHere && incarnation == gone.incarnation && errors.Is(gone.err, errLeft):
		// A second call to it was under way when it left in order: no fault of the job.
		return false, false, &refusal{RefuseClosed, fmt.Sprintf("node.%d has ended", id)}
	case wasHere && incarnation == gone.incarnation:
		return false, false, &refusal{RefuseLost, fmt.Sprintf("node.%d has given up node.%d: %v", m.job.Node, id, gone.err)}
	}
	return false, false, nil
}

// admits reports why a node is not let in just now.
func (m *membership) admits(id int, now int64) error {
	if most := m.mostPeers(); m.present.count() >= most {
		return fmt.Errorf("node.%d has %d peers, and takes no more", m.job.Node, most)
	}
	if !m.joins.allows(m, id, now) {
		return fmt.Errorf("node.%d joins too often", id)
	}
	return nil
}

// met records the connection of a node that others may have announced.
func (m *membership) met(p *member) {
	id, incarnation := p.peer.ID, p.peer.Incarnation
	if m.known[id].incarnation <= incarnation {
		delete(m.known, id)
	}
	if c, ok := m.reached[id]; ok && c.incarnation < incarnation {
		c.incarnation = incarnation
		if len(p.addrs) > 0 {
			c.addr = p.addrs[0]
		}
		m.reached[id] = c
	}
}

// call is a node to be reached.
type call struct {
	id          int
	incarnation uint64
	addr        string // empty in a star: through the hub
}

// learn records nodes that another one knows. It returns those that this node calls,
// which have a lower id, as the others call this node; and those that are not believed, as
// their incarnations are from the far future.
func (m *membership) learn(members []Member, now int64, wall time.Time) (calls []call, ahead []int) {
	for _, o := range members {
		if o.ID == m.job.Node || o.ID < 0 || o.ID > maxNode || m.known[o.ID].incarnation >= o.Incarnation ||
			m.was[o.ID].incarnation >= o.Incarnation {
			continue
		}
		if p := m.present.of(o.ID); p != nil && p.peer.Incarnation >= o.Incarnation {
			continue
		}
		if !m.plausible(o.Incarnation, wall) {
			ahead = append(ahead, o.ID)
			continue
		}
		if _, ok := m.known[o.ID]; !ok && len(m.known) >= m.mostPeers() {
			break
		}
		m.known[o.ID] = rumour{o.Incarnation, now}
		switch {
		case o.ID > m.job.Node:
		case m.job.Topology == Mesh && len(o.Addrs) > 0 && len(o.Addrs[0]) <= maxAddr:
			calls = append(calls, call{o.ID, o.Incarnation, o.Addrs[0]})
		case m.job.Topology == Star && m.job.Node != 0 && o.ID != 0:
			calls = append(calls, call{o.ID, o.Incarnation, ""})
		}
	}
	return calls, ahead
}

// waitsFor is the time that a newcomer waits for a member that others have announced. An expected one
// that is dead is rarely announced, as its peers know of its death or lose it within PeerTimeout;
// but one that lives can take much longer than that to connect where the machines are busy, and
// what this node emits before is lost to it.
func (m *membership) waitsFor(id int) time.Duration {
	if id < m.job.Expect {
		return max(m.job.PeerTimeout, m.job.JoinTimeout/2)
	}
	return m.job.PeerTimeout
}

// doubt forgets the nodes that others have announced and that have not connected in time, which
// is twice the time in which a node that joins has to connect. A node that is announced
// again is believed again. It reports whether a Start that waits is to look again: its waits
// for such nodes are limited, see runs and lacks.
func (m *membership) doubt(now int64) (look bool) {
	look = !m.beenReady && (len(m.known) > 0 || m.runningAt != 0)
	for id, o := range m.known {
		if now-o.at <= int64(2*m.job.JoinTimeout) {
			continue
		}
		delete(m.known, id)
		if c, ok := m.reached[id]; ok && c.incarnation == o.incarnation && m.present.of(id) == nil {
			c.over = true
			m.reached[id] = c
		}
	}
	return look
}

// mostPeers bounds the peers of this node, and separately the announced nodes that it has not met.
func (m *membership) mostPeers() int { return max(maxPeers, m.job.Expect) }

// plausible reports whether an incarnation is not from the far future, by the clock here or
// by that on which this node's own incarnation was based.
func (m *membership) plausible(incarnation uint64, wall time.Time) bool {
	now := max(uint64(max(wall.UnixNano(), 0)), m.job.Incarnation)
	return incarnation <= now || incarnation-now <= uint64(maxAhead)
}

// left records that a peer is gone, and returns the nodes that are forgotten for it.
// barriers are the rounds that it has entered and this node has not passed.
func (m *membership) left(p *member, kind ChangeKind, reason error, barriers map[string]uint64, now int64) (forgotten []int) {
	f := former{incarnation: p.peer.Incarnation, ready: p.ready, withdrawn: p.withdrawn, barriers: barriers, addrs: p.addrs, err: reason}
	if kind == Lost {
		f.lostAt = now
		f.sayAt = now + int64(logAfter)
	}
	m.was[p.peer.ID] = f
	return m.remember(p.peer.ID)
}

// remember records that something is kept of a node after its session, and returns the
// oldest ones that are not expected, if there are too many: they are forgotten.
func (m *membership) remember(id int) (forgotten []int) {
	if id < m.job.Expect {
		return nil // these are as many as the job has nodes
	}
	if i := slices.Index(m.formers, id); i >= 0 {
		m.formers = slices.Delete(m.formers, i, i+1)
	}
	m.formers = append(m.formers, id)
	for len(m.formers) > maxFormer {
		oldest := m.formers[0]
		m.formers = slices.Delete(m.formers, 0, 1)
		if m.present.of(oldest) != nil {
			continue // it is remembered again when it is gone
		}
		delete(m.was, oldest)
		delete(m.farewells, oldest)
		if c, ok := m.reached[oldest]; ok {
			c.over = true
			m.reached[oldest] = c
		}
		forgotten = append(forgotten, oldest)
	}
	return forgotten
}

// isReady records that a peer is ready, and whether it had been so before it met this
// node. It reports whether the peer has joined by that.
func (m *membership) isReady(p *member, before bool, now int64) (joined bool) {
	if before && !m.beenReady {
		p.running = true
		if m.runningAt == 0 {
			m.runningAt = max(now, 1)
		}
	}
	joined, p.ready = !p.ready, true
	return joined
}

// runs reports whether this newcomer believes that the job runs already: it then waits for the present
// nodes, and not for all expected ones. One peer alone can be wrong or lie, so the newcomer believes
// it only when more than half of the other expected nodes agree; or, without a number of expected
// nodes, when each attach address has answered or failed once. Otherwise it waits for the other nodes
// as long as a peer may be silent: a live node connects within this time.
func (m *membership) runs(now int64) bool {
	switch {
	case m.beenReady || m.running:
		return m.running
	case m.runningAt == 0:
		return false
	case now-m.runningAt >= int64(m.job.PeerTimeout):
		return true
	case m.job.Expect == 0 || m.job.Topology == Alone:
		for _, addr := range m.job.Attach {
			if _, ok := m.attached[addr]; !ok && m.trouble[addr] == "" {
				return false
			}
		}
		return true
	}
	others, agree := m.job.Expect, 0
	if m.job.Node < m.job.Expect {
		others--
	}
	for id, p := range m.present.all() {
		if p.running && (id < m.job.Expect || m.job.Node >= m.job.Expect) {
			agree++
		}
	}
	return 2*agree > others
}

// start ends the joining of this node: it waits for no other node any more.
func (m *membership) start(now int64) { m.running, m.beenReady, m.readyAt = m.runs(now), true, now }

// joining reports whether this node joins the job. It continues joining as long again as it has taken,
// but not for longer than its patience: peers for which there was no time may still be busy with
// each other.
func (m *membership) joining(now int64) bool {
	return !m.beenReady || now-m.readyAt < min(m.readyAt, int64(joinPatience*m.job.PeerTimeout))
}

// lacks names the nodes that Start waits for, and why.
func (m *membership) lacks(now int64) []string {
	var out []string
	check := func(id int) {
		if p := m.present.of(id); p != nil {
			if !p.ready || !p.seen {
				out = append(out, fmt.Sprintf("node.%d (connected, not ready)", id))
			}
			return
		}
		if !m.was[id].ready {
			out = append(out, fmt.Sprintf("node.%d", id))
		}
	}
	runs := m.runs(now)
	if m.job.Expect > 0 && m.job.Topology != Alone && !runs {
		ids, unknown := m.expected()
		for _, id := range ids {
			check(id)
		}
		if unknown > 0 {
			out = append(out, fmt.Sprintf("%d more", unknown))
		}
		if len(out) > 0 { // which address is whose is not known before it answers
			out[len(out)-1] += m.troubles()
		}
		return out
	}
	for _, addr := range m.job.Attach {
		if id, ok := m.attached[addr]; ok {
			check(id)
		} else if !runs {
			out = append(out, addr+inBrackets(m.trouble[addr]))
		}
	}
	for id := range m.present.all() {
		check(id)
	}
	for id, o := range m.known {
		if now-o.at <= int64(m.waitsFor(id)) {
			check(id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// expected are the other nodes of the job: 0..Expect-1, unless the ids are others;
// then those that this node has met, and how many it has not.
func (m *membership) expected() (ids []int, unknown int) {
	met := map[int]bool{}
	for id := range m.present.all() {
		met[id] = true
	}
	for id, f := range m.was {
		if f.ready {
			met[id] = true
		}
	}
	ids = slices.Sorted(maps.Keys(met))
	others := m.runningAt == 0 && len(ids) > 0 && ids[len(ids)-1] >= m.job.Expect // in a running job it may be one more
	if m.job.Node >= m.job.Expect || others {
		return ids, max(m.job.Expect-1-len(ids), 0)
	}
	ids = nil
	for id := range m.job.Expect {
		if id != m.job.Node {
			ids = append(ids, id)
		}
	}
	return ids, 0
}

// maxTrouble is the number of unreachable addresses that are named.
const maxTrouble = 8

// troubles joins the reasons why addresses cannot be reached.
func (m *membership) troubles() string {
	var out []string
	for _, addr := range slices.Sorted(maps.Keys(m.trouble)) {
		if len(out) == maxTrouble && len(m.trouble) > maxTrouble+1 {
			out = append(out, fmt.Sprintf("and %d more", len(m.trouble)-maxTrouble))
			break
		}
		out = append(out, addr+": "+m.trouble[addr])
	}
	return inBrackets(strings.Join(out, ", "))
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// members are the nodes that a barrier waits for, and without which the job is not
// done. A node that has joined a running job counts those that it has met there and that
// have not left.
func (m *membership) members() []int {
	if m.job.Expect > 0 && m.job.Topology != Alone && !m.running {
		ids, _ := m.expected()
		return ids
	}
	var ids []int
	for id, p := range m.present.all() {
		if p.ready {
			ids = append(ids, id)
		}
	}
	if m.job.Topology != Alone {
		for id, f := range m.was {
			if f.lostAt != 0 && m.present.of(id) == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// undone names the members that are not done and have not left.
func (m *membership) undone() []string {
	var out []string
	for _, id := range m.members() {
		p, was := m.present.of(id), m.was[id]
		switch {
		case p != nil && (p.done || p.withdrawn):
		case p == nil && (was.withdrawn || errors.Is(was.err, errLeft)):
		default:
			out = append(out, fmt.Sprintf("node.%d", id))
		}
	}
	return out
}

// entered reports whether a node has entered the round of a barrier or need not, and why it
// will not.
func (m *membership) entered(id int, name string, round uint64) (bool, error) {
	p, was := m.present.of(id), m.was[id]
	switch {
	case was.barriers[name] >= round, p != nil && p.barriers[name] >= round:
		return true, nil
	case p == nil && was.withdrawn, p != nil && p.withdrawn:
		return true, nil
	case p == nil:
		return false, was.err
	case p.done:
		return false, errDone
	}
	return false, nil
}

// reminders returns, where it is to be logged, for how long no peer has been present, and for how long
// lost peers have been away: after logAfter, and then each time after as long again.
func (m *membership) reminders(now int64) (alone time.Duration, away map[int]time.Duration) {
	switch {
	case !m.beenReady || m.job.Expect <= 1 || m.present.count() > 0:
		m.aloneAt = 0
	case m.aloneAt == 0:
		m.aloneAt, m.sayAlone = now, now+int64(logAfter)
	case now >= m.sayAlone:
		alone = time.Duration(now - m.aloneAt)
		m.sayAlone = now + int64(alone)
	}
	away = map[int]time.Duration{}
	for id, f := range m.was {
		if f.lostAt != 0 && m.present.of(id) == nil && now >= f.sayAt {
			away[id] = time.Duration(now - f.lostAt)
			f.sayAt = now + (now - f.lostAt)
			m.was[id] = f
		}
	}
	return alone, away
}
