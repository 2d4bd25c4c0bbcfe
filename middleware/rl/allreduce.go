package rl

import (
	"context"
	"fmt"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/task"
)

// count makes the counters of all learners equal, before the first update of a step. It returns the
// summaries of all collected data, and the moments of its discounted returns, both in the order of the
// ids.
func (g *group) count(ctx context.Context, c *Online, summary []float64) (all [][]float64, returns []float64, err error) {
	clear(g.done)
	mine := Share{Kind: ShareCount, EnvSteps: c.EnvSteps - g.agreed.EnvSteps, Ended: c.Episodes - g.agreed.Episodes, Stopped: c.Stopped,
		Numbers: summary}
	if c.Collected != nil {
		mine.Episodes, mine.Infos, mine.Returns = c.Collected.Episodes, c.Collected.Infos, c.Collected.Returns
	}
	if err := g.send(ctx, &mine); err != nil {
		return nil, nil, err
	}
	steps, ended := mine.EnvSteps, mine.Ended
	var episodes []envs.Episode
	var infos []float64
	for _, id := range g.ids {
		if id == g.t.NodeID() {
			all, returns = append(all, summary), append(returns, mine.Returns...)
			continue
		}
		s, err := g.next(ctx, id, ShareCount)
		if err != nil {
			return nil, nil, err
		}
		all, returns = append(all, s.Numbers), append(returns, s.Returns...)
		steps += s.EnvSteps
		ended += s.Ended
		if err := g.r.checkInfos(id, s.Episodes, s.Infos); err != nil {
			return nil, nil, err
		}
		episodes, infos = append(episodes, s.Episodes...), append(infos, s.Infos...)
		c.Stopped = c.Stopped || s.Stopped
	}
	g.torn = true
	g.agreed.EnvSteps += steps
	g.agreed.Episodes += ended
	c.EnvSteps, c.Episodes = g.agreed.EnvSteps, g.agreed.Episodes
	if len(episodes) > 0 {
		if c.Collected == nil {
			c.Collected = new(Trajectory)
		}
		c.Collected.Episodes = append(slices.Clone(c.Collected.Episodes), episodes...)
		c.Collected.Infos = append(slices.Clone(c.Collected.Infos), infos...)
	}
	return all, returns, nil
}

// allReduce averages over the learners that make this update. Each learner adds up in the order of
// the ids.
func (g *group) allReduce(ctx context.Context, rows int, grads [][]float32, numbers []float64) error {
	g.out = Share{Kind: ShareGradients, Rows: rows, Grads: grads, Numbers: numbers}
	if err := g.send(ctx, &g.out); err != nil {
		return err
	}
	self, total := g.t.NodeID(), 0
	g.shares = g.shares[:0]
	for _, id := range g.ids {
		s := g.out
		if _, done := g.done[id]; done {
			continue
		}
		if id != self {
			var err error
			if s, err = g.next(ctx, id, ShareGradients, ShareDone); err != nil {
				return err
			}
			if s.Kind == ShareDone {
				g.done[id] = s.Version
				continue
			}
			if err := g.fits(id, &s); err != nil {
				return err
			}
		}
		total += s.Rows
		g.shares = append(g.shares, s)
	}
	g.average(grads, numbers, total)
	return nil
}

// average sets gradients and numbers to the means of g.shares, weighted by their rows, of which
// there are total.
func (g *group) average(grads [][]float32, numbers []float64, total int) {
	for i, dst := range grads {
		g.sum = slices.Grow(g.sum[:0], len(dst))[:len(dst)]
		for n, s := range g.shares {
			weight := float32(s.Rows) / float32(total)
			if n == 0 {
				for k, x := range s.Grads[i] {
					g.sum[k] = weight * x
				}
				continue
			}
			for k, x := range s.Grads[i] {
				g.sum[k] += float32(weight * x) // not fused on any processor
			}
		}
		copy(dst, g.sum)
	}
	g.sums = g.sums[:0]
	for i := range numbers {
		var sum float64
		for _, s := range g.shares {
			sum += float64(float64(s.Rows) * s.Numbers[i])
		}
		g.sums = append(g.sums, sum/float64(total))
	}
	copy(numbers, g.sums) // not earlier: the share of this learner aliases numbers
}

