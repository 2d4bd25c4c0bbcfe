package envs

import (
	"cmp"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"
	"slices"
	"time"
)

// Video is a sequence of pictures of one size. The zero value works. It keeps
// all pictures in memory: about 240 kB for one of a CartPole.
type Video struct {
	// Delay is how long each picture is shown, in whole hundredths of a second.
	// 0 means 40 ms.
	Delay time.Duration
	// MaxFrames is how many pictures are kept. 0 means 500.
	MaxFrames int
	// Frames are the pictures.
	Frames []*image.RGBA
	// Dropped is how many came after MaxFrames.
	Dropped int
}

// Add adds a picture, or counts it if there are too many.
func (v *Video) Add(frame *image.RGBA) {
	if len(v.Frames) >= cmp.Or(v.MaxFrames, 500) {
		v.Dropped++
		return
	}
	v.Frames = append(v.Frames, frame)
}

// RecordVideo returns env, which adds a picture to v after every reset and
// every step. The pictures can then be written with WriteGIF or WritePNGs. It
// panics if env is no [Renderer], also inside its wrappers.
func RecordVideo[A Action](env Env[A], v *Video) Env[A] {
	r, ok := As[Renderer](env)
	if !ok {
		panic(fmt.Sprintf("envs: %s has no pictures", env.Name()))
	}
	return &recordVideo[A]{wrapped[A]{env}, r, v}
}

type recordVideo[A Action] struct {
	wrapped[A]
	renderer Renderer
	video    *Video
}

func (r *recordVideo[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	obs, info, err := r.Env.Reset(seed...)
	if err == nil {
		r.video.Add(r.renderer.Render())
	}
	return obs, info, err
}

func (r *recordVideo[A]) Step(action A) (Step, error) {
	s, err := r.Env.Step(action)
	if err == nil {
		r.video.Add(r.renderer.Render())
	}
	return s, err
}

var errNoFrames = errors.New("a video without pictures")

// WriteGIF writes the pictures as an animation that repeats without end. Its
// colours are the 256 most frequent ones; other colours become the nearest of
// them.
func (v *Video) WriteGIF(w io.Writer) error {
	if len(v.Frames) == 0 {
		return fmt.Errorf("write GIF: %w", errNoFrames)
	}
	p := frequent(v.Frames)
	near := map[color.RGBA]uint8{}
	delay := int(cmp.Or(v.Delay, 40*time.Millisecond) / (10 * time.Millisecond))
	var g gif.GIF
	for _, f := range v.Frames {
		img := image.NewPaletted(f.Rect, p)
		for i := range img.Pix {
			c := color.RGBA{f.Pix[4*i], f.Pix[4*i+1], f.Pix[4*i+2], 255}
			index, ok := near[c]
			if !ok {
				index = uint8(p.Index(c))
				near[c] = index
			}
			img.Pix[i] = index
		}
		g.Image, g.Delay = append(g.Image, img), append(g.Delay, delay)
	}
	if err := gif.EncodeAll(w, &g); err != nil {
		return fmt.Errorf("write GIF: %w", err)
	}
	return nil
}

// frequent returns the most frequent colours of the pictures, at most 256.
func frequent(frames []*image.RGBA) color.Palette {
	counts := map[color.RGBA]int{}
	for _, f := range frames {
		for i := 0; i < len(f.Pix); i += 4 {
			counts[color.RGBA{f.Pix[i], f.Pix[i+1], f.Pix[i+2], 255}]++
		}
	}
	all := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	p := make(color.Palette, 0, 256)
	for _, c := range all[:min(len(all), 256)] {
		p = append(p, c)
	}
	return p
}

// WritePNGs writes the pictures as frame-00000.png and so on to the files that
// create opens, which it closes.
func (v *Video) WritePNGs(create func(name string) (io.WriteCloser, error)) error {
	if len(v.Frames) == 0 {
		return fmt.Errorf("write PNGs: %w", errNoFrames)
	}
	for i, f := range v.Frames {
		name := fmt.Sprintf("frame-%05d.png", i)
		w, err := create(name)
		if err == nil {
			err = errors.Join(png.Encode(w, f), w.Close())
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
