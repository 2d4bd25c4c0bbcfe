package gym

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/printable"
)

// Vector is environments in processes of Python. It is an [envs.Vector]. It is no
// [envs.Snapshotter]: the state in Python cannot be saved, and a run that is resumed begins new
// episodes.
type Vector struct {
	name       string
	cfg        Config
	first      helloMessage // of the first process; the others differ in Num
	obs        envs.Space
	action     envs.Space
	layout     []Part
	dim, width int
	discrete   *envs.Discrete
	said       *hello
	out        *lockedWriter

	res     envs.Result
	done    []bool // the episode is over and was not reset
	cut     []bool // the episode was cut by a restart in a reset, which the next step says
	running []envs.Episode
	ended   []envs.Episode
	told    []int // the rows of Infos that are not empty
	started bool
	failed  error // of the call that has ended the vector
	streak  []int // the faults of each process since it took a step
	advice  int   // steps until advise; 0: the number of processes is chosen, or advise has been called

	busy sync.Mutex // held by a call; Close releases the memory under it

	mu       sync.Mutex // guards the fields below
	procs    []*process
	closed   bool
	restarts int
}

var (
	_ envs.Vector = (*Vector)(nil)
	_ envs.Framer = (*Vector)(nil)
)

// helloMessage is the first message to a process.
type helloMessage struct {
	Protocol   int            `json:"protocol"`
	Module     string         `json:"module"`
	ID         string         `json:"id"`
	Path       string         `json:"path"`
	Attr       string         `json:"attr"`
	Num        int            `json:"num"`
	Kwargs     map[string]any `json:"kwargs"`
	Options    map[string]any `json:"options"`
	RenderMode string         `json:"render_mode"`
	Autoreset  int            `json:"autoreset"`
	Infos      []string       `json:"infos"`
}

// Open starts processes, makes the environments and returns them as a vector. See the package
// for the forms of name. When ctx ends before they are made, the processes are ended and the error is
// the cause; later it has no effect.
func Open(ctx context.Context, name string, cfg Config) (*Vector, error) {
	processes := cfg.Processes
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t, err := parseName(name)
	if err != nil {
		return nil, err
	}
	if !supported {
		return nil, fmt.Errorf("environment %q: environments of Python need Linux, macOS or another Unix", name)
	}
	if t.path != "" {
		if t.path, err = filepath.Abs(t.path); err != nil {
			return nil, err
		}
	}
	v := &Vector{
		name: printable.Text(name), cfg: cfg, out: &lockedWriter{w: cfg.Stderr},
		first: helloMessage{protocol, t.module, t.id, t.path, t.attr, 0, cfg.Kwargs, cfg.Options, cfg.RenderMode, int(cfg.Autoreset), cfg.Infos},
		procs: make([]*process, cfg.Processes), streak: make([]int, cfg.Processes),
	}
	if processes == 0 && cfg.Processes > 1 {
		v.advice = adviceAfter
	}
	if err := v.open(ctx); err != nil {
		_ = v.close(ctx.Err() == nil && answered(err))
		return nil, err
	}
	return v, nil
}

// open starts all processes, which import and make their environments at the same time.
func (v *Vector) open(ctx context.Context) error {
	v.busy.Lock()
	defer v.busy.Unlock()
	release := context.AfterFunc(ctx, func() { _ = v.close(false) })
	defer release()
	fail := func(err error) error {
		if ctx.Err() != nil {
			return fmt.Errorf("open %s: %w", v.name, context.Cause(ctx))
		}
		return fmt.Errorf("open %s: %w", v.name, err)
	}
	for k := range v.procs {
		if err := v.start(k); err != nil {
			return fail(err)
		}
	}
	for k, p := range v.procs {
		h, err := v.greet(p)
		if err == nil && k == 0 {
			err = v.setSpaces(h)
		}
		if err == nil {
			err = v.same(p, h)
		}
		if err == nil {
			err = v.share(p)
		}
		if err != nil {
			return fail(err)
		}
	}
	if !release() {
		return fail(context.Cause(ctx))
	}
	return nil
}

// start starts process k and sends it the program and the first message.
func (v *Vector) start(k int) error {
	n, of := v.cfg.Num, v.cfg.Processes
	from, to := k*n/of, (k+1)*n/of
	numbers := strconv.Itoa(from)
	if to-from > 1 {
		numbers += "-" + strconv.Itoa(to-1)
	}
	out := &lines{w: v.out, prefix: v.name + "[" + numbers + "]: "}
	p, err := start(&v.cfg, from, to-from, out)
	if err != nil {
		return err
	}
	v.mu.Lock()
	closed := v.closed
	if !closed {
		v.procs[k] = p
	}
	v.mu.Unlock()
	if closed {
		p.stop(false)
		return fmt.Errorf("%s: %w", v.name, envs.ErrClosed)
	}
	m := v.first
	m.Num = p.num
	// The program goes the way of the messages. An error of writing shows in the answer, with its cause.
	if err := p.writeProgram(v.cfg.StartTimeout); err == nil {
		_ = p.send(opHello, m, v.cfg.StartTimeout)
	}
	return nil
}

// greet waits for the environments of a process.
func (v *Vector) greet(p *process) (*hello, error) {
	payload, err := p.receive(v.cfg.StartTimeout)
	if err != nil {
		return nil, v.unmade(p, err)
	}
	return decodeHello(payload)
}

