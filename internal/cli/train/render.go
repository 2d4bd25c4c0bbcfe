package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/film"
	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/train"
)

// The bounds of a film.
const (
	maxFilmEpisodes = 100
	maxFilmSteps    = 20_000
	maxPictures     = 20_000
	minSize         = 32
	maxSize         = 1280
	usualSize       = 640 // for environments with larger pictures
	maxRate         = 50  // viewers show faster films at a tenth of the speed
	usualRate       = 30
)

// RenderCommand returns the command "ditask render".
func RenderCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	weights := flags.Text("", "weights", string(train.Best), "best: of the best evaluation; last: of the last checkpoint", "checkpoint")
	return &urfave.Command{
		Name: "render", Usage: "draw episodes of a policy, or of random actions, as an animated GIF", ArgsUsage: "[RUN]",
		UsageText: "ditask render RUN [flags]\nditask render --env ENV [flags]",
		Description: "RUN is the folder of a training, whose policy plays. With --env actions are random. All environments of ditask can\n" +
			"be drawn; an environment in Python needs the render mode rgb_array.",
		Flags: []urfave.Flag{
			&urfave.PathFlag{Name: "output", Aliases: []string{"o"},
				Usage: "`FILE` to write, with the extension .gif (default: named after run or environment)"},
			&urfave.PathFlag{Name: "frames", Usage: "`FOLDER` to also write the pictures to, as PNG files"},
			forceFlag(),
			flags.Text("", "env", "", "`NAME` of an environment to play with random actions"),
			flags.Text("", "args", "", "with --env: `JSON` of the keyword arguments of an environment in Python"),
			weights,
			&urfave.BoolFlag{Name: "explore", Usage: "act as in training, rather than greedily"},
			&urfave.IntFlag{Name: "episodes", Value: 1, Usage: fmt.Sprintf("number of episodes, at most %d", maxFilmEpisodes)},
			&urfave.Uint64Flag{Name: "seed", Value: 1, Usage: "seed of the first episode; the others have the following ones"},
			&urfave.IntFlag{Name: "max-steps", Value: 1000, Usage: fmt.Sprintf("time steps after which an episode is cut off, at most %d",
				maxFilmSteps)},
			&urfave.IntFlag{Name: "size", Usage: fmt.Sprintf("pixels of the longer side, %d to %d", minSize, maxSize),
				DefaultText: fmt.Sprintf("the environment's, at most %d", usualSize)},
			&urfave.IntFlag{Name: "fps", Usage: fmt.Sprintf("pictures per second, 1 to %d", maxRate),
				DefaultText: fmt.Sprintf("the environment's, or %d", usualRate)},
			&urfave.BoolFlag{Name: "caption", Usage: "write episode, step and return below the pictures"},
		},
		Action: c.render,
	}
}

func (c command) render(ctx *urfave.Context) (err error) {
	if err := checkRender(ctx); err != nil {
		return err
	}
	path := renderPath(ctx)
	if err := free(ctx, "output", path); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1) // the first one counts
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	s := &studio{c: c, ctx: ctx, video: envs.Video{MaxFrames: maxPictures}}
	if dir := ctx.Path("frames"); dir != "" {
		if s.frames, err = newFrames(dir, ctx.Bool("force")); err != nil {
			return call.UsageError{Err: err}
		}
		defer func() { err = errors.Join(err, s.frames.discard()) }()
	}
	if err := call.UntilSignal(ctx.Context, signals, func(stopping context.Context) error { return c.play(stopping, ctx, s) }); err != nil {
		return err
	}
	if err := free(ctx, "output", path); err != nil { // it may have been created in the meantime
		return err
	}
	if err := export.WriteFile(path, s.video.WriteGIF); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if err := s.frames.keep(); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Stdout, "%s: %d pictures of %d x %d, %d a second, %d kB\n",
		path, s.video.Len(), s.size.X, s.size.Y, s.rate, (info.Size()+999)/1000)
	return err
}

// checkRender reports all faults of the flags.
func checkRender(ctx *urfave.Context) error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	within := func(name string, low, high int) {
		n := ctx.Int(name)
		fault(ctx.IsSet(name) && (n < low || n > high), "--%s %d: want %d to %d", name, n, low, high)
	}
	random := ctx.String("env") != ""
	fault(ctx.NArg() > 1 || ctx.NArg() == 0 && !random,
		"ditask render: want the folder of one run, or --env ENV for random actions: see ditask render --help")
	fault(ctx.NArg() == 1 && random, "--env %s: plays random actions, and a run has its own environment: give one of them", ctx.String("env"))
	fault(ctx.String("args") != "" && !random, "--args: has no effect without --env: a run has its env_args")
	fault(ctx.IsSet("weights") && random, "--weights: has no effect with --env, where actions are random")
	fault(ctx.Bool("explore") && random, "--explore: has no effect with --env, where actions are random")
	within("episodes", 1, maxFilmEpisodes)
	within("max-steps", 1, maxFilmSteps)
	within("size", minSize, maxSize)
	within("fps", 1, maxRate)
	out := ctx.Path("output")
	fault(out != "" && strings.ToLower(filepath.Ext(out)) != ".gif",
		"--output %s: want a file that ends with .gif; --frames FOLDER writes PNG files", out)
	if err := errors.Join(faults...); err != nil {
		return call.UsageError{Err: err}
	}
	return nil
}

