// Package her is hindsight experience replay: a policy learns from attempts at one goal as if another one,
// which was reached, had been the goal. With it an off-policy algorithm learns from rewards that it would
// hardly ever see.
//
//	goal, ok := envs.As[envs.Goal](envs.NewBitFlip(envs.BitFlipConfig{Bits: 15}))
//	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Seed: 7}), data.ReplayConfig{Every: 5})
//	source := her.New(replay, her.Config{Goal: goal, Seed: 7})
//	t.Use(r.Exchange(...), r.Collect(...), r.Learn(source, rl.LearnConfig{}), ...)
//
// M. Andrychowicz et al., "Hindsight Experience Replay" (2017), algorithm 1: a transition goes to the replay
// buffer when it comes, and once more for each of some goals when its episode ends. The reward and the end of
// such a copy are computed again by [envs.Goal].
//
// A Replay is not safe for concurrent use. The same seed and additions give the same batches, also after Save
// and Restore.
package her

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// Replay is a data.Replay to which each transition is added with its own goal and with some that were
// achieved in its episode. ReplayConfig.Every counts all of these: with 4 goals, an Every of 5 is an update
// for each env step.
//
// A transition follows from that whose next observation is equal to its observation, bit for bit, so that
// it does not matter how many environments and nodes the transitions come from, and in which order. Where
// two episodes meet in one observation, they may continue in each other's place, which changes nothing: the
// observation has all that the rest of an episode depends on, its goal included. Transitions that have not
// arrived, such as those that LearnConfig.MaxLag drops, divide an episode into two.
type Replay struct {
	*data.Replay

	cfg    Config
	parts  envs.GoalParts
	open   []episode // a slot without rows is free
	rows   int       // of all of open
	at     int       // where the next transition probably belongs: behind the last one's slot
	clock  uint64    // transitions so far
	out    policies.Batch
	goal   []float32
	source *rand.PCG
	rng    *rand.Rand
}

// episode has the transitions of an episode so far, oldest first.
type episode struct {
	rows policies.Batch
	last uint64 // the clock at its last transition
}

var _ data.Source = (*Replay)(nil)

// New returns a source that adds to replay. It panics with all faults of the config.
func New(replay *data.Replay, cfg Config) *Replay {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	source := rand.NewPCG(cfg.Seed, 0x686572) // the stream of goals
	return &Replay{Replay: replay, cfg: cfg.EnsureDefaults(), parts: cfg.Goal.GoalParts(), source: source, rng: rand.New(source)}
}

// Add puts transitions into the replay buffer and, for each episode that ends with one of them, those of the
// whole episode with other goals. They have the columns of [policies.TransitionColumns], among others, and one
// reward each: n-step returns are an error, because the rewards between belong to the old goal.
func (r *Replay) Add(src *policies.Batch) error {
	if err := r.check(src); err != nil {
		return fmt.Errorf("add to hindsight replay: %w", err)
	}
	r.out.InitLike(src)
	r.out.AppendBatch(src)
	terminated, truncated := src.Bytes(policies.Terminated), src.Bytes(policies.Truncated)
	for i := range src.N {
		k := r.slot(src, i)
		e := &r.open[k]
		r.clock++
		e.rows.AppendRange(src, i, i+1)
		e.last = r.clock
		r.rows++
		r.at = k + 1
		if terminated[i] != 0 || truncated[i] != 0 {
			r.end(e)
		}
		for r.rows > r.cfg.MaxRows {
			r.end(r.oldest())
		}
	}
	return r.Replay.Add(&r.out)
}

// check reports data in which goals cannot be replaced.
func (r *Replay) check(src *policies.Batch) error {
	if err := src.CheckLike(src); err != nil {
		return err
	}
	obs, next := src.Column(policies.Obs), src.Column(policies.NextObs)
	want := max(r.parts.Achieved.To, r.parts.Desired.To)
	for _, c := range []*policies.Block{obs, next} {
		if c == nil || c.Kind != policies.Float32 || c.Width() < want || c.Width() != obs.Width() {
			return fmt.Errorf("columns %v, want %s and %s of one width, of at least %d values", src.Schema(), policies.Obs, policies.NextObs, want)
		}
	}
	for _, name := range []string{policies.Terminated, policies.Truncated, policies.Steps} {
		if src.Bytes(name) == nil && src.N > 0 {
			return fmt.Errorf("columns %v, want %s", src.Schema(), name)
		}
	}
	if src.N > 0 && len(src.Floats(policies.Reward)) != src.N {
		return fmt.Errorf("columns %v, want %s", src.Schema(), policies.Reward)
	}
	for i, steps := range src.Bytes(policies.Steps) {
		if steps != 1 {
			return fmt.Errorf("transition %d has %d steps, want 1: leave out the policy's n-step returns", i, steps)
		}
	}
	for i := range r.open {
		if e := &r.open[i]; e.rows.N > 0 {
			return src.CheckLike(&e.rows)
		}
	}
	return nil
}

