package plot

import (
	"image/color"
	"math"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/vg"
)

// canvas draws lines, areas and text in points, y upwards. Text is drawn as the outlines of its letters, so that a picture looks the
// same where the font is missing.
type canvas struct {
	to            vg.Canvas
	regular, bold *sfnt.Font
	buf           sfnt.Buffer
}

func newCanvas(to vg.Canvas) *canvas {
	c := &canvas{to: to}
	for _, f := range liberation.Collection() {
		switch {
		case f.Font.Variant != "Sans" || f.Font.Style != xfont.StyleNormal:
		case f.Font.Weight == xfont.WeightNormal:
			c.regular = f.Face
		case f.Font.Weight == xfont.WeightBold:
			c.bold = f.Face
		}
	}
	return c
}

// align is which point of a text stands at its place.
type align uint8

const (
	left align = iota
	center
	right
)

// text draws a line of text with its baseline at y.
func (c *canvas) text(f *sfnt.Font, size, x, y float64, a align, ink color.Color, s string) {
	switch a {
	case left:
	case center:
		x -= c.width(f, size, s) / 2
	case right:
		x -= c.width(f, size, s)
	}
	var path vg.Path
	c.each(f, size, s, func(glyph sfnt.GlyphIndex, at float64) {
		segments, err := f.LoadGlyph(&c.buf, glyph, units(f), nil)
		if err != nil {
			return // a letter without an outline is a space
		}
		point := func(p fixed.Point26_6) vg.Point {
			scale := size / float64(units(f))
			return vg.Point{X: vg.Length(x + at + float64(p.X)*scale), Y: vg.Length(y - float64(p.Y)*scale)}
		}
		for i, s := range segments {
			switch s.Op {
			case sfnt.SegmentOpMoveTo:
				if i > 0 {
					path.Close()
				}
				path.Move(point(s.Args[0]))
			case sfnt.SegmentOpLineTo:
				path.Line(point(s.Args[0]))
			case sfnt.SegmentOpQuadTo:
				path.QuadTo(point(s.Args[0]), point(s.Args[1]))
			case sfnt.SegmentOpCubeTo:
				path.CubeTo(point(s.Args[0]), point(s.Args[1]), point(s.Args[2]))
			}
		}
		if len(segments) > 0 {
			path.Close()
		}
	})
	if len(path) > 0 {
		c.to.SetColor(ink)
		c.to.Fill(path)
	}
}

// units returns the size at which a font has its own units.
func units(f *sfnt.Font) fixed.Int26_6 { return fixed.I(int(f.UnitsPerEm())) }

// width returns the width of a text.
func (c *canvas) width(f *sfnt.Font, size float64, s string) float64 { return c.each(f, size, s, nil) }

// each calls fn with each letter and its place, and returns the place behind the last one.
func (c *canvas) each(f *sfnt.Font, size float64, s string, fn func(glyph sfnt.GlyphIndex, at float64)) (at float64) {
	scale := size / float64(units(f))
	var before sfnt.GlyphIndex
	for i, r := range s {
		glyph, err := f.GlyphIndex(&c.buf, r)
		if err != nil {
			continue
		}
		if i > 0 {
			if k, err := f.Kern(&c.buf, before, glyph, units(f), 0); err == nil {
				at += float64(k) * scale
			}
		}
		if fn != nil {
			fn(glyph, at)
		}
		if a, err := f.GlyphAdvance(&c.buf, glyph, units(f), 0); err == nil {
			at += float64(a) * scale
		}
		before = glyph
	}
	return at
}

// pen is how a line is drawn.
type pen struct {
	width float64
	ink   color.Color
	dash  []float64
}

func (c *canvas) line(p pen, x, y []float64) {
	if len(x) < 2 {
		return
	}
	var path vg.Path
	for i := range x {
		at := vg.Point{X: vg.Length(x[i]), Y: vg.Length(y[i])}
		if i == 0 {
			path.Move(at)
		} else {
			path.Line(at)
		}
	}
	var dash []vg.Length
	for _, d := range p.dash {
		dash = append(dash, vg.Length(d))
	}
	c.to.SetLineDash(dash, 0)
	c.to.SetLineWidth(vg.Length(p.width))
	c.to.SetColor(p.ink)
	c.to.Stroke(path)
	c.to.SetLineDash(nil, 0)
}

// area fills a polygon.
func (c *canvas) area(ink color.Color, x, y []float64) {
	var path vg.Path
	for i := range x {
		at := vg.Point{X: vg.Length(x[i]), Y: vg.Length(y[i])}
		if i == 0 {
			path.Move(at)
		} else {
			path.Line(at)
		}
	}
	path.Close()
	c.to.SetColor(ink)
	c.to.Fill(path)
}

// The outlines of markers around 0.
var markers = [][][2]float64{
	nil, // a circle
	{{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}},
	{{-1.1, -0.9}, {1.1, -0.9}, {0, 1.2}},
	{{-1.2, 0}, {0, -1.2}, {1.2, 0}, {0, 1.2}},
	{{-1.1, 0.9}, {1.1, 0.9}, {0, -1.2}},
	{
		{-0.5, -1.2}, {0.5, -1.2}, {0.5, -0.5}, {1.2, -0.5}, {1.2, 0.5}, {0.5, 0.5},
		{0.5, 1.2}, {-0.5, 1.2}, {-0.5, 0.5}, {-1.2, 0.5}, {-1.2, -0.5}, {-0.5, -0.5},
	},
}

// marker draws a marker with a white edge, which sets it off from lines.
func (c *canvas) marker(n int, radius, x, y float64, ink color.Color) {
	var path vg.Path
	if shape := markers[n%len(markers)]; shape == nil {
		path.Move(vg.Point{X: vg.Length(x + radius), Y: vg.Length(y)})
		path.Arc(vg.Point{X: vg.Length(x), Y: vg.Length(y)}, vg.Length(radius), 0, 2*math.Pi)
	} else {
		for i, p := range shape {
			at := vg.Point{X: vg.Length(x + radius*p[0]), Y: vg.Length(y + radius*p[1])}
			if i == 0 {
				path.Move(at)
			} else {
				path.Line(at)
			}
		}
	}
	path.Close()
	c.to.SetColor(ink)
	c.to.Fill(path)
	c.to.SetColor(color.White)
	c.to.SetLineWidth(0.8)
	c.to.Stroke(path)
}
