// Package train trains an algorithm on an environment, as described by a config, in one process or as one of several.
//
//	c, err := train.New(train.Algorithms(), "ppo")
//	err = c.Set("env", "CartPole-v1", "the command line")
//	err = c.Set("learning_rate", "1e-3", "the command line")
//	parallel.Main(func(ctx context.Context, node *parallel.Node) error { return c.Run(ctx, node, train.Output{Summary: os.Stdout}) })
//
// A [Config] has the keys of the run, such as steps and seed, and the hyperparameters of its algorithm. Each has
// a default; a preset, a file and single settings replace it in turn, and the config records the origin of each
// value. A run writes its config as config.yaml into its folder, and [Load] restores the trained policy from
// it.
//
// An algorithm is a value of package policies/algorithm. [Algorithms] returns those of this module; a program may add
// others.
//
// Errors name the key, the value and the allowed values; for an unknown key they name the nearest one. A Config is not
// safe for concurrent use.
package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/nearest"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies/algorithm"
)

// Config is the configuration of a training run.
type Config struct {
	algorithm algorithm.Algorithm
	build     algorithm.Build
	run, own  algorithm.Params // the keys of every run, and those of the algorithm
	origins   map[string]string
	keys      runKeys
	extra     int // steps behind the end of the schedules
}

// runKeys are the values of the keys of every run.
type runKeys struct {
	env, args, python       *string
	data, infos             *[]string
	seed, steps, envs       *int
	limit                   *int
	processes               *int
	timeout, duration       *time.Duration
	restart                 *bool
	until                   *float64
	evalEvery, logEvery     *algorithm.Count
	evalEpisodes, keep      *int
	evalMaxSteps            *int
	histograms              *int
	tensorboard             *bool
	checkpointUpdates       *int
	checkpointEvery         *time.Duration
	learners, threads       *int
	mode                    *string
	normalize, record, save *bool
	normalizeReward         *bool
}

