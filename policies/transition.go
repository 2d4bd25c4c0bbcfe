package policies

import (
	"fmt"
	"math"
)

// Transition is the result of one action: a row of [TransitionColumns]. With n-step returns,
// Reward is the discounted sum of Steps rewards and NextObs lies Steps ahead.
type Transition struct {
	Obs     []float32 // observation before the action
	Action  []float32 // a discrete action is one value, its number
	Reward  float32
	NextObs []float32 // observation after it; at the end of an episode its final one
	// Terminated reports that NextObs has no future; Truncated that the episode
	// was cut there, which changes nothing about its value.
	Terminated, Truncated bool
	Steps                 int    // rewards in Reward, at least 1 and at most 255
	Version               uint64 // of the policy that chose the action
}

// Append adds a transition, copied, to a batch of TransitionColumns with its dimensions.
func (b *Batch) Append(t Transition) {
	i := b.N
	if t.Steps < 1 || t.Steps > 255 || len(b.Columns) < transitionColumns ||
		b.Columns[0].Width() != len(t.Obs) || b.Columns[1].Width() != len(t.Action) || b.Columns[3].Width() != len(t.NextObs) {
		panic(fmt.Sprintf("policies: transition of %d, %d and %d values and %d steps in a batch of %v",
			len(t.Obs), len(t.NextObs), len(t.Action), t.Steps, b.Schema()))
	}
	b.Resize(i + 1)
	c := b.Columns
	copy(c[0].Floats[i*len(t.Obs):], t.Obs)
	copy(c[1].Floats[i*len(t.Action):], t.Action)
	c[2].Floats[i] = t.Reward
	copy(c[3].Floats[i*len(t.NextObs):], t.NextObs)
	c[4].Bytes[i], c[5].Bytes[i] = flag(t.Terminated), flag(t.Truncated)
	c[6].Bytes[i], c[7].Words[i] = uint8(t.Steps), t.Version
}

// Targets appends to dst the target for the value of each row's action: reward + gamma^steps *
// next, and the reward alone where the episode terminated. next has the value of each next_obs. The
// batch has TransitionColumns, among others.
func (b *Batch) Targets(dst []float32, gamma float64, next []float32) []float32 {
	at := len(dst)
	dst = append(dst, b.Floats(Reward)...)
	terminated, steps := b.Bytes(Terminated), b.Bytes(Steps)
	for i := range b.N {
		if terminated[i] == 0 {
			dst[at+i] += float32(math.Pow(gamma, float64(steps[i]))) * next[i]
		}
	}
	return dst
}

// transitionColumns is the number of columns of TransitionColumns.
const transitionColumns = 8

// At returns row i of a batch of TransitionColumns; its slices are views.
func (b *Batch) At(i int) Transition {
	c := b.Columns
	row := func(k int) []float32 {
		w := c[k].Width()
		return c[k].Floats[i*w : (i+1)*w]
	}
	return Transition{
		Obs: row(0), Action: row(1), Reward: c[2].Floats[i], NextObs: row(3),
		Terminated: c[4].Bytes[i] != 0, Truncated: c[5].Bytes[i] != 0, Steps: int(c[6].Bytes[i]), Version: c[7].Words[i],
	}
}

func flag(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}
