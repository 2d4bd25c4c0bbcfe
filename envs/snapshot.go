package envs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Snapshotter is an environment, or a vector of them, whose whole state can be
// saved and restored: later results are then the same bit for bit. The
// environments of this package are Snapshotters, and so are its wrappers and
// vectors around Snapshotters.
type Snapshotter interface {
	// AppendSnapshot appends the state to dst.
	AppendSnapshot(dst []byte) ([]byte, error)
	// RestoreSnapshot reads the state from src and returns the bytes after it.
	// After an error the environment must be reset.
	RestoreSnapshot(src []byte) (rest []byte, err error)
}

// ErrNoSnapshot is wrapped where an environment is not a Snapshotter.
var ErrNoSnapshot = errors.New("environment cannot be saved")

var errShortSnapshot = errors.New("snapshot of an environment is cut off")

func snapshotOf[A Action](env Env[A]) (Snapshotter, error) {
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
// which ResetSome returns for those that it does not reset. An Async of the same
// environments can take it over.
func (v *Sync) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendParts(dst, []*Sync{v}, &v.res)
}

// RestoreSnapshot takes the state of all environments over. The vector must
// have as many of the same kind.
func (v *Sync) RestoreSnapshot(src []byte) ([]byte, error) {
	return restoreParts(src, []*Sync{v}, &v.res)
}

// AppendSnapshot appends the state of all environments, as that of a Sync does.
func (v *Async) AppendSnapshot(dst []byte) ([]byte, error) { return appendParts(dst, v.parts, &v.res) }

// RestoreSnapshot takes the state of all environments over. The vector must
// have as many of the same kind.
func (v *Async) RestoreSnapshot(src []byte) ([]byte, error) {
	return restoreParts(src, v.parts, &v.res)
}

// appendParts appends the state of the parts of a vector, whose results are in res.
func appendParts(dst []byte, parts []*Sync, res *Result) ([]byte, error) {
	dst = appendWords(dst, uint64(len(res.Rewards)), flags(parts[0].started))
	for _, x := range res.Obs {
		dst = appendWords(dst, uint64(math.Float32bits(x)))
	}
	for _, p := range parts {
		for i, c := range p.cells {
			s, err := c.snapshotter()
			if err != nil {
				return nil, err
			}
			dst = appendWords(dst, flags(p.done[i]))
			if dst, err = s.AppendSnapshot(dst); err != nil {
				return nil, err
			}
		}
	}
	return dst, nil
}

func restoreParts(src []byte, parts []*Sync, res *Result) ([]byte, error) {
	w, rest, err := words(src, 2)
	if err != nil {
		return nil, err
	}
	if n := len(res.Rewards); w[0] != uint64(n) {
		return nil, fmt.Errorf("snapshot of %d environments for a vector of %d", w[0], n)
	}
	started := w[1]&1 != 0
	obs, rest, err := words(rest, len(res.Obs))
	if err != nil {
		return nil, err
	}
	for i, x := range obs {
		res.Obs[i] = math.Float32frombits(uint32(x))
	}
	for _, p := range parts {
		p.started = started
		for i, c := range p.cells {
			if rest, err = p.restore(rest, i, c); err != nil {
				return nil, err
			}
		}
	}
	return rest, nil
}

func (v *Sync) restore(src []byte, i int, c cell) ([]byte, error) {
	s, err := c.snapshotter()
	if err != nil {
		return nil, err
	}
	w, rest, err := words(src, 1)
	if err != nil {
		return nil, err
	}
	v.done[i] = w[0]&1 != 0
	return s.RestoreSnapshot(rest)
}

// badSnapshot returns the error of a snapshot with values that no environment of the
// name can have.
func badSnapshot(name string) error { return fmt.Errorf("snapshot of no %s", name) }

// appendInner appends the state of the environment inside a wrapper.
func appendInner[A Action](env Env[A], dst []byte) ([]byte, error) {
	s, err := snapshotOf(env)
	if err != nil {
		return nil, err
	}
	return s.AppendSnapshot(dst)
}

// restoreInner takes the state of the environment inside a wrapper over.
func restoreInner[A Action](env Env[A], src []byte) ([]byte, error) {
	s, err := snapshotOf(env)
	if err != nil {
		return nil, err
	}
	return s.RestoreSnapshot(src)
}
