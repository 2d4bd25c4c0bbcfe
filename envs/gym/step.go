package gym

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/ditask/ditask/envs"
)

// resetMessage asks a process to reset some of its environments, and to reset others instead of
// their next step.
type resetMessage struct {
	Index   []int    `json:"index"`
	Seeds   []uint64 `json:"seeds"` // nil: without
	Pending []int    `json:"pending"`
}

// Reset starts an episode in every environment; environment i is given seed+i.
func (v *Vector) Reset(seed ...uint64) ([]float32, error) {
	if len(seed) > 1 {
		return nil, fmt.Errorf("%s: %w", v.name, envs.ErrSeeds)
	}
	return v.resetWhere(func(int) bool { return true }, seed, true)
}

// ResetSome starts an episode where mask is set. mask has one entry for each environment.
func (v *Vector) ResetSome(mask []bool) ([]float32, error) {
	if len(mask) != v.cfg.Num {
		return nil, fmt.Errorf("reset %s: mask of %d for %d environments", v.name, len(mask), v.cfg.Num)
	}
	return v.resetWhere(func(i int) bool { return mask[i] }, nil, false)
}

func (v *Vector) resetWhere(wanted func(i int) bool, seed []uint64, all bool) ([]float32, error) {
	v.busy.Lock()
	defer v.busy.Unlock()
	if err := v.begin(); err != nil {
		return nil, err
	}
	messages := make([]resetMessage, len(v.procs))
	for k, p := range v.procs {
		m := &messages[k]
		for i := range p.num {
			if !wanted(p.first + i) {
				continue
			}
			m.Index = append(m.Index, i)
			if len(seed) > 0 {
				m.Seeds = append(m.Seeds, seed[0]+uint64(p.first+i))
			}
		}
		if m.Index != nil {
			_ = p.send(opReset, m, v.cfg.StepTimeout) // an error shows in the answer, with its cause
		}
	}
	for k, p := range v.procs {
		m := &messages[k]
		if m.Index == nil {
			continue
		}
		if err := v.finishReset(p, m); err != nil {
			v.cutOthers(p, m)
			if err := v.replace(k, err, m); err != nil {
				return nil, v.end(err)
			}
		}
	}
	for n := range v.cfg.Num {
		if wanted(n) {
			v.res.Infos[n] = envs.Info{}
		}
	}
	v.started = v.started || all
	return v.res.Obs, nil
}

// cutOthers notes the episodes that end since a process is replaced in a reset of other environments.
func (v *Vector) cutOthers(p *process, m *resetMessage) {
	for i := range p.num {
		if !slices.Contains(m.Index, i) {
			m.Pending = append(m.Pending, i)
			v.cut[p.first+i] = v.started && !v.done[p.first+i]
		}
	}
}

// finishReset waits for the answer to a reset and takes the observations over.
func (v *Vector) finishReset(p *process, m *resetMessage) error {
	if _, err := p.receive(v.cfg.StepTimeout); err != nil {
		return p.failure(v.name, "reset", v.cfg.StepTimeout, err)
	}
	for _, i := range m.Index {
		if err := v.verifyRow(p, p.mem.Obs, i); err != nil {
			return v.fault(p, i, "reset", err)
		}
	}
	for _, i := range m.Index {
		n := p.first + i
		p.mem.row(v.rowOf(v.res.Obs, n), p.mem.Obs, i)
		v.done[n], v.cut[n], v.running[n] = false, false, envs.Episode{}
	}
	return nil
}

func (v *Vector) rowOf(values []float32, n int) []float32 { return values[n*v.dim : (n+1)*v.dim] }

// fault is an error of environment i of a process.
func (v *Vector) fault(p *process, i int, op string, err error) error {
	return &envs.Error{Env: v.name, Index: p.first + i, Op: op, Err: err}
}

// verifyRow reports the faults of an observation in the memory.
func (v *Vector) verifyRow(p *process, at, i int) error {
	if value, k := p.mem.notFinite(at, i); k >= 0 {
		part := ""
		for _, l := range v.layout {
			if l.Name != "" && k >= l.From && k < l.To {
				part = fmt.Sprintf(" (%d of part %q)", k-l.From, l.Name)
			}
		}
		return fmt.Errorf("%w: value %d%s of the observation is %v: it must be a finite number", ErrResult, k, part, value)
	}
	if _, box := v.obs.(envs.Box); box {
		return nil
	}
	row := make([]float32, v.dim)
	if v.dim == 1 { // no allocation
		var one [1]float32
		row = one[:]
	}
	p.mem.row(row, at, i)
	if !v.obs.Contains(row) {
		return fmt.Errorf("%w: the observation %v is not in %v", ErrResult, slices.Clone(row), v.obs)
	}
	return nil
}

