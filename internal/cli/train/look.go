package train

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/cli/screen"
	"github.com/ditask/ditask/internal/plot"
	"github.com/ditask/ditask/internal/runs"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/train"
)

// PlotCommand returns the command "ditask plot".
func PlotCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	return &urfave.Command{
		Name: "plot", Usage: "draw the learning curves of runs, as PNG or SVG", ArgsUsage: "RUN...",
		Description: "RUN is the folder of a training, or a folder above several. Runs of one algorithm in one environment form one\n" +
			"curve: the interquartile mean over seeds, with a 95 % band by the stratified bootstrap (Agarwal et al. 2021).",
		Flags: []urfave.Flag{
			&urfave.PathFlag{Name: "output", Aliases: []string{"o"}, Value: "curves.png",
				Usage: "`FILE` to write, as PNG or SVG according to its extension"},
			forceFlag(),
			flags.Text("", "column", "rollout/ep_rew_mean", "column of progress.csv to draw, such as eval/mean_reward"),
			flags.Text("", "x", "steps", "horizontal axis: steps (of the environments) or time"),
			&urfave.Float64SliceFlag{Name: "threshold",
				Usage: "`RETURN` of a horizontal line (default: the threshold of the environment, if it has one)"},
			flags.Text("", "title", "", "title of the picture (default: the settings that all runs share)"),
			&urfave.IntFlag{Name: "width", Value: 1200, Usage: "width in pixels"},
			&urfave.IntFlag{Name: "height", Value: 675, Usage: "height in pixels"},
		},
		Action: c.plot,
	}
}

func (c command) plot(ctx *urfave.Context) error {
	if ctx.NArg() == 0 {
		return call.Usage("ditask plot: want the folders of runs: see ditask plot --help")
	}
	path := ctx.Path("output")
	format := plot.Format(strings.ToLower(filepath.Ext(path)))
	if format != plot.PNG && format != plot.SVG {
		return call.Usage("--output %s: want a file that ends with .png or .svg", path)
	}
	axes := map[string]plot.Axis{"steps": plot.EnvSteps, "time": plot.WallTime}
	axis, ok := axes[ctx.String("x")]
	if !ok {
		return call.Usage("--x %q: want steps or time", ctx.String("x"))
	}
	if err := free(ctx, "output", path); err != nil {
		return err
	}
	var all []plot.Run
	for _, arg := range ctx.Args().Slice() {
		found, err := drawn(arg)
		if err != nil {
			return call.UsageError{Err: err}
		}
		all = append(all, found...)
	}
	cfg := plot.Config{
		Column: ctx.String("column"), X: axis, Title: ctx.String("title"), Width: ctx.Int("width"), Height: ctx.Int("height"),
		Threshold: ctx.Float64Slice("threshold"),
	}
	if !ctx.IsSet("threshold") && strings.HasSuffix(cfg.Column, "rew_mean") || cfg.Column == "eval/mean_reward" {
		cfg.Threshold = append(cfg.Threshold, thresholds(all)...)
	}
	if err := export.WriteFile(path, func(w io.Writer) error { return plot.Curves(w, format, all, cfg) }); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	_, err := fmt.Fprintln(c.Stdout, path)
	return err
}

// drawn returns the run of a folder, or the runs below it.
func drawn(dir string) ([]plot.Run, error) {
	if _, err := os.Stat(filepath.Join(dir, train.ProgressFile)); err == nil {
		r, err := plot.Read(dir)
		return []plot.Run{r}, err
	}
	found, err := runs.Find(dir)
	if err != nil {
		return nil, err
	}
	var out []plot.Run
	for _, f := range found {
		r, err := plot.Read(f.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has not begun
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no run found: want a folder with %s, or one above such folders", dir, train.ProgressFile)
	}
	return out, nil
}

// thresholds returns the threshold of the environment, if all runs have the same one.
func thresholds(all []plot.Run) []float64 {
	for _, r := range all {
		if r.Env != all[0].Env {
			return nil
		}
	}
	if t, ok := train.Threshold(all[0].Env); ok {
		return []float64{t}
	}
	return nil
}

// RunsCommand returns the command "ditask runs".
func RunsCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	return &urfave.Command{
		Name: "runs", Usage: "list and compare the runs below a folder", ArgsUsage: "[FOLDER]",
		Flags: []urfave.Flag{
			flags.Text("", "algo", "", "only runs of this `ALGORITHM`"),
			flags.Text("", "env", "", "only runs in this `ENVIRONMENT`"),
			flags.Text("", "state", "", "only runs in this state: running, finished, stopped or unknown"),
			flags.Text("", "name", "", "only runs with this `TEXT` in their name"),
			flags.Text("", "sort", string(runs.ByName), "`KEY` to sort by: name, started, best or steps"),
			&urfave.BoolFlag{Name: "compare", Usage: "also print the settings in which the runs differ"},
			flags.JSON(),
		},
		Action: c.runs,
	}
}

func (c command) runs(ctx *urfave.Context) error {
	if ctx.NArg() > 1 {
		return call.Usage("ditask runs: want one folder: see ditask runs --help")
	}
	root := "runs"
	if ctx.NArg() == 1 {
		root = ctx.Args().First()
	}
	state := runs.State(ctx.String("state"))
	if state != "" && !slices.Contains([]runs.State{runs.Running, runs.Finished, runs.Stopped, runs.Unknown}, state) {
		return call.Usage("--state %q: want running, finished, stopped or unknown", state)
	}
	all, err := runs.Find(root)
	if errors.Is(err, fs.ErrNotExist) {
		return call.Usage("ditask runs: %s: no such folder", root)
	}
	if err != nil {
		return err
	}
	all = runs.Select(all, runs.Filter{Algo: ctx.String("algo"), Env: ctx.String("env"), State: state, Name: ctx.String("name")})
	if err := runs.Sort(all, runs.Key(ctx.String("sort"))); err != nil {
		return call.UsageError{Err: err}
	}
	if ctx.Bool("json") {
		return runs.WriteJSON(c.Stdout, all)
	}
	width := 160
	if size := screen.Terminal(c.Stdout); size != nil {
		width, _ = size()
	}
	if err := runs.WriteText(c.Stdout, all, width); err != nil || !ctx.Bool("compare") {
		return err
	}
	for _, d := range runs.Compare(all) {
		if _, err := fmt.Fprintf(c.Stdout, "%s: %s\n", d.Key, strings.Join(d.Values, ", ")); err != nil {
			return err
		}
	}
	return nil
}