// slot returns where row i of src belongs: the episode from whose end it continues, or a free one.
func (r *Replay) slot(src *policies.Batch, i int) int {
	obs := src.Floats(policies.Obs)
	d, n := len(obs)/src.N, len(r.open)
	free := -1
	for j := range n {
		k := (r.at + j) % n
		rows := &r.open[k].rows
		if rows.N == 0 {
			if free < 0 {
				free = k
			}
			continue
		}
		if slices.Equal(rows.Floats(policies.NextObs)[(rows.N-1)*d:rows.N*d], obs[i*d:(i+1)*d]) {
			return k
		}
	}
	if free < 0 {
		free = n
		r.open = append(r.open, episode{})
	}
	r.open[free].rows.InitLike(src)
	return free
}

// oldest returns the episode with the oldest last transition.
func (r *Replay) oldest() *episode {
	var out *episode
	for i := range r.open {
		if e := &r.open[i]; e.rows.N > 0 && (out == nil || e.last < out.last) {
			out = e
		}
	}
	return out
}

// end adds the transitions of an episode with other goals, and frees its slot.
func (r *Replay) end(e *episode) {
	n := e.rows.N
	next := e.rows.Floats(policies.NextObs)
	d := len(next) / n
	for t := range n {
		for range r.cfg.Goals {
			from := n - 1
			switch r.cfg.Strategy {
			case Future:
				from = t + r.rng.IntN(n-t)
			case Episode:
				from = r.rng.IntN(n)
			}
			r.goal = append(r.goal[:0], r.parts.Achieved.Of(next[from*d:(from+1)*d])...)
			r.out.AppendRange(&e.rows, t, t+1)
			r.relabel(r.out.N-1, d)
		}
	}
	r.rows -= n
	e.rows.Resize(0)
}

// relabel makes r.goal the goal of a row of r.out.
func (r *Replay) relabel(row, d int) {
	next := r.out.Floats(policies.NextObs)[row*d : (row+1)*d]
	copy(r.parts.Desired.Of(r.out.Floats(policies.Obs)[row*d:(row+1)*d]), r.goal)
	copy(r.parts.Desired.Of(next), r.goal)
	reward, terminated := r.cfg.Goal.GoalReward(r.parts.Achieved.Of(next), r.goal)
	r.out.Floats(policies.Reward)[row] = float32(reward)
	r.out.Bytes(policies.Terminated)[row] = 0
	if terminated {
		r.out.Bytes(policies.Terminated)[row], r.out.Bytes(policies.Truncated)[row] = 1, 0
	}
}

// saved is the state in a checkpoint besides the rows.
type saved struct {
	At    int
	Clock uint64
	Rows  []int    // of each slot
	Last  []uint64 // of each slot
}

const (
	stateKey  = "her/state"
	randomKey = "her/random"
	rowsName  = "her"
)

// Save writes the replay, and the unfinished episodes.
func (r *Replay) Save(a *nn.Archive) error {
	random, err := r.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save hindsight replay: %w", err)
	}
	a.SetText(randomKey, hex.EncodeToString(random))
	s := saved{At: r.at, Clock: r.clock}
	var all policies.Batch
	for i := range r.open {
		e := &r.open[i]
		s.Rows, s.Last = append(s.Rows, e.rows.N), append(s.Last, e.last)
		if e.rows.N > 0 {
			if all.N == 0 {
				all.InitLike(&e.rows)
			}
			all.AppendBatch(&e.rows)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save hindsight replay: %w", err)
	}
	a.SetText(stateKey, string(text))
	if err := data.PutRows(a, rowsName, &all, all.N); err != nil {
		return fmt.Errorf("save hindsight replay: %w", err)
	}
	return r.Replay.Save(a)
}

// Restore restores r to the state at Save.
func (r *Replay) Restore(a *nn.Archive) error {
	var s saved
	random, err1 := hex.DecodeString(a.Meta[randomKey])
	err2 := json.Unmarshal([]byte(a.Meta[stateKey]), &s)
	all, err3 := data.RowsOf(a, rowsName)
	err := errors.Join(err1, err2, err3)
	if err == nil {
		err = r.restore(&s, all)
	}
	if err == nil {
		err = r.source.UnmarshalBinary(random)
	}
	if err != nil {
		return fmt.Errorf("restore hindsight replay: %w", err)
	}
	return r.Replay.Restore(a)
}

func (r *Replay) restore(s *saved, all *policies.Batch) error {
	sum := 0
	for _, n := range s.Rows {
		if n < 0 || n > all.N-sum {
			return fmt.Errorf("episodes of %v transitions in %d rows", s.Rows, all.N)
		}
		sum += n
	}
	if sum != all.N || sum > r.cfg.MaxRows || len(s.Last) != len(s.Rows) || s.At < 0 || s.At > len(s.Rows) {
		return fmt.Errorf("%d slots of episodes with %d transitions, %d of them at %d, want at most %d in %d rows",
			len(s.Rows), sum, len(s.Last), s.At, r.cfg.MaxRows, all.N)
	}
	if sum > 0 {
		r.open = nil // check compares with the present contents
		if err := r.check(all); err != nil {
			return err
		}
	}
	r.open, r.rows, r.at, r.clock = make([]episode, len(s.Rows)), sum, s.At, s.Clock
	from := 0
	for i, n := range s.Rows {
		e := &r.open[i]
		e.last = s.Last[i]
		if n > 0 {
			e.rows.InitLike(all)
			e.rows.AppendRange(all, from, from+n)
		}
		from += n
	}
	return nil
}