// Step runs one time step in every environment.
func (v *Vector) Step(actions []float32) (*envs.Result, error) {
	v.busy.Lock()
	defer v.busy.Unlock()
	if err := v.begin(); err != nil {
		return nil, err
	}
	if err := v.check(actions); err != nil {
		return nil, err
	}
	for _, i := range v.told {
		v.res.Infos[i] = envs.Info{}
	}
	v.told = v.told[:0]
	for _, p := range v.procs {
		p.mem.setActions(actions[p.first*v.width:(p.first+p.num)*v.width], p.num)
	}
	began := time.Now()
	if len(v.procs) == 1 {
		v.procs[0].takeTurn()
	} else {
		for _, p := range v.procs {
			p.requestStep(false)
		}
	}
	for k, p := range v.procs {
		_, err := p.receive(v.cfg.StepTimeout)
		p.turns.add(time.Since(began))
		if err != nil {
			err = p.failure(v.name, "step", v.cfg.StepTimeout, err)
		} else {
			err = v.verify(p)
		}
		if err == nil {
			v.streak[k] = 0
			v.commit(p)
			continue
		}
		if err := v.cutAll(k, err); err != nil {
			return nil, v.end(err)
		}
	}
	if v.advice > 0 {
		if v.advice--; v.advice == 0 {
			v.advise()
		}
	}
	return &v.res, nil
}

// In steps that are usually shorter than adviceShort, several processes spend most of the time on being woken.
const (
	adviceAfter = 1000 // steps
	adviceShort = 200 * time.Microsecond
)

// advise logs that one process may be faster than those of the default, if it may.
func (v *Vector) advise() {
	step := time.Duration(v.procs[len(v.procs)-1].turns.step)
	if step >= adviceShort {
		return
	}
	v.cfg.Logger.Info("steps are short: one process may be faster: ditask env bench compares; --set env_processes=1 sets the number",
		slog.String("env", v.name), slog.Int("environments", v.cfg.Num), slog.Int("processes", len(v.procs)), slog.Duration("step", step))
}

// check refuses actions that no environment could take.
func (v *Vector) check(actions []float32) error {
	if n := v.cfg.Num; len(actions) != n*v.width {
		return fmt.Errorf("step %s: %d action values for %d environments with %d each", v.name, len(actions), n, v.width)
	}
	if !v.started {
		return fmt.Errorf("%s: %w", v.name, envs.ErrNotReset)
	}
	for i, done := range v.done {
		a := actions[i*v.width : (i+1)*v.width]
		switch {
		case done && v.cfg.Autoreset == envs.Disabled:
			return &envs.Error{Env: v.name, Index: i, Op: "step", Err: fmt.Errorf("%s: %w", v.name, envs.ErrEpisodeOver)}
		case done: // it is reset, and its action ignored
			continue
		}
		if d := v.discrete; d != nil {
			if k := int(a[0]); float32(k) == a[0] && k >= d.Start && k-d.Start < d.N {
				continue
			}
		} else if v.action.Contains(a) {
			continue
		}
		err := fmt.Errorf("%s: %w: %v is not in %v", v.name, envs.ErrAction, slices.Clone(a), v.action)
		return &envs.Error{Env: v.name, Index: i, Op: "step", Err: err}
	}
	return nil
}

// verify reports the faults of a step of a process, before anything of it is taken over.
func (v *Vector) verify(p *process) error {
	m := p.mem
	for i := range p.num {
		flags := m.b[m.Flags+i]
		if flags > flagsAll {
			return v.fault(p, i, "step", fmt.Errorf("%w: the shared memory was written to by others than the bridge", ErrResult))
		}
		op := "step"
		if flags&flagReset != 0 || flags != 0 && v.cfg.Autoreset == envs.SameStep {
			op = "reset"
		}
		if err := v.verifyRow(p, m.Obs, i); err != nil {
			return v.fault(p, i, op, err)
		}
		if flags&flagReset != 0 {
			continue
		}
		if r := m.reward(i); math.IsNaN(r) || math.IsInf(r, 0) {
			return v.fault(p, i, "step", fmt.Errorf("%w: the reward is %v: it must be a finite number", ErrResult, r))
		}
		if flags != 0 && v.cfg.Autoreset == envs.SameStep {
			if err := v.verifyRow(p, m.Final, i); err != nil {
				return v.fault(p, i, "step", err)
			}
		}
	}
	return nil
}

