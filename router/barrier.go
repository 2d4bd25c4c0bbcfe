package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ditask/ditask/internal/printable"
)

// barrierMsg is the body of frameBarrier: the sender has entered a round. With flagOn
// the sender knows that all nodes have.
type barrierMsg struct {
	Name  string `json:"name"`
	Round uint64 `json:"round"`
}

// Barrier returns when every expected node has called it with the same name as often as this one. It
// fails at once when one of them is lost, has ended or is done (see [Router.Done]) without having
// entered. When ctx ends first, the error names the missing nodes. After an error the rounds of that
// name no longer match: use another name. Once this node drains, or is done itself, a node that does
// not enter any more is no fault: the error then wraps [ErrClosed]. A restarted node takes over the
// rounds of its peers. Barrier does not wait for a node that has left, see [Router.Leave].
//
// When Barrier has returned nil on one node, and a message that this node sends afterwards ends the
// ctx of a Barrier of the same round on another node, then that one returns nil too. This also holds
// if the message passes through further nodes.
func (r *Router) Barrier(ctx context.Context, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("barrier %.20q...: a name of %d bytes, want %d at most", name, len(name), maxName)
	}
	if !printable.Is(name) {
		return fmt.Errorf("barrier %q: want a name of printable characters", name)
	}
	r.mu.Lock()
	if len(r.rounds) >= maxBarriers && r.rounds[name] == 0 {
		r.mu.Unlock()
		return fmt.Errorf("barrier %q: %d names are in use: one name does for any number of rounds", name, maxBarriers)
	}
	if r.rounds[name] >= maxRound {
		r.mu.Unlock()
		return fmt.Errorf("barrier %q: round %d is the last one", name, uint64(maxRound))
	}
	r.rounds[name]++
	round := r.rounds[name]
	wanted := r.members()
	for _, s := range r.peers {
		s.controlJSON(frameBarrier, 0, barrierMsg{name, round})
	}
	r.mu.Unlock()

	var missing []string
	err := r.await(ctx, func() (bool, error) {
		missing = missing[:0]
		for _, id := range wanted {
			entered, err := r.entered(id, name, round)
			if err != nil && r.passed[name] < round {
				return false, r.inVain(name, id, err)
			}
			if !entered {
				missing = append(missing, fmt.Sprintf("node.%d", id))
			}
		}
		if len(missing) == 0 {
			r.pass(name, round, nil)
		}
		return r.passed[name] >= round, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("barrier %q waits for %s: %w", name, strings.Join(missing, ", "), err)
	}
	return err
}

// inVain is the error of a barrier that a node will not enter. The mutex is held.
func (r *Router) inVain(name string, id int, err error) error {
	err = fmt.Errorf("barrier %q: node.%d will not enter it: %w", name, id, err)
	if r.done || r.inDrain.Load() {
		return fmt.Errorf("the job ends: %w: %w", err, ErrClosed)
	}
	return err
}

var errDone = errors.New("it is done with its own part of the job")

// pass records that all nodes have entered a round, and notifies the peers except from, which has
// announced it. So a message that a node sends after the barrier never overtakes the announcement that
// the barrier is passed. The mutex is held.
func (r *Router) pass(name string, round uint64, from *session) {
	if r.passed[name] >= round {
		return
	}
	r.passed[name] = round
	for _, s := range r.peers {
		if s != from {
			s.controlJSON(frameBarrier, flagOn, barrierMsg{name, round})
		}
	}
}

// receiveBarrier records a round that the peer has entered.
func (r *Router) receiveBarrier(s *session, all bool, body []byte) error {
	var b barrierMsg
	if err := json.Unmarshal(body, &b); err != nil {
		return fmt.Errorf("%w: barrier: %w", errBadFrame, printable.Error(err))
	}
	if len(b.Name) > maxName || !printable.Is(b.Name) || len(s.barriers) >= maxBarriers && s.barriers[b.Name] == 0 {
		return fmt.Errorf("%w: barrier %.20q: want at most %d names of %d bytes, all printable", errBadFrame, b.Name, maxBarriers, maxName)
	}
	if b.Round == 0 || b.Round > maxRound {
		return fmt.Errorf("%w: barrier %.20q: round %d", errBadFrame, b.Name, b.Round)
	}
	r.note(func() {
		s.barriers[b.Name] = max(s.barriers[b.Name], b.Round)
		if all && r.rounds[b.Name] >= b.Round { // else this node is not among those that were waited for
			r.pass(b.Name, b.Round, s)
		}
	})
	return nil
}

// maxOffered bounds the names of barriers that a newcomer keeps until it has started, of all members
// together.
const maxOffered = 4 * maxBarriers

// offer keeps the rounds that a member of the running job has entered, for takeOver. The
// mutex is held.
func (r *Router) offer(s *session) {
	names := len(s.barriers)
	for id, rounds := range r.offers {
		if id != s.peer.ID {
			names += len(rounds)
		}
	}
	if names > maxOffered {
		return
	}
	if r.offers == nil {
		r.offers = map[int]map[string]uint64{}
	}
	r.offers[s.peer.ID] = maps.Clone(s.barriers)
}

// takeOver makes the newest rounds of the members those of this node, which has joined
// them, and tells its peers. The rounds of members differ by one at most: one is in a barrier that
// another has still to enter. So a round is taken over that is at most one more than what the
// lower half of the members have entered, and no single member makes a newcomer wait for a round
// that no node reaches. Members that leave count only if there is no other: they may lag
// behind. The mutex is held.
func (r *Router) takeOver() {
	members := make([]map[string]uint64, 0, len(r.offers))
	for id, rounds := range r.offers {
		if s, was := r.peers[id], r.was[id]; s != nil && !s.withdrawn || s == nil && !was.withdrawn && !errors.Is(was.err, errLeft) {
			members = append(members, rounds)
		}
	}
	if len(members) == 0 {
		members = slices.AppendSeq(members, maps.Values(r.offers))
	}
	r.offers = nil
	entered := map[string][]uint64{}
	for _, rounds := range members {
		for name, round := range rounds {
			entered[name] = append(entered[name], round)
		}
	}
	for name, rounds := range entered {
		round := newest(rounds, len(members))
		if _, ok := r.rounds[name]; round <= r.rounds[name] || !ok && len(r.rounds) >= maxBarriers {
			continue
		}
		r.rounds[name] = round
		for _, s := range r.peers {
			s.controlJSON(frameBarrier, 0, barrierMsg{name, round})
		}
	}
}

// newest is the highest of the rounds that members have entered which is at most one more
// than what the lower half of them have. Those that are not in the list have entered none.
func newest(rounds []uint64, members int) uint64 {
	slices.Sort(rounds)
	likely := uint64(0)
	if i := (members-1)/2 - (members - len(rounds)); i >= 0 {
		likely = rounds[i]
	}
	top := uint64(0)
	for _, n := range rounds {
		if n <= likely+1 {
			top = n
		}
	}
	return top
}

// unfinished are the rounds that the peer has entered and this node has not passed: they
// count when the peer is gone. Of more than maxUnfinished those come first that this node has
// entered too. The mutex is held.
func (r *Router) unfinished(s *session) map[string]uint64 {
	out := map[string]uint64{}
	for _, entered := range []bool{true, false} {
		for name, round := range s.barriers {
			if len(out) < maxUnfinished && round > r.passed[name] && (r.rounds[name] > r.passed[name]) == entered {
				out[name] = round
			}
		}
	}
	return out
}
