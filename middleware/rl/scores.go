package rl

import (
	"log/slog"
)

const (
	// MaxScores is the maximum number of episodes in Scores.
	MaxScores = 10_000
	// maxUnlogged is the maximum number of evaluations that wait for the log.
	maxUnlogged = 64
)

// Scores is an evaluation with its episodes, in the order in which they ended. The slices have one entry for each
// of the first MaxScores episodes.
type Scores struct {
	Evaluation
	// First is the number of leading episodes that belong to an evaluation that reached
	// EvalConfig.StopAt and that a second one, with the other episodes, then replaced to confirm it; 0:
	// there was none.
	First   int
	Returns []float64
	Lengths []int32 // in time steps
	Envs    []int32 // index of the environment in its vector
}

// add adds the episodes that e has played, and returns the number of episodes beyond the maximum.
func (s *Scores) add(e *evaluate) (left int) {
	for i, ep := range e.ended {
		if len(s.Returns) == MaxScores {
			return len(e.ended) - i
		}
		s.Returns, s.Lengths, s.Envs = append(s.Returns, ep.Return), append(s.Lengths, int32(ep.Length)), append(s.Envs, e.from[i])
	}
	return 0
}

// whole reports whether the slices, which another node has sent, have the same length and First lies in them.
func (s *Scores) whole() bool {
	n := len(s.Returns)
	return len(s.Lengths) == n && len(s.Envs) == n && n <= MaxScores && s.First >= 0 && s.First <= n
}

// evaluated records an evaluation of this node.
func (r *Run) evaluated(s *Scores) {
	r.heard(*s)
	if !alone(r.t) {
		r.unsent = append(r.unsent, *s)
	}
}

// heard keeps a received evaluation for the log of this node.
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

// keepNewest bounds the evaluations that wait for the log.
func (r *Run) keepNewest(all []Scores) []Scores {
	for len(all) > maxUnlogged {
		r.t.Logger().Warn("an evaluation is not logged: too many wait for the log", slog.Int("env_steps", all[0].EnvSteps))
		all = all[1:]
	}
	return all
}

// takeScores returns the evaluations that are not logged yet, and removes them.
func (r *Run) takeScores() []Scores {
	all := r.scores
	r.scores = nil
	return all
}

// takeUnsent returns the evaluations of this node that were not sent to the learner yet, and
// removes them.
func (r *Run) takeUnsent() []Scores {
	all := r.unsent
	r.unsent = nil
	return all
}