// unmade returns the error of a process that has not made its environments. What is missing for all of
// them is no fault of one.
func (v *Vector) unmade(p *process, err error) error {
	err = p.failure(v.name, "make", v.cfg.StartTimeout, err)
	if e, ok := errors.AsType[*envs.Error](err); ok && errors.Is(err, ErrPython) {
		return e.Err
	}
	return err
}

// setSpaces takes over the spaces of the first process.
func (v *Vector) setSpaces(h *hello) (err error) {
	v.said = h
	if v.obs, v.layout, err = h.Observation.observations(); err != nil {
		return err
	}
	if v.action, err = h.Action.actions(); err != nil {
		return err
	}
	v.dim, v.width = v.obs.Dim(), v.action.Dim()
	if d, ok := v.action.(envs.Discrete); ok {
		v.discrete = &d
	}
	n := v.cfg.Num
	v.res = envs.Result{
		Obs: make([]float32, n*v.dim), FinalObs: make([]float32, n*v.dim), Rewards: make([]float64, n),
		Terminated: make([]bool, n), Truncated: make([]bool, n), Reset: make([]bool, n), Infos: make([]envs.Info, n),
	}
	v.done, v.cut = make([]bool, n), make([]bool, n)
	v.running, v.ended = make([]envs.Episode, n), make([]envs.Episode, n)
	v.told = make([]int, 0, n)
	return nil
}

// same reports if a process has other spaces than the first one.
func (v *Vector) same(p *process, h *hello) error {
	if equal(h.Observation, v.said.Observation) && equal(h.Action, v.said.Action) {
		return nil
	}
	return v.fault(p, 0, "make", fmt.Errorf("%w: it has other spaces than the first environment", ErrResult))
}

// equal reports whether two spaces are described alike.
func equal(a, b *space) bool {
	return a.Kind == b.Kind && a.DType == b.DType && a.N == b.N && a.Start == b.Start && slices.Equal(a.Shape, b.Shape) &&
		slices.Equal(a.Low, b.Low) && slices.Equal(a.High, b.High) && slices.Equal(a.NVec, b.NVec) &&
		slices.EqualFunc(a.Items, b.Items, func(x, y item) bool { return x.Key == y.Key && equal(x.Space, y.Space) })
}

// share gives a process the memory for its environments.
func (v *Vector) share(p *process) error {
	_, box := v.action.(envs.Box)
	m := places(p.num, v.dim, v.width, len(v.cfg.Infos), v.said.Observation.bytewise(), !box)
	if err := m.open(folders()...); err != nil {
		return err
	}
	err := p.send(opMap, m, v.cfg.StartTimeout)
	if err == nil {
		_, err = p.receive(v.cfg.StartTimeout)
	}
	if gone := m.remove(); err == nil {
		err = gone
	} else {
		err = p.failure(v.name, "make", v.cfg.StartTimeout, err)
	}
	if err != nil {
		m.close()
		return err
	}
	p.mem = m
	return nil
}

// Name is the name that was opened.
func (v *Vector) Name() string { return v.name }

// Num is the number of environments.
func (v *Vector) Num() int { return v.cfg.Num }

// ObservationSpace is the space of one environment's observations.
func (v *Vector) ObservationSpace() envs.Space { return v.obs }

// ActionSpace is the space of one environment's actions.
func (v *Vector) ActionSpace() envs.Space { return v.action }

// Autoreset is the vector's mode.
func (v *Vector) Autoreset() envs.AutoresetMode { return v.cfg.Autoreset }

// Layout returns the parts of an observation, in order.
func (v *Vector) Layout() []Part { return slices.Clone(v.layout) }

// Versions returns the versions of Python and numpy that the environments use. That of numpy is empty
// if they have not imported it.
func (v *Vector) Versions() (python, numpy string) { return v.said.Python, v.said.NumPy }

// Restarts is how many processes were replaced until now.
func (v *Vector) Restarts() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.restarts
}

// Close closes the environments and ends the processes, also those that hang. A call that is in progress
// returns an [envs.ErrClosed]; so does every later one, except for Close. It always returns nil.
func (v *Vector) Close() error { return v.close(true) }

func (v *Vector) close(politely bool) error {
	v.mu.Lock()
	v.closed = true
	procs := slices.Clone(v.procs)
	v.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range procs {
		if p == nil {
			continue
		}
		all.Go(func() {
			if p.stop(politely) {
				v.cfg.Logger.Warn("a Python process did not end and was killed", slog.String("env", v.name), slog.Int("first", p.first))
			}
		})
	}
	all.Wait()
	v.busy.Lock()
	defer v.busy.Unlock()
	for _, p := range procs {
		if p != nil {
			p.mem.close()
			p.mem = nil
		}
	}
	return nil
}

// begin begins a call, and says why there cannot be one.
func (v *Vector) begin() error {
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	switch {
	case v.failed != nil:
		return fmt.Errorf("%s: %w after a fault: %w", v.name, envs.ErrClosed, v.failed)
	case closed:
		return fmt.Errorf("%s: %w", v.name, envs.ErrClosed)
	}
	return nil
}

// end ends the vector with an error of a call, which it returns.
func (v *Vector) end(err error) error {
	v.mu.Lock()
	closed := v.closed
	v.closed = true
	procs := slices.Clone(v.procs)
	v.mu.Unlock()
	if closed {
		return fmt.Errorf("%s: %w", v.name, envs.ErrClosed)
	}
	v.failed = err
	var all sync.WaitGroup
	for _, p := range procs {
		all.Go(func() { p.stop(answered(err)) })
	}
	all.Wait()
	for _, p := range procs {
		p.mem.close()
		p.mem = nil
	}
	return err
}
