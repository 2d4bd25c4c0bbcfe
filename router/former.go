package router

// Forgotten is the node id, in [Stats] and in a [PeerError], of all nodes that this one
// does not remember one by one any more.
const Forgotten = -1

const (
	// maxFormer is of how many nodes that are gone, beyond the first Config.Expect ids,
	// something is remembered. Each message of an event counts what those of them miss that
	// have listened to it. The one that was gone first is forgotten first.
	maxFormer = 1 << 10
	// maxUnfinished is the number of rounds of barriers that are kept of a peer that is gone. Each
	// has a name of at most maxName bytes. A node is in one round for each goroutine that waits.
	maxUnfinished = 64
	// maxLosses is the number of losses that are kept one by one, each about 100 bytes.
	maxLosses = 1 << 10
)

// former is the state that is kept of a peer that is gone.
type former struct {
	incarnation uint64
	hearsay     bool // no session has ended: a third node has said that this incarnation did
	ready       bool
	withdrawn   bool              // it had said beforehand that it would leave
	barriers    map[string]uint64 // rounds that it has entered and this node had not passed, maxUnfinished of them
	addrs       []string          // where it could be dialled
	err         error
	lostAt      int64 // clock; 0: it was not lost
	sayAt       int64 // clock at which the log says that it is still away
}

// remember records that something is kept of a node after its session. The mutex is held.
func (r *Router) remember(id int) { r.forgetAll(r.membership.remember(id)) }

// forgetAll forgets what was counted with nodes that are no peers, and adds it to the sums of
// [Forgotten]. The mutex is held.
func (r *Router) forgetAll(ids []int) {
	for _, id := range ids {
		if p := r.past[id]; p != nil {
			sum := *p
			if all := r.past[Forgotten]; all != nil {
				sum.add(*all)
			}
			sum.Node, sum.State = Forgotten, LinkLost
			r.past[Forgotten] = &sum
			delete(r.past, id)
		}
		for _, c := range r.channels {
			if a := c.absences[id]; a != nil {
				r.fold(c, a)
				delete(c.absences, id)
				r.retarget(c)
			}
			r.forgetStream(c.spec.Name, id)
		}
		r.forgetStream(undeclared, id)
	}
}

func (r *Router) forgetStream(event string, id int) {
	st, ok := r.gone[streamKey{event, id}]
	if !ok {
		return
	}
	all := streamKey{event, Forgotten}
	sum := r.gone[all]
	sum.Event, sum.Peer = event, Forgotten
	sum.Add(st)
	r.gone[all] = sum
	delete(r.gone, streamKey{event, id})
}

// keepLoss keeps a loss for [Router.Losses]. Beyond maxLosses the numbers are added up. The
// mutex is held.
func (r *Router) keepLoss(perr *PeerError) {
	if len(r.lost) < maxLosses {
		r.lost = append(r.lost, perr)
		return
	}
	if r.furtherLosses == nil {
		r.furtherLosses = &PeerError{Node: Forgotten, Err: perr.Err}
	}
	further := *r.furtherLosses // a caller of Losses may read the one that there was
	further.Undelivered += perr.Undelivered
	r.furtherLosses = &further
}
