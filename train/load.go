package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/envs/gym"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
)

// Weights selects weights of a run.
type Weights string

// The weights that a run folder holds. A number such as "5000" stands for the checkpoint after that many updates, which
// the key checkpoint_keep has kept.
const (
	Best Weights = "best" // those of the best evaluation
	Last Weights = "last" // those of the last checkpoint
)

// File returns the path of the weights in a run folder.
func (w Weights) File(dir string) (string, error) {
	switch w {
	case Best:
		return filepath.Join(dir, rl.BestFile), nil
	case Last:
		return filepath.Join(dir, rl.CheckpointFile), nil
	}
	n, err := strconv.Atoi(string(w))
	if err != nil || n < 0 {
		return "", fmt.Errorf("weights %q: want best, last, or the updates of a kept checkpoint", cut(string(w)))
	}
	return rl.KeptFile(dir, n), nil
}

// Trained is the policy of a run folder, with its environment. It must be closed.
type Trained struct {
	Config *Config
	Policy policies.Policy
	envs   *environments
	clips  bool
	dir    string
	vector envs.Vector // for its spaces
}

// Load reads the config of a run folder, makes its policy, and loads weights into it.
func Load(ctx context.Context, all []algorithm.Algorithm, dir string, which Weights) (_ *Trained, err error) {
	c, err := LoadConfig(all, dir)
	if err != nil {
		return nil, err
	}
	e, err := c.environments()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	v, err := e.vector(ctx, 1, c.algorithm)
	if err != nil {
		return nil, err
	}
	s, err := c.make(v, e, uint64(c.Seed())) //nolint:gosec // any bits will do
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := load(dir, s.Policy, which); err != nil {
		return nil, err
	}
	return &Trained{c, s.Policy, e, s.ClipActions, dir, v}, nil
}

// LoadConfig reads the config of a run folder.
func LoadConfig(all []algorithm.Algorithm, dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: the folder has no %s: give the folder of a training", dir, ConfigFile)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	file, err := ReadFile(path, f)
	if err != nil {
		return nil, err
	}
	c, err := New(all, file.Algo)
	if err == nil {
		err = c.Apply(file)
	}
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// load loads weights into a policy.
func load(dir string, p policies.Policy, which Weights) error {
	var err error
	switch which {
	case Best:
		var b *rl.Best
		if b, err = rl.LoadBest(dir); err == nil {
			if err = p.Load(b.Weights); err != nil {
				err = fmt.Errorf("%s: %w: config and weights are not of one run", filepath.Join(dir, rl.BestFile), err)
			}
		}
	case Last:
		err = rl.LoadPolicy(dir, p)
	default:
		if _, err := which.File(dir); err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(which)) // File has checked it
		if err = rl.LoadKept(dir, n, p); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: it has no checkpoint after %d updates: the key checkpoint_keep keeps some", dir, n)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: it has no %s weights yet: the run has made no evaluation or checkpoint", dir, which)
	}
	return err
}

// Again makes another policy of the run, with the weights that its folder holds now. The one in Policy stays as it is.
func (t *Trained) Again(which Weights) (policies.Policy, error) {
	s, err := t.Config.make(t.vector, t.envs, uint64(t.Config.Seed())) //nolint:gosec // any bits will do
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.dir, err)
	}
	return s.Policy, load(t.dir, s.Policy, which)
}

// Layout returns the parts of the environment's own observation, in order: From and To are their places in an
// observation of the policy, where discrete numbers may be rows of zeros with a single 1.
func (t *Trained) Layout() []gym.Part {
	dim := t.Policy.Spec().Obs.Dim()
	l, ok := t.envs.raw.(interface{ Layout() []gym.Part })
	if !ok {
		return []gym.Part{layoutOf(t.envs.raw.ObservationSpace(), dim)}
	}
	parts := l.Layout()
	if len(parts) == 1 {
		parts[0].To = dim
	}
	return parts
}

// layoutOf returns a space of package envs as the only part, which has that many values for the policy.
func layoutOf(space envs.Space, dim int) gym.Part {
	p := gym.Part{To: dim, Kind: "Box", Shape: []int{space.Dim()}}
	switch s := space.(type) {
	case envs.Discrete:
		p.Kind, p.Shape, p.N, p.Start = "Discrete", nil, []int{s.N}, s.Start
	case envs.MultiDiscrete:
		p.Kind, p.N = "MultiDiscrete", s.N
	case envs.MultiBinary:
		p.Kind = "MultiBinary"
	case envs.Box:
		if len(s.Shape) > 1 {
			p.Shape = s.Shape
		}
	}
	return p
}

