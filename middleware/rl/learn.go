package rl

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/task"
)

// LearnConfig describes the learning. The zero value works.
type LearnConfig struct {
	// Rate, if not nil, is the learning rate as a function of the env steps of the job, or of the
	// updates in an offline run, for a policy that has the method SetRate(float64).
	Rate policies.Schedule
	// Clip, if not nil, is the clip range of a surrogate objective, with the same argument as Rate, for a policy
	// that has the method SetClip(float64).
	Clip policies.Schedule
	// MaxLag, if not 0, drops rows whose actions were chosen by weights that are more than that
	// many updates older than the learner's.
	MaxLag uint64
}

// Learn adds the collected data to source, and makes the policy learn from all batches that source
// then returns. It measures how far the weights that chose the actions were behind; the learner
// reports the mean as its lag. It does nothing in a step that ends the run. A source that needs no
// additions, such as a [data.Dataset], provides batches in every step: see the package's
// documentation of offline runs.
func (r *Run) Learn(source data.Source, cfg LearnConfig) task.Middleware[Online] {
	l := &learn{r: r, source: source, cfg: cfg}
	if s, ok := source.(interface{ Offline() bool }); ok {
		r.offline = s.Offline()
	}
	if r.t.Has(Learner) {
		r.source = source
	}
	if !r.t.Has(Learner) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	return func(ctx context.Context, c *Online, next task.Next) error {
		if err := l.step(ctx, c); err != nil {
			return err
		}
		return next(ctx)
	}
}

type learn struct {
	r       *Run
	source  data.Source
	cfg     LearnConfig
	batch   policies.Batch
	kept    policies.Batch
	dropped uint64
	priced  bool
}

func (l *learn) step(ctx context.Context, c *Online) error {
	if !l.r.began {
		return errNoExchange
	}
	if l.r.done {
		return nil
	}
	if g := l.r.group; g != nil {
		return g.reenter(ctx, c, l.together(ctx, c, g))
	}
	if c.Stopped {
		return nil
	}
	l.announce()
	if l.r.evaluationDue() {
		return nil
	}
	if c.Collected != nil {
		if err := l.add(c); err != nil {
			return l.r.onNode(err)
		}
		if err := l.mergeReturns(c.Collected.Returns); err != nil {
			return err
		}
	}
	if err := l.updates(c); err != nil {
		return err
	}
	summary, err := l.observe(c)
	if err != nil {
		return err
	}
	return l.merge(summary)
}

// observe summarises the collected data, for a policy that keeps statistics of it.
func (l *learn) observe(c *Online) ([]float64, error) {
	o, ok := l.r.policy.(policies.Observer)
	if !ok || c.Collected == nil {
		return nil, nil
	}
	summary, err := o.Observe(&c.Collected.Batch)
	if err != nil {
		return nil, l.r.onNode(err)
	}
	return summary, nil
}

// merge passes summaries to the policy.
func (l *learn) merge(summaries ...[]float64) error {
	o, ok := l.r.policy.(policies.Observer)
	for _, s := range summaries {
		if !ok || len(s) == 0 {
			continue
		}
		if err := o.Merge(s); err != nil {
			return l.r.onNode(err)
		}
	}
	return nil
}

// mergeReturns passes the moments of discounted returns to the policy.
func (l *learn) mergeReturns(moments []float64) error {
	s, ok := l.r.policy.(policies.RewardScaler)
	if !ok || len(moments) == 0 {
		return nil
	}
	if err := s.MergeReturns(moments); err != nil {
		return l.r.onNode(err)
	}
	return nil
}

// together takes a step of one of several learners.
func (l *learn) together(ctx context.Context, c *Online, g *group) error {
	if c.Collected != nil && !c.Stopped {
		if err := l.add(c); err != nil {
			return l.r.onNode(err)
		}
	}
	summary, err := l.observe(c)
	if err != nil {
		return err
	}
	all, returns, err := g.count(ctx, c, summary)
	if err != nil || c.Stopped {
		return err
	}
	if err := l.mergeReturns(returns); err != nil {
		return err
	}
	g.policy.SetAllReduce(func(grads [][]float32, numbers []float64) error {
		return g.allReduce(ctx, l.batch.N, grads, numbers)
	})
	defer g.policy.SetAllReduce(nil)
	if err := l.updates(c); err != nil {
		return err
	}
	if err := g.settle(ctx, c); err != nil {
		return err
	}
	return l.merge(all...)
}

// updates makes the updates of a step.
func (l *learn) updates(c *Online) error {
	if s, ok := l.r.policy.(interface{ SetRate(rate float64) }); ok && l.cfg.Rate != nil {
		s.SetRate(l.cfg.Rate(l.r.clock(c)))
	}
	if s, ok := l.r.policy.(interface{ SetClip(clip float64) }); ok && l.cfg.Clip != nil {
		s.SetClip(l.cfg.Clip(l.r.clock(c)))
	}
	for l.source.Next(&l.batch) {
		if err := l.update(c); err != nil {
			return l.r.onNode(err)
		}
	}
	return nil
}

// add gives the source the collected data, without the rows that are too old.
func (l *learn) add(c *Online) error {
	b := &c.Collected.Batch
	if err := b.CheckLike(b); err != nil {
		return fmt.Errorf("learn: %w", err)
	}
	now := l.r.policy.Version()
	versions := b.Words(policies.Version)
	c.Lag = lagOf(versions, now)
	l.r.t.ReportLag(c.Lag.Mean)
	if l.cfg.MaxLag > 0 && c.Lag.Max > l.cfg.MaxLag {
		l.kept.InitLike(b)
		for i, v := range versions {
			if lag(now, v) <= l.cfg.MaxLag {
				l.kept.AppendRange(b, i, i+1)
			}
		}
		if l.dropped == 0 {
			l.r.t.Logger().Warn("dropping data that was collected with old weights",
				slog.Uint64("lag", c.Lag.Max), slog.Uint64("max_lag", l.cfg.MaxLag))
		}
		l.dropped += uint64(b.Len() - l.kept.Len())
		if b = &l.kept; b.N == 0 {
			return nil
		}
	}
	if err := l.source.Add(b); err != nil {
		return err
	}
	if s, ok := l.source.(interface {
		Bytes() uint64
		Capacity() int
	}); ok && !l.priced {
		l.priced = true
		l.r.t.Logger().Info("replay buffer", slog.Int("rows", s.Capacity()), slog.Uint64("bytes", s.Bytes()))
	}
	return nil
}

func (l *learn) update(c *Online) error {
	age := lagOf(l.batch.Words(policies.Version), l.r.policy.Version())
	metrics, err := l.r.policy.Learn(&l.batch)
	if err != nil {
		return err
	}
	if err := l.source.Learned(&l.batch); err != nil {
		return err
	}
	c.Trained.add(1, metrics, age)
	c.Updates = int(l.r.policy.Version())
	return nil
}

func lag(now, version uint64) uint64 {
	if version > now {
		return 0
	}
	return now - version
}

func lagOf(versions []uint64, now uint64) Lag {
	var l Lag
	if len(versions) == 0 {
		return l
	}
	var sum uint64
	for _, v := range versions {
		d := lag(now, v)
		sum += d
		l.Max = max(l.Max, d)
	}
	l.Mean = float64(sum) / float64(len(versions))
	return l
}
