package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/envs/gym"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/train"
)

// EnvCommand returns the command "ditask env".
func EnvCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	args := flags.Text("", "args", "", "`JSON` of the keyword arguments of an environment in Python")
	num := &urfave.IntFlag{Name: "envs", Value: 8, Usage: "number of environments"}
	return &urfave.Command{
		Name: "env", Usage: "list, check and measure environments",
		Subcommands: []*urfave.Command{
			{Name: "list", Usage: "list the environments of ditask", Flags: []urfave.Flag{flags.JSON()}, Action: c.envList},
			{
				Name: "check", Usage: "play episodes at random, and report violations of Gymnasium's interface", ArgsUsage: "NAME",
				Flags:  []urfave.Flag{args, num, &urfave.IntFlag{Name: "steps", Value: 2000, Usage: "steps of each environment"}},
				Action: c.envCheck,
			},
			{
				Name: "bench", Usage: "measure the steps per second of random actions", ArgsUsage: "NAME",
				Flags: []urfave.Flag{
					args, num, &urfave.DurationFlag{Name: "time", Value: 2 * time.Second, Usage: "how long to measure"},
					&urfave.IntFlag{Name: "processes", Usage: "processes of Python that step the environments; " +
						"0: one, and then one for each core, each for --time"},
				},
				Action: c.envBench,
			},
		},
	}
}

// envRow is an environment in the list.
type envRow struct {
	ID        string   `json:"id"`
	About     string   `json:"about"`
	Obs       string   `json:"observations"`
	Action    string   `json:"actions"`
	MaxSteps  int      `json:"max_steps,omitempty"`
	Threshold *float64 `json:"threshold,omitempty"`
}

func (c command) envList(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	var rows []envRow
	for _, s := range envs.Specs() {
		v := s.Sync(1, envs.SameStep)
		row := envRow{ID: s.ID, About: s.About, Obs: v.ObservationSpace().String(), Action: v.ActionSpace().String(), MaxSteps: s.MaxSteps}
		if s.HasThreshold {
			row.Threshold = &s.Threshold
		}
		rows = append(rows, row)
	}
	if ctx.Bool("json") {
		return c.WriteJSON(rows)
	}
	w := tabwriter.NewWriter(c.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSOLVED AT\tACTIONS\tTASK")
	for _, r := range rows {
		solved := "-"
		if r.Threshold != nil {
			solved = fmt.Sprint(*r.Threshold)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.ID, solved, r.Action, r.About)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.Stdout, "\nGymnasium's environments are named gym:ID, and those in a Python file FILE.py:FUNCTION.")
	return err
}

// open opens the environment that is the only argument.
func (c command) open(ctx *urfave.Context, processes int) (envs.Vector, func() error, error) {
	if ctx.NArg() != 1 {
		return nil, nil, call.Usage("%s: want the name of one environment: see ditask env list", ctx.Command.HelpName)
	}
	if n := ctx.Int("envs"); n < 1 || n > 1<<16 {
		return nil, nil, call.Usage("--envs %d: want 1 to %d", n, 1<<16)
	}
	v, closing, err := train.OpenEnv(ctx.Context, ctx.Args().First(), ctx.String("args"), ctx.Int("envs"), processes)
	if err != nil {
		return nil, nil, call.UsageError{Err: err}
	}
	return v, closing, nil
}

func (c command) envCheck(ctx *urfave.Context) (err error) {
	v, closing, err := c.open(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	if n := ctx.Int("steps"); n < 1 {
		return call.Usage("--steps %d: want at least 1", n)
	}
	k := &checked{v: v, rng: rand.New(rand.NewPCG(1, 1))}
	if err := k.play(ctx.Context, ctx.Int("steps")); err != nil {
		return fmt.Errorf("check %s: %w", v.Name(), err)
	}
	fmt.Fprintf(c.Stdout, "%s: observations %v, actions %v\n", v.Name(), v.ObservationSpace(), v.ActionSpace())
	fmt.Fprintf(c.Stdout, "%d steps in %d environments, %d episodes, mean return %.4g, mean length %.4g\n",
		k.steps, v.Num(), k.ended, k.returns/max(1, float64(k.ended)), k.length/max(1, float64(k.ended)))
	if len(k.faults) > 0 {
		return fmt.Errorf("check %s: %s", v.Name(), strings.Join(k.faults, "; "))
	}
	_, err = fmt.Fprintln(c.Stdout, "no faults found")
	return err
}

// checked is an environment that is played at random.
type checked struct {
	v               envs.Vector
	rng             *rand.Rand
	steps, ended    int
	returns, length float64
	faults          []string
}

// faultf records a fault, once for each kind.
func (k *checked) faultf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.ContainsFunc(k.faults, func(s string) bool {
		return strings.HasPrefix(s, strings.SplitN(text, ":", 2)[0])
	}) {
		k.faults = append(k.faults, text)
	}
}

// play takes n steps of the vector. After an error no step can be taken.
func (k *checked) play(ctx context.Context, n int) error {
	first, err := k.v.Reset(7)
	if err != nil {
		return err
	}
	first = slices.Clone(first)
	again, err := k.v.Reset(7)
	if err != nil {
		return err
	}
	if !slices.Equal(first, again) {
		k.faultf("seeds: a reset with the same seed gives another observation")
	}
	k.observe(again)
	w := k.v.ActionSpace().Dim()
	actions := make([]float32, k.v.Num()*w)
	running := make([]envs.Episode, k.v.Num())
	for range n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i := range k.v.Num() {
			k.v.ActionSpace().Sample(actions[i*w:(i+1)*w], k.rng)
		}
		res, err := k.v.Step(actions)
		if err != nil {
			return err
		}
		k.observe(res.Obs)
		k.steps += k.v.Num()
		for i := range running {
			running[i].Return += res.Rewards[i]
			running[i].Length++
			if math.IsNaN(res.Rewards[i]) || math.IsInf(res.Rewards[i], 0) {
				k.faultf("rewards: one is %v", res.Rewards[i])
			}
			if res.Terminated[i] || res.Truncated[i] {
				k.ended++
				k.returns += running[i].Return
				k.length += float64(running[i].Length)
				running[i] = envs.Episode{}
			}
		}
	}
	if k.ended == 0 {
		k.faultf("episodes: none ended within %d steps: set a time limit", n)
	}
	return nil
}

