package envs

import "fmt"

// TimeLimit returns env with its episodes truncated after maxSteps time steps.
// It panics if maxSteps is not positive.
func TimeLimit[A any](env Env[A], maxSteps int) Env[A] {
	if maxSteps <= 0 {
		panic(fmt.Sprintf("envs: time limit of %d steps", maxSteps))
	}
	return &timeLimit[A]{Env: env, max: maxSteps}
}

type timeLimit[A any] struct {
	Env[A]
	max, elapsed int
	over         bool
}

func (t *timeLimit[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	t.elapsed, t.over = 0, false
	return t.Env.Reset(seed...)
}

func (t *timeLimit[A]) Step(action A) (Step, error) {
	if t.over {
		return Step{}, fmt.Errorf("%s: %w", t.Name(), ErrEpisodeOver)
	}
	s, err := t.Env.Step(action)
	if err != nil {
		return s, err
	}
	t.elapsed++
	if t.elapsed >= t.max {
		s.Truncated = true
	}
	t.over = s.Terminated || s.Truncated
	return s, nil
}

// RecordEpisodeStatistics returns env with Info.Episode set on the last step
// of every episode: the undiscounted return and the length.
func RecordEpisodeStatistics[A any](env Env[A]) Env[A] {
	return &recordStatistics[A]{Env: env}
}

type recordStatistics[A any] struct {
	Env[A]
	episode Episode
	ended   Episode // the last one that ended, for its Info
}

func (r *recordStatistics[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	r.episode = Episode{}
	return r.Env.Reset(seed...)
}

func (r *recordStatistics[A]) Step(action A) (Step, error) {
	s, err := r.Env.Step(action)
	if err != nil {
		return s, err
	}
	r.episode.Return += s.Reward
	r.episode.Length++
	if s.Terminated || s.Truncated {
		r.ended = r.episode
		s.Info.Episode = &r.ended
	}
	return s, nil
}
