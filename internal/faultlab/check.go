package faultlab

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Policy is the delivery policy of an event.
type Policy string

// The delivery policies.
const (
	Reliable   Policy = "reliable"
	Latest     Policy = "latest"
	DropOldest Policy = "drop-oldest"
	DropNewest Policy = "drop-newest"
)

// Policies are all of them.
func Policies() []Policy { return []Policy{Reliable, Latest, DropOldest, DropNewest} }

// Rules say what is promised in one laboratory.
type Rules struct {
	Events map[string]Policy
	// Exact reports that the records come from the delivery layer itself: each Sent
	// names its peers, each delivery is recorded before it is acknowledged, and
	// each lost message is reported. From tasks, a node that is killed takes along
	// what waited for its listeners.
	Exact bool
	// SmallBytes is up to which size reliable messages of one stream keep their
	// order over all events; 0: the order over events is not judged.
	SmallBytes int
}

// Report counts what happened.
type Report struct {
	Nodes     int // incarnations
	Emitted   int // calls of emit
	Owed      int // deliveries that the emits of reliable events asked for
	Delivered int // deliveries of all events
	Reported  int // messages reported as lost
	Faults    map[string]int
}

// Add sums up.
func (r *Report) Add(o Report) {
	r.Nodes += o.Nodes
	r.Emitted += o.Emitted
	r.Owed += o.Owed
	r.Delivered += o.Delivered
	r.Reported += o.Reported
	if r.Faults == nil {
		r.Faults = map[string]int{}
	}
	for name, n := range o.Faults {
		r.Faults[name] += n
	}
}

// shown is the most violations that are listed; the others are counted.
const shown = 8

// Check judges the records of a job, which are in order of time. The error says
// the first violations, each in a line, and how many there are.
func Check(rules Rules, records []Record) (Report, error) {
	c := newChecker(rules, records)
	c.ends()
	c.losses()
	c.barriers()
	for _, to := range c.peers {
		for _, from := range c.peers {
			c.pair(from, to)
		}
	}
	c.counters()
	c.unknown()
	if len(c.faults) == 0 {
		return c.report, nil
	}
	err := errors.New(strings.Join(c.faults[:min(len(c.faults), shown)], "\n"))
	if n := len(c.faults) - shown; n > 0 {
		err = fmt.Errorf("%w\nand %d more", err, n)
	}
	return c.report, err
}

// flow is one stream of one event from one sender.
type flow struct {
	from   Peer
	event  string
	stream int
}

// message is one emit.
type message struct {
	Record             // the Emit
	sent       *Record // nil: it never returned
	exact      map[Peer]bool
	failedFor  map[int]bool
	failedSome bool // the error names no node
}

type life struct {
	begin, ready, leaving, finishing, end *Record
}

type checker struct {
	rules   Rules
	records []Record
	peers   []Peer
	lives   map[Peer]*life
	flows   map[flow][]*message
	heard   map[Peer]map[flow][]*Record // by receiver
	lost    map[[2]Peer]uint64          // sender, receiver; incarnation 0 where it is not known
	lostAt  map[[2]Peer]int64           // the first report of it
	all     bool                        // a grave fault was meant for everyone
	asked   map[int]bool                // nodes that were asked to leave
	grave   map[int]int64               // nodes that a grave fault touched, and when the last one did
	hostile *Record                     // nodes from this one on are hostile; nil: none is
	report  Report
	faults  []string
}

func (c *checker) faultf(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func newChecker(rules Rules, records []Record) *checker {
	c := &checker{
		rules: rules, records: records, lives: map[Peer]*life{}, flows: map[flow][]*message{}, heard: map[Peer]map[flow][]*Record{},
		lost: map[[2]Peer]uint64{}, lostAt: map[[2]Peer]int64{}, asked: map[int]bool{},
		grave: map[int]int64{}, report: Report{Faults: map[string]int{}},
	}
	for i := range records {
		if records[i].Kind == Hostile {
			c.hostile = &records[i]
		}
	}
	for i := range records {
		records[i].seq = i
		c.take(&records[i])
	}
	for f, list := range c.flows {
		slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(a.Number, b.Number) })
		for i, m := range list {
			if m.Number != uint64(i)+1 {
				c.faultf("%v %s/%d: emit %d where %d belongs: the records are broken", f.from, f.event, f.stream, m.Number, i+1)
			}
		}
	}
	slices.SortFunc(c.peers, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return c
}

func (c *checker) life(p Peer) *life {
	l := c.lives[p]
	if l == nil {
		l = &life{}
		c.lives[p] = l
		c.peers = append(c.peers, p)
		c.report.Nodes++
	}
	return l
}

