package rl

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// end ends a step of the learners. The first learner's step ends first, unless it has finished: then it waits until
// the others are at the end of the same step. Meanwhile they send it their states if it makes a checkpoint.
func (g *group) end(ctx context.Context, c *Online) error {
	if g.broken {
		return nil
	}
	if g.leads() {
		return g.endFirst(ctx, g.t.Finished())
	}
	for {
		s, err := g.next(ctx, g.ids[0], ShareAsk, ShareEnd)
		if err != nil {
			return err
		}
		switch {
		case s.Kind == ShareAsk:
			if err := g.saved(ctx, c, s.WithoutData, false); err != nil {
				return err
			}
		case s.Finished:
			if err := g.send(ctx, &Share{Kind: ShareEnd}, g.ids[0]); err != nil {
				return err
			}
			if _, err := g.next(ctx, g.ids[0], ShareEnd); err != nil || g.t.Finished() {
				return err
			}
			return g.wait(ctx, "the end of the job", func() (bool, error) { return false, g.answerLast(ctx) })
		default:
			return nil
		}
	}
}

// endFirst ends a step of the first learner. When it has finished, it notifies the others only after
// all of them are at the end of that step, because a learner that finishes by its number of steps cuts
// the steps of all others short.
func (g *group) endFirst(ctx context.Context, finished bool) error {
	if err := g.send(ctx, &Share{Kind: ShareEnd, Finished: finished}); err != nil || !finished {
		return err
	}
	for _, id := range g.others() {
		if _, err := g.next(ctx, id, ShareEnd); err != nil {
			return err
		}
	}
	return g.send(ctx, &Share{Kind: ShareEnd, Finished: true})
}

// answerLast answers the first learner when it has finished and makes its last checkpoint: this
// learner may not have received that yet, and may be waiting for another message. During its updates
// it continues, unless the first learner was in them too.
func (g *group) answerLast(ctx context.Context) error {
	s, ok := g.pop(g.ids[0], func(s *Share) bool { return s.Kind == ShareAsk && s.Finished && (s.Torn || !g.torn) })
	if !ok {
		return nil
	}
	return g.saved(ctx, g.t.Context(), s.WithoutData, false)
}

// saved sends the state from which this learner continues to the first one. finished says that it is the last one.
func (g *group) saved(ctx context.Context, c *Online, withoutData, finished bool) error {
	var a nn.Archive
	err := g.r.archive(&a, c, withoutData)
	var own []byte
	if err == nil {
		own, err = a.AppendBinary(nil)
	}
	if err != nil {
		return g.r.onNode(fmt.Errorf("checkpoint: %w", err))
	}
	return g.send(ctx, &Share{Kind: ShareSaved, Own: own, Torn: g.torn, Finished: finished}, g.ids[0])
}

// finish sends the state of this learner at its end to the first one, which may not ask for it any
// more.
func (g *group) finish(ctx context.Context, o task.Outcome) error {
	if o.Kind == task.Failure || !g.member || g.leads() || !g.first.Saves {
		return nil
	}
	return g.saved(ctx, g.t.Context(), g.first.WithoutData, true)
}

// learnerKey is the name of a learner's state in an archive.
func learnerKey(node int) string { return fmt.Sprintf("rl/learner.%d", node) }

// collect asks the other learners for their states and puts them into the archive of the first one. At
// the end of the run, it omits the state of a learner that does not answer.
func (g *group) collect(ctx context.Context, a *nn.Archive, withoutData, ended bool) error {
	if err := g.send(ctx, &Share{Kind: ShareAsk, WithoutData: withoutData, Finished: ended, Torn: g.torn}); err != nil {
		return err
	}
	if ended {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience/2) // within the 10 s that a node has by default to end after SIGTERM
		defer cancel()
	}
	for _, id := range g.others() {
		s, err := g.stateOf(ctx, id)
		if g.r.lockstep && (err != nil && ended || s.Torn) {
			return errTorn
		}
		if err != nil && ended {
			g.t.Logger().Warn("the checkpoint has no state of a learner that has not answered", slog.Int("node", id), slog.Any("err", err))
			continue
		}
		if err != nil {
			return err
		}
		a.Put(learnerKey(id), nn.State{Tensors: []nn.Tensor{{Name: "archive", Shape: []int{len(s.Own)}, Bytes: s.Own}}})
	}
	return nil
}

// stateOf returns the state of another learner that was asked for it. The state of one that has finished may have answered an earlier
// question: it does not change, and no other follows.
func (g *group) stateOf(ctx context.Context, id int) (Share, error) {
	if s, ok := g.last[id]; ok {
		return s, nil
	}
	s, err := g.next(ctx, id, ShareSaved)
	if err == nil && s.Finished {
		g.last[id] = s
	}
	return s, err
}

// passedKey is the name in an archive of group.passed.
const passedKey = "rl/passed"

// restore finds the states of the other learners in the archive of the first one.
func (g *group) restore(a *nn.Archive) {
	g.passed, _ = a.Number(passedKey) // with one learner there is none
	for _, id := range g.others() {
		if s, err := a.State(learnerKey(id)); err == nil && len(s.Tensors) == 1 {
			g.own[id] = s.Tensors[0].Bytes
		} else {
			g.t.Logger().Warn("the checkpoint has no state of a learner, which begins without data", slog.Int("node", id))
		}
	}
}
