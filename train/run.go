package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/her"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/task"
)

// The files of a run folder. Checkpoints are those of package rl.
const (
	ConfigFile      = "config.yaml"
	ProgressFile    = "progress.csv"
	MetricsFile     = "metrics.jsonl"
	EvaluationsFile = "evaluations.csv"
	OutcomeFile     = "outcome.json"
	TensorBoardDir  = "tensorboard"
)

// Node is one process of a run. A *parallel.Node is one.
type Node interface {
	task.Node
	Size() int
	Seed() uint64
	Dir() string
	Resume() bool
	MustResume() bool
}

// Output configures the output of a run, in addition to the files in its folder. The zero value prints nothing.
type Output struct {
	Program  string    // the name of the program, for config.yaml, such as "ditask v1.2.0"
	Progress io.Writer // a line for people for each row of the log
	Summary  io.Writer // a few lines at the end
	// Step, if not nil, is called after each step of the process that learns.
	Step func(c *rl.Online)
	// Report, if not nil, is called in the process with node id 0, if it learns: every ReportEvery and at the end. The report is
	// overwritten afterwards.
	Report      func(*Report)
	ReportEvery time.Duration // 0 means 200 ms
	// Done, if not nil, is called at the end of a run that has not failed.
	Done func(c *rl.Online)
}

// Run trains on one node, and returns when the run has ended. Every node of a job calls it with an equal config.
func (c *Config) Run(ctx context.Context, node Node, out Output) (err error) {
	p, err := c.prepare(ctx, node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.envs.close()) }()
	if node.ID() == 0 && node.Dir() != "" {
		if err := c.save(node.Dir(), out.Program); err != nil {
			return err
		}
	}
	if err := p.assemble(ctx, out); err != nil {
		return err
	}
	began := time.Now()
	err = p.task.Run(ctx)
	if p.reporter != nil {
		p.reporter.end()
	}
	if err != nil {
		return err
	}
	if out.Done != nil {
		out.Done(p.task.Context())
	}
	if p.task.Has(rl.Learner) && node.ID() == 0 && out.Summary != nil {
		return p.summary(out.Summary, time.Since(began))
	}
	return nil
}