// take files one record.
func (c *checker) take(r *Record) {
	switch r.Kind {
	case Begin:
		c.life(r.Who).begin = r
	case Ready:
		c.life(r.Who).ready = r
	case Finishing:
		c.life(r.Who).finishing = r
	case Leaving:
		c.life(r.Who).leaving = r
	case End:
		l := c.life(r.Who)
		if l.end == nil || l.end.Out == Killed { // killed while it ended: what it said itself counts
			l.end = r
		} else if r.Out != Killed {
			c.faultf("%v ends twice: %s, and %s", r.Who, l.end.Out, r.Out)
		}
	case Emit:
		f := flow{r.Who, r.Event, r.Stream}
		c.flows[f] = append(c.flows[f], &message{Record: *r})
		c.report.Emitted++
	case Sent:
		c.returned(r)
	case Hear:
		if c.isHostile(r.From.Node) {
			return
		}
		if c.heard[r.Who] == nil {
			c.heard[r.Who] = map[flow][]*Record{}
		}
		f := flow{r.From, r.Event, r.Stream}
		c.heard[r.Who][f] = append(c.heard[r.Who][f], r)
		c.report.Delivered++
	case Lost:
		key := [2]Peer{r.Who, r.Peer}
		if _, ok := c.lostAt[key]; !ok {
			c.lostAt[key] = r.At
		}
		c.lost[key] += r.Count
		c.report.Reported += int(r.Count) //nolint:gosec // a count of messages
	case Fault:
		c.harmed(r)
	}
}

// harmed files a fault.
func (c *checker) harmed(r *Record) {
	if r.Event != "" {
		c.report.Faults[r.Event]++
	}
	for _, n := range r.Nodes {
		if r.Event == LeaveFault {
			c.asked[n] = true
		}
		if r.Grave {
			c.grave[n] = r.At
		}
	}
	c.all = c.all || r.Grave && len(r.Nodes) == 0
}

// returned files the result of an emit.
func (c *checker) returned(r *Record) {
	list := c.flows[flow{r.Who, r.Event, r.Stream}]
	i := slices.IndexFunc(list, func(m *message) bool { return m.Number == r.Number })
	if n := len(list); n > 0 && list[n-1].Number == r.Number { // nearly always
		i = n - 1
	}
	if i < 0 {
		c.faultf("%v %s/%d: the result of emit %d, which never began: the records are broken", r.Who, r.Event, r.Stream, r.Number)
		return
	}
	m := list[i]
	m.sent, m.failedFor, m.exact = r, map[int]bool{}, map[Peer]bool{}
	for _, n := range r.Failed {
		m.failedFor[n] = true
	}
	m.failedSome = r.Err != "" && len(r.Failed) == 0
	for _, p := range r.Exact {
		m.exact[p] = true
	}
}

// addressed reports whether the emit was for the peer, and whether that is sure.
func (c *checker) addressed(m *message, p Peer) (may, must bool) {
	if m.Who.Node == p.Node {
		return false, false
	}
	must = m.sent != nil && !m.failedSome && !m.failedFor[p.Node]
	if c.rules.Exact && m.sent != nil && c.rules.Events[m.Event] != Latest {
		return m.exact[p], must && m.exact[p]
	}
	may = m.To == nil || slices.Contains(m.To, p.Node)
	return may, may && must
}

// ends: everyone who began has ended, once, and for a reason.
func (c *checker) ends() {
	for _, p := range c.peers {
		l := c.lives[p]
		switch {
		case l.begin == nil:
			c.faultf("%v never began, and yet there are records of it", p)
		case l.end == nil:
			c.faultf("%v never ended", p)
		case l.end.Out == Killed && !c.touched(p.Node):
			c.faultf("%v was killed, and no fault was meant for it", p)
		case l.end.Out == Failure && !c.fits(p, l.end.Err):
			c.faultf("%v failed, and nothing that was done explains it: %s", p, l.end.Err)
		case l.end.Out == Preempted && !c.all && !c.asked[p.Node]:
			c.faultf("%v was preempted without a cause: %s", p, l.end.Err)
		}
	}
}

// named finds the nodes that an error names.
var named = regexp.MustCompile(`node[. ](\d+)`)

// fits reports that a failure has a cause: something grave was done to the node, or
// to one that its error names.
func (c *checker) fits(p Peer, text string) bool {
	if c.touched(p.Node) {
		return true
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && c.touched(n) {
			return true
		}
	}
	return false
}

// touched reports that a grave fault was meant for the node, or that its loss may cost others
// their part in the job.
func (c *checker) touched(node int) bool {
	_, ok := c.grave[node]
	return ok || c.all || c.isHostile(node) && c.hostile.Grave
}

