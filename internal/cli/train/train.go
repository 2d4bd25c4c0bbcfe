// Package train is the command "ditask train", which trains an algorithm on an environment without any Go code.
//
//	cmd := train.Command(c, "ditask v1.2.0")
//
// The nodes of the job run ditask with the same config flags: if the environment makes the process a node, the command
// is that node. So a training runs alone, in N processes, in the tasks of a Slurm step and in pods, as any other job.
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
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/cli/job"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/train"
)

// The groups of flags in the help.
const (
	groupTrain = "Training"
	groupRuns  = "Runs"
)

// shortcuts are the flags that stand for keys of a config.
var shortcuts = []string{"env", "steps", "time", "until", "envs", "env-info"}

func ownFlags() []urfave.Flag {
	return []urfave.Flag{
		flags.Text(groupTrain, "env", "", "`NAME` of the environment: CartPole-v1, gym:ID of Python's Gymnasium, or FILE.py:FUNCTION"),
		flags.Text(groupTrain, "steps", "", "length of the run: env steps, or updates of an offline one; such as 500k"),
		flags.Text(groupTrain, "time", "", "wall time after which the run ends, such as 10m"),
		flags.Text(groupTrain, "until", "", "mean `RETURN` of 100 greedy episodes at which the run ends"),
		flags.Text(groupTrain, "envs", "", "number of environments of each collector"),
		flags.Text(groupTrain, "env-info", "", "`NAMES` of numbers in the infos of an environment, such as is_success, whose means are logged"),
		flags.Text(groupTrain, "preset", "", "`NAME` of published settings, or none (default: the first for algorithm and environment)"),
		flags.Text(groupTrain, "config", "", "YAML `FILE` of keys and values"),
		&urfave.GenericFlag{Category: groupTrain, Name: "set", Value: &texts{}, Usage: "`KEY=VALUE` of the config; may be given several times"},
		&urfave.BoolFlag{Category: groupTrain, Name: "dry-run", Usage: "print the config with the origin of each value, and do not train"},
		&urfave.IntFlag{Category: groupRuns, Name: "seeds", Value: 1,
			Usage: "number of runs, with successive seeds; as many run at once as there are processors"},
		&urfave.Int64Flag{Category: groupRuns, Name: "seed", Value: 1, Usage: "seed of the run, or of the first",
			EnvVars: []string{control.VarSeed}},
		flags.Text(groupRuns, "resume", "", "`FOLDER` of a run to continue with its config, which further flags change"),
		&urfave.PathFlag{Category: groupRuns, Name: "dir", Usage: "`FOLDER` of the run (default: a new one, runs/NAME/ALGO-ENV-SEED-TIME)"},
		flags.Text(groupRuns, "view", viewAuto,
			"output: live (a picture of the training on a terminal), lines (a line every few seconds), quiet (only the summary), "+
				"or auto: live on a terminal, else lines"),
		&urfave.StringFlag{Category: groupRuns, Name: "report", Hidden: true},
		flags.Text(groupRuns, "name", "train", "`NAME` of the folder below runs that groups runs"),
	}
}

// replaced are the flags of a job that the command declares differently.
var replaced = []string{"package", "main", "seed", "resume", "dir", "run-name"}

func allFlags() []urfave.Flag {
	return append(ownFlags(), slices.DeleteFunc(flags.Job(), func(f urfave.Flag) bool { return slices.Contains(replaced, f.Names()[0]) })...)
}

// command has the actions of one call.
type command struct {
	*call.Call
	program string
	all     []algorithm.Algorithm
}

// Command returns the command "ditask train". program names the program in config.yaml.
func Command(of *call.Call, program string) *urfave.Command {
	c := command{of, program, train.Algorithms()}
	cmd := &urfave.Command{
		Name: "train", Usage: "train an algorithm on an environment, without any Go code",
		UsageText:   "ditask train ALGO --env ENV [flags]\nditask train ALGO --help\nditask train --resume FOLDER",
		Description: description,
		Flags:       allFlags(),
		Action:      func(ctx *urfave.Context) error { return c.run(ctx, "") },
	}
	for _, a := range c.all {
		cmd.Subcommands = append(cmd.Subcommands, &urfave.Command{
			Name: a.Name, Usage: a.About, Flags: allFlags(), Description: c.describe(a),
			UsageText: fmt.Sprintf("ditask train %s --env ENV [flags]", a.Name),
			Action:    func(ctx *urfave.Context) error { return c.run(ctx, a.Name) },
		})
	}
	return cmd
}

