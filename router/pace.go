package router

import "time"

// pace bounds how often something happens: so many times at once, and then so many times
// a second. The zero value is full.
type pace struct {
	used float64 // of burst
	at   int64   // clock of the newest use
}

// take reports whether it may happen once more now.
func (p *pace) take(now int64, burst, perSecond float64) bool {
	p.used = max(p.used-perSecond*time.Duration(now-p.at).Seconds(), 0)
	p.at = now
	if p.used+1 > burst {
		return false
	}
	p.used++
	return true
}

// How often one of the ids 0..Config.Expect-1 may join as a new incarnation, and how often
// others may say its farewell, each of which is news to all peers: a node that crashes at
// every start and is started again needs less. The other ids share what they have together.
const (
	newsBurst       = 16 // of one id, at once
	newsPerSecond   = 1  // of one id, after that
	othersPerSecond = 16 // of all other ids together; mostPeers of them at once
)

// paces bounds news of one kind.
type paces struct {
	each   map[int]*pace // by node id below Config.Expect
	others pace
}

// allows reports whether there may be news of a node now.
func (p *paces) allows(m *membership, id int, now int64) bool {
	if id >= m.job.Expect {
		return p.others.take(now, float64(m.mostPeers()), othersPerSecond)
	}
	if p.each == nil {
		p.each = map[int]*pace{}
	}
	if p.each[id] == nil {
		p.each[id] = new(pace)
	}
	return p.each[id].take(now, newsBurst, newsPerSecond)
}