// Action returns the space of the environment's actions.
func (t *Trained) Action() envs.Space { return t.vector.ActionSpace() }

// Clips reports whether actions are brought to the bounds of their box before the environment has them.
func (t *Trained) Clips() bool { return t.clips }

// Vector makes n environments of the run.
func (t *Trained) Vector(ctx context.Context, n int) (envs.Vector, error) {
	v, err := t.envs.vector(ctx, n, t.Config.algorithm)
	if err != nil {
		return nil, err
	}
	if _, box := v.ActionSpace().(envs.Box); box && t.clips {
		v = envs.ClipActions(v)
	}
	return v, nil
}

// Close ends the processes of the environments.
func (t *Trained) Close() error { return t.envs.close() }

// Episodes plays n episodes in at most ten environments, of which the first has the seed, the next the seed behind it and so on:
// greedy, or as the policy explores. Each environment plays its share, so that short episodes do not count more often. An episode is
// cut after the time steps of the key eval_max_steps.
func (t *Trained) Episodes(ctx context.Context, n int, seed uint64, greedy bool) ([]envs.Episode, error) {
	p, err := t.Play(ctx, n, seed, greedy)
	return p.Episodes, err
}

// Played are episodes of a policy.
type Played struct {
	Episodes []envs.Episode
	// Infos are the means over the episodes of the numbers of the key env_info, by rl.InfoName. A number that no
	// episode has is missing.
	Infos []policies.Metric
}

// Play plays as [Trained.Episodes] does, and also returns the infos that the key env_info names.
func (t *Trained) Play(ctx context.Context, n int, seed uint64, greedy bool) (p Played, err error) {
	var infos []float64
	p.Episodes, err = t.play(ctx, n, seed, greedy, func(v envs.Vector, i int, info envs.Info) (err error) {
		infos, err = rl.AppendInfos(infos, *t.Config.keys.infos, v.Name(), i, info)
		return err
	})
	p.Infos = rl.InfoMeans(*t.Config.keys.infos, infos)
	return p, err
}

// play calls told with the info of each episode.
func (t *Trained) play(
	ctx context.Context, n int, seed uint64, greedy bool, told func(v envs.Vector, i int, info envs.Info) error,
) ([]envs.Episode, error) {
	v, err := t.Vector(ctx, min(n, 10))
	if err != nil {
		return nil, err
	}
	obs, err := v.Reset(seed)
	if err != nil {
		return nil, err
	}
	num, spec := v.Num(), t.Policy.Spec()
	act := policies.Act{
		Obs: slices.Clone(obs), Greedy: greedy, State: make([]float32, num*spec.StateSize), Reset: make([]bool, num),
		Noise: make([]float32, num*spec.NoiseSize), Action: make([]float32, num*spec.Action.Dim()),
		EnvSteps: math.MaxInt32, Rand: rand.New(rand.NewPCG(seed, 1)),
	}
	share, running := shares(n, num), make([]envs.Episode, num)
	limit, cut := *t.Config.keys.evalMaxSteps, make([]bool, num)
	for i := range act.Reset {
		act.Reset[i] = true
	}
	var ended []envs.Episode
	for len(ended) < n {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := t.Policy.Act(&act); err != nil {
			return nil, err
		}
		act.Metrics = act.Metrics[:0]
		res, err := v.Step(act.Action)
		if err != nil {
			return nil, err
		}
		copy(act.Obs, res.Obs)
		for i := range num {
			running[i].Return += res.Rewards[i]
			running[i].Length++
			act.Reset[i] = res.Terminated[i] || res.Truncated[i]
			cut[i] = !act.Reset[i] && running[i].Length == limit
			if !act.Reset[i] && !cut[i] {
				continue
			}
			if share[i] > 0 {
				share[i]--
				ended = append(ended, running[i])
				if err := told(v, i, res.Infos[i]); err != nil {
					return nil, err
				}
			}
			running[i] = envs.Episode{}
		}
		if err := resetCut(v, &act, cut); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// shares divides n episodes among num environments.
func shares(n, num int) []int {
	share := make([]int, num)
	for i := range share {
		share[i] = n / num
		if i < n%num {
			share[i]++
		}
	}
	return share
}

// resetCut starts an episode in each environment whose episode was cut.
func resetCut(v envs.Vector, act *policies.Act, cut []bool) error {
	if !slices.Contains(cut, true) {
		return nil
	}
	obs, err := v.ResetSome(cut)
	if err != nil {
		return err
	}
	copy(act.Obs, obs)
	for i := range cut {
		act.Reset[i] = act.Reset[i] || cut[i]
	}
	return nil
}