// fits returns an error for a share that does not belong to the update of this learner.
func (g *group) fits(id int, s *Share) error {
	same := len(s.Grads) == len(g.out.Grads) && len(s.Numbers) == len(g.out.Numbers) && s.Rows > 0
	for i := range s.Grads {
		same = same && len(s.Grads[i]) == len(g.out.Grads[i])
	}
	if same {
		return nil
	}
	return fmt.Errorf("node %d averages %s, and learner %d %s: do both have the same policy?", g.t.NodeID(), sizes(&g.out), id, sizes(s))
}

func sizes(s *Share) string {
	var n []int
	for _, grad := range s.Grads {
		n = append(n, len(grad))
	}
	return fmt.Sprintf("gradients of %v values and %d numbers over %d rows", n, len(s.Numbers), s.Rows)
}

// settle waits until no learner makes updates in this step. Learners with fewer updates then take over
// the state of the first one that has made all updates.
func (g *group) settle(ctx context.Context, c *Online) error {
	version := g.r.policy.Version()
	if err := g.send(ctx, &Share{Kind: ShareDone, Version: version}); err != nil {
		return err
	}
	for _, id := range g.others() {
		for _, done := g.done[id]; !done; _, done = g.done[id] {
			s, err := g.next(ctx, id, ShareGradients, ShareDone)
			if err != nil {
				return err
			}
			if s.Kind == ShareDone {
				g.done[id] = s.Version
			}
		}
	}
	g.done[g.t.NodeID()] = version
	source := g.ids[0]
	for _, id := range g.ids {
		if g.done[id] > g.done[source] {
			source = id
		}
	}
	behind := slices.DeleteFunc(slices.Clone(g.ids), func(id int) bool { return g.done[id] == g.done[source] })
	if slices.Contains(behind, g.t.NodeID()) || g.t.NodeID() == source && len(behind) > 0 {
		if err := g.equalize(ctx, c, source, behind, false); err != nil {
			return err
		}
	}
	g.torn = false
	return nil
}

// follow takes a step in lockstep of a learner other than the first.
func (g *group) follow(ctx context.Context, c *Online, next task.Next) error {
	s, err := g.next(ctx, g.ids[0], ShareStep)
	if err != nil {
		return g.reenter(ctx, c, err)
	}
	if tr := s.Collected; tr != nil {
		if err := tr.Batch.Check(g.r.columns...); err != nil {
			return g.r.onNode(fmt.Errorf("the data of learner %d does not fit this policy: %w", g.ids[0], err))
		}
		c.Collected = tr
	}
	c.PolicyVersion = g.r.policy.Version()
	if err := next(ctx); err != nil {
		return err
	}
	c.PolicyVersion = g.r.policy.Version()
	return g.reenter(ctx, c, g.end(ctx, c))
}

// passOn distributes the trajectories of a step over the learners in turn, and returns those of this
// learner, the first.
func (g *group) passOn(ctx context.Context, all []*Trajectory) (mine []*Trajectory, err error) {
	shares := make([]Share, len(g.ids))
	g.passed++
	for i, tr := range all {
		k := (uint64(i) + g.passed) % uint64(len(g.ids))
		if k == 0 {
			mine = append(mine, tr)
			continue
		}
		joined := Online{Collected: shares[k].Collected}
		joined.collected(tr)
		shares[k].Collected = joined.Collected
	}
	for k, id := range g.ids[1:] {
		shares[k+1].Kind = ShareStep
		if err := g.send(ctx, &shares[k+1], id); err != nil {
			return nil, err
		}
	}
	return mine, nil
}