// commit takes a step of a process over.
func (v *Vector) commit(p *process) {
	m, r := p.mem, &v.res
	for i := range p.num {
		n, flags := p.first+i, m.b[m.Flags+i]
		obs := v.rowOf(r.Obs, n)
		switch {
		case v.cut[n]: // flags has that it was reset
			v.cut[n] = false
			if v.cfg.Autoreset == envs.NextStep {
				v.noTransition(n)
			} else {
				v.cutRow(n, "in a reset of other environments")
			}
			if v.cfg.Autoreset != envs.Disabled {
				m.row(obs, m.Obs, i)
			}
			continue
		case flags&flagReset != 0:
			v.noTransition(n)
			m.row(obs, m.Obs, i)
			continue
		}
		r.Rewards[n], r.Reset[n] = m.reward(i), false
		r.Terminated[n], r.Truncated[n] = flags&flagTerminated != 0, flags&flagTruncated != 0
		over := flags != 0
		v.count(n, over)
		m.row(obs, m.Obs, i)
		if !over {
			continue
		}
		if len(v.cfg.Infos) > 0 {
			r.Infos[n].Values = v.infos(p, i)
		}
		if v.cfg.Autoreset == envs.SameStep {
			m.row(v.rowOf(r.FinalObs, n), m.Final, i)
			continue
		}
		v.done[n] = true
		copy(v.rowOf(r.FinalObs, n), obs)
	}
}

// infos are the values of the names of Config.Infos for environment i, whose episode has ended, or nil.
func (v *Vector) infos(p *process, i int) (values map[string]any) {
	for k, name := range v.cfg.Infos {
		x := p.mem.info(i, k, len(v.cfg.Infos))
		if math.IsNaN(x) {
			continue
		}
		if values == nil {
			values = make(map[string]any, len(v.cfg.Infos))
		}
		values[name] = x
	}
	return values
}

// noTransition reports that environment n was reset in this step.
func (v *Vector) noTransition(n int) {
	r := &v.res
	r.Rewards[n], r.Terminated[n], r.Truncated[n], r.Reset[n] = 0, false, false, true
	v.done[n], v.running[n] = false, envs.Episode{}
}

// count counts a step of environment n, as envs.RecordEpisodeStatistics does.
func (v *Vector) count(n int, over bool) {
	e := &v.running[n]
	e.Return += v.res.Rewards[n]
	e.Length++
	if over {
		v.ended[n], *e = *e, envs.Episode{}
		v.res.Infos[n].Episode = &v.ended[n]
		v.told = append(v.told, n)
	}
}

// cutRow reports that the episode of environment n was cut, with the observation that is in its row. The
// row of the next one is to be written behind it.
func (v *Vector) cutRow(n int, why string) {
	r := &v.res
	r.Rewards[n], r.Terminated[n], r.Truncated[n], r.Reset[n] = 0, false, true, false
	v.done[n] = v.cfg.Autoreset != envs.SameStep
	copy(v.rowOf(r.FinalObs, n), v.rowOf(r.Obs, n))
	v.count(n, true)
	r.Infos[n].Values = map[string]any{"restarted": why}
}

// cutAll replaces process k, which failed in a step, and cuts the episodes in it.
func (v *Vector) cutAll(k int, fault error) error {
	p := v.procs[k]
	var m resetMessage
	for i := range p.num {
		n := p.first + i
		switch reset := v.done[n] || v.cut[n] && v.cfg.Autoreset == envs.NextStep; {
		case reset:
			v.noTransition(n)
			m.Index = append(m.Index, i)
		default:
			v.cut[n] = false
			v.cutRow(n, fault.Error())
			if v.cfg.Autoreset == envs.SameStep {
				m.Index = append(m.Index, i)
			} else {
				m.Pending = append(m.Pending, i)
			}
		}
	}
	return v.replace(k, fault, &m)
}

