package envs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ditask/ditask/envs/nprand"
)

// Snapshotter is an environment, or a vector of them, whose whole state can be
// taken and put back: what follows is then the same to the bit. The
// environments, wrappers and vectors of this package are, if what they are
// around is.
type Snapshotter interface {
	// AppendSnapshot appends the state to dst.
	AppendSnapshot(dst []byte) ([]byte, error)
	// RestoreSnapshot takes the state over from src and returns what follows
	// it. After an error the environment must be reset.
	RestoreSnapshot(src []byte) (rest []byte, err error)
}

// ErrNoSnapshot is wrapped where an environment is not a Snapshotter.
var ErrNoSnapshot = errors.New("environment cannot be saved")

var errShortSnapshot = errors.New("snapshot of an environment is cut off")

func snapshotOf[A any](env Env[A]) (Snapshotter, error) {
	s, ok := env.(Snapshotter)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, env.Name())
	}
	return s, nil
}

// words reads n 64-bit words.
func words(src []byte, n int) ([]uint64, []byte, error) {
	if len(src) < 8*n {
		return nil, nil, errShortSnapshot
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(src[8*i:])
	}
	return out, src[8*n:], nil
}

func appendWords(dst []byte, v ...uint64) []byte {
	for _, w := range v {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst
}

func flags(v ...bool) (w uint64) {
	for i, b := range v {
		if b {
			w |= 1 << i
		}
	}
	return w
}

func (c *cartPole) AppendSnapshot(dst []byte) ([]byte, error) {
	rng := c.rng
	if rng == nil {
		rng = new(nprand.PCG64)
	}
	dst = appendWords(dst, flags(c.rng != nil, c.started, c.over), rng.Hi, rng.Lo, rng.IncHi, rng.IncLo)
	for _, x := range c.state {
		dst = appendWords(dst, math.Float64bits(x))
	}
	return dst, nil
}

func (c *cartPole) RestoreSnapshot(src []byte) ([]byte, error) {
	w, rest, err := words(src, 9)
	if err != nil {
		return nil, err
	}
	c.rng = nil
	if w[0]&1 != 0 {
		c.rng = &nprand.PCG64{Hi: w[1], Lo: w[2], IncHi: w[3], IncLo: w[4]}
	}
	c.started, c.over = w[0]&2 != 0, w[0]&4 != 0
	for i := range c.state {
		c.state[i] = math.Float64frombits(w[5+i])
	}
	return rest, nil
}

func (t *timeLimit[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	s, err := snapshotOf(t.Env)
	if err != nil {
		return nil, err
	}
	return s.AppendSnapshot(appendWords(dst, uint64(t.elapsed), flags(t.over)))
}

func (t *timeLimit[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	s, err := snapshotOf(t.Env)
	if err != nil {
		return nil, err
	}
	w, rest, err := words(src, 2)
	if err != nil {
		return nil, err
	}
	t.elapsed, t.over = int(w[0]), w[1]&1 != 0
	return s.RestoreSnapshot(rest)
}

func (r *recordStatistics[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	s, err := snapshotOf(r.Env)
	if err != nil {
		return nil, err
	}
	return s.AppendSnapshot(appendWords(dst, math.Float64bits(r.episode.Return), uint64(r.episode.Length)))
}

func (r *recordStatistics[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	s, err := snapshotOf(r.Env)
	if err != nil {
		return nil, err
	}
	w, rest, err := words(src, 2)
	if err != nil {
		return nil, err
	}
	r.episode = Episode{Return: math.Float64frombits(w[0]), Length: int(w[1])}
	return s.RestoreSnapshot(rest)
}

// AppendSnapshot appends the state of all environments, and their last observations,
// which ResetSome returns for those that it does not reset.
func (v *Sync[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	dst = appendWords(dst, uint64(len(v.envs)), flags(v.started))
	for _, x := range v.res.Obs {
		dst = appendWords(dst, uint64(math.Float32bits(x)))
	}
	for i, e := range v.envs {
		s, err := snapshotOf(e)
		if err != nil {
			return nil, err
		}
		dst = appendWords(dst, flags(v.done[i]))
		if dst, err = s.AppendSnapshot(dst); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// RestoreSnapshot takes the state of all environments over. The vector must
// have as many of the same kind.
func (v *Sync[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	w, rest, err := words(src, 2)
	if err != nil {
		return nil, err
	}
	if w[0] != uint64(len(v.envs)) {
		return nil, fmt.Errorf("snapshot of %d environments for a vector of %d", w[0], len(v.envs))
	}
	obs, rest, err := words(rest, len(v.res.Obs))
	if err != nil {
		return nil, err
	}
	for i, x := range obs {
		v.res.Obs[i] = math.Float32frombits(uint32(x))
	}
	v.started = w[1]&1 != 0
	for i, e := range v.envs {
		s, err := snapshotOf(e)
		if err != nil {
			return nil, err
		}
		if w, rest, err = words(rest, 1); err != nil {
			return nil, err
		}
		v.done[i] = w[0]&1 != 0
		if rest, err = s.RestoreSnapshot(rest); err != nil {
			return nil, err
		}
	}
	return rest, nil
}