// renderPath returns the file to write.
func renderPath(ctx *urfave.Context) string {
	if path := ctx.Path("output"); path != "" {
		return path
	}
	if env := ctx.String("env"); env != "" {
		return fileName(env) + "-random.gif"
	}
	dir := filepath.Clean(ctx.Args().First())
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return fileName(filepath.Base(dir)) + ".gif"
}

// play plays the episodes.
func (c command) play(stopping context.Context, ctx *urfave.Context, s *studio) (err error) {
	f := train.Film{Episodes: ctx.Int("episodes"), Seed: ctx.Uint64("seed"), Explore: ctx.Bool("explore"), MaxSteps: ctx.Int("max-steps")}
	defer func() {
		if errors.Is(err, envs.ErrNoPictures) {
			err = fmt.Errorf("render: %w", err)
		}
	}()
	if env := ctx.String("env"); env != "" {
		return train.FilmRandom(stopping, env, ctx.String("args"), f, s.show)
	}
	t, _, err := c.load(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return t.Film(stopping, f, s.show)
}

// studio makes a film of scenes.
type studio struct {
	c       command
	ctx     *urfave.Context
	video   envs.Video
	caption *film.Caption
	frames  *frames // nil: none
	rate    int
	size    image.Point
}

// show adds a scene.
func (s *studio) show(scene train.Scene) error {
	img := scene.Image
	longer := max(img.Rect.Dx(), img.Rect.Dy())
	img = film.Resize(img, cmp.Or(s.ctx.Int("size"), min(longer, usualSize)))
	if s.rate == 0 {
		if err := s.begin(scene, img); err != nil {
			return err
		}
	}
	if s.caption != nil {
		img = s.caption.Below(img, fmt.Sprintf("episode %-3d step %-5d return %.4g", scene.Episode, scene.Step, scene.Return))
	}
	s.size = img.Rect.Size()
	if err := s.video.Add(img); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if s.video.Dropped > 0 {
		return fmt.Errorf("render: more than %d pictures: want fewer --episodes or --max-steps", maxPictures)
	}
	if err := s.frames.add(img); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if !scene.Last {
		return nil
	}
	s.video.Hold(time.Second)
	_, err := fmt.Fprintf(s.c.Stdout, "episode %d: return %.4g, %d steps\n", scene.Episode, scene.Return, scene.Step)
	return err
}

// begin sets the rate and the caption from the first picture.
func (s *studio) begin(scene train.Scene, img *image.RGBA) (err error) {
	s.rate = cmp.Or(s.ctx.Int("fps"), min(cmp.Or(scene.Rate, usualRate), maxRate))
	s.video.Delay = time.Second / time.Duration(s.rate)
	if s.ctx.Bool("caption") {
		s.caption, err = film.NewCaption(img.Rect.Dx())
	}
	return err
}

// frames are the pictures as files. They are in a temporary folder until all are written. A nil *frames writes none.
type frames struct {
	dir, temp string
	n         int
}

const framePattern = "frame-*.png"

func newFrames(dir string, force bool) (*frames, error) {
	dir = filepath.Clean(dir)
	if old, err := filepath.Glob(filepath.Join(quoteGlob(dir), framePattern)); err != nil || len(old) > 0 && !force {
		return nil, errors.Join(err, fmt.Errorf("--frames %s: folder already has pictures: give --force to replace them, or another folder", dir))
	}
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("--frames: %w", err)
	}
	temp, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return nil, fmt.Errorf("--frames: %w", err)
	}
	return &frames{dir: dir, temp: temp}, nil
}

// quoteGlob returns a pattern that matches only this path.
func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

func (f *frames) add(img *image.RGBA) error {
	if f == nil {
		return nil
	}
	path := filepath.Join(f.temp, fmt.Sprintf("frame-%05d.png", f.n))
	f.n++
	w, err := safefile.Create(path, 0o644)
	if err != nil {
		return err
	}
	return errors.Join((&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(w, img), w.Close())
}

// keep moves the pictures to their folder, and replaces the old ones.
func (f *frames) keep() error {
	if f == nil {
		return nil
	}
	old, err := filepath.Glob(filepath.Join(quoteGlob(f.dir), framePattern))
	for _, path := range old {
		err = errors.Join(err, os.Remove(path))
	}
	for i := range f.n {
		name := fmt.Sprintf("frame-%05d.png", i)
		err = errors.Join(err, os.Rename(filepath.Join(f.temp, name), filepath.Join(f.dir, name)))
	}
	return err
}

// discard removes the pictures that were not kept.
func (f *frames) discard() error {
	if f == nil {
		return nil
	}
	return os.RemoveAll(f.temp)
}