// save writes the config into a run folder.
func (c *Config) save(dir, program string) error {
	err := safefile.MkdirAll(dir, 0o755)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, ConfigFile)
	f, err := safefile.Create(path+".new", 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(c.WriteYAML(f, program), f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

// prepared is a run before its first step.
type prepared struct {
	c     *Config
	node  Node
	envs  *environments
	setup algorithm.Setup
	task  *task.Task[rl.Online]
	run   *rl.Run
	probe envs.Vector // of the collector, or one environment for its spaces
	// learners is how many processes learn.
	learners int
	reporter *reporter // nil: no reports are wanted
}

// prepare opens an environment, and builds the policy and its source of data.
func (c *Config) prepare(ctx context.Context, node Node) (_ *prepared, err error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	e, err := c.environments()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	p := &prepared{c: c, node: node, envs: e}
	p.learners = min(c.learners(), max(node.Size(), 1))
	p.task = task.New[rl.Online](node, rl.LearnerRoles(node.Size(), p.learners)...)
	e.logger = p.task.Logger()
	num := c.numEnvs()
	if !p.task.Has(rl.Collector) {
		num = 1 // for its spaces
	}
	if p.probe, err = e.vector(ctx, num, c.algorithm); err != nil {
		return nil, err
	}
	seed := uint64(c.Seed()) //nolint:gosec // any bits will do
	if c.learners() > 1 {
		seed = node.Seed() // learners draw different samples
	}
	if p.setup, err = c.make(p.probe, e, seed); err != nil {
		return nil, err
	}
	return p, nil
}

// make builds the policy and its source of data for environments like v.
func (c *Config) make(v envs.Vector, e *environments, seed uint64) (algorithm.Setup, error) {
	obs, action := v.ObservationSpace(), v.ActionSpace()
	if err := suits(c.algorithm, e.name, action); err != nil {
		return algorithm.Setup{}, err
	}
	s, err := c.build(algorithm.Task{
		Obs: obs, Action: action, Goal: e.goal, Seed: seed, Envs: c.numEnvs(), Steps: c.Steps(), Threads: *c.keys.threads,
	})
	if err != nil {
		return s, fmt.Errorf("%s on %s: %w", c.algorithm.Name, e.name, err)
	}
	if s.Goals > 0 {
		s.Source = her.New(s.Source.(*data.Replay), her.Config{Goal: e.goal, Goals: s.Goals, Seed: seed})
	}
	return c.normalized(s), nil
}

// normalized puts the policy of s behind normalised observations and rewards, if the config asks for them.
func (c *Config) normalized(s algorithm.Setup) algorithm.Setup {
	k := &c.keys
	rewards := k.normalizeReward != nil && *k.normalizeReward
	if !*k.normalize && !rewards {
		return s
	}
	cfg := normalize.Config{Rewards: rewards, RawObservations: !*k.normalize}
	if gamma := c.own.Lookup("gamma"); gamma != nil {
		cfg.Gamma, _ = strconv.ParseFloat(gamma.String(), 64) // the text of a number
	}
	p := normalize.New(s.Policy, cfg)
	if r, ok := s.Source.(*data.Rollout); ok && rewards {
		r.ScaleRewards(p.ScaleRewards)
	}
	s.Policy = p
	return s
}

func (c *Config) numEnvs() int {
	if c.keys.envs == nil {
		return 1 // of an offline run, for its spaces
	}
	return *c.keys.envs
}

func (c *Config) learners() int {
	if c.keys.learners == nil {
		return 1
	}
	return *c.keys.learners
}

// assemble makes the task.
func (p *prepared) assemble(ctx context.Context, out Output) error {
	c, k, node := p.c, &p.c.keys, p.node
	learners := p.learners
	if _, ok := p.setup.Policy.(policies.Parallel); learners > 1 && !ok {
		return fmt.Errorf("learners: %s learns in one process only", c.algorithm.Name)
	}
	if c.algorithm.Offline && node.Size() > 1 {
		return fmt.Errorf("%s learns from files in one process: %d are started", c.algorithm.Name, node.Size())
	}
	t := p.task
	r := rl.New(t, p.setup.Policy, rl.Config{
		Seed: uint64(c.Seed()), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume(), //nolint:gosec // any bits will do
		Infos: *k.infos,
	})
	p.run = r
	exchange := rl.ExchangeConfig{Learners: learners}
	sync := k.mode != nil && (*k.mode == "sync" || *k.mode == "auto" && p.setup.OnPolicy)
	if sync && node.Size() > learners {
		exchange.Synchronous = node.Size()
	}
	t.Use(r.Exchange(exchange))
	if err := p.collectAndLearn(r); err != nil {
		return err
	}
	if out.Step != nil {
		t.Use(func(ctx context.Context, c *rl.Online, next task.Next) error {
			err := next(ctx)
			out.Step(c)
			return err
		})
	}
	if out.Report != nil && node.ID() == 0 && t.Has(rl.Learner) {
		p.reporter = newReporter(p, cmp.Or(out.ReportEvery, 200*time.Millisecond), out.Report)
		t.Use(p.reporter.step)
	}
	if every := k.evalEvery.Of(c.Steps()); every > 0 {
		v, err := p.evaluated(ctx)
		if err != nil {
			return err
		}
		t.Use(r.Evaluate(v, rl.EvalConfig{
			EverySteps: p.envSteps(every), EveryUpdates: p.updates(every), Episodes: *k.evalEpisodes, StopAt: c.Until(), MaxSteps: *k.evalMaxSteps,
		}))
	} else if c.Until() != 0 {
		return errors.New("until: it goes by evaluations, and eval_every is 0")
	}
	end := c.Steps() + c.extra
	t.Use(r.Log(p.log(out)), r.Stop(rl.StopConfig{EnvSteps: p.envSteps(end), Updates: p.updates(end), After: *k.duration}))
	t.Use(r.Checkpoint(rl.CheckpointConfig{
		EveryUpdates: *k.checkpointUpdates, Every: *k.checkpointEvery, Keep: *k.keep, WithoutData: !*k.save,
	}))
	return nil
}

// collectAndLearn adds the middleware that collects and learns.
func (p *prepared) collectAndLearn(r *rl.Run) error {
	c, s := p.c, &p.setup
	if c.algorithm.Offline {
		paths, err := recordings(*c.keys.data)
		if err != nil {
			return err
		}
		d, err := data.OpenDataset(data.DatasetConfig{
			Paths: paths, Columns: s.Policy.Spec().Learns, Batch: s.Batch, Seed: uint64(c.Seed()), //nolint:gosec // any bits will do
		})
		if err != nil {
			return fmt.Errorf("data: %w", err)
		}
		p.task.Use(r.Learn(d, rl.LearnConfig{Rate: s.Rate, Clip: s.Clip}))
		return nil
	}
	v := p.probe
	if _, box := v.ActionSpace().(envs.Box); box && s.ClipActions {
		v = envs.ClipActions(v)
	}
	p.task.Use(r.Collect(v, rl.CollectConfig{VectorSteps: s.VectorSteps, Episodes: s.Episodes, RandomSteps: s.RandomSteps}))
	if *c.keys.record {
		p.task.Use(r.Record(rl.RecordConfig{Policy: c.algorithm.Name}))
	}
	p.task.Use(r.Learn(s.Source, rl.LearnConfig{Rate: s.Rate, Clip: s.Clip}))
	return nil
}

// recordings returns the paths, and for the folder of a run the folder of its recording.
func recordings(paths []string) ([]string, error) {
	out := slices.Clone(paths)
	for i, p := range paths {
		if _, err := os.Stat(filepath.Join(p, ConfigFile)); err != nil {
			continue
		}
		out[i] = filepath.Join(p, "data") // see rl.RecordConfig
		if _, err := os.Stat(out[i]); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("data: the run %s has recorded nothing: record with --set record=true", p)
		}
	}
	return out, nil
}

// evaluated returns the vector of the evaluations. Processes that do not evaluate need no environments for it.
func (p *prepared) evaluated(ctx context.Context) (envs.Vector, error) {
	if !p.task.Has(rl.Evaluator) {
		return p.probe, nil
	}
	v, err := p.envs.vector(ctx, min(*p.c.keys.evalEpisodes, 10), p.c.algorithm)
	if err != nil {
		return nil, err
	}
	if _, box := v.ActionSpace().(envs.Box); box && p.setup.ClipActions {
		v = envs.ClipActions(v)
	}
	return v, nil
}

// envSteps is n, or 0 in an offline run.
func (p *prepared) envSteps(n int) int {
	if p.c.algorithm.Offline {
		return 0
	}
	return n
}

// updates is n in an offline run, or 0.
func (p *prepared) updates(n int) int { return n - p.envSteps(n) }

func (p *prepared) log(out Output) rl.LogConfig {
	every := max(p.c.keys.logEvery.Of(p.c.Steps()), 1)
	l := rl.LogConfig{EverySteps: p.envSteps(every), EveryUpdates: p.updates(every), Terminal: out.Progress}
	if dir := p.node.Dir(); dir != "" && p.task.Has(rl.Learner) {
		l.CSV, l.JSON = filepath.Join(dir, ProgressFile), filepath.Join(dir, MetricsFile)
		l.Outcome = filepath.Join(dir, OutcomeFile)
		if p.c.keys.evalEvery.Of(p.c.Steps()) > 0 {
			l.Evaluations = filepath.Join(dir, EvaluationsFile)
		}
		if *p.c.keys.tensorboard {
			l.TensorBoard, l.HistogramEvery, l.HParams = filepath.Join(dir, TensorBoardDir), *p.c.keys.histograms, p.c.hparams()
		}
	}
	return l
}

// hparams returns the values of all keys, as numbers and truth values where they are such.
func (c *Config) hparams() map[string]any {
	out := map[string]any{"algo": c.algorithm.Name}
	for _, k := range c.Keys() {
		text := k.String()
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			out[k.Name] = x
		} else if b, err := strconv.ParseBool(text); err == nil {
			out[k.Name] = b
		} else {
			out[k.Name] = text
		}
	}
	return out
}

