package rl

import (
	"log/slog"
)

const (
	// MaxScores bounds the episodes that Scores holds of one evaluation.
	MaxScores = 10_000
	// maxUnlogged bounds the evaluations that wait for the log.
	maxUnlogged = 64
)

// Scores is an evaluation with its episodes, in the order in which they ended. The slices have one entry for each
// of the first MaxScores episodes.
type Scores struct {
	Evaluation
	// First is the number of leading episodes of an evaluation that reached EvalConfig.StopAt, which the
	// Evaluation then replaced to confirm it; 0: there was none.
	First   int
	Returns []float64
	Lengths []int32 // in time steps
	Envs    []int32 // index of the environment in its vector
}

// add takes over the episodes that e has played, and returns how many found no room.
func (s *Scores) add(e *evaluate) (left int) {
	for i, ep := range e.ended {
		if len(s.Returns) == MaxScores {
			return len(e.ended) - i
		}
		s.Returns, s.Lengths, s.Envs = append(s.Returns, ep.Return), append(s.Lengths, int32(ep.Length)), append(s.Envs, e.from[i])
	}
	return 0
}

// whole reports whether the slices have the same length, and First lies in them: what came from another node.
func (s *Scores) whole() bool {
	n := len(s.Returns)
	return len(s.Lengths) == n && len(s.Envs) == n && n <= MaxScores && s.First >= 0 && s.First <= n
}

// evaluated records an evaluation that this node has made.
func (r *Run) evaluated(s *Scores) {
	r.heard(*s)
	if !alone(r.t) {
		r.unsent = append(r.unsent, *s)
	}
}

// heard keeps an evaluation for the log of this node.
func (r *Run) heard(s Scores) {
	if !r.logsScores {
		return
	}
	if !s.whole() {
		r.t.Logger().Warn("an evaluation is not logged: its episodes are not whole", slog.Int("env_steps", s.EnvSteps))
		return
	}
	r.scores = r.keepNewest(append(r.scores, s))
}

// keepNewest bounds what waits for the log.
func (r *Run) keepNewest(all []Scores) []Scores {
	for len(all) > maxUnlogged {
		r.t.Logger().Warn("an evaluation is not logged: too many wait for the log", slog.Int("env_steps", all[0].EnvSteps))
		all = all[1:]
	}
	return all
}

// takeScores returns the evaluations that are not logged yet.
func (r *Run) takeScores() []Scores {
	all := r.scores
	r.scores = nil
	return all
}

// takeUnsent returns the evaluations of this node that the learner has not been sent.
func (r *Run) takeUnsent() []Scores {
	all := r.unsent
	r.unsent = nil
	return all
}
