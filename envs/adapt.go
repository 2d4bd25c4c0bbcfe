package envs

import (
	"fmt"
)

// ClipActions returns a vector that takes any finite action values and clips them to the bounds of v's Box, as
// [ClipAction] does for one environment. It panics if actions are not those of a Box.
func ClipActions(v Vector) Vector {
	box, ok := v.ActionSpace().(Box)
	if !ok {
		panic(fmt.Sprintf("envs: clip actions of %s: they are %v, not a Box", v.Name(), v.ActionSpace()))
	}
	return &clippedActions{adapted{v}, box, nil}
}

// adapted is a vector around another one.
type adapted struct{ Vector }

// AppendSnapshot appends the state of the inner vector.
func (a adapted) AppendSnapshot(dst []byte) ([]byte, error) {
	s, ok := a.Vector.(Snapshotter)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, a.Name())
	}
	return s.AppendSnapshot(dst)
}

// RestoreSnapshot takes over the state of the inner vector.
func (a adapted) RestoreSnapshot(src []byte) ([]byte, error) {
	s, ok := a.Vector.(Snapshotter)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, a.Name())
	}
	return s.RestoreSnapshot(src)
}

type clippedActions struct {
	adapted
	box Box
	buf []float32
}

// Step clips the actions and takes a step with them.
func (c *clippedActions) Step(actions []float32) (*Result, error) {
	c.buf = append(c.buf[:0], actions...)
	for i := range c.buf {
		k := i % len(c.box.Low)
		// Not min and max, so that NaN stays what it is and is refused.
		if low := c.box.Low[k]; c.buf[i] < low {
			c.buf[i] = low
		}
		if high := c.box.High[k]; c.buf[i] > high {
			c.buf[i] = high
		}
	}
	return c.Vector.Step(c.buf)
}

// OneHotObservations returns a vector whose observations are a Box with a 1 at each number of v's Discrete or
// MultiDiscrete observation, and 0 elsewhere, as [OneHot] does for one environment. It panics if observations
// are neither.
func OneHotObservations(v Vector) Vector {
	h := &oneHotVector{adapted: adapted{v}}
	switch s := v.ObservationSpace().(type) {
	case Discrete:
		h.start, h.counts = s.Start, []int{s.N}
	case MultiDiscrete:
		h.counts = s.N
	default:
		panic(fmt.Sprintf("envs: one-hot observations of %s: they are %v", v.Name(), v.ObservationSpace()))
	}
	for _, n := range h.counts {
		h.dim += n
	}
	h.obs, h.final = make([]float32, v.Num()*h.dim), make([]float32, v.Num()*h.dim)
	return h
}

type oneHotVector struct {
	adapted
	start      int
	counts     []int // of each number
	dim        int
	obs, final []float32
	res        Result
}

// ObservationSpace returns a Box of zeros and ones.
func (h *oneHotVector) ObservationSpace() Space { return NewBox(0, 1, h.dim) }

// encode writes the encoding of src to dst.
func (h *oneHotVector) encode(dst, src []float32) []float32 {
	clear(dst)
	at := 0
	for i, v := range src {
		n := h.counts[i%len(h.counts)]
		if k := int(v) - h.start; k >= 0 && k < n {
			dst[at+k] = 1
		}
		at += n
	}
	return dst
}

// Reset starts an episode in every environment.
func (h *oneHotVector) Reset(seed ...uint64) ([]float32, error) {
	obs, err := h.Vector.Reset(seed...)
	if err != nil {
		return nil, err
	}
	return h.encode(h.obs, obs), nil
}

// ResetSome starts an episode where mask is set.
func (h *oneHotVector) ResetSome(mask []bool) ([]float32, error) {
	obs, err := h.Vector.ResetSome(mask)
	if err != nil {
		return nil, err
	}
	return h.encode(h.obs, obs), nil
}

// Step takes a step.
func (h *oneHotVector) Step(actions []float32) (*Result, error) {
	res, err := h.Vector.Step(actions)
	if err != nil {
		return nil, err
	}
	h.res = *res
	h.res.Obs = h.encode(h.obs, res.Obs)
	h.res.FinalObs = h.final
	w := len(h.counts)
	for i := range res.Terminated {
		if res.Terminated[i] || res.Truncated[i] {
			h.encode(h.final[i*h.dim:(i+1)*h.dim], res.FinalObs[i*w:(i+1)*w])
		}
	}
	return &h.res, nil
}
