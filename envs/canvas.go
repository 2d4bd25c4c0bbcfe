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
	for i := 0; i < len(c.img.Pix); i += 4 {
		c.img.Pix[i], c.img.Pix[i+1], c.img.Pix[i+2], c.img.Pix[i+3] = background.R, background.G, background.B, 255
	}
	return c
}

func grey(v uint8) color.RGBA { return color.RGBA{v, v, v, 255} }

// point is one of a shape, in pixels.
type point struct{ x, y float64 }

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

// box draws a rectangle with round corners.
func (c canvas) box(x0, y0, x1, y1, radius float64, col color.RGBA) {
	c.fill(x0, y0, x1, y1, col, func(x, y float64) float64 {
		dx, dy := max(x0+radius-x, x-x1+radius), max(y0+radius-y, y-y1+radius)
		return math.Hypot(max(dx, 0), max(dy, 0)) + min(max(dx, dy), 0) - radius
	})
}

func (c canvas) disc(x0, y0, radius float64, col color.RGBA) {
	c.fill(x0-radius, y0-radius, x0+radius, y0+radius, col, func(x, y float64) float64 {
		return math.Hypot(x-x0, y-y0) - radius
	})
}

// oval draws a disc that is stretched to rx and ry.
func (c canvas) oval(x0, y0, rx, ry float64, col color.RGBA) {
	c.fill(x0-rx, y0-ry, x0+rx, y0+ry, col, func(x, y float64) float64 {
		return (math.Hypot((x-x0)/rx, (y-y0)/ry) - 1) * min(rx, ry)
	})
}

// line draws a line with round ends.
func (c canvas) line(x0, y0, x1, y1, width float64, col color.RGBA) {
	r := width / 2
	c.fill(min(x0, x1)-r, min(y0, y1)-r, max(x0, x1)+r, max(y0, y1)+r, col, func(x, y float64) float64 {
		return toSegment(x, y, point{x0, y0}, point{x1, y1}) - r
	})
}

// toSegment returns the distance of a point to the line from a to b.
func toSegment(x, y float64, a, b point) float64 {
	dx, dy := b.x-a.x, b.y-a.y
	along := min(max(((x-a.x)*dx+(y-a.y)*dy)/max(dx*dx+dy*dy, 1e-12), 0), 1)
	return math.Hypot(x-a.x-along*dx, y-a.y-along*dy)
}

// polygon draws the shape between points, which need not be convex.
func (c canvas) polygon(col color.RGBA, points ...point) {
	low, high := points[0], points[0]
	for _, p := range points {
		low.x, low.y, high.x, high.y = min(low.x, p.x), min(low.y, p.y), max(high.x, p.x), max(high.y, p.y)
	}
	c.fill(low.x, low.y, high.x, high.y, col, func(x, y float64) float64 {
		d, inside, a := math.Inf(1), false, points[len(points)-1]
		for _, b := range points {
			d = min(d, toSegment(x, y, a, b))
			if (a.y > y) != (b.y > y) && x < (b.x-a.x)*(y-a.y)/(b.y-a.y)+a.x {
				inside = !inside
			}
			a = b
		}
		if inside {
			return -d
		}
		return d
	})
}

// arc draws a part of a circle, from one angle to another. Angles are 0 to the right and grow counterclockwise.
func (c canvas) arc(x, y, radius, from, to, width float64, col color.RGBA) {
	const parts = 32
	at := func(k int) (float64, float64) {
		sin, cos := math.Sincos(from + (to-from)*float64(k)/parts)
		return x + cos*radius, y - sin*radius
	}
	for k := range parts {
		x0, y0 := at(k)
		x1, y1 := at(k + 1)
		c.line(x0, y0, x1, y1, width, col)
	}
}

// glyph returns a small picture of a character, 3 wide and 5 high: a bit for each pixel, the upper left one first.
func glyph(r rune) uint16 {
	switch r {
	case '0':
		return 0b111_101_101_101_111
	case '1':
		return 0b010_110_010_010_111
	case '2':
		return 0b111_001_111_100_111
	case '3':
		return 0b111_001_111_001_111
	case '4':
		return 0b101_101_111_001_001
	case '5':
		return 0b111_100_111_001_111
	case '6':
		return 0b111_100_111_101_111
	case '7':
		return 0b111_001_001_010_010
	case '8':
		return 0b111_101_111_101_111
	case '9':
		return 0b111_101_111_001_111
	case 'A':
		return 0b010_101_111_101_101
	}
	return 0
}

// text draws digits and the letter A, each 3 by 5 squares of a size, in the middle of (x, y).
func (c canvas) text(x, y, size float64, text string, col color.RGBA) {
	left := x - (float64(len(text))*4-1)*size/2
	for _, r := range text {
		for i := range 15 {
			if glyph(r)>>(14-i)&1 != 0 {
				x0, y0 := left+float64(i%3)*size, y+(float64(i/3)-2.5)*size
				c.rect(x0, y0, x0+size, y0+size, col)
			}
		}
		left += 4 * size
	}
}

// picture is a canvas of square cells, each side pixels wide.
type picture struct {
	canvas
	cols int
	side float64
}

// newGrid returns a picture of a grid: with a colour of each cell, and lines between them.
func newGrid(rows, cols, side int, lines color.RGBA, col func(cell int) color.RGBA) picture {
	p := picture{newCanvas(cols*side, rows*side, lines), cols, float64(side)}
	for cell := range rows * cols {
		x, y := p.middle(cell)
		half := p.side/2 - 0.5
		p.rect(x-half, y-half, x+half, y+half, col(cell))
	}
	return p
}

// middle returns the middle of a cell.
func (p picture) middle(cell int) (x, y float64) {
	return (float64(cell%p.cols) + 0.5) * p.side, (float64(cell/p.cols) + 0.5) * p.side
}

// person draws a figure with a pointed hat in the middle of (x, y), that many pixels high.
func (c canvas) person(x, y, height float64, coat, hat color.RGBA) {
	u := height / 10
	c.line(x-0.9*u, y+2.5*u, x-1.1*u, y+4.4*u, 1.1*u, ink())
	c.line(x+0.9*u, y+2.5*u, x+1.1*u, y+4.4*u, 1.1*u, ink())
	c.polygon(coat, point{x - 1.3*u, y - 0.8*u}, point{x + 1.3*u, y - 0.8*u}, point{x + 2.3*u, y + 3.4*u}, point{x - 2.3*u, y + 3.4*u})
	c.line(x-1.2*u, y, x-2.6*u, y+1.6*u, 0.9*u, coat)
	c.line(x+1.2*u, y, x+2.6*u, y+1.6*u, 0.9*u, coat)
	c.disc(x, y-1.8*u, 1.7*u, color.RGBA{244, 205, 170, 255})
	c.disc(x-0.6*u, y-1.7*u, 0.25*u, ink())
	c.disc(x+0.6*u, y-1.7*u, 0.25*u, ink())
	c.polygon(hat, point{x - 1.9*u, y - 2.3*u}, point{x + 1.9*u, y - 2.3*u}, point{x, y - 5.2*u})
}
