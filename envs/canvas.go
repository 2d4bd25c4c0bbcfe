package envs

import (
	"image"
	"image/color"
	"math"
)

// canvas draws shapes with soft edges. y points down, in pixels.
type canvas struct{ img *image.RGBA }

func newCanvas(width, height int, background color.RGBA) canvas {
	c := canvas{image.NewRGBA(image.Rect(0, 0, width, height))}
	c.rect(0, 0, float64(width), float64(height), background)
	return c
}

func grey(v uint8) color.RGBA { return color.RGBA{v, v, v, 255} }

// fill colours the pixels of a box, as far as they are inside of a shape:
// distance is that of a point to its edge, negative inside.
func (c canvas) fill(x0, y0, x1, y1 float64, col color.RGBA, distance func(x, y float64) float64) {
	box := image.Rect(int(math.Floor(x0))-1, int(math.Floor(y0))-1, int(math.Ceil(x1))+1, int(math.Ceil(y1))+1).Intersect(c.img.Rect)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			if cover := min(max(0.5-distance(float64(x)+0.5, float64(y)+0.5), 0), 1); cover > 0 {
				c.blend(x, y, col, cover)
			}
		}
	}
}

func (c canvas) blend(x, y int, col color.RGBA, cover float64) {
	p := c.img.Pix[c.img.PixOffset(x, y):]
	for i, v := range [3]uint8{col.R, col.G, col.B} {
		p[i] = uint8(math.Round(float64(p[i])*(1-cover) + float64(v)*cover))
	}
	p[3] = 255
}

func (c canvas) rect(x0, y0, x1, y1 float64, col color.RGBA) {
	c.fill(x0, y0, x1, y1, col, func(x, y float64) float64 {
		return max(x0-x, x-x1, y0-y, y-y1)
	})
}

func (c canvas) disc(x0, y0, radius float64, col color.RGBA) {
	c.fill(x0-radius, y0-radius, x0+radius, y0+radius, col, func(x, y float64) float64 {
		return math.Hypot(x-x0, y-y0) - radius
	})
}

// line draws a line with round ends.
func (c canvas) line(x0, y0, x1, y1, width float64, col color.RGBA) {
	r, dx, dy := width/2, x1-x0, y1-y0
	long := max(dx*dx+dy*dy, 1e-12)
	c.fill(min(x0, x1)-r, min(y0, y1)-r, max(x0, x1)+r, max(y0, y1)+r, col, func(x, y float64) float64 {
		along := min(max(((x-x0)*dx+(y-y0)*dy)/long, 0), 1)
		return math.Hypot(x-x0-along*dx, y-y0-along*dy) - r
	})
}

// cellSize is the side of a cell in pixels.
const cellSize = 32

// cells draws a grid of squares, each with the colour of its number, with thin
// lines between them.
func (c canvas) cells(g grid, col func(cell int) color.RGBA) {
	for cell := range g.rows * g.cols {
		x, y := float64(cell%g.cols)*cellSize, float64(cell/g.cols)*cellSize
		c.rect(x+0.5, y+0.5, x+cellSize-0.5, y+cellSize-0.5, col(cell))
	}
}

// middle returns the middle of a cell.
func (g grid) middle(cell int) (x, y float64) {
	return (float64(cell%g.cols) + 0.5) * cellSize, (float64(cell/g.cols) + 0.5) * cellSize
}
