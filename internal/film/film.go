// Package film makes pictures of episodes fit for a file: their size, and a caption below them.
//
//	c, err := film.NewCaption(600)
//	img = film.Resize(img, 600)
//	img = c.Below(img, "episode 1   step 20   return 20.0")
//
// Resize is pure. A Caption is for one goroutine. The package does no I/O. Callers must bound the size of a picture.
package film

import (
	"fmt"
	"image"
	"image/color"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// Resize returns a picture whose longer side has that many pixels: each the mean of the area that it covers. A picture
// that has that size is returned as it is.
func Resize(img *image.RGBA, longer int) *image.RGBA {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	if w == 0 || h == 0 || max(w, h) == longer {
		return img
	}
	scale := float64(longer) / float64(max(w, h))
	out := image.NewRGBA(image.Rect(0, 0, max(int(math.Round(float64(w)*scale)), 1), max(int(math.Round(float64(h)*scale)), 1)))
	across, down := shares(w, out.Rect.Dx()), shares(h, out.Rect.Dy())
	for y, rows := range down {
		for x, cols := range across {
			var sum [3]float64
			for i, fy := range rows.part {
				row := img.Pix[(rows.first+i)*img.Stride:]
				for j, fx := range cols.part {
					p := row[4*(cols.first+j):]
					for c := range sum {
						sum[c] += fy * fx * float64(p[c])
					}
				}
			}
			out.SetRGBA(x, y, color.RGBA{level(sum[0]), level(sum[1]), level(sum[2]), 255})
		}
	}
	return out
}

func level(v float64) uint8 { return uint8(min(math.Round(v+1e-6), 255)) }

// share is what the old pixels from first on are of a new one, in sum 1.
type share struct {
	first int
	part  []float64
}

// shares returns the shares of the old pixels in each of n new ones, in one direction.
func shares(old, n int) []share {
	all := make([]share, n)
	step := float64(old) / float64(n)
	for i := range all {
		from, to := float64(i)*step, min(float64(i+1)*step, float64(old))
		s := share{first: min(int(from), old-1)}
		for k := s.first; k < old && (float64(k) < to || k == s.first); k++ {
			s.part = append(s.part, max(min(to, float64(k+1))-max(from, float64(k)), 0)/(to-from))
		}
		all[i] = s
	}
	return all
}

// Caption writes a line below pictures of one width.
type Caption struct {
	face   font.Face
	width  int
	height int
}

// NewCaption returns a caption below pictures of a width.
func NewCaption(width int) (*Caption, error) {
	parsed, err := opentype.Parse(gomono.TTF)
	if err != nil {
		return nil, fmt.Errorf("the font of captions: %w", err)
	}
	// 44 characters of 0.6 times the size fill the width.
	size := min(max(float64(width)/(44*0.6), 7), 16)
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil, fmt.Errorf("the font of captions: %w", err)
	}
	return &Caption{face, width, int(math.Ceil(size * 1.9))}, nil
}

// Below returns a new picture: img with a text on a strip below it. Longer text is cut.
func (c *Caption) Below(img *image.RGBA, text string) *image.RGBA {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	out := image.NewRGBA(image.Rect(0, 0, w, h+c.height))
	for y := range h {
		copy(out.Pix[y*out.Stride:], img.Pix[y*img.Stride:y*img.Stride+4*w])
	}
	back := color.RGBA{32, 34, 40, 255}
	for y := h; y < h+c.height; y++ {
		for x := range w {
			out.SetRGBA(x, y, back)
		}
	}
	m := c.face.Metrics()
	margin := c.height / 3
	base := fixed.I(h) + (fixed.I(c.height)+m.Ascent-m.Descent)/2
	d := font.Drawer{Dst: out, Src: image.NewUniform(color.RGBA{232, 232, 236, 255}), Face: c.face,
		Dot: fixed.Point26_6{X: fixed.I(margin), Y: base}}
	d.DrawString(text)
	return out
}