// observe checks the observations of all environments.
func (k *checked) observe(obs []float32) {
	d := k.v.ObservationSpace().Dim()
	for i := range k.v.Num() {
		row := obs[i*d : (i+1)*d]
		if j := slices.IndexFunc(row, func(x float32) bool { return x-x != 0 }); j >= 0 {
			k.faultf("observations: value %d is %v", j, row[j])
		} else if !k.v.ObservationSpace().Contains(row) {
			k.faultf("observation space: %v is not in %v", row[:min(len(row), 8)], k.v.ObservationSpace())
		}
	}
}

func (c command) envBench(ctx *urfave.Context) error {
	processes := ctx.Int("processes")
	switch {
	case ctx.Duration("time") <= 0:
		return call.Usage("--time %v: want more than 0", ctx.Duration("time"))
	case processes < 0:
		return call.Usage("--processes %d: want 1 or more, or 0 to compare", processes)
	case ctx.NArg() == 1 && !gym.Matches(ctx.Args().First()):
		if processes > 0 {
			return call.Usage("--processes %d: only environments in Python have processes: leave it out", processes)
		}
		_, err := c.measure(ctx, 0)
		return err
	case processes > 0 || min(runtime.GOMAXPROCS(0), ctx.Int("envs")) < 2:
		_, err := c.measure(ctx, max(processes, 1))
		return err
	}
	one, err := c.measure(ctx, 1)
	if err != nil {
		return err
	}
	most := min(runtime.GOMAXPROCS(0), ctx.Int("envs"))
	all, err := c.measure(ctx, most)
	if err != nil {
		return err
	}
	if one > all {
		_, err = fmt.Fprintf(c.Stdout, "1 process is %.1f times as fast as %d: train with --set env_processes=1\n", one/all, most)
	} else {
		_, err = fmt.Fprintf(c.Stdout, "%d processes are %.1f times as fast as 1: the default of env_processes is right\n", most, all/one)
	}
	return err
}

// measure prints and returns the number of steps per second of environments, in so many processes if they are in Python.
func (c command) measure(ctx *urfave.Context, processes int) (rate float64, err error) {
	v, closing, err := c.open(ctx, processes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closing()) }()
	if _, err := v.Reset(1); err != nil {
		return 0, err
	}
	rng, w := rand.New(rand.NewPCG(1, 1)), v.ActionSpace().Dim()
	const blocks = 64 // of actions, drawn before the measurement
	actions := make([][]float32, blocks)
	for k := range actions {
		actions[k] = make([]float32, v.Num()*w)
		for i := range v.Num() {
			v.ActionSpace().Sample(actions[k][i*w:(i+1)*w], rng)
		}
	}
	run := func(d time.Duration) (steps int, took time.Duration, err error) {
		began := time.Now()
		for took < d && ctx.Err() == nil && err == nil {
			_, err = v.Step(actions[steps%blocks])
			steps, took = steps+1, time.Since(began)
		}
		return steps, took, err
	}
	if _, _, err = run(ctx.Duration("time") / 10); err != nil { // caches, and the first steps of Python
		return 0, err
	}
	steps, took, err := run(ctx.Duration("time"))
	if err != nil {
		return 0, err
	}
	rate = float64(steps*v.Num()) / took.Seconds()
	in := ""
	switch {
	case processes == 1:
		in = " in 1 process"
	case processes > 1:
		in = fmt.Sprintf(" in %d processes", processes)
	}
	of := "environments"
	if v.Num() == 1 {
		of = "environment"
	}
	_, err = fmt.Fprintf(c.Stdout, "%s: %d %s%s, %d steps in %v: %.0f steps/s\n",
		v.Name(), v.Num(), of, in, steps*v.Num(), took.Round(time.Millisecond), rate)
	return rate, err
}
