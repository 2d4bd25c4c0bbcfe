package plot

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/runfolder"
)

// Format is the form of a picture.
type Format string

// The formats, by the extensions of files.
const (
	PNG Format = ".png"
	SVG Format = ".svg"
)

// Axis is the quantity on the horizontal axis.
type Axis uint8

// The axes.
const (
	EnvSteps Axis = iota // of the whole job; in an offline run, updates
	WallTime             // that the run has taken, without interruptions
)

// By determines which runs are one curve.
type By uint8

// The groupings.
const (
	AlgoEnv By = iota // those of one algorithm in one environment
	// Algo: those of one algorithm, whose environments are the strata of the bootstrap. Scores of
	// different environments must then be comparable.
	Algo
)

// Config describes a picture. The zero value works.
type Config struct {
	Column    string    // of progress.csv; "" means rollout/ep_rew_mean
	X         Axis      // EnvSteps if not set
	By        By        // AlgoEnv if not set
	Threshold []float64 // horizontal lines, such as the score at which an environment is solved
	Title     string    // "" means what the runs have in common
	Points    int       // of the grid; 0 means 200
	Resamples int       // of the bootstrap; 0 means 2,000
	Seed      uint64    // of the bootstrap
	// Width and Height are the size in pixels of a PNG, and in half points of an SVG; 0 means 1,200 and 675.
	Width, Height int
}

// EnsureDefaults fills in fields that are not set.
func (c *Config) EnsureDefaults() {
	if c.Column == "" {
		c.Column = runfolder.Return
	}
	for _, f := range []struct {
		v   *int
		def int
	}{{&c.Points, 200}, {&c.Resamples, 2000}, {&c.Width, 1200}, {&c.Height, 675}} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
}

// The bounds of a config.
const (
	maxGroups    = 24
	maxPoints    = 10_000
	maxResamples = 100_000
	minPixels    = 400
	maxPixels    = 10_000
)

// Validate reports all faults.
func (c *Config) Validate() error {
	var faults []error
	within := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			faults = append(faults, fmt.Errorf("plot config: %s is %d, want %d to %d", name, v, lo, hi))
		}
	}
	within("Points", c.Points, 2, maxPoints)
	within("Resamples", c.Resamples, 10, maxResamples)
	within("Width", c.Width, minPixels, maxPixels)
	within("Height", c.Height, minPixels*3/4, maxPixels)
	if c.X > WallTime || c.By > Algo {
		faults = append(faults, fmt.Errorf("plot config: X %d and By %d must be of the constants", c.X, c.By))
	}
	for _, v := range c.Threshold {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			faults = append(faults, fmt.Errorf("plot config: Threshold %v is not finite", v))
		}
	}
	return errors.Join(faults...)
}

// xColumn returns the column of the horizontal axis.
func (c *Config) xColumn() string {
	if c.X == WallTime {
		return runfolder.Time
	}
	return runfolder.Steps
}

