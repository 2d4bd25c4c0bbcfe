package envs_test

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/gif"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
)

// drawn plays a few steps of every environment that can be drawn.
func drawn() map[string]*envs.Video {
	all := map[string]*envs.Video{}
	record := func(env envs.Env[int]) {
		v := &envs.Video{}
		all[env.Name()] = v
		env = envs.RecordVideo(env, v)
		_, _, _ = env.Reset(3)
		for range 8 {
			if s, err := env.Step(1); err != nil || s.Terminated {
				break
			}
		}
	}
	recordBox := func(env envs.Env[[]float32]) {
		v := &envs.Video{}
		all[env.Name()] = v
		env = envs.RecordVideo(env, v)
		_, _, _ = env.Reset(3)
		for range 8 {
			_, _ = env.Step([]float32{1})
		}
	}
	record(envs.NewCartPole(envs.CartPoleConfig{}))
	record(envs.NewAcrobot(envs.AcrobotConfig{}))
	record(envs.NewMountainCar(envs.MountainCarConfig{}))
	recordBox(envs.NewMountainCarContinuous(envs.MountainCarConfig{}))
	recordBox(envs.NewPendulum(envs.PendulumConfig{}))
	record(envs.NewFrozenLake(envs.FrozenLakeConfig{Sure: true}))
	record(envs.NewCliffWalking(envs.CliffWalkingConfig{}))
	record(envs.StickyActions(envs.NewTaxi(envs.TaxiConfig{Rainy: true}), 0.1)) // also looks through a wrapper
	record(envs.NewBitFlip(envs.BitFlipConfig{}))
	record(envs.NewPong(envs.PongConfig{}))
	record(envs.NewCatch(envs.CatchConfig{}))
	record(envs.NewBlackjack(envs.BlackjackConfig{}))
	return all
}

// in creates files in a folder.
func in(dir string) func(string) (io.WriteCloser, error) {
	return func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }
}

func TestVideosCanBeRead(t *testing.T) {
	for name, v := range drawn() {
		frames := all(v)
		moves := slices.ContainsFunc(frames, func(f *image.RGBA) bool { return !bytes.Equal(f.Pix, frames[0].Pix) })
		if len(frames) < 2 || !moves && name != "CliffWalking-v1" { // its first step ends where it began
			t.Errorf("%s: %d pictures, all the same", name, len(frames))
		}
		var buf bytes.Buffer
		if err := v.WriteGIF(&buf); err != nil {
			t.Fatal(err)
		}
		g, err := gif.DecodeAll(&buf)
		if err != nil || g.Image[0].Rect != frames[0].Rect || g.LoopCount != 0 && len(g.Image) > 1 {
			t.Fatalf("%s: GIF of %d pictures: %v", name, len(frames), err)
		}
		if shown := watch(g); len(shown) != len(frames) || !slices.EqualFunc(shown, frames, alike) {
			t.Errorf("%s: %d pictures are shown for %d, or they differ", name, len(shown), len(frames))
		}
		dir := t.TempDir()
		if err := v.WritePNGs(in(dir)); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(dir, "frame-00001.png"))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for _, p := range [][2]int{{0, 0}, {60, 60}} {
			if got, want := fmt.Sprint(img.At(p[0], p[1]).RGBA()), fmt.Sprint(frames[1].At(p[0], p[1]).RGBA()); got != want {
				t.Errorf("%s: the pixel at %v is %s, want %s", name, p, got, want)
			}
		}
	}
}

