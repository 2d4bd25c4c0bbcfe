package policies

import "fmt"

// Transition is what one action led to. With n-step returns, Reward is the
// discounted sum of Steps rewards and NextObs lies Steps ahead.
type Transition struct {
	Obs     []float32 // observation before the action
	Action  []float32 // a discrete action is one value, its number
	Reward  float32
	NextObs []float32 // observation after it; at the end of an episode its final one
	// Terminated says that NextObs has no future; Truncated that the episode
	// was cut there, which changes nothing about its value.
	Terminated, Truncated bool
	Steps                 int    // rewards in Reward, at least 1 and at most 255
	Version               uint64 // of the policy that chose the action
}

// Batch is N transitions as flat arrays. It is the form in which they travel,
// rest in a replay buffer, and are learned from. The zero value is ready for
// Init.
type Batch struct {
	ObsDim, ActionDim int
	Obs, NextObs      []float32 // N x ObsDim
	Actions           []float32 // N x ActionDim
	Rewards           []float32 // N
	Terminated        []bool
	Truncated         []bool
	Steps             []uint8
	Versions          []uint64
}

// Init empties the batch and sets its dimensions; memory is kept.
func (b *Batch) Init(obsDim, actionDim int) {
	b.ObsDim, b.ActionDim = obsDim, actionDim
	b.Obs, b.NextObs, b.Actions = b.Obs[:0], b.NextObs[:0], b.Actions[:0]
	b.Rewards, b.Terminated, b.Truncated = b.Rewards[:0], b.Terminated[:0], b.Truncated[:0]
	b.Steps, b.Versions = b.Steps[:0], b.Versions[:0]
}

// Resize gives the batch n transitions of undefined content; memory is kept.
func (b *Batch) Resize(obsDim, actionDim, n int) {
	b.ObsDim, b.ActionDim = obsDim, actionDim
	b.Obs, b.NextObs = resize(b.Obs, n*obsDim), resize(b.NextObs, n*obsDim)
	b.Actions, b.Rewards = resize(b.Actions, n*actionDim), resize(b.Rewards, n)
	b.Terminated, b.Truncated = resize(b.Terminated, n), resize(b.Truncated, n)
	b.Steps, b.Versions = resize(b.Steps, n), resize(b.Versions, n)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Len is the number of transitions.
func (b *Batch) Len() int { return len(b.Rewards) }

// Append adds a transition, copied. Its dimensions must be the batch's.
func (b *Batch) Append(t Transition) {
	if len(t.Obs) != b.ObsDim || len(t.NextObs) != b.ObsDim || len(t.Action) != b.ActionDim || t.Steps < 1 || t.Steps > 255 {
		panic(fmt.Sprintf("policies: transition of %d, %d and %d values and %d steps in a batch of %d and %d",
			len(t.Obs), len(t.NextObs), len(t.Action), t.Steps, b.ObsDim, b.ActionDim))
	}
	b.Obs, b.NextObs = append(b.Obs, t.Obs...), append(b.NextObs, t.NextObs...)
	b.Actions, b.Rewards = append(b.Actions, t.Action...), append(b.Rewards, t.Reward)
	b.Terminated, b.Truncated = append(b.Terminated, t.Terminated), append(b.Truncated, t.Truncated)
	b.Steps, b.Versions = append(b.Steps, uint8(t.Steps)), append(b.Versions, t.Version)
}

// AppendBatch adds all transitions of src, which must have the same dimensions.
func (b *Batch) AppendBatch(src *Batch) {
	if src.ObsDim != b.ObsDim || src.ActionDim != b.ActionDim {
		panic(fmt.Sprintf("policies: batch of %d and %d into one of %d and %d", src.ObsDim, src.ActionDim, b.ObsDim, b.ActionDim))
	}
	b.Obs, b.NextObs = append(b.Obs, src.Obs...), append(b.NextObs, src.NextObs...)
	b.Actions, b.Rewards = append(b.Actions, src.Actions...), append(b.Rewards, src.Rewards...)
	b.Terminated, b.Truncated = append(b.Terminated, src.Terminated...), append(b.Truncated, src.Truncated...)
	b.Steps, b.Versions = append(b.Steps, src.Steps...), append(b.Versions, src.Versions...)
}

// At returns transition i; its slices are views.
func (b *Batch) At(i int) Transition {
	o, a := b.ObsDim, b.ActionDim
	return Transition{
		Obs: b.Obs[i*o : (i+1)*o], NextObs: b.NextObs[i*o : (i+1)*o], Action: b.Actions[i*a : (i+1)*a],
		Reward: b.Rewards[i], Terminated: b.Terminated[i], Truncated: b.Truncated[i],
		Steps: int(b.Steps[i]), Version: b.Versions[i],
	}
}

// CopyRow makes transition i equal to transition j of src. Both must have the
// same dimensions.
func (b *Batch) CopyRow(i int, src *Batch, j int) {
	o, a := b.ObsDim, b.ActionDim
	copy(b.Obs[i*o:(i+1)*o], src.Obs[j*o:(j+1)*o])
	copy(b.NextObs[i*o:(i+1)*o], src.NextObs[j*o:(j+1)*o])
	copy(b.Actions[i*a:(i+1)*a], src.Actions[j*a:(j+1)*a])
	b.Rewards[i], b.Terminated[i], b.Truncated[i] = src.Rewards[j], src.Terminated[j], src.Truncated[j]
	b.Steps[i], b.Versions[i] = src.Steps[j], src.Versions[j]
}

// maxDim bounds the dimensions of a batch, so that sizes made of them do not
// overflow.
const maxDim = 1 << 28

// Check reports arrays whose lengths do not belong together, and steps of 0: a
// batch that came from another process must pass before it is used.
func (b *Batch) Check(obsDim, actionDim int) error {
	n := len(b.Rewards)
	switch {
	case b.ObsDim != obsDim || b.ActionDim != actionDim:
		return fmt.Errorf("batch of %d observed values and %d action values, want %d and %d", b.ObsDim, b.ActionDim, obsDim, actionDim)
	case min(obsDim, actionDim) < 0 || max(obsDim, actionDim) > maxDim:
		return fmt.Errorf("batch of %d observed values and %d action values, want 0 to %d", obsDim, actionDim, maxDim)
	case len(b.Obs) != n*obsDim || len(b.NextObs) != n*obsDim || len(b.Actions) != n*actionDim ||
		len(b.Terminated) != n || len(b.Truncated) != n || len(b.Steps) != n || len(b.Versions) != n:
		return fmt.Errorf("batch of %d rewards has arrays of other lengths", n)
	}
	for i, k := range b.Steps {
		if k == 0 {
			return fmt.Errorf("transition %d of 0 steps", i)
		}
	}
	return nil
}