// Curves draws the learning curves of runs to w. An error leaves w as it is, unless it is one of w.
func Curves(w io.Writer, format Format, runs []Run, cfg Config) error {
	cfg.EnsureDefaults()
	err := cfg.Validate()
	if len(runs) == 0 {
		err = errors.Join(err, errors.New("plot: no run is given"))
	}
	if format != PNG && format != SVG {
		err = errors.Join(err, fmt.Errorf("plot: the format is %q, want %s or %s", string(format), PNG, SVG))
	}
	if err != nil {
		return err
	}
	all, left, err := groups(runs, &cfg)
	if err != nil {
		return err
	}
	const dpi = 144
	width, height := vg.Length(cfg.Width)*vg.Inch/dpi, vg.Length(cfg.Height)*vg.Inch/dpi
	var to interface {
		vg.Canvas
		io.WriterTo
	}
	if format == PNG {
		to = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	} else {
		to = vgsvg.NewWith(vgsvg.UseWH(width, height))
	}
	p := &picture{canvas: newCanvas(to), cfg: &cfg, all: all, left: left, w: float64(width), h: float64(height)}
	p.draw()
	if _, err := to.WriteTo(w); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// The inks. Curves go from dark to light, so that they keep their order in grey.
var (
	ink     = color.NRGBA{0x22, 0x22, 0x22, 0xff}
	muted   = color.NRGBA{0x6b, 0x6b, 0x6b, 0xff}
	faint   = color.NRGBA{0xe4, 0xe4, 0xe4, 0xff}
	rule    = color.NRGBA{0x9a, 0x9a, 0x9a, 0xff}
	palette = []color.NRGBA{
		{0x0b, 0x2f, 0x6b, 0xff}, {0xa3, 0x1f, 0x34, 0xff}, {0x1b, 0x7f, 0x5c, 0xff},
		{0xd0, 0x6a, 0x12, 0xff}, {0x4f, 0xa3, 0xd9, 0xff}, {0xd9, 0xb2, 0x2c, 0xff},
	}
	dashes = [][]float64{nil, {7, 2.5}, {2, 2}, {8, 2.5, 2, 2.5}, {12, 3}, {4, 2, 1.5, 2, 1.5, 2}, {5, 5}}
)

// picture is a picture in the making, in points from the lower left corner.
type picture struct {
	*canvas

	cfg                    *Config
	all                    []*group
	left                   int // values that are not drawn
	w, h                   float64
	x0, x1, y0, y1         float64 // of the data
	fromX, toX, fromY, toY float64 // their values
}

func (p *picture) px(v float64) float64 { return p.x0 + (v-p.fromX)/(p.toX-p.fromX)*(p.x1-p.x0) }
func (p *picture) py(v float64) float64 { return p.y0 + (v-p.fromY)/(p.toY-p.fromY)*(p.y1-p.y0) }

func (p *picture) mapped(s series) (x, y []float64) {
	for i := range s.x {
		x, y = append(x, p.px(s.x[i])), append(y, p.py(s.y[i]))
	}
	return x, y
}

// shade is ink that lets through what is below it.
func shade(c color.NRGBA, alpha uint8) color.NRGBA { c.A = alpha; return c }

func (p *picture) draw() {
	p.area(color.White, []float64{0, p.w, p.w, 0}, []float64{0, 0, p.h, p.h})
	x, y := bounds(p.all, p.cfg)
	p.fromX, p.toX, p.fromY, p.toY = x[0], x[1], y[0], y[1]
	if p.cfg.X == EnvSteps {
		p.toX = roundUp(p.toX, 5)
	}
	labels := p.labels()
	yTicks := ticks(p.fromY, p.toY, max(3, int(p.h/60)))
	wide := 0.0
	for _, t := range yTicks {
		wide = max(wide, p.width(p.regular, 8.5, t.label))
	}
	notes := p.notes()
	p.x0, p.y0, p.y1 = 18+wide+6, 44+10*float64(len(notes)), p.h-58
	p.x1 = p.w - 18 - p.labelWidth(labels)
	p.axes(yTicks)
	for i, g := range p.all {
		p.band(i, g)
	}
	for i, g := range p.all {
		p.curve(i, g)
	}
	p.direct(labels)
	p.head()
	for i, n := range notes {
		p.text(p.regular, 7.5, 18, 12+10*float64(len(notes)-1-i), left, muted, n)
	}
}

// axes draws the axis, the grid and the thresholds.
func (p *picture) axes(yTicks []tick) {
	for _, t := range yTicks {
		y := p.py(t.at)
		p.line(pen{width: 0.6, ink: faint}, []float64{p.x0, p.x1}, []float64{y, y})
		p.text(p.regular, 8.5, p.x0-6, y-3, right, muted, t.label)
	}
	of, name := ticks, "env steps"
	if p.cfg.X == WallTime {
		of, name = timeTicks, "wall time"
	}
	for _, t := range of(p.fromX, p.toX, max(3, int((p.x1-p.x0)/75))) {
		x := p.px(t.at)
		p.line(pen{width: 0.8, ink: rule}, []float64{x, x}, []float64{p.y0, p.y0 - 3.5})
		p.text(p.regular, 8.5, x, p.y0-13, center, muted, t.label)
	}
	p.line(pen{width: 0.8, ink: rule}, []float64{p.x0, p.x1}, []float64{p.y0, p.y0})
	p.text(p.regular, 8.5, (p.x0+p.x1)/2, p.y0-26, center, ink, name)
	for _, v := range p.cfg.Threshold {
		y := p.py(v)
		p.line(pen{0.9, muted, []float64{1.2, 2.2}}, []float64{p.x0, p.x1}, []float64{y, y})
		p.text(p.regular, 7.5, p.x0+4, y+p.labelAt(v), left, muted, "threshold "+short(v, niceStep(max(math.Abs(v), 1e-9)/1000)))
	}
}

// labelAt returns the distance from the line of a threshold to its label, in points: below the line, or above it if another
// threshold is too near below.
func (p *picture) labelAt(v float64) float64 {
	const below, above, height = -9, 3, 12
	for _, other := range p.cfg.Threshold {
		if gap := p.py(v) - p.py(other); gap > 0 && gap < height {
			return above
		}
	}
	return below
}

// band draws the band below the curve.
func (p *picture) band(i int, g *group) {
	c := palette[i%len(palette)]
	if len(g.runs) == 1 {
		x, y := p.mapped(g.runs[0])
		p.line(pen{width: 0.7, ink: shade(c, 90)}, x, y)
		return
	}
	x, low := p.mapped(series{g.x, g.low})
	_, high := p.mapped(series{g.x, g.high})
	back, top := slices.Clone(x), slices.Clone(high)
	slices.Reverse(back)
	slices.Reverse(top)
	p.area(shade(c, 38), slices.Concat(x, back), slices.Concat(low, top))
	for _, edge := range [][]float64{low, high} {
		p.line(pen{width: 0.4, ink: shade(c, 90)}, x, edge)
	}
	for _, t := range g.tails {
		x, y := p.mapped(t)
		p.line(pen{width: 0.6, ink: shade(c, 110)}, x, y)
	}
}

func (p *picture) curve(i int, g *group) {
	c := palette[i%len(palette)]
	x, y := p.mapped(series{g.x, g.mean})
	p.line(pen{3.2, shade(color.NRGBA{0xff, 0xff, 0xff, 0xff}, 170), nil}, x, y)
	p.line(pen{1.9, c, dashes[i%len(dashes)]}, x, y)
	if len(p.all) == 1 && len(x) > 1 {
		return
	}
	const count = 5 // staggered, so that those of different curves are apart
	for k := range count {
		at := (float64(k) + (float64(i)+0.5)/float64(len(p.all))) / count
		n := min(int(at*float64(len(x))), len(x)-1)
		p.marker(i, 2.9, x[n], y[n], c)
	}
}

// head draws title and subtitle.
func (p *picture) head() {
	p.text(p.bold, 13, 18, p.h-24, left, ink, p.fit(p.bold, 13, title(p.all, p.cfg), p.w-36))
	several, single := false, false
	for _, g := range p.all {
		several, single = several || len(g.runs) > 1, single || len(g.runs) == 1
	}
	text := describe(p.cfg.Column)
	if several {
		text += " \u00b7 interquartile mean over runs, 95 % bootstrap confidence band"
	}
	if single && !several {
		text += " \u00b7 smoothed over a twentieth of the run"
	}
	p.text(p.regular, 8.5, 18, p.h-40, left, muted, p.fit(p.regular, 8.5, text, p.w-36))
}

// notes lists the parts that are not drawn.
func (p *picture) notes() (all []string) {
	algos, envs := differ(p.all)
	for _, g := range p.all {
		if n := len(g.tails); n > 0 {
			end := g.x[len(g.x)-1]
			at := short(end, niceStep(max(end, 1e-9)/100))
			if p.cfg.X == WallTime {
				at = fmt.Sprintf("%.0f s", end)
			}
			all = append(all, fmt.Sprintf("%s: the shortest of %d runs ends at %s, and the curve with it; thin lines are the others",
				printable.Cut(g.label(algos, envs), 60), len(g.runs), at))
		}
	}
	if len(all) > 3 {
		all = append(all[:2], fmt.Sprintf("and %d other curves end with their shortest run", len(all)-2))
	}
	if p.left > 0 {
		all = append(all, fmt.Sprintf("%d values that are not finite are left out", p.left))
	}
	return all
}

// fit cuts a text to a width.
func (p *picture) fit(f face, size float64, s string, width float64) string {
	s = printable.Cut(s, 400)
	if p.width(f, size, s) <= width {
		return s
	}
	letters := []rune(s)
	for len(letters) > 1 && p.width(f, size, string(letters)+"\u2026") > width {
		letters = letters[:len(letters)-1]
	}
	return string(letters) + "\u2026"
}
