package rl

import (
	"context"
	"fmt"
	"sync"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// ModelConfig describes how weights are published. The zero value works.
type ModelConfig struct {
	// EveryUpdates is the number of updates between two publications; 0 means
	// 10. The first weights are published at once.
	EveryUpdates int
}

// ExchangeModel brings the learner's weights to the other nodes. The learner
// publishes them after its step; a collector installs the newest before it
// acts; a node that only evaluates begins its step by waiting for new ones.
// Weights that are not finite end the run and are not published. On a lone node
// it only notes the policy's version. The lag that a node reports is that of the
// weights which it acts with or evaluates, in updates behind the newest heard of.
func ExchangeModel(t *task.Task[Online], q policies.Model, cfg ...ModelConfig) task.Middleware[Online] {
	m := &model{t: t, q: q, every: 10, fresh: make(chan struct{}, 1)}
	if len(cfg) > 0 && cfg[0].EveryUpdates > 0 {
		m.every = uint64(cfg[0].EveryUpdates)
	}
	m.publishes = t.Has(Learner) && !alone(t)
	m.installs = !t.Has(Learner)
	m.waits = m.installs && !t.Has(Collector)
	if m.installs {
		Weights.On(t, m.hear)
	}
	return func(ctx context.Context, c *Online, next task.Next) error { return m.step(ctx, c, next) }
}

type model struct {
	t                          *task.Task[Online]
	q                          policies.Model
	every                      uint64
	publishes, installs, waits bool
	published                  bool
	version                    uint64        // of the newest publication
	fresh                      chan struct{} // 1: weights were heard

	mu    sync.Mutex
	heard *nn.State
}

func (m *model) hear(_ context.Context, s nn.State) error {
	m.mu.Lock()
	m.heard = &s
	m.mu.Unlock()
	select {
	case m.fresh <- struct{}{}:
	default:
	}
	return nil
}

func (m *model) step(ctx context.Context, c *Online, next task.Next) error {
	if m.installs {
		if err := m.install(ctx, c); err != nil {
			return err
		}
	}
	c.PolicyVersion = m.q.Version()
	if m.installs {
		m.t.ReportLag(float64(lag(uint64(c.Updates), c.PolicyVersion)))
	}
	if err := next(ctx); err != nil {
		return err
	}
	c.PolicyVersion = m.q.Version()
	every := m.every
	if c.inStep() {
		every = 1
	}
	if !m.publishes || m.published && c.PolicyVersion-m.version < every && !m.t.Finished() {
		return nil
	}
	return m.publish(ctx)
}

func (m *model) publish(ctx context.Context) error {
	s := m.q.Weights()
	if err := s.CheckFinite(); err != nil {
		return onNode(m.t, fmt.Errorf("publish weights of update %d: %w", s.Version, err))
	}
	m.published, m.version = true, s.Version
	return emit(ctx, m.t, Weights, s)
}

// install makes the policy act with the newest weights heard, if there are new
// ones. A node that only evaluates waits for them; nodes that go in step wait for
// those of the learner's last step.
func (m *model) install(ctx context.Context, c *Online) error {
	var s *nn.State
	taken := func(struct{}) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.heard != nil {
			s, m.heard = m.heard, nil
		}
		return s != nil && (!c.inStep() || s.Version >= uint64(c.Updates))
	}
	waits := m.waits
	if c.inStep() {
		waits = m.q.Version() < uint64(c.Updates)
	}
	if !taken(struct{}{}) && waits {
		if err := waitFor(ctx, m.t, "weights of the learner", m.fresh, taken); err != nil {
			return err
		}
	}
	if s == nil {
		return nil
	}
	if err := m.q.Load(*s); err != nil {
		return onNode(m.t, fmt.Errorf("install weights of update %d: %w", s.Version, err))
	}
	return nil
}