func TestVideoRefuses(t *testing.T) {
	var v envs.Video
	if err := v.WriteGIF(&bytes.Buffer{}); err == nil || err.Error() != "write GIF: a video without pictures" {
		t.Errorf("an empty GIF: %v", err)
	}
	if err := v.WritePNGs(in(t.TempDir())); err == nil {
		t.Error("an empty folder of pictures")
	}
	v.MaxFrames = 2
	env := envs.RecordVideo(envs.NewCartPole(envs.CartPoleConfig{}), &v)
	if _, _, err := env.Reset(1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, _ = env.Step(0)
	}
	if v.Len() != 2 || v.Dropped != 2 {
		t.Errorf("%d pictures, %d dropped", v.Len(), v.Dropped)
	}
	if err := v.WritePNGs(in(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	v.MaxFrames = 3
	for want, size := range map[string]image.Rectangle{
		"a picture without pixels in a video":                 {},
		"a picture of 3 x 400 pixels in a video of 600 x 400": image.Rect(0, 0, 3, 400),
	} {
		if err := v.Add(image.NewRGBA(size)); err == nil || err.Error() != want {
			t.Errorf("%v: %v", size, err)
		}
	}
	defer func() {
		if p := fmt.Sprint(recover()); p != "envs: blind has no pictures" {
			t.Errorf("panic %q", p)
		}
	}()
	envs.RecordVideo[int](blind{envs.NewCartPole(envs.CartPoleConfig{})}, &v)
}

// blind is an environment that does not draw itself.
type blind struct{ envs.Env[int] }

func (blind) Name() string { return "blind" }

// all returns the pictures of a video.
func all(v *envs.Video) (frames []*image.RGBA) {
	for _, f := range v.Frames() {
		frames = append(frames, f)
	}
	return frames
}

// watch returns the pictures that a viewer of a GIF sees, a picture for each 40 ms.
func watch(g *gif.GIF) (shown []*image.RGBA) {
	screen := image.NewRGBA(image.Rect(0, 0, g.Config.Width, g.Config.Height))
	for i, img := range g.Image {
		draw.Draw(screen, img.Rect, img, img.Rect.Min, draw.Over)
		for range g.Delay[i] / 4 {
			shown = append(shown, &image.RGBA{Pix: slices.Clone(screen.Pix), Stride: screen.Stride, Rect: screen.Rect})
		}
	}
	return shown
}

// alike reports whether no channel of a pixel is off by more than a small step: a GIF has 255 colours.
func alike(a, b *image.RGBA) bool {
	for i, x := range a.Pix {
		if d := int(x) - int(b.Pix[i]); d < -12 || d > 12 {
			return false
		}
	}
	return a.Rect == b.Rect
}

// Delays are whole hundredths of a second, and their sum is right.
func TestDelaysOfAVideo(t *testing.T) {
	v := envs.Video{Delay: time.Second / 30}
	for i := range 30 {
		img := image.NewRGBA(image.Rect(0, 0, 4, 4))
		img.Pix[0] = uint8(i / 2 * 10) // each picture twice
		if err := v.Add(img); err != nil {
			t.Fatal(err)
		}
	}
	v.Hold(time.Second)
	var buf bytes.Buffer
	if err := v.WriteGIF(&buf); err != nil {
		t.Fatal(err)
	}
	g, err := gif.DecodeAll(&buf)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, d := range g.Delay {
		sum += d
		if d != 6 && d != 7 && d != 107 {
			t.Errorf("delays %v", g.Delay)
		}
	}
	if sum != 200 || len(g.Delay) != 15 || g.Image[1].Rect != image.Rect(0, 0, 1, 1) {
		t.Errorf("%d pictures of %d hundredths, %v", len(g.Delay), sum, g.Image[1].Rect)
	}
}

// Of many colours a GIF has near ones.
func TestAVideoOfManyColours(t *testing.T) {
	var v envs.Video
	img := image.NewRGBA(image.Rect(0, 0, 256, 256))
	for i := range 86 * 256 {
		copy(img.Pix[4*i:], []uint8{uint8(i), uint8(i >> 8), 128, 255})
	}
	if err := v.Add(img); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := v.WriteGIF(&buf); err != nil {
		t.Fatal(err)
	}
	g, err := gif.DecodeAll(&buf)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0
	for i := range 86 * 256 {
		r, gr, _, _ := g.Image[0].At(i%256, i/256).RGBA()
		worst = max(worst, abs(int(r>>8)-i%256), abs(int(gr>>8)-i/256))
	}
	if worst > 20 {
		t.Errorf("a channel is off by %d", worst)
	}
}

func abs(n int) int { return max(n, -n) }