const description = `ditask train ppo --env CartPole-v1
ditask train sac --env Pendulum-v1 --seeds 5
ditask train dqn --env ./my_env.py:make_env --steps 200k --set gamma=0.98
ditask train ppo --env CartPole-v1 -n 4 --config ppo.yaml

Settings come from the algorithm's defaults, a preset, --resume, --config, and --set and the flags that stand for keys. Later
ones override earlier ones. --dry-run prints them with their origins. "ditask train ALGO --help" lists the hyperparameters.`

// describe lists the keys of an algorithm.
func (c command) describe(a algorithm.Algorithm) string {
	cfg, err := train.New(c.all, a.Name)
	if err != nil {
		panic(err.Error()) // a is one of c.all
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s.\n%s.\n", a.Name, a.About, a.Source)
	for _, own := range []bool{true, false} {
		title := "Hyperparameters"
		if !own {
			title = "Keys of every run"
		}
		fmt.Fprintf(&b, "\n%s (--set KEY=VALUE):\n", title)
		for _, k := range cfg.Keys() {
			if k.Own != own {
				continue
			}
			value := k.Default
			if k.Unit != "" && value != "" {
				value += " " + k.Unit
			}
			fmt.Fprintf(&b, "  %-24s %s\n", k.Name, k.About)
			text := ""
			if value != "" {
				text = strings.TrimSuffix("default "+value+", from "+k.Source, ", from ")
			}
			if text = strings.Join(slices.DeleteFunc([]string{text, k.Bounds}, func(s string) bool { return s == "" }), "; "); text != "" {
				fmt.Fprintf(&b, "  %-24s %s\n", "", text)
			}
		}
	}
	var names []string
	for _, p := range train.Presets() {
		if p.Algorithm() == a.Name {
			names = append(names, fmt.Sprintf("  %-32s %s", p.Name, p.Settings))
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(&b, "\nPresets (--preset):\n%s\n", strings.Join(names, "\n"))
	}
	return b.String()
}

// run trains algo, or the algorithm of the folder of --resume.
func (c command) run(ctx *urfave.Context, algo string) error {
	if ctx.NArg() > 0 {
		return c.unknown(ctx, algo)
	}
	cfg, err := c.config(ctx, algo)
	if err != nil {
		return call.UsageError{Err: err}
	}
	until, lifted := cfg.Until(), false
	if dir := ctx.String("resume"); dir != "" {
		if lifted, err = cfg.LiftUntil(dir, besides(cfg, ctx.String("config"))); err != nil {
			return call.UsageError{Err: err}
		}
	}
	viewing, err := c.viewOf(ctx)
	if err != nil {
		return call.UsageError{Err: err}
	}
	if os.Getenv(control.VarNodeID) != "" { // this process is a node
		parallel.Main(func(ctx context.Context, node *parallel.Node) error {
			return c.node(ctx, cfg, node, viewing)
		})
	}
	if ctx.Bool("dry-run") {
		return cfg.WriteYAML(c.Stdout, c.program)
	}
	if err := cfg.Try(ctx.Context); err != nil {
		return call.UsageError{Err: err}
	}
	if lifted {
		c.Note(ctx.String("log-format"), fmt.Sprintf("the run has reached --until %v: it continues without a return as its end", until))
	}
	if n := ctx.Int("seeds"); n != 1 {
		return c.seeds(ctx, cfg, n, viewing)
	}
	return c.launch(ctx, cfg, viewing)
}

// unknown returns the error for a word that is not an algorithm, or for too many words.
func (c command) unknown(ctx *urfave.Context, algo string) error {
	if algo != "" {
		return call.Usage("ditask train %s: unknown argument %q: see ditask train %s --help", algo, ctx.Args().First(), algo)
	}
	_, err := train.New(c.all, ctx.Args().First())
	if err == nil { // the algorithm follows flags
		err = errors.New("the algorithm comes first")
	}
	return call.Usage("ditask train: %w: see ditask train --help", err)
}

// config makes the config from defaults, preset, files and flags, in this order.
func (c command) config(ctx *urfave.Context, algo string) (*train.Config, error) {
	files, err := readFiles(ctx)
	if err != nil {
		return nil, err
	}
	preset := ctx.String("preset")
	for _, f := range files {
		algo, preset = cmp.Or(algo, f.Algo), cmp.Or(preset, f.Preset)
	}
	if algo == "" {
		return nil, fmt.Errorf("no algorithm is given: ditask train ALGO --env ENV: see ditask train --help")
	}
	cfg, err := train.New(c.all, algo)
	if err != nil {
		return nil, err
	}
	settings, err := given(ctx)
	if err != nil {
		return nil, err
	}
	if err := usePreset(cfg, preset, files, settings); err != nil {
		return nil, err
	}
	var faults []error
	for _, f := range files {
		faults = append(faults, cfg.Apply(f))
	}
	for _, s := range settings {
		if err := cfg.Set(s.key, s.value, s.origin); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", s.origin, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return cfg, cfg.Check()
}

// besides returns the keys that flags and the file of --config have set.
func besides(cfg *train.Config, file string) (keys []string) {
	for _, k := range cfg.Keys() {
		if k.Origin == "--"+k.Name || k.Origin == "--set" || file != "" && strings.HasPrefix(k.Origin, file+":") {
			keys = append(keys, k.Name)
		}
	}
	return keys
}

// readFiles reads the config of --resume, and that of --config.
func readFiles(ctx *urfave.Context) (files []*train.File, err error) {
	for _, path := range []string{resumed(ctx), ctx.String("config")} {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) && path == resumed(ctx) {
			return nil, fmt.Errorf("--resume %s: the folder has no %s: give the folder of a training", ctx.String("resume"), train.ConfigFile)
		}
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		file, err := train.ReadFile(path, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// resumed returns the path of the config of the run that --resume names, or "".
func resumed(ctx *urfave.Context) string {
	if dir := ctx.String("resume"); dir != "" {
		return filepath.Join(dir, train.ConfigFile)
	}
	return ""
}

// texts are the values of a flag that may be given several times. Commas do not separate values.
type texts []string

// Set appends a value.
func (t *texts) Set(v string) error {
	*t = append(*t, v)
	return nil
}

// String returns "", which the help shows as the default.
func (t *texts) String() string { return "" }

// sets returns the values of --set.
func sets(ctx *urfave.Context) texts {
	t, _ := ctx.Generic("set").(*texts)
	return *t
}

// setting is one of the command line.
type setting struct{ key, value, origin string }

// given returns the settings of the command line, flags that stand for keys first.
func given(ctx *urfave.Context) ([]setting, error) {
	var out []setting
	for _, name := range shortcuts {
		if ctx.IsSet(name) {
			out = append(out, setting{strings.ReplaceAll(name, "-", "_"), ctx.String(name), "--" + name})
		}
	}
	if ctx.IsSet("seed") || resumed(ctx) == "" && ctx.String("config") == "" {
		out = append(out, setting{"seed", strconv.FormatInt(ctx.Int64("seed"), 10), "--seed"})
	}
	for _, s := range sets(ctx) {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--set %q: want KEY=VALUE", s)
		}
		out = append(out, setting{strings.TrimSpace(key), value, "--set"})
	}
	return out, nil
}

// usePreset applies the named preset, or the first one for algorithm and environment.
func usePreset(cfg *train.Config, name string, files []*train.File, settings []setting) error {
	switch name {
	case "none":
		return nil
	case "":
		env := ""
		for _, f := range files {
			env = cmp.Or(f.Env(), env)
		}
		for _, s := range settings {
			if s.key == "env" {
				env = s.value
			}
		}
		for _, p := range train.Presets() {
			if p.Algorithm() == cfg.Algorithm().Name && env != "" && p.Env() == env {
				return cfg.Use(&p)
			}
		}
		return nil
	}
	p, err := train.FindPreset(name)
	if err != nil {
		return fmt.Errorf("--preset: %w", err)
	}
	return cfg.Use(p)
}

// launch runs the job.
func (c command) launch(ctx *urfave.Context, cfg *train.Config, viewing view) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program of ditask: %w", err)
	}
	args := append(flags.Given(ctx, replaced...), "--package", self, "--seed", strconv.Itoa(cfg.Seed()),
		"--run-name", fmt.Sprintf("%s-%s-%d", cfg.Algorithm().Name, fileName(cfg.Env()), cfg.Seed()))
	dir := c.folder(ctx, cfg)
	if dir != "" {
		args = append(args, "--dir", dir)
	}
	if viewing.mode == viewLines || viewing.mode == viewQuiet {
		args = append(args, "--no-table")
	}
	if ctx.String("resume") != "" {
		args = append(args, "--resume")
	}
	program, err := c.nodeArgs(ctx, cfg)
	if err != nil {
		return err
	}
	program = append(program, "--view", cmp.Or(viewing.mode, viewAuto))
	if viewing.report != "" {
		program = append(program, "--report", viewing.report)
	}
	start := job.Run
	if viewing.mode == viewLive {
		w, err := newWatch(cfg, dir)
		if err != nil {
			return err
		}
		defer w.close(c.Stdout)
		program = append(program, "--report", w.path)
		start = func(of *call.Call, ctx *urfave.Context) error { return job.RunView(of, ctx, w.rows) }
	}
	app := &urfave.App{
		Name: "ditask", Flags: flags.Job(), HideHelp: true, HideVersion: true, Writer: c.Stdout, ErrWriter: c.Stderr,
		ExitErrHandler: func(*urfave.Context, error) {},
		Action: func(ctx *urfave.Context) error {
			return start(&call.Call{Stdout: c.Stdout, Stderr: c.Stderr, Args: program}, ctx)
		},
	}
	return app.RunContext(ctx.Context, append([]string{"ditask"}, args...))
}

// folder returns the folder of the run. It is "" for a job of several launchers, which derive a common one.
func (c command) folder(ctx *urfave.Context, cfg *train.Config) string {
	switch {
	case ctx.String("resume") != "":
		return ctx.String("resume")
	case ctx.String("dir") != "":
		return ctx.String("dir")
	case job.Several(ctx):
		return ""
	}
	base := fmt.Sprintf("%s-%s-%d-%s", cfg.Algorithm().Name, fileName(cfg.Env()), cfg.Seed(), time.Now().Format("20060102-150405"))
	dir := filepath.Join("runs", fileName(ctx.String("name")), base)
	for i := 2; ; i++ {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return dir
		}
		dir = filepath.Join("runs", fileName(ctx.String("name")), fmt.Sprintf("%s-%d", base, i))
	}
}

// fileName returns a text as a part of a file name.
func fileName(text string) string {
	text = strings.TrimPrefix(text, "gym:")
	if file, function, ok := strings.Cut(text, ".py:"); ok {
		text = filepath.Base(file) + "." + function
	}
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, text)
	return clean[:min(len(clean), 64)]
}

// nodeArgs returns the arguments of ditask as a node, which result in the same config.
func (c command) nodeArgs(ctx *urfave.Context, cfg *train.Config) ([]string, error) {
	args := []string{"train", cfg.Algorithm().Name, "--seed", strconv.Itoa(cfg.Seed())}
	for _, name := range append(slices.Clone(shortcuts), "preset") {
		if ctx.IsSet(name) {
			args = append(args, "--"+name, ctx.String(name))
		}
	}
	for _, name := range []string{"config", "resume"} {
		if v := ctx.String(name); v != "" {
			abs, err := filepath.Abs(v)
			if err != nil {
				return nil, err
			}
			args = append(args, "--"+name, abs)
		}
	}
	for _, s := range sets(ctx) {
		args = append(args, "--set", s)
	}
	return args, nil
}

// sparse passes one line every two seconds.
type sparse struct {
	w    io.Writer
	last time.Time
}

// Write writes a line, or drops it.
func (s *sparse) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(s.last) >= 2*time.Second {
		s.last = now
		return s.w.Write(p)
	}
	return len(p), nil
}
