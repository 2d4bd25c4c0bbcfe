package envs

import (
	"errors"
	"fmt"
)

// Action is the type of an environment's actions in Go: int for a [Discrete]
// action space, []float32 for a [Box], []int for a [MultiDiscrete] or a
// [MultiBinary].
type Action interface {
	int | []float32 | []int
}

// Env is one environment with actions of type A. Authors of environments
// implement it; a [Vector] steps several of them over flat arrays.
type Env[A Action] interface {
	// Name identifies the kind of environment, such as "CartPole-v1".
	Name() string
	// ObservationSpace is the space of the observations.
	ObservationSpace() Space
	// ActionSpace is the space of the actions.
	ActionSpace() Space
	// Reset starts an episode and returns its first observation. A seed
	// restarts the environment's random numbers; without one they continue.
	// More than one seed is an error.
	Reset(seed ...uint64) (obs []float32, info Info, err error)
	// Step runs one time step. After Terminated or Truncated the next call
	// must be Reset. The environment may alias action only during the call.
	Step(action A) (Step, error)
}

// Wrapper is an environment around another. [As] looks through it.
type Wrapper[A Action] interface {
	Env[A]
	// Unwrap returns the environment inside.
	Unwrap() Env[A]
}

// As returns env, or the outermost environment inside its wrappers, that is a
// T: for example As[Renderer](env).
func As[T any, A Action](env Env[A]) (t T, ok bool) {
	for {
		if t, ok = env.(T); ok {
			return t, true
		}
		w, wraps := env.(Wrapper[A])
		if !wraps {
			return t, false
		}
		env = w.Unwrap()
	}
}

// ActionClipper is an environment with a [Box] of actions that clips an action
// outside of the box itself, as Gymnasium's Pendulum does. A vector hands such
// an action on; for any other environment it is an [ErrAction].
type ActionClipper interface {
	// ClipsActions is never called: the method is a mark.
	ClipsActions()
}

// ActionMasker is an environment that knows which of its discrete actions have
// an effect in the present state.
type ActionMasker interface {
	// ActionMask sets dst[a] for the actions a that have an effect, and clears
	// it for the others. dst has one entry for each action.
	ActionMask(dst []bool)
}

// Step is the outcome of one time step.
type Step struct {
	Obs        []float32 // observation after the step; overwritten by the next call
	Reward     float64
	Terminated bool // the episode reached an end of the task itself: no future
	Truncated  bool // the episode was cut from outside, such as by a time limit
	Info       Info
}

// Info has values of an environment besides its observation. The zero value has
// none.
type Info struct {
	// Episode is set by RecordEpisodeStatistics on the last step of an episode,
	// and overwritten when the next episode ends.
	Episode *Episode
	// Values are the environment's own, by name. Mostly nil.
	Values map[string]any
}

// Episode sums up one finished episode.
type Episode struct {
	Return float64 // sum of the rewards
	Length int     // time steps
}

// The errors of a call at the wrong time or with a wrong value. A returned error
// wraps one of them, and names the environment and the value.
var (
	ErrNotReset    = errors.New("step before the first reset")
	ErrEpisodeOver = errors.New("step after the end of the episode: call Reset first")
	ErrAction      = errors.New("action outside of the action space")
	ErrSeeds       = errors.New("reset takes at most one seed")
	ErrNoPictures  = errors.New("no pictures can be made of the environment")
	ErrShape       = errors.New("observation of the wrong length")
	ErrHung        = errors.New("environment does not return")
	ErrClosed      = errors.New("vector is closed")
)

// actionError reports which action was refused, and by which space.
func actionError(name string, action any, space Space) error {
	return fmt.Errorf("%s: %w: %v is not in %v", name, ErrAction, action, space)
}

// Error is a fault in one environment of a vector.
type Error struct {
	Env   string // the environment's name
	Index int    // its place in the vector, from 0
	Op    string // "reset" or "step"
	Err   error  // the cause; for a panic, its value
	Stack []byte // of the panic, else nil
}

// Error names the environment, its index and the operation.
func (e *Error) Error() string {
	what := ""
	if e.Stack != nil {
		what = "panic: "
	}
	return fmt.Sprintf("%s env %s[%d]: %s%v", e.Op, e.Env, e.Index, what, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