// isHostile reports that the node is no part of the job that is judged: what it sends need not
// fit, and what is sent to it may be lost.
func (c *checker) isHostile(node int) bool { return c.hostile != nil && node >= c.hostile.Who.Node }

// losses checks that each node reported as lost was cut off, or has failed.
func (c *checker) losses() {
	for _, r := range c.records {
		if r.Kind == Lost && r.Count > 0 && !c.isHostile(r.Peer.Node) && !c.leaves(r.Peer) && !c.touched(r.Who.Node) && !c.touched(r.Peer.Node) &&
			!c.unclean(r.Peer) && !c.unclean(r.Who) {
			c.faultf("%v reports %d messages lost to %v, and neither had a fault that is grave enough: %s", r.Who, r.Count, r.Peer, r.Err)
		}
	}
}

// leaves reports that the peer has asked to be sent nothing more: what is emitted for it
// afterwards is counted and no fault.
func (c *checker) leaves(p Peer) bool {
	l := c.lives[p]
	return l != nil && l.leaving != nil
}

// clean reports that the peer has ended in order.
func (c *checker) clean(p Peer) bool {
	l := c.lives[p]
	return l != nil && l.end != nil && l.end.Out == Success
}

// unclean reports that the peer, in any incarnation if that is not known, has ended
// otherwise.
func (c *checker) unclean(p Peer) bool {
	for q := range c.lives {
		if q.Node == p.Node && (p.Incarnation == 0 || p == q) && !c.clean(q) {
			return true
		}
	}
	return false
}

// barriers checks that no node leaves a barrier before all have entered it.
func (c *checker) barriers() {
	type round struct {
		name  string
		round uint64
	}
	came := map[round]map[int]bool{}
	members := map[string]map[int]bool{}
	for _, r := range c.records {
		if r.Kind == BarrierIn {
			if members[r.Event] == nil {
				members[r.Event] = map[int]bool{}
			}
			members[r.Event][r.Who.Node] = true
		}
	}
	for _, r := range c.records {
		at := round{r.Event, r.Number}
		switch r.Kind {
		case BarrierIn:
			if came[at] == nil {
				came[at] = map[int]bool{}
			}
			came[at][r.Who.Node] = true
		case BarrierOut:
			for n := range members[r.Event] {
				if r.Err == "" && !came[at][n] {
					c.faultf("%v leaves round %d of barrier %q before node.%d has come", r.Who, r.Number, r.Event, n)
				}
			}
		}
	}
}

// pair checks the messages that one node received from another.
func (c *checker) pair(from, to Peer) {
	var tails, excused int
	for f, list := range c.flows {
		if f.from != from || from.Node == to.Node {
			continue
		}
		heard := c.heard[to][f]
		if !c.each(f, to, list, heard) {
			continue
		}
		switch c.rules.Events[f.event] {
		case Reliable:
			missing, ok := c.reliable(f, to, list, heard)
			tails += missing
			excused += ok
		case Latest:
			c.newest(f, to, list, heard)
			c.joined(f, to, list, heard)
		case DropOldest:
			if c.rules.Exact { // in a task, messages of other senders may take its place
				c.newest(f, to, list, heard)
			}
		case DropNewest:
		default:
			c.faultf("event %q is not in the rules", f.event)
		}
	}
	c.tails(from, to, tails)
	c.ordered(from, to)
}

// each judges every delivery by itself, and the order within the event.
func (c *checker) each(f flow, to Peer, list []*message, heard []*Record) bool {
	was := len(c.faults)
	last := uint64(0)
	for _, h := range heard {
		what := fmt.Sprintf("%v heard %s/%d number %d of %v", to, f.event, f.stream, h.Number, f.from)
		if h.Number == 0 || h.Number > uint64(len(list)) {
			c.faultf("%s, which was never emitted", what)
			continue
		}
		m := list[h.Number-1]
		if may, _ := c.addressed(m, to); !may {
			c.faultf("%s, which was not for it", what)
		}
		if m.Bytes != h.Bytes || m.Sum != h.Sum || m.Order != h.Order {
			c.faultf("%s damaged: %d bytes with sum %08x, of %d with %08x", what, h.Bytes, h.Sum, m.Bytes, m.Sum)
		}
		if h.Number == last {
			c.faultf("%s twice", what)
		} else if h.Number < last {
			c.faultf("%s after number %d", what, last)
		}
		last = max(last, h.Number)
	}
	return len(c.faults) == was
}