// New returns the config of an algorithm, with its defaults. The error of an unknown name names the nearest.
func New(all []algorithm.Algorithm, name string) (*Config, error) {
	i := slices.IndexFunc(all, func(a algorithm.Algorithm) bool { return a.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, a := range all {
			names[i] = a.Name
		}
		return nil, fmt.Errorf("unknown algorithm %q%s: want %s", cut(name), nearest.Hint(name, names), strings.Join(names, ", "))
	}
	c := &Config{algorithm: all[i], origins: map[string]string{}}
	c.build = all[i].Declare(&c.own)
	c.declare()
	for _, p := range c.run.All() {
		if c.own.Lookup(p.Name) != nil {
			panic(fmt.Sprintf("train: %s declares %s, which is a key of every run", name, p.Name))
		}
	}
	return c, nil
}

// declare declares the keys of every run.
func (c *Config) declare() {
	const here = "ditask"
	a, p, k := c.algorithm, &c.run, &c.keys
	zero, one := algorithm.AtLeast(0), algorithm.AtLeast(1)
	stepUnit := "env steps"
	if a.Offline {
		stepUnit = "updates"
	}
	k.env = p.Text("env", "", "", "environment: a name such as CartPole-v1, gym:ID of Python's Gymnasium, or FILE.py:FUNCTION", "", nil)
	k.args = p.Text("env_args", "", "JSON", "keyword arguments of an environment in Python, such as {\"size\": 5}", here, jsonObject)
	k.processes = p.Int("env_processes", 0, "processes", "processes of Python that step a collector's environments; 0: one for each core",
		here, zero)
	k.timeout = durationKey(p, "env_timeout", time.Minute, "how long an environment in Python may take for a step")
	k.restart = p.Bool("env_restart", false,
		"replace an environment in Python that failed, hung or ended, and count its episode as truncated", here)
	k.infos = textsKey(p, "env_info", "numbers in the info of an episode's last step, such as is_success,score, whose means are logged",
		rl.CheckInfos)
	k.python = p.Text("python", "", "", "program that runs environments in Python; empty: $DITASK_PYTHON, or python3", here, nil)
	k.limit = p.Int("time_limit", 0, "time steps", "truncates episodes; 0: the environment's own limit alone", here, zero)
	k.seed = p.Int("seed", 1, "", "of environments, exploration, weights and samples", here)
	k.steps = p.Int("steps", a.Steps, stepUnit, "length of the run; schedules and parts of the run go by it", a.Source, one)
	k.duration = durationKey(p, "time", 0, "ends the run after so much wall time; 0: never")
	k.until = p.Float("until", 0, "return", "ends the run when a greedy evaluation, and one of 100 episodes after it, reach it; 0: never",
		here)
	if a.Offline {
		k.data = textsKey(p, "data", "dataset files, folders of them, or run folders with a recording, that are learned from", nil)
	} else {
		k.envs = p.Int("envs", a.Envs, "environments", "environments that each collector steps", a.Source, one)
		k.record = p.Bool("record", false, "write what is collected to dataset files in the run folder", here)
		k.learners = p.Int("learners", 1, "processes", "processes that learn together, each from its own batches", here, one)
		k.mode = p.OneOf("mode", "auto", []string{"auto", "sync", "async"},
			"how processes work together: in lockstep, bit for bit, or each at its own pace; auto: sync if the algorithm is on-policy", here)
	}
	k.normalize = p.Bool("normalize", false, "standardise observations by their running mean and deviation", here)
	if !a.Offline {
		k.normalizeReward = p.Bool("normalize_reward", false,
			"learn from rewards divided by the running deviation of the discounted return, clipped to 10", "SB3's VecNormalize: true")
		p.Alias("norm_reward")
	}
	k.evalEvery = p.Count("eval_every", "5%", stepUnit, "steps between greedy evaluations; 0: none", here)
	k.evalEpisodes = p.Int("eval_episodes", 10, "episodes", "episodes of an evaluation", here, one)
	k.evalMaxSteps = p.Int("eval_max_steps", 27_000, "time steps",
		"time steps after which an episode of an evaluation is cut; 0: none", "as Atari games, 108,000 frames", zero)
	k.logEvery = p.Count("log_every", "1%", stepUnit, "steps between rows of the log", here)
	k.tensorboard = p.Bool("tensorboard", true, "write event files for TensorBoard into the run folder", here)
	k.histograms = p.Int("histograms", 0, "rows", "rows of the log between histograms of the weights in the event files; 0: none", here, zero)
	k.checkpointUpdates = p.Int("checkpoint_updates", 50_000, "updates", "updates between checkpoints, at most", here, one)
	k.checkpointEvery = durationKey(p, "checkpoint_every", 30*time.Second, "time between checkpoints, at most")
	k.keep = p.Int("checkpoint_keep", 0, "files", "older checkpoints that stay; -1: all", here, algorithm.AtLeast(-1))
	k.save = p.Bool("checkpoint_data", true, "keep the replay buffer in checkpoints, so that a run is resumed bit for bit", here)
	k.threads = p.Int("threads", 1, "threads", "threads that compute a large update; they change no bit of the results", here, one)
}

// durationKey declares a duration such as 90s, 10m or 1h30m.
func durationKey(p *algorithm.Params, name string, def time.Duration, about string) *time.Duration {
	v := new(time.Duration)
	text := p.Text(name, def.String(), "", about, "ditask", func(text string) error {
		d, err := time.ParseDuration(text)
		if text == "0" {
			d, err = 0, nil
		}
		if err != nil || d < 0 {
			return fmt.Errorf("%q: want a duration such as 90s or 1h30m", cut(text))
		}
		*v = d
		return nil
	})
	_ = text
	return v
}

// textsKey declares a list of texts between commas. check, if not nil, reports faults in them.
func textsKey(p *algorithm.Params, name, about string, check func(all []string) error) *[]string {
	v := new([]string)
	p.Text(name, "", "", about, "", func(text string) error {
		var all []string
		for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
		if check != nil {
			if err := check(all); err != nil {
				return err
			}
		}
		*v = all
		return nil
	})
	return v
}

// Algorithm returns the algorithm of the config.
func (c *Config) Algorithm() algorithm.Algorithm { return c.algorithm }

// Env returns the environment's name; empty: none is set.
func (c *Config) Env() string { return *c.keys.env }

// Seed returns the seed of the run.
func (c *Config) Seed() int { return *c.keys.seed }

// Steps returns the length of the run: env steps, or updates of an offline run.
func (c *Config) Steps() int { return *c.keys.steps }

// Extend makes the run continue for that many steps after its length, with the last values of its schedules.
func (c *Config) Extend(steps int) { c.extra = steps }

// Duration returns the wall time that ends the run; 0: none does.
func (c *Config) Duration() time.Duration { return *c.keys.duration }

// Until returns the return that ends the run; 0: none does.
func (c *Config) Until() float64 { return *c.keys.until }

// Key is one key of a config.
type Key struct {
	*algorithm.Param
	Origin string // the source of the value
	Own    bool   // it is a hyperparameter of the algorithm
}

// Keys returns all keys, first those of every run.
func (c *Config) Keys() []Key {
	var keys []Key
	for _, p := range c.run.All() {
		keys = append(keys, Key{p, c.origin(p), false})
	}
	for _, p := range c.own.All() {
		keys = append(keys, Key{p, c.origin(p), true})
	}
	return keys
}

func (c *Config) origin(p *algorithm.Param) string {
	if o, ok := c.origins[p.Name]; ok {
		return o
	}
	if p.Source == "" {
		return "default"
	}
	return "default: " + p.Source
}

// param finds a key by its name or an alias.
func (c *Config) param(key string) (*algorithm.Param, error) {
	if p := c.run.Lookup(key); p != nil {
		return p, nil
	}
	if p := c.own.Lookup(key); p != nil {
		return p, nil
	}
	var names []string
	for _, k := range c.Keys() {
		names = append(append(names, k.Name), k.Aliases...)
	}
	return nil, fmt.Errorf("unknown key %q%s: see ditask train %s --help", cut(key), nearest.Hint(key, names), c.algorithm.Name)
}

// Set gives a key a value, and records its origin.
func (c *Config) Set(key, value, origin string) error {
	p, err := c.param(key)
	if err != nil {
		return err
	}
	if err := p.Set(value); err != nil {
		return err
	}
	c.origins[p.Name] = origin
	return nil
}

// Check reports missing and contradictory settings, before anything is opened.
func (c *Config) Check() error {
	var faults []error
	if c.Env() == "" {
		faults = append(faults, errors.New("env: no environment is given: see ditask env list"))
	}
	if c.algorithm.Offline && len(*c.keys.data) == 0 {
		faults = append(faults, fmt.Errorf("data: %s learns from dataset files: name them, or record some with --set record=true",
			c.algorithm.Name))
	}
	return errors.Join(faults...)
}

// cut shortens a text from outside for an error.
func cut(text string) string {
	if len(text) > 80 {
		return text[:80] + "..."
	}
	return text
}
