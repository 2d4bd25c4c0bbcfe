package rl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/task"
)

// PushConfig describes what is kept. The zero value keeps everything.
type PushConfig struct {
	// MaxLag, if not 0, drops transitions whose actions were chosen by weights
	// that are more than so many updates older than the learner's.
	MaxLag uint64
}

// Push puts what was collected into the replay buffer and measures how far the
// collectors' weights are behind; the mean is the lag that the learner reports.
func Push(buf *data.Uniform, cfg ...PushConfig) task.Middleware[Online] {
	var limit, dropped uint64
	if len(cfg) > 0 {
		limit = cfg[0].MaxLag
	}
	var kept policies.Batch
	return task.Step(func(_ context.Context, c *Online) error {
		if c.Collected == nil || c.Stopped {
			return nil
		}
		t, err := c.taskOf()
		if err != nil {
			return err
		}
		b := &c.Collected.Batch
		if err := b.CheckLike(b); err != nil {
			return onNode(t, fmt.Errorf("push: %w", err))
		}
		now := uint64(c.Updates)
		versions := b.Words(policies.Version)
		c.Lag = lagOf(versions, now)
		t.ReportLag(c.Lag.Mean)
		if limit > 0 && c.Lag.Max > limit {
			kept.InitLike(b)
			for i, v := range versions {
				if lag(now, v) <= limit {
					kept.AppendRange(b, i, i+1)
				}
			}
			if dropped == 0 {
				t.Logger().Warn("dropping transitions of old weights", slog.Uint64("lag", c.Lag.Max), slog.Uint64("max_lag", limit))
			}
			dropped += uint64(b.Len() - kept.Len())
			b = &kept
		}
		if err := buf.Add(b); err != nil {
			return onNode(t, err)
		}
		return nil
	})
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

// LearnConfig describes the learning. The zero value works.
type LearnConfig struct {
	Batch int // transitions of an update; 0 means 64
	// UpdatesPerCollect is the number of updates after each trajectory; 0
	// means 1.
	UpdatesPerCollect int
	// StartAt is the number of transitions in the buffer before the first
	// update; 0 means 1,000, or the buffer's capacity if that is less. It is at
	// least Batch.
	StartAt int
	// Rate, if not nil, is the learning rate by the env steps of the job.
	Rate policies.Schedule
}

func (c LearnConfig) defaults(capacity int) (LearnConfig, error) {
	if c.Batch == 0 {
		c.Batch = 64
	}
	if c.UpdatesPerCollect == 0 {
		c.UpdatesPerCollect = 1
	}
	if c.StartAt == 0 {
		c.StartAt = min(1000, capacity)
	}
	c.StartAt = max(c.StartAt, c.Batch)
	var faults []error
	if c.Batch < 1 || c.UpdatesPerCollect < 1 || c.StartAt < 1 {
		faults = append(faults, fmt.Errorf("learn config: Batch %d, UpdatesPerCollect %d and StartAt %d must not be negative", c.Batch, c.UpdatesPerCollect, c.StartAt))
	}
	if c.StartAt > capacity {
		faults = append(faults, fmt.Errorf("learn config: StartAt %d and Batch %d are beyond the buffer's capacity of %d", c.StartAt, c.Batch, capacity))
	}
	return c, errors.Join(faults...)
}

// Learn updates q from samples of the buffer, after each step that collected
// something. It does nothing in a step that ends the run. It panics with all
// faults of the config.
func Learn(q policies.Learner, buf *data.Uniform, cfg LearnConfig) task.Middleware[Online] {
	cfg, err := cfg.defaults(buf.Capacity())
	if err != nil {
		panic(err.Error())
	}
	l := &learn{q: q, buf: buf, cfg: cfg}
	return task.Step(func(ctx context.Context, c *Online) error { return l.step(ctx, c) })
}

type learn struct {
	q      policies.Learner
	buf    *data.Uniform
	cfg    LearnConfig
	batch  policies.Batch
	priced bool
}

func (l *learn) step(_ context.Context, c *Online) error {
	t, err := c.taskOf()
	if err != nil {
		return err
	}
	if !l.priced && l.buf.Bytes() > 0 {
		l.priced = true
		t.Logger().Info("replay buffer", slog.Int("transitions", l.buf.Capacity()), slog.Uint64("bytes", l.buf.Bytes()))
	}
	if c.Collected == nil || c.Stopped || l.buf.Len() < l.cfg.StartAt {
		return nil
	}
	if r, ok := l.q.(interface{ SetRate(rate float64) }); ok && l.cfg.Rate != nil {
		r.SetRate(l.cfg.Rate(c.EnvSteps))
	}
	for range l.cfg.UpdatesPerCollect * c.Collected.Collects {
		if err := l.update(c); err != nil {
			return onNode(t, err)
		}
	}
	n := float64(c.Trained.Updates)
	m := &c.Trained.Metrics
	m.Loss, m.GradNorm, m.Value = m.Loss/n, m.GradNorm/n, m.Value/n
	c.Trained.Lag.Mean /= n
	return nil
}

func (l *learn) update(c *Online) error {
	if err := l.buf.Sample(&l.batch, l.cfg.Batch); err != nil {
		return err
	}
	age := lagOf(l.batch.Words(policies.Version), l.q.Version())
	m, err := l.q.Update(&l.batch)
	if err != nil {
		return err
	}
	sum := &c.Trained
	sum.Updates++
	sum.Metrics.Loss += m.Loss
	sum.Metrics.GradNorm += m.GradNorm
	sum.Metrics.Value += m.Value
	sum.Metrics.Rate = m.Rate
	sum.Lag.Mean += age.Mean
	sum.Lag.Max = max(sum.Lag.Max, age.Max)
	c.Updates = int(l.q.Version())
	return nil
}
