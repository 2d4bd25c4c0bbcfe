package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/runfolder"
)

// near reports whether two numbers are equal except for rounding.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*max(1, math.Abs(b)) }

// TestInterquartileMean against values worked out by hand, with scipy.stats.trim_mean's rule: a quarter of the number, rounded
// down, is left out at each end.
func TestInterquartileMean(t *testing.T) {
	for _, c := range []struct {
		scores []float64
		want   float64
	}{
		{[]float64{7}, 7}, {[]float64{1, 4}, 2.5}, {[]float64{9, 0, 3}, 4}, {[]float64{100, 2, 3, -50}, 2.5}, {[]float64{5, 1, 1000, 2, 3},
			10. / 3},
		{[]float64{8, 7, 6, 5, 4, 3, 2, 1}, 4.5}, {[]float64{10, 20, 30, 40, 50, 60, 70, 80, 1000}, 50},
	} {
		if got := iqm(slices.Clone(c.scores)); !near(got, c.want) {
			t.Errorf("%v: %v, want %v", c.scores, got, c.want)
		}
	}
	sorted := []float64{1, 2, 4, 8} // numpy.percentile: 2.5 is at 0.075, 97.5 at 2.925
	for p, want := range map[float64]float64{0: 1, 0.025: 1.075, 0.5: 3, 0.975: 7.7, 1: 8} {
		if got := percentile(sorted, p); !near(got, want) {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
}

// TestBootstrapOfTwoRuns, whose distribution is known: of two runs with the scores 0 and 1 a resample has the mean 0, 0.5 or 1 with
// the probabilities 1/4, 1/2 and 1/4. So the band is 0 to 1. With two environments, whose runs are equal within each,
// every resample is the same: strata are not mixed.
func TestBootstrapOfTwoRuns(t *testing.T) {
	e := bootstrap([][][]float64{{{0, 10}, {1, 20}}}, 1000, 7)
	if !slices.Equal(e.mean, []float64{0.5, 15}) || !slices.Equal(e.low, []float64{0, 10}) || !slices.Equal(e.high, []float64{1, 20}) {
		t.Errorf("%+v", e)
	}
	e = bootstrap([][][]float64{{{0}, {0}}, {{1}, {1}}}, 1000, 7)
	if e.mean[0] != 0.5 || e.low[0] != 0.5 || e.high[0] != 0.5 {
		t.Errorf("strata: %+v", e)
	}
}

// TestBootstrapIsThatOfAllResamples: with three runs there are 27 equally likely resamples. The percentiles of
// their means lie at the ends, each of which has the probability 1/27, more than 2.5 %.
func TestBootstrapIsThatOfAllResamples(t *testing.T) {
	runs := [][]float64{{3}, {6}, {30}}
	e := bootstrap([][][]float64{runs}, 20_000, 1)
	if e.mean[0] != 13 || e.low[0] != 3 || e.high[0] != 30 {
		t.Errorf("%+v", e)
	}
	if a, b := bootstrap([][][]float64{runs}, 50, 1), bootstrap([][][]float64{runs}, 50, 1); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("the same seed gives other bands")
	}
}

func TestInterpolation(t *testing.T) {
	s := series{[]float64{0, 10, 20}, []float64{1, 3, -1}}
	for x, want := range map[float64]float64{0: 1, 5: 2, 10: 3, 15: 1, 20: -1} {
		if got := s.at(x); got != want {
			t.Errorf("at %v: %v, want %v", x, got, want)
		}
	}
	if v := s.at(20.1); !math.IsNaN(v) {
		t.Errorf("behind the end: %v", v)
	}
	if got := smooth([]float64{0, 3, 0, 3, 6}, 3); !slices.Equal(got, []float64{0, 1, 2, 3, 6}) {
		t.Errorf("smooth %v", got)
	}
}

func TestTicks(t *testing.T) {
	labels := func(all []tick) (text []string) {
		for _, t := range all {
			text = append(text, t.label)
		}
		return text
	}
	for _, c := range []struct {
		got  []tick
		want string
	}{
		{ticks(0, 500_000, 5), "0 100k 200k 300k 400k 500k"}, {ticks(0, 1e6, 4), "0 250k 500k 750k 1M"}, {ticks(0, 2e6, 4), "0 500k 1M 1.5M 2M"},
		{ticks(-200, -80, 4), "\u2212200 \u2212150 \u2212100"}, {ticks(0, 500, 5), "0 100 200 300 400 500"}, {ticks(-0.1, 0.1, 4),
			"\u22120.1 \u22120.05 0 0.05 0.1"},
		{ticks(0, 10_000, 4), "0 2.5k 5k 7.5k 10k"}, {ticks(900, 1100, 4), "900 950 1000 1050 1100"},
		{timeTicks(0, 100, 5), "0 s 30 s 60 s 90 s"}, {timeTicks(0, 4000, 5), "0 min 15 min 30 min 45 min 60 min"}, {timeTicks(0, 9*3600, 4),
			"0 h 3 h 6 h 9 h"},
		{timeTicks(0, 2, 4), "0 s 0.5 s 1 s 1.5 s 2 s"}, {timeTicks(0, 10*86400, 5), "0 d 2 d 4 d 6 d 8 d 10 d"},
	} {
		if got := strings.Join(labels(c.got), " "); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestColoursKeepTheirOrderInGrey, each lighter than the one before, and dark enough on white.
func TestColoursKeepTheirOrderInGrey(t *testing.T) {
	before := 0.0
	for i, c := range palette {
		linear := func(v uint8) float64 { return math.Pow(float64(v)/255, 2.2) }
		grey := math.Pow(0.2126*linear(c.R)+0.7152*linear(c.G)+0.0722*linear(c.B), 1/2.2)
		if grey < before+0.06 || grey > 0.75 {
			t.Errorf("colour %d has the grey %.2f after %.2f", i, grey, before)
		}
		before = grey
	}
	if len(markers) != len(palette) || len(dashes)%len(palette) == 0 {
		t.Errorf("%d colours, %d markers, %d dashes", len(palette), len(markers), len(dashes))
	}
}

// made returns a run whose return rises to top in about half env steps.
func made(algo, env string, seed uint64, envSteps int, half, top float64) Run {
	random := rand.New(rand.NewPCG(seed, uint64(half)))
	var b strings.Builder
	b.WriteString("time/total_timesteps,time/time_elapsed,rollout/ep_rew_mean\n")
	half *= 0.8 + 0.4*random.Float64()
	noise := 0.0
	for at, i := 1000, 0; at <= envSteps; at, i = at+2000+random.IntN(500), i+1 {
		noise = 0.9*noise + random.NormFloat64()*top*0.015
		v := fmt.Sprintf("%.3f", top/(1+math.Exp(-4*(float64(at)/half-1)))+noise)
		if i == 0 {
			v = "" // no episode has ended
		}
		fmt.Fprintf(&b, "%d,%.1f,%s\n", at, float64(at)/700, v)
	}
	table, err := runfolder.ParseTable([]byte(b.String()))
	if err != nil {
		panic(err)
	}
	return Run{Name: fmt.Sprintf("%s-%s-%d", algo, env, seed), Algo: algo, Env: env, Seed: fmt.Sprint(seed), Progress: table}
}

// several are five runs each of that many algorithms.
func several(algos int) (all []Run) {
	names := []string{"ppo", "dqn", "a2c", "rainbow", "impala", "sac"}
	for i := range algos {
		name := names[i%len(names)]
		if i >= len(names) {
			name += fmt.Sprint(i)
		}
		for seed := range uint64(5) {
			all = append(all, made(name, "CartPole-v1", seed+1, 500_000, 70_000*float64(i+1), 495-12*float64(i)))
		}
	}
	return all
}

// pictures returns the pictures of the tests, by name.
func pictures() map[string]func(w io.Writer, f Format) error {
	draw := func(runs []Run, cfg Config) func(io.Writer, Format) error {
		cfg.Resamples = 200
		return func(w io.Writer, f Format) error { return Curves(w, f, runs, cfg) }
	}
	short := several(2)
	short[3] = made("a2c", "CartPole-v1", 4, 300_000, 90_000, 470)
	short[3].Algo = short[0].Algo
	return map[string]func(io.Writer, Format) error{
		"three":  draw(several(3), Config{Threshold: []float64{475}}),
		"six":    draw(several(6), Config{}),
		"many":   draw(several(14), Config{Width: 900, Height: 500}),
		"single": draw(several(1)[:1], Config{Threshold: []float64{475}}),
		"time":   draw(several(2), Config{X: WallTime}),
		"short":  draw(short, Config{}),
		"envs": draw(append(several(1), made("ppo", "Acrobot-v1", 1, 400_000, 100_000, -80),
			made("ppo", "A-very-long-name-of-an-environment-of-somebody-v3", 1, 200_000, 100_000, 80)),
			Config{Title: "PPO in three environments"}),
	}
}

// TestPictures: their sizes, that two are equal, and that SVG needs no font. PLOT_DIR keeps them to be looked at.
func TestPictures(t *testing.T) {
	for name, draw := range pictures() {
		for _, format := range []Format{PNG, SVG} {
			var one, two bytes.Buffer
			if err := errors.Join(draw(&one, format), draw(&two, format)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.Equal(one.Bytes(), two.Bytes()) {
				t.Errorf("%s%s: two pictures of the same runs differ", name, format)
			}
			if dir := os.Getenv("PLOT_DIR"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, name+string(format)), one.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if format == SVG {
				checkSVG(t, name, one.Bytes())
				continue
			}
			width, height := 1200, 675
			if name == "many" {
				width, height = 900, 500
			}
			if img, err := png.DecodeConfig(&one); err != nil || img.Width != width || img.Height != height {
				t.Errorf("%s: %d by %d pixels, %v", name, img.Width, img.Height, err)
			}
		}
	}
}

// checkSVG reports a picture that is no XML, has no paths, or has text, which would look as the fonts of the reader do.
func checkSVG(t *testing.T, name string, text []byte) {
	t.Helper()
	count := map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
	if count["svg"] != 1 || count["path"] < 20 || count["text"]+count["style"]+count["image"] > 0 || bytes.Contains(text, []byte("NaN")) {
		t.Errorf("%s: elements %v", name, count)
	}
}

// TestShortRunsDoNotBendTheBand: the curve ends where the shortest run does, and the others continue as lines.
func TestShortRunsDoNotBendTheBand(t *testing.T) {
	table := func(text string) *runfolder.Table {
		p, err := runfolder.ParseTable([]byte(runfolder.Steps + "," + runfolder.Return + "\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	cfg := Config{Points: 3}
	cfg.EnsureDefaults()
	all, left, err := groups([]Run{{Algo: "a", Progress: table("0,1\n10,3\n")},
		{Algo: "a", Progress: table("0,5\n5,5\n20,20\n20,35\n30,Inf\n")}}, &cfg)
	if err != nil || len(all) != 1 || left != 1 {
		t.Fatalf("%d groups, %d left out: %v", len(all), left, err)
	}
	g := all[0]
	if !slices.Equal(g.x, []float64{0, 5, 10}) || !slices.Equal(g.mean, []float64{3, 3.5, 9}) || len(g.tails) != 1 {
		t.Errorf("%+v", g)
	}
	if tail := g.tails[0]; !slices.Equal(tail.x, []float64{10, 20}) || !slices.Equal(tail.y, []float64{15, 35}) {
		t.Errorf("tail %+v", tail)
	}
}

// TestWallTimeGoesOnWhenARunIsResumed.
func TestWallTimeGoesOnWhenARunIsResumed(t *testing.T) {
	p, err := runfolder.ParseTable([]byte(runfolder.Time + "," + runfolder.Return + "\n5,1\n9,2\n3,3\n4,4\n1,5\n"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{X: WallTime}
	cfg.EnsureDefaults()
	s, _, err := values(&Run{Progress: p}, &cfg)
	if err != nil || !slices.Equal(s.x, []float64{5, 9, 12, 13, 14}) {
		t.Errorf("%v, %v", s.x, err)
	}
}

func TestRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ppo", "first")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "progress.csv")) {
		t.Errorf("%v", err)
	}
	write("progress.csv", runfolder.Steps+"\n5\n")
	if r, err := Read(dir); err != nil || r.Algo != "ppo" || r.Env != "" {
		t.Errorf("%+v, %v", r, err)
	}
	write("config.yaml", "algo: sac\nenv: Pendulum-v1\nseed: 3\n")
	r, err := Read(dir)
	if err != nil || r.Algo != "sac" || r.Env != "Pendulum-v1" || r.Seed != "3" || r.Progress.Rows() != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	for want, cfg := range map[string]Config{
		"run " + dir + " has no column rollout/ep_rew_mean: it has [time/total_timesteps]": {},
		"Points is 1, want 2 to 10000\nplot config: Width is 7":                            {Points: 1, Width: 7},
		"Threshold NaN is not finite":                                                      {Threshold: []float64{math.NaN()}},
	} {
		var b bytes.Buffer
		if err := Curves(&b, PNG, []Run{r}, cfg); err == nil || !strings.Contains(err.Error(), want) || b.Len() > 0 {
			t.Errorf("%v, want %s; %d bytes are written", err, want, b.Len())
		}
	}
	if err := Curves(io.Discard, ".pdf", nil, Config{}); err == nil || !strings.Contains(err.Error(),
		"no run is given\nplot: the format is \".pdf\"") {
		t.Errorf("%v", err)
	}
	write("progress.csv", runfolder.Steps+"\nx\n")
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), `progress.csv:2: column 1 (time/total_timesteps): "x" is no number`) {
		t.Errorf("%v", err)
	}
}

// TestLabelsOfNearThresholds do not cover each other.
func TestLabelsOfNearThresholds(t *testing.T) {
	for _, c := range []struct {
		thresholds []float64
		apart      bool // far enough for both labels below their lines
	}{{[]float64{-250, -300}, false}, {[]float64{-300, -250}, false}, {[]float64{-250, -1200}, true}} {
		p := &picture{cfg: &Config{Threshold: c.thresholds}, y0: 0, y1: 300, fromY: -1500, toY: 0}
		upper := max(c.thresholds[0], c.thresholds[1])
		if above := p.labelAt(upper) > 0; above == c.apart {
			t.Errorf("%v: label of %v above its line: %t", c.thresholds, upper, above)
		}
		if lower := min(c.thresholds[0], c.thresholds[1]); p.labelAt(lower) > 0 {
			t.Errorf("%v: the label of %v is above its line", c.thresholds, lower)
		}
	}
}
