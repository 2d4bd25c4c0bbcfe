package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/envs/gym"
	"github.com/ditask/ditask/policies/algorithm"
)

// environments makes vectors of the environment of a config.
type environments struct {
	name    string
	goal    envs.Goal // nil: none
	open    func(ctx context.Context, n int, o opening) (envs.Vector, error)
	raw     envs.Vector // the first one, before its observations are encoded
	closers []func() error
	logger  *slog.Logger // nil: the default
}

// opening is the purpose of a vector.
type opening struct {
	mode  envs.AutoresetMode
	draws bool // pictures are made of it
}

// environments finds the environment of the config, and starts nothing.
func (c *Config) environments() (*environments, error) {
	name, k := c.Env(), &c.keys
	if gym.Matches(name) {
		return c.python(name)
	}
	var faults []error
	for _, key := range pythonKeys {
		if p := c.run.Lookup(key); p.String() != p.Default {
			faults = append(faults, fmt.Errorf("%s: %s is no environment in Python", key, cut(name)))
		}
	}
	spec, err := envs.Lookup(name)
	if err != nil {
		err = fmt.Errorf("env: %w: see ditask env list; those of Gymnasium are gym:ID", err)
	}
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	if *k.limit > 0 {
		spec = spec.Limited(*k.limit)
	}
	return &environments{
		name: spec.ID, goal: spec.Goal,
		open: func(_ context.Context, n int, o opening) (envs.Vector, error) { return spec.Sync(n, o.mode), nil },
	}, nil
}

// pythonKeys are those that only environments in Python have.
var pythonKeys = []string{"env_args", "env_processes", "env_timeout", "env_restart", "python"}

// python are environments in Python.
func (c *Config) python(name string) (*environments, error) {
	k := &c.keys
	if *k.limit > 0 {
		return nil, fmt.Errorf("time_limit: %s truncates its episodes itself, as Gymnasium's TimeLimit does", cut(name))
	}
	var kwargs map[string]any
	if *k.args != "" {
		if err := json.Unmarshal([]byte(*k.args), &kwargs); err != nil {
			return nil, fmt.Errorf("env_args: %w", err)
		}
	}
	e := &environments{name: name}
	e.open = func(ctx context.Context, n int, o opening) (envs.Vector, error) {
		processes := *k.processes
		if e.raw != nil { // a vector before this one logs whether another number may be faster
			processes = cmp.Or(processes, runtime.GOMAXPROCS(0))
		}
		cfg := gym.Config{
			Num: n, Processes: min(processes, n), Python: *k.python, Kwargs: kwargs, Autoreset: o.mode, StepTimeout: *k.timeout,
			Restart: *k.restart, Infos: *k.infos, Logger: e.logger,
		}
		if _, chosen := kwargs["render_mode"]; o.draws && !chosen {
			cfg.RenderMode = "rgb_array"
		}
		return gym.Open(ctx, name, cfg)
	}
	return e, nil
}

// vector makes a vector of n environments, encoded as the algorithm needs them.
func (e *environments) vector(ctx context.Context, n int, a algorithm.Algorithm) (envs.Vector, error) {
	return e.opened(ctx, n, a, opening{mode: envs.SameStep})
}

func (e *environments) opened(ctx context.Context, n int, a algorithm.Algorithm, o opening) (envs.Vector, error) {
	v, err := e.open(ctx, n, o)
	if err != nil {
		return nil, err
	}
	if c, ok := v.(interface{ Close() error }); ok {
		e.closers = append(e.closers, c.Close)
	}
	if e.raw == nil {
		e.raw = v
	}
	switch v.ObservationSpace().(type) {
	case envs.Discrete, envs.MultiDiscrete:
		if !a.Tabular {
			v = envs.OneHotObservations(v)
		}
	}
	return v, nil
}

// close ends the processes of the vectors.
func (e *environments) close() error {
	var faults []error
	for _, c := range e.closers {
		faults = append(faults, c())
	}
	e.closers = nil
	return errors.Join(faults...)
}

// suits returns the reason why an algorithm does not fit the spaces of an environment.
func suits(a algorithm.Algorithm, env string, action envs.Space) error {
	_, box := action.(envs.Box)
	switch {
	case box && !a.Continuous:
		return fmt.Errorf("%s learns discrete actions, and those of %s are %v: take ppo, sac, td3 or ddpg", a.Name, env, action)
	case !box && !a.Discrete:
		return fmt.Errorf("%s learns continuous actions, and those of %s are %v: take ppo, dqn, c51 or a2c", a.Name, env, action)
	}
	return nil
}

// Threshold returns the mean return at which an environment of this module counts as solved, if it has one.
func Threshold(env string) (threshold float64, ok bool) {
	spec, err := envs.Lookup(env)
	return spec.Threshold, err == nil && spec.HasThreshold
}

// OpenEnv makes a vector of n environments of a name, as those of a config, but with their own observations. args
// are the keyword arguments of an environment in Python, as JSON, and processes is the number of its processes; 0 means one
// for each core. The caller calls closing at the end.
func OpenEnv(ctx context.Context, name, args string, n, processes int) (v envs.Vector, closing func() error, err error) {
	e, err := named(name, args, processes)
	if err != nil {
		return nil, nil, err
	}
	if v, err = e.vector(ctx, n, algorithm.Algorithm{Tabular: true}); err != nil {
		return nil, nil, errors.Join(err, e.close())
	}
	return v, e.close, nil
}

// named are environments of a name.
func named(name, args string, processes int) (*environments, error) {
	c, err := New(Algorithms(), "ppo") // whose keys of every run are all that matters
	if err == nil {
		err = errors.Join(c.Set("env", name, "env"), c.Set("env_args", args, "env_args"),
			c.Set("env_processes", strconv.Itoa(processes), "env_processes"))
	}
	if err != nil {
		return nil, err
	}
	return c.environments()
}
