package train

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/train"
)

// weightsFlag returns the flag that selects the weights of a run.
func weightsFlag() urfave.Flag {
	return flags.Text("", "weights", string(train.Best),
		"best: of the best evaluation; last: of the last checkpoint; a number: of the checkpoint after that many updates, "+
			"if checkpoint_keep has kept it")
}

// maxEpisodes bounds an evaluation.
const maxEpisodes = 1_000_000

// EvalCommand returns the command "ditask eval".
func EvalCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	return &urfave.Command{
		Name: "eval", Usage: "play episodes with the policy of a run", ArgsUsage: "RUN",
		Description: "RUN is the folder of a training. The 95 % confidence interval of the mean return is computed by the percentile\n" +
			"bootstrap over episodes (Efron 1979).",
		Flags: []urfave.Flag{
			&urfave.IntFlag{Name: "episodes", Value: 100, Usage: "number of episodes"},
			&urfave.Uint64Flag{Name: "seed", Value: 1, Usage: "seed of the first environment; the others have the following ones"},
			&urfave.BoolFlag{Name: "explore", Usage: "act as in training, rather than greedily"},
			weightsFlag(), flags.JSON(),
		},
		Action: c.eval,
	}
}

// result is the JSON output of an evaluation.
type result struct {
	Run      string    `json:"run"`
	Weights  string    `json:"weights"`
	Episodes int       `json:"episodes"`
	Mean     float64   `json:"mean"`
	Std      float64   `json:"std"`
	Low      float64   `json:"ci95_low"`
	High     float64   `json:"ci95_high"`
	Min      float64   `json:"min"`
	Max      float64   `json:"max"`
	Length   float64   `json:"mean_length"`
	Returns  []float64 `json:"returns"`
	// Infos are means of the numbers of the key env_info.
	Infos map[string]float64 `json:"infos,omitempty"`
}

func (c command) eval(ctx *urfave.Context) (err error) {
	n := ctx.Int("episodes")
	if n < 1 || n > maxEpisodes {
		return call.Usage("--episodes %d: want 1 to %d", n, maxEpisodes)
	}
	t, dir, err := c.load(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	played, err := t.Play(ctx.Context, n, ctx.Uint64("seed"), !ctx.Bool("explore"))
	if err != nil {
		return err
	}
	r := resultOf(played.Episodes)
	r.Run, r.Weights = dir, ctx.String("weights")
	for _, m := range played.Infos {
		if r.Infos == nil {
			r.Infos = map[string]float64{}
		}
		r.Infos[m.Name] = m.Value
	}
	if ctx.Bool("json") {
		return c.WriteJSON(r)
	}
	_, err = fmt.Fprintf(c.Stdout, "%s on %s, %s weights: %.2f ± %.2f over %d episodes\n"+
		"95 %% confidence interval of the mean: %.2f to %.2f\nleast %.2f, greatest %.2f, mean length %.1f\n",
		t.Config.Algorithm().Name, t.Config.Env(), r.Weights, r.Mean, r.Std, r.Episodes, r.Low, r.High, r.Min, r.Max, r.Length)
	for _, m := range played.Infos {
		if err == nil {
			_, err = fmt.Fprintf(c.Stdout, "mean %s %.4g\n", m.Name, m.Value)
		}
	}
	return err
}

// load loads the run that is the only argument.
func (c command) load(ctx *urfave.Context) (*train.Trained, string, error) {
	if ctx.NArg() != 1 {
		return nil, "", call.Usage("%s: want the folder of one run: see %s --help", ctx.Command.HelpName, ctx.Command.HelpName)
	}
	dir := filepath.Clean(ctx.Args().First())
	t, err := train.Load(ctx.Context, c.all, dir, train.Weights(ctx.String("weights")))
	if err != nil {
		return nil, dir, call.UsageError{Err: err}
	}
	return t, dir, nil
}

// resultOf summarises episodes.
func resultOf(episodes []envs.Episode) (r result) {
	n := float64(len(episodes))
	r.Episodes, r.Min, r.Max = len(episodes), math.Inf(1), math.Inf(-1)
	for _, e := range episodes {
		r.Returns = append(r.Returns, e.Return)
		r.Mean += e.Return / n
		r.Length += float64(e.Length) / n
		r.Min, r.Max = min(r.Min, e.Return), max(r.Max, e.Return)
	}
	for _, v := range r.Returns {
		r.Std += (v - r.Mean) * (v - r.Mean) / n
	}
	r.Std = math.Sqrt(r.Std)
	r.Low, r.High = interval(r.Returns)
	return r
}

// resamples is the number of bootstrap samples.
const resamples = 2000

// interval returns the 95 % confidence interval of the mean.
func interval(returns []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, resamples)
	for i := range means {
		for range returns {
			means[i] += returns[rng.IntN(len(returns))] / float64(len(returns))
		}
	}
	slices.Sort(means)
	return means[resamples*25/1000], means[resamples*975/1000-1]
}