// reliable judges that everything that was owed came, without a gap. It returns
// how many messages at the end did not.
func (c *checker) reliable(f flow, to Peer, list []*message, heard []*Record) (tail, failed int) {
	got := map[uint64]bool{}
	for _, h := range heard {
		got[h.Number] = true
	}
	lastHeard := uint64(0)
	if len(heard) > 0 {
		lastHeard = heard[len(heard)-1].Number
	}
	first := false // what came before a newcomer's first message was not for it, unless that is known
	for _, m := range list {
		may, must := c.addressed(m, to)
		if may {
			c.report.Owed++
		}
		switch {
		case got[m.Number]:
			first = true
		case may && !must:
			failed++
		case !must, !first && !c.rules.Exact && !c.founders(f.from, to) && !c.present(f.from, to, m):
		case m.Number < lastHeard:
			c.faultf("%v never heard %s/%d number %d of %v, and yet number %d: it was lost in silence", to, f.event, f.stream, m.Number, f.from,
				lastHeard)
			return 0, 0
		case c.afterLeave(to, m):
		default:
			tail++
		}
	}
	return tail, failed
}

// founders reports that both were there from the start.
func (c *checker) founders(a, b Peer) bool {
	return c.lives[a].begin != nil && c.lives[a].begin.Founder && c.lives[b].begin != nil && c.lives[b].begin.Founder
}

// present reports that the emit began when the peer, a newcomer, was ready, and that no
// grave fault kept the two apart.
func (c *checker) present(from, to Peer, m *message) bool {
	l := c.lives[to]
	return l.ready != nil && m.At >= l.ready.At && !c.all && !c.between(from, to)
}

// dismissed reports that the peer was asked to leave, and left.
func (c *checker) dismissed(p Peer) bool {
	l := c.lives[p]
	return !c.all && c.asked[p.Node] && l.end != nil && l.end.Out == Preempted
}

// afterLeave reports that the emit had not returned when the peer, which was asked to
// leave, was about to: it need not be addressed any more.
func (c *checker) afterLeave(to Peer, m *message) bool {
	l := c.lives[to]
	return c.dismissed(to) && (l.finishing == nil || m.sent.At >= l.finishing.At)
}

// tails judges whether what did not come to the end was reported.
func (c *checker) tails(from, to Peer, missing int) {
	if missing == 0 {
		return
	}
	reported := c.lost[[2]Peer{from, to}]
	if !c.rules.Exact {
		reported += c.lost[[2]Peer{from, {Node: to.Node}}]
	}
	l := c.lives[from]
	switch {
	case l.end != nil && l.end.Out == Killed: // it cannot report any more
	// The messages that waited for its listeners are lost with the process.
	case !c.rules.Exact && (!c.clean(from) && !c.dismissed(from) || !c.clean(to) && !c.dismissed(to)):
	case !c.rules.Exact && c.parted(from, to): // when it gave the other up is not known: what it emitted since is not owed
	case uint64(missing) > reported: //nolint:gosec // not negative
		c.faultf("%v never heard the last %d reliable messages of %v, which reported %d: they were lost in silence", to, missing, from, reported)
	}
}

// parted reports that a grave fault came between two tasks that both lived, and that
// the sender has reported the loss of the other.
func (c *checker) parted(from, to Peer) bool {
	_, lost := c.lost[[2]Peer{from, {Node: to.Node}}]
	return lost && c.between(from, to)
}

// newest judges that the last value came, where both ended in order.
func (c *checker) newest(f flow, to Peer, list []*message, heard []*Record) {
	_, gone := c.lostAt[[2]Peer{f.from, to}]
	_, gone2 := c.lostAt[[2]Peer{to, f.from}]
	if !c.clean(f.from) || !c.clean(to) || gone || gone2 || c.severed(f.from, to) {
		return
	}
	for _, m := range slices.Backward(list) {
		may, must := c.addressed(m, to)
		if may && !must {
			return
		}
		if !must {
			continue
		}
		if len(heard) == 0 || heard[len(heard)-1].Number != m.Number {
			last := uint64(0)
			if n := len(heard); n > 0 {
				last = heard[n-1].Number
			}
			c.faultf("%v heard number %d of %s/%d of %v last, and not the newest, number %d", to, last, f.event, f.stream, f.from, m.Number)
		}
		return
	}
}

// severed reports that the two were not there at the same time, or that one may have
// given the other up without having anything to report.
func (c *checker) severed(from, to Peer) bool {
	a, b := c.lives[from], c.lives[to]
	if b.ready == nil || b.leaving != nil || a.begin == nil || a.finishing == nil || b.ready.At >= a.finishing.At {
		return true
	}
	return c.between(from, to)
}

