package algorithm

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
)

// ReplayDefaults are the defaults of the hyperparameters of a replay buffer.
type ReplayDefaults struct {
	Source      string // of these defaults
	Capacity    int
	Batch       int
	StartAt     int // env steps
	Every       int // env steps between updates
	Updates     int // that follow
	Prioritised bool
}

// Replay are the hyperparameters of a replay buffer.
type Replay struct {
	capacity, batch, start, every, updates *int
	goals, maxUses, maxAge                 *int
	prioritised                            *bool
	alpha                                  *float64
	beta                                   *Schedule
}

// Replay declares the hyperparameters of a replay buffer.
func (p *Params) Replay(def ReplayDefaults) *Replay {
	one := AtLeast(1)
	r := &Replay{
		capacity: p.Int("buffer_size", def.Capacity, "rows", "most rows that the replay buffer keeps", def.Source, one),
		batch:    p.Int("batch_size", def.Batch, "rows", "rows of an update", def.Source, one),
		start:    p.Int("learning_starts", def.StartAt, "rows", "rows in the buffer before the first update", def.Source, AtLeast(0)),
		every:    p.Int("train_freq", def.Every, "env steps", "env steps between updates", def.Source, one),
		updates:  p.Int("gradient_steps", def.Updates, "updates", "updates that follow those env steps", def.Source, one),
	}
	r.prioritised = p.Bool("prioritized", def.Prioritised, "sample in proportion to the temporal-difference error (Schaul et al. 2016)",
		def.Source)
	r.alpha = p.Float("priority_alpha", 0.6, "", "how much priorities count; 0: not at all", "Schaul et al. 2016", AtLeast(0))
	r.beta = p.Schedule("priority_beta", "linear(0.4, 1)", "", "correction of the bias by priorities, over the run", "Schaul et al. 2016",
		AtLeast(0), AtMost(1))
	r.goals = p.Int("her_goals", 0, "goals", "goals in hindsight for each transition, with strategy future; 0: none",
		"Andrychowicz et al. 2017: 4", AtLeast(0))
	r.maxUses = p.Int("max_uses", 0, "samples", "how often a row may be sampled; 0: always", "ditask", AtLeast(0))
	r.maxAge = p.Int("max_age", 0, "updates", "how old the weights behind a row may be; 0: any age", "ditask", AtLeast(0))
	return r
}

// TargetEvery returns the number of updates in that many env steps.
func (r *Replay) TargetEvery(envSteps int) int {
	return max(envSteps**r.updates / *r.every, *r.updates, 1)
}

// Every returns the number of env steps between updates.
func (r *Replay) Every() int { return *r.every }

func (r *Replay) source(t Task) (data.Source, error) {
	uniform := data.UniformConfig{Capacity: *r.capacity, Seed: t.Seed, MaxUses: *r.maxUses, MaxAge: uint64(*r.maxAge)}
	cfg := data.ReplayConfig{Batch: *r.batch, StartAt: max(*r.start, 1), Every: *r.every, Updates: *r.updates}
	var faults []error
	if *r.batch > *r.capacity {
		faults = append(faults, fmt.Errorf("batch_size: %d rows: the buffer keeps %d: see buffer_size", *r.batch, *r.capacity))
	}
	if *r.start > *r.capacity {
		faults = append(faults, fmt.Errorf("learning_starts: %d rows: the buffer keeps %d: see buffer_size", *r.start, *r.capacity))
	}
	if *r.goals > 0 && t.Goal == nil {
		faults = append(faults, errors.New("her_goals: the environment has no goals"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	var buf data.Buffer = data.NewUniform(uniform)
	if *r.prioritised {
		buf = data.NewPrioritised(data.PrioritisedConfig{UniformConfig: uniform, Alpha: *r.alpha})
		batches := t.Steps * *r.updates / *r.every // beta goes by the batches that were drawn
		cfg.Beta = r.beta.Over(max(batches, 1))
	}
	cfg.Every *= *r.goals + 1 // each env step is that many rows
	return data.NewReplay(buf, cfg), nil
}

// Setup returns a setup with the replay buffer of a task.
func (r *Replay) Setup(t Task, policy func() policies.Policy) (Setup, error) {
	source, err := r.source(t)
	if err != nil {
		return Setup{}, err
	}
	s := Setup{Policy: policy(), Source: source, Goals: *r.goals}
	if s.Goals > 0 {
		if n := s.Policy.Spec().NStep; n > 1 {
			return s, fmt.Errorf("her_goals: %d goals: a transition in hindsight has one reward, and n_steps is %d: set n_steps=1", s.Goals, n)
		}
	}
	if n := *r.every / max(1, t.Envs); n > 1 {
		s.VectorSteps = n
	}
	return s, nil
}

// Rate declares the learning rate, which may follow a schedule, under its usual names.
func (p *Params) Rate(def, source string) *Schedule {
	s := p.Schedule("learning_rate", def, "", "step size of the optimiser", source, AtLeast(0))
	p.Alias("rate", "lr")
	return s
}

// ConstantRate declares the learning rate of an optimiser that follows no schedule.
func (p *Params) ConstantRate(def float64, source string) *float64 {
	v := p.Float("learning_rate", def, "", "step size of the optimisers", source, Above(0))
	p.Alias("rate", "lr")
	return v
}

// Gamma declares the discount.
func (p *Params) Gamma(def float64, source string) *float64 {
	return p.Float("gamma", def, "", "discount of one step", source, Above(0), AtMost(1))
}

// Hidden declares the widths of the hidden layers.
func (p *Params) Hidden(def []int, source string) *[]int {
	v := p.Ints("hidden", def, "units", "widths of the hidden layers", source)
	p.Alias("net_arch")
	return v
}

// MaxGradNorm declares the clipping of gradients.
func (p *Params) MaxGradNorm(def float64, source string) *float64 {
	return p.Float("max_grad_norm", def, "", "greatest norm of all gradients together; 0: no clipping", source, AtLeast(0))
}

// Positive returns a number, such as a learning rate, for a config that takes 0 for its default: one that begins
// with 0 is set before the first update.
func Positive(rate float64) float64 {
	if rate == 0 {
		return 1e-12
	}
	return rate
}

// OrNone is v, or for 0 the negative value by which configs of policies mean none.
func OrNone(v float64) float64 {
	if v == 0 {
		return -1
	}
	return v
}

// Following returns the schedule in a run of that many steps, or nil if it is constant.
func (s *Schedule) Following(total int) policies.Schedule {
	if s.Constant() {
		return nil
	}
	return s.Over(total)
}