// summary writes how the run went.
func (p *prepared) summary(w io.Writer, took time.Duration) error {
	c := p.task.Context()
	what := fmt.Sprintf("%d env steps, %d episodes, %d updates", c.EnvSteps, c.Episodes, c.Updates)
	if p.c.algorithm.Offline {
		what = fmt.Sprintf("%d updates", c.Updates)
	}
	text := ""
	if over := p.run.Over(); over != "" {
		text = fmt.Sprintf("nothing was left to do: %s: %s\n", over, p.more(c))
	}
	text += fmt.Sprintf("%s on %s: %s in %v\n", p.c.algorithm.Name, p.envs.name, what, took.Round(10*time.Millisecond))
	if e := c.Eval; e.Episodes > 0 {
		text += fmt.Sprintf("last evaluation: %.1f ± %.1f over %d episodes%s\n", e.Mean, e.Std, e.Episodes, infosText(e.Infos))
	}
	if b := c.Best; b != nil {
		at := fmt.Sprintf("%d env steps", b.EnvSteps)
		if p.c.algorithm.Offline {
			at = fmt.Sprintf("%d updates", b.Version)
		}
		text += fmt.Sprintf("best evaluation: %.1f ± %.1f over %d episodes, at %s%s\n", b.Mean, b.Std, b.Episodes, at, infosText(b.Infos))
	}
	if dir := p.node.Dir(); dir != "" {
		text += "run folder: " + dir + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// infosText returns the infos of an evaluation, for the end of its line in the log.
func infosText(infos []policies.Metric) (text string) {
	for _, m := range infos {
		text += fmt.Sprintf(", %s %.4g", m.Name, m.Value)
	}
	return text
}

// Try opens an environment, builds the policy and its source of data, and closes the environment, to find faults before
// any process starts.
func (c *Config) Try(ctx context.Context) error {
	if err := c.Check(); err != nil {
		return err
	}
	e, err := c.environments()
	if err != nil {
		return err
	}
	v, err := e.vector(ctx, 1, c.algorithm)
	if err == nil {
		_, err = c.make(v, e, 1)
	}
	return errors.Join(err, e.close())
}
