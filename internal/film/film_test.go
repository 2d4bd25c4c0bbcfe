package film

import (
	"bytes"
	"image"
	"image/color"
	"testing"
)

// chess returns a picture of black and white squares of one pixel.
func chess(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			v := uint8((x + y) % 2 * 255)
			img.SetRGBA(x, y, color.RGBA{v, v, v, 255})
		}
	}
	return img
}

func TestResize(t *testing.T) {
	for _, c := range []struct {
		w, h, longer int
		want         image.Point
		at           image.Point
		level        uint8
	}{
		{8, 4, 4, image.Pt(4, 2), image.Pt(3, 1), 128},   // the mean of four
		{4, 8, 16, image.Pt(8, 16), image.Pt(7, 3), 0},   // four of one
		{4, 8, 16, image.Pt(8, 16), image.Pt(7, 5), 255}, //
		{1000, 1, 10, image.Pt(10, 1), image.Pt(9, 0), 128},
		{3, 3, 2, image.Pt(2, 2), image.Pt(0, 0), 113}, // shares 4 : 2 : 2 : 1, of which the 2 are white
	} {
		got := Resize(chess(c.w, c.h), c.longer)
		if got.Rect.Size() != c.want || got.RGBAAt(c.at.X, c.at.Y) != (color.RGBA{c.level, c.level, c.level, 255}) {
			t.Errorf("%d x %d to %d: %v, %v", c.w, c.h, c.longer, got.Rect, got.RGBAAt(c.at.X, c.at.Y))
		}
	}
	if img := chess(6, 5); Resize(img, 6) != img {
		t.Error("a picture of the right size is another one")
	}
}

func TestCaption(t *testing.T) {
	for _, width := range []int{32, 600} {
		c, err := NewCaption(width)
		if err != nil {
			t.Fatal(err)
		}
		img := chess(width, 40)
		a, b := c.Below(img, "episode 1   step 20   return 20"), c.Below(img, "episode 1   step 21   return 20")
		if a.Rect.Dx() != width || a.Rect.Dy() < 50 || !bytes.Equal(a.Pix[:len(img.Pix)], img.Pix) {
			t.Errorf("width %d: %v, or the picture has changed", width, a.Rect)
		}
		if width == 600 && bytes.Equal(a.Pix, b.Pix) {
			t.Error("two texts look alike")
		}
	}
}