// maxStreak is how many faults of a process, without a step between them, end the vector.
const maxStreak = 3

// replace replaces process k, which failed, and sends the new one a message, until that succeeds. It
// returns the last fault if it does not.
func (v *Vector) replace(k int, fault error, m *resetMessage) error {
	for v.cfg.Restart {
		if errors.Is(fault, ErrInfo) {
			return fault // the next process would do the same
		}
		if v.streak[k]++; v.streak[k] >= maxStreak {
			return fmt.Errorf("%d faults without a step between them: %w", maxStreak, fault)
		}
		old := v.procs[k]
		old.stop(answered(fault))
		old.mem.close()
		old.mem = nil
		v.mu.Lock()
		closed := v.closed
		if !closed {
			v.restarts++
		}
		v.mu.Unlock()
		if closed {
			return fault
		}
		v.cfg.Logger.Warn("a Python process is replaced; its episodes are cut", slog.String("env", v.name),
			slog.Int("first", old.first), slog.Int("environments", old.num), slog.Any("fault", fault))
		if fault = v.renew(k, m); fault == nil {
			return nil
		}
	}
	return fault
}

// renew starts process k again.
func (v *Vector) renew(k int, m *resetMessage) error {
	if err := v.start(k); err != nil {
		return err
	}
	p := v.procs[k]
	h, err := v.greet(p)
	if err == nil {
		err = v.same(p, h)
	}
	if err == nil {
		err = v.share(p)
	}
	if err != nil || m.Index == nil && m.Pending == nil {
		return err
	}
	_ = p.send(opReset, m, v.cfg.StepTimeout) // an error shows in the answer, with its cause
	return v.finishReset(p, m)
}

// Frame returns a new picture of environment i, which renders with the mode "rgb_array": see
// Config.RenderMode. Pictures can be added to an [envs.Video]. The error of an environment that does not
// return a picture wraps [envs.ErrNoPictures].
func (v *Vector) Frame(i int) (*image.RGBA, error) {
	v.busy.Lock()
	defer v.busy.Unlock()
	if err := v.begin(); err != nil {
		return nil, err
	}
	for _, p := range v.procs {
		if i < p.first || i >= p.first+p.num {
			continue
		}
		_ = p.send(opRender, map[string]int{"index": i - p.first}, v.cfg.StepTimeout)
		data, err := p.receive(v.cfg.StepTimeout)
		if f, ok := errors.AsType[*fault](err); ok { // the environment is as it was
			return nil, v.fault(p, i-p.first, "render", picturesError{f.cause()})
		}
		if err != nil {
			return nil, v.end(p.failure(v.name, "render", v.cfg.StepTimeout, err))
		}
		img, err := decodeFrame(data)
		if err != nil {
			return nil, v.fault(p, i-p.first, "render", err)
		}
		return img, nil
	}
	return nil, fmt.Errorf("render %s: no environment %d", v.name, i)
}

// picturesError is an error of render as an envs.ErrNoPictures.
type picturesError struct{ error }

func (n picturesError) Unwrap() []error { return []error{n.error, envs.ErrNoPictures} }

// FrameRate is the render_fps in the metadata of the environments, or 0 if there is none.
func (v *Vector) FrameRate() int { return max(v.said.FPS, 0) }

// decodeFrame returns a picture that a process has sent.
func decodeFrame(data []byte) (*image.RGBA, error) {
	if len(data) < 8 {
		return nil, errors.New("a picture that is cut off")
	}
	w, h := uint64(binary.LittleEndian.Uint32(data)), uint64(binary.LittleEndian.Uint32(data[4:]))
	if pixels := data[8:]; w == 0 || h == 0 || w > maxMessage || h > maxMessage || 3*w*h != uint64(len(pixels)) {
		return nil, fmt.Errorf("a picture of %d x %d pixels with %d bytes", w, h, len(pixels))
	}
	img := image.NewRGBA(image.Rect(0, 0, int(w), int(h)))
	for i, j := 8, 0; i < len(data); i, j = i+3, j+4 {
		img.Pix[j], img.Pix[j+1], img.Pix[j+2], img.Pix[j+3] = data[i], data[i+1], data[i+2], 255
	}
	return img, nil
}
