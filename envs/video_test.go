package envs_test

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

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
		for range 25 {
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
		for range 25 {
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
	return all
}

// in creates files in a folder.
func in(dir string) func(string) (io.WriteCloser, error) {
	return func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }
}

func TestVideosCanBeRead(t *testing.T) {
	for name, v := range drawn() {
		moves := slices.ContainsFunc(v.Frames, func(f *image.RGBA) bool { return !bytes.Equal(f.Pix, v.Frames[0].Pix) })
		if len(v.Frames) < 2 || !moves && name != "CliffWalking-v1" { // its first step ends where it began
			t.Errorf("%s: %d pictures, all the same", name, len(v.Frames))
		}
		var buf bytes.Buffer
		if err := v.WriteGIF(&buf); err != nil {
			t.Fatal(err)
		}
		g, err := gif.DecodeAll(&buf)
		if err != nil || len(g.Image) != len(v.Frames) || g.Image[0].Rect != v.Frames[0].Rect || g.Delay[0] != 4 {
			t.Errorf("%s: GIF of %d pictures: %v", name, len(v.Frames), err)
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
			if got, want := fmt.Sprint(img.At(p[0], p[1]).RGBA()), fmt.Sprint(v.Frames[1].At(p[0], p[1]).RGBA()); got != want {
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
	if len(v.Frames) != 2 || v.Dropped != 2 {
		t.Errorf("%d pictures, %d dropped", len(v.Frames), v.Dropped)
	}
	if err := v.WritePNGs(in(filepath.Join(t.TempDir(), "none"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	defer func() {
		if p := fmt.Sprint(recover()); p != "envs: Blackjack-v1 has no pictures" {
			t.Errorf("panic %q", p)
		}
	}()
	envs.RecordVideo(envs.NewBlackjack(envs.BlackjackConfig{}), &v)
}
