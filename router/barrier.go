package router

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

type barrierMsg struct {
	Name  string `json:"name"`
	Round uint64 `json:"round"`
}

// Barrier returns when every expected node has called it with the same name as
// often as this one. It fails at once when one of them is lost or has ended, and
// names those that are missing when ctx ends first. After an error the rounds of
// that name no longer match: use another name. A node that is restarted takes
// the rounds over from its peers. One that has left, see [Router.Leave], is not waited for.
func (r *Router) Barrier(ctx context.Context, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("barrier %.20q...: a name of %d bytes, want %d at most", name, len(name), maxName)
	}
	r.mu.Lock()
	if len(r.rounds) >= maxBarriers && r.rounds[name] == 0 {
		r.mu.Unlock()
		return fmt.Errorf("barrier %q: %d names are in use: one name does for any number of rounds", name, maxBarriers)
	}
	r.rounds[name]++
	round := r.rounds[name]
	wanted := r.barrierMembers()
	for _, s := range r.peers {
		s.controlJSON(frameBarrier, barrierMsg{name, round})
	}
	r.mu.Unlock()

	arrived := map[int]bool{}
	missing := func() []string {
		var out []string
		for _, id := range wanted {
			if !arrived[id] {
				out = append(out, fmt.Sprintf("node.%d", id))
			}
		}
		return out
	}
	err := r.await(ctx, func() (bool, error) {
		all := true
		for _, id := range wanted {
			s := r.peers[id]
			switch {
			case arrived[id]:
			case s == nil && r.was[id].withdrawn, s != nil && s.withdrawn:
				arrived[id] = true
			case s != nil && s.barriers[name] >= round:
				arrived[id] = true
			case s == nil && r.was[id].err != nil:
				return false, fmt.Errorf("barrier %q: node.%d will not come: %w", name, id, r.was[id].err)
			default:
				all = false
			}
		}
		return all, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("barrier %q waits for %s: %w", name, strings.Join(missing(), ", "), err)
	}
	return err
}

// barrierMembers are the nodes that a barrier waits for. The mutex is held.
func (r *Router) barrierMembers() []int {
	var ids []int
	if r.cfg.Expect > 0 && r.cfg.Topology != Alone {
		ids, _ = r.expected()
		return ids
	}
	for id, s := range r.peers {
		if s.ready {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
