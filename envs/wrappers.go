package envs

import "fmt"

func overError(name string) error { return fmt.Errorf("%s: %w", name, ErrEpisodeOver) }

// TimeLimit returns env with its episodes truncated after maxSteps time steps.
// It panics if maxSteps is not positive.
func TimeLimit[A Action](env Env[A], maxSteps int) Env[A] {
	if maxSteps <= 0 {
		panic(fmt.Sprintf("envs: time limit of %d steps", maxSteps))
	}
	return &timeLimit[A]{Env: env, limitState: limitState{max: maxSteps}}
}

type timeLimit[A Action] struct {
	Env[A]
	limitState
}

type limitState struct {
	max, elapsed int
	over         bool
}

// count counts a time step, after which the environment's episode is over or
// not, and reports whether the limit is reached.
func (l *limitState) count(over bool) bool {
	l.elapsed++
	cut := l.elapsed >= l.max
	l.over = over || cut
	return cut
}

// Unwrap returns the environment inside.
func (t *timeLimit[A]) Unwrap() Env[A] { return t.Env }

func (t *timeLimit[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	t.elapsed, t.over = 0, false
	return t.Env.Reset(seed...)
}

func (t *timeLimit[A]) Step(action A) (Step, error) {
	if t.over {
		return Step{}, overError(t.Name())
	}
	s, err := t.Env.Step(action)
	if err != nil {
		return s, err
	}
	if t.count(s.Terminated || s.Truncated) {
		s.Truncated = true
	}
	return s, nil
}

// RecordEpisodeStatistics returns env with Info.Episode set on the last step
// of every episode: the undiscounted return and the length.
func RecordEpisodeStatistics[A Action](env Env[A]) Env[A] {
	return &recordStatistics[A]{Env: env}
}

type recordStatistics[A Action] struct {
	Env[A]
	statState
}

type statState struct {
	episode Episode
	ended   Episode // the last one that ended, for its Info
}

// count counts a time step and returns the episode if it is over.
func (s *statState) count(reward float64, over bool) *Episode {
	s.episode.Return += reward
	s.episode.Length++
	if !over {
		return nil
	}
	s.ended = s.episode
	return &s.ended
}

// Unwrap returns the environment inside.
func (r *recordStatistics[A]) Unwrap() Env[A] { return r.Env }

func (r *recordStatistics[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	r.episode = Episode{}
	return r.Env.Reset(seed...)
}

func (r *recordStatistics[A]) Step(action A) (Step, error) {
	s, err := r.Env.Step(action)
	if err != nil {
		return s, err
	}
	if e := r.count(s.Reward, s.Terminated || s.Truncated); e != nil {
		s.Info.Episode = e
	}
	return s, nil
}
