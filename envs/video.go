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
	"iter"
	"time"
)

// Video is a sequence of pictures of one size. The zero value works. Of each
// picture it keeps the rectangle that differs from the one before, with two
// bytes for a pixel: about 30 kB for one of a CartPole. Its colours are exact
// as long as there are at most 32,768; of later ones it keeps 5 bits of each of
// red, green and blue.
type Video struct {
	// Delay is how long each picture is shown. 0 means 40 ms. Delays in a GIF
	// are whole hundredths of a second: they are chosen such that their sum is
	// right to the hundredth.
	Delay time.Duration
	// MaxFrames is how many pictures are kept. 0 means 500.
	MaxFrames int
	// Dropped is how many came after MaxFrames.
	Dropped int

	size   image.Rectangle
	newest []uint16 // the colours of the newest picture
	frames []videoFrame
	table  []color.RGBA // the colours
	index  map[color.RGBA]uint16
	counts []int // how many pixels were drawn in each colour
}

// videoFrame is the difference between a picture and the one before.
type videoFrame struct {
	rect image.Rectangle // empty: nothing
	pix  []uint16
	hold time.Duration
}

// exactColours is how many colours a video keeps exactly.
const exactColours = 1 << 15

// Add adds a picture, or counts it if there are too many. A picture of another
// size than the first one is an error.
func (v *Video) Add(frame *image.RGBA) error {
	if len(v.frames) >= cmp.Or(v.MaxFrames, 500) {
		v.Dropped++
		return nil
	}
	size := image.Rectangle{Max: frame.Rect.Size()}
	first := v.index == nil
	switch {
	case size.Empty():
		return errors.New("a picture without pixels in a video")
	case first:
		v.size, v.newest, v.index = size, make([]uint16, size.Dx()*size.Dy()), map[color.RGBA]uint16{}
	case size != v.size:
		return fmt.Errorf("a picture of %d x %d pixels in a video of %d x %d", size.Dx(), size.Dy(), v.size.Dx(), v.size.Dy())
	}
	changed := v.take(frame, first)
	f := videoFrame{rect: changed, pix: make([]uint16, 0, changed.Dx()*changed.Dy())}
	for y := changed.Min.Y; y < changed.Max.Y; y++ {
		f.pix = append(f.pix, v.newest[y*size.Dx()+changed.Min.X:y*size.Dx()+changed.Max.X]...)
	}
	v.frames = append(v.frames, f)
	return nil
}

// Hold shows the newest picture longer, by d.
func (v *Video) Hold(d time.Duration) {
	if n := len(v.frames); n > 0 {
		v.frames[n-1].hold += d
	}
}

// take makes a picture the newest one, and returns the difference.
func (v *Video) take(frame *image.RGBA, first bool) (changed image.Rectangle) {
	w := v.size.Dx()
	var last color.RGBA
	at, known := uint16(0), false
	for y := range v.size.Dy() {
		row := frame.Pix[frame.PixOffset(frame.Rect.Min.X, frame.Rect.Min.Y+y):]
		for x := range w {
			if c := (color.RGBA{row[4*x], row[4*x+1], row[4*x+2], 255}); !known || c != last {
				at, last, known = v.indexOf(c), c, true
			}
			if old := &v.newest[y*w+x]; first || *old != at {
				*old = at
				v.counts[at]++
				changed = changed.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	return changed
}

func (v *Video) indexOf(c color.RGBA) uint16 {
	if i, ok := v.index[c]; ok {
		return i
	}
	if len(v.table) >= exactColours {
		c = color.RGBA{c.R&^7 | 4, c.G&^7 | 4, c.B&^7 | 4, 255}
		if i, ok := v.index[c]; ok {
			return i
		}
	}
	i := uint16(len(v.table))
	v.index[c] = i
	v.table, v.counts = append(v.table, c), append(v.counts, 0)
	return i
}

// Len returns the number of pictures.
func (v *Video) Len() int { return len(v.frames) }

// Frames returns the pictures in order, each a new one.
func (v *Video) Frames() iter.Seq2[int, *image.RGBA] {
	return func(yield func(int, *image.RGBA) bool) {
		img := image.NewRGBA(v.size)
		for i, f := range v.frames {
			k := 0
			for y := f.rect.Min.Y; y < f.rect.Max.Y; y++ {
				for x := f.rect.Min.X; x < f.rect.Max.X; x++ {
					img.SetRGBA(x, y, v.table[f.pix[k]])
					k++
				}
			}
			whole := image.NewRGBA(v.size)
			copy(whole.Pix, img.Pix)
			if !yield(i, whole) {
				return
			}
		}
	}
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
		err = r.video.Add(r.renderer.Render())
	}
	return obs, info, err
}

func (r *recordVideo[A]) Step(action A) (Step, error) {
	s, err := r.Env.Step(action)
	if err == nil {
		err = r.video.Add(r.renderer.Render())
	}
	return s, err
}

var errNoFrames = errors.New("a video without pictures")

// hundredth is the unit of delays in a GIF.
const hundredth = 10 * time.Millisecond

// WriteGIF writes the pictures as an animation that repeats without end. All
// pictures share one table of 255 colours, those of the video if there are no
// more; otherwise each stands for similar ones. Pictures after the first one hold
// only the changed pixels.
func (v *Video) WriteGIF(w io.Writer) error {
	if len(v.frames) == 0 {
		return fmt.Errorf("write GIF: %w", errNoFrames)
	}
	p, near := v.palette()
	g := gif.GIF{Config: image.Config{ColorModel: p, Width: v.size.Dx(), Height: v.size.Dy()}}
	shown := make([]uint8, v.size.Dx()*v.size.Dy()) // the colours on the screen
	var ends time.Duration
	told := 0 // hundredths so far
	for i, f := range v.frames {
		ends += cmp.Or(v.Delay, 40*time.Millisecond) + f.hold
		delay := min(int((ends+hundredth/2)/hundredth)-told, 1<<16-1)
		told += delay
		img := image.NewPaletted(f.rect, p)
		different := i == 0
		for k, c := range f.pix {
			at := &shown[(f.rect.Min.Y+k/f.rect.Dx())*v.size.Dx()+f.rect.Min.X+k%f.rect.Dx()]
			img.Pix[k] = transparent
			if i == 0 || *at != near[c] {
				*at, img.Pix[k], different = near[c], near[c], true
			}
		}
		if last := len(g.Delay) - 1; !different && g.Delay[last]+delay < 1<<16 {
			g.Delay[last] += delay
			continue
		}
		if f.rect.Empty() {
			img = image.NewPaletted(image.Rect(0, 0, 1, 1), p)
			img.Pix[0] = transparent
		}
		g.Image, g.Delay, g.Disposal = append(g.Image, img), append(g.Delay, delay), append(g.Disposal, gif.DisposalNone)
	}
	if err := gif.EncodeAll(w, &g); err != nil {
		return fmt.Errorf("write GIF: %w", err)
	}
	return nil
}

// WritePNGs writes the pictures as frame-00000.png and so on to the files that
// create opens, which it closes.
func (v *Video) WritePNGs(create func(name string) (io.WriteCloser, error)) error {
	if len(v.frames) == 0 {
		return fmt.Errorf("write PNGs: %w", errNoFrames)
	}
	for i, f := range v.Frames() {
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