// between reports that a grave fault was meant for one of the two after both had
// begun.
func (c *checker) between(from, to Peer) bool {
	a, b := c.lives[from].begin, c.lives[to].begin
	for _, n := range []int{from.Node, to.Node} {
		if at, ok := c.grave[n]; ok && a != nil && b != nil && at >= max(a.At, b.At) {
			return true
		}
	}
	return false
}

// joined judges that a node had the newest values before it was ready.
func (c *checker) joined(f flow, to Peer, list []*message, heard []*Record) {
	a, b := c.lives[f.from], c.lives[to]
	if b.ready == nil || b.begin == nil || a.ready == nil || a.ready.At >= b.begin.At || a.end != nil && a.end.At <= b.ready.At ||
		a.finishing != nil && a.finishing.At <= b.ready.At || c.apart(f.from, to, b.ready.At) {
		return
	}
	owed := uint64(0)
	for _, m := range list {
		if m.sent != nil && m.sent.Err == "" && m.sent.At < b.begin.At && m.To == nil {
			owed = m.Number
		}
	}
	has := uint64(0)
	for _, h := range heard {
		if h.At <= b.ready.At {
			has = h.Number
		}
	}
	if has < owed {
		c.faultf("%v was ready with number %d of %s/%d of %v, when number %d had been emitted before it began", to, has, f.event, f.stream,
			f.from, owed)
	}
}

// apart reports that one of the two had given the other up before the time.
func (c *checker) apart(a, b Peer, before int64) bool {
	for _, key := range [][2]Peer{{a, b}, {b, a}, {a, {Node: b.Node}}, {b, {Node: a.Node}}} {
		if at, ok := c.lostAt[key]; ok && at <= before {
			return true
		}
	}
	return false
}

// ordered judges the order of small reliable messages over all events.
func (c *checker) ordered(from, to Peer) {
	if c.rules.SmallBytes == 0 {
		return
	}
	var all []*Record
	for f, list := range c.heard[to] {
		if f.from == from && f.stream == 0 && c.rules.Events[f.event] == Reliable {
			all = append(all, list...)
		}
	}
	slices.SortFunc(all, func(a, b *Record) int { return cmp.Compare(a.seq, b.seq) })
	last := uint64(0)
	for _, h := range all {
		if h.Bytes > c.rules.SmallBytes {
			continue
		}
		if h.Order < last {
			c.faultf("%v heard emit %d of %v, of event %s, after emit %d", to, h.Order, from, h.Event, last)
			return
		}
		last = h.Order
	}
}

// counters: every message to a peer that did not die is counted as consumed,
// dropped or lost.
func (c *checker) counters() {
	for _, r := range c.records {
		if r.Kind != Counted {
			continue
		}
		addressed, sure := c.sentTo(r.Who, r.Event)
		heard := c.heardOf(r.Who, r.Event)
		s := r.Stats
		sum := s.Consumed + s.Dropped + s.Lost + s.Queued
		if policy := c.rules.Events[r.Event]; sure && policy != Latest && sum != addressed {
			c.faultf("%v %s: %d messages were addressed, and %d are accounted for: %+v", r.Who, r.Event, addressed, sum, s)
		}
		if heard > sum && sure {
			c.faultf("%v %s: its peers heard %d messages, and it counts %d: %+v", r.Who, r.Event, heard, sum, s)
		}
	}
}

// sentTo counts the messages of an event that the peer addressed to others, and
// says whether it is known whether each was.
func (c *checker) sentTo(from Peer, event string) (n uint64, sure bool) {
	sure = true
	for f, list := range c.flows {
		if f.from != from || f.event != event {
			continue
		}
		for _, m := range list {
			if m.sent == nil || m.sent.Err != "" {
				sure = false
				continue
			}
			n += uint64(len(m.exact))
		}
	}
	return n, sure
}

// heardOf counts the messages of an event that others heard of the peer and ended
// in order.
func (c *checker) heardOf(from Peer, event string) (n uint64) {
	for to, by := range c.heard {
		for f, list := range by {
			if f.from == from && f.event == event && c.clean(to) {
				n += uint64(len(list))
			}
		}
	}
	return n
}

// unknown reports deliveries that no node has emitted.
func (c *checker) unknown() {
	for to, by := range c.heard {
		for f, list := range by {
			switch {
			case c.flows[f] == nil:
				c.faultf("%v heard %d messages of %v, event %s/%d, which emitted none", to, len(list), f.from, f.event, f.stream)
			case f.from.Node == to.Node:
				c.faultf("%v heard itself, event %s/%d", to, f.event, f.stream)
			}
		}
	}
}
