package envs

import (
	"fmt"
	"image"
	"image/color"
	"math"
)

// Renderer is an environment that can draw its state. [As] finds it inside
// wrappers. All environments of this package are Renderers.
type Renderer interface {
	// Render returns a new picture of the present state. All pictures of an
	// environment have one size. Before the first Reset it means nothing.
	Render() *image.RGBA
}

// FrameRater is a Renderer that knows how many time steps are a second.
type FrameRater interface {
	// FrameRate is the number of pictures a second, at least 1.
	FrameRate() int
}

// Framer is a vector that can draw its environments: a [Sync] whose environments
// are Renderers, and gym.Vector.
type Framer interface {
	// Frame returns a new picture of environment i. The error of an environment that
	// cannot be drawn wraps [ErrNoPictures].
	Frame(i int) (*image.RGBA, error)
	// FrameRate is the number of pictures a second of the environments, or 0 if it is not known.
	FrameRate() int
}

// Frame implements Framer.
func (v *Sync) Frame(i int) (*image.RGBA, error) {
	if i < 0 || i >= len(v.cells) {
		return nil, fmt.Errorf("draw %s: no environment %d", v.label, i)
	}
	r, ok := v.cells[i].renderer()
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoPictures, v.label)
	}
	return r.Render(), nil
}

// FrameRate implements Framer.
func (v *Sync) FrameRate() int {
	if r, _ := v.cells[0].renderer(); r != nil {
		if f, ok := r.(FrameRater); ok {
			return f.FrameRate()
		}
	}
	return 0
}

// Frame draws an environment of the inner vector.
func (a adapted) Frame(i int) (*image.RGBA, error) {
	if f, ok := a.Vector.(Framer); ok {
		return f.Frame(i)
	}
	return nil, fmt.Errorf("%w: %s", ErrNoPictures, a.Name())
}

// FrameRate returns the frame rate of the inner vector.
func (a adapted) FrameRate() int {
	if f, ok := a.Vector.(Framer); ok {
		return f.FrameRate()
	}
	return 0
}

// Frame rates: those of the equations where they have one, otherwise rates that the eye can follow.
func (c *cartPole) FrameRate() int              { return 50 }
func (a *acrobot) FrameRate() int               { return 15 }
func (c *mountainCar) FrameRate() int           { return 30 }
func (c *mountainCarContinuous) FrameRate() int { return 30 }
func (p *pendulum) FrameRate() int              { return 20 }
func (p *pong) FrameRate() int                  { return 30 }
func (c *catch) FrameRate() int                 { return 20 }
func (t *tabular) FrameRate() int               { return 4 }
func (b *bitFlip) FrameRate() int               { return 2 }
func (b *blackjack) FrameRate() int             { return 1 }

// The colours of the pictures.
func ink() color.RGBA    { return grey(30) }
func paper() color.RGBA  { return grey(255) }
func yellow() color.RGBA { return color.RGBA{214, 196, 48, 255} }
func blue() color.RGBA   { return color.RGBA{60, 110, 190, 255} }
func red() color.RGBA    { return color.RGBA{204, 77, 77, 255} }
func green() color.RGBA  { return color.RGBA{70, 160, 90, 255} }

// Render implements Renderer.
func (c *cartPole) Render() *image.RGBA {
	const width, height, scale, track = 600, 400, 600 / (2 * xLimit), 300.0
	p := newCanvas(width, height, paper())
	x := width/2 + c.state[0]*scale
	p.rect(0, track-0.5, width, track+0.5, ink())
	p.box(x-25, track-15, x+25, track+15, 2, ink())
	sin, cos := math.Sincos(c.state[2])
	foot := track - 7.5
	top := point{x + sin*2*halfPole*scale, foot - cos*2*halfPole*scale}
	dx, dy := cos*5, sin*5
	base := point{x - sin*5, foot + cos*5}
	p.polygon(color.RGBA{202, 152, 101, 255}, point{base.x - dx, base.y - dy}, point{base.x + dx, base.y + dy},
		point{top.x + dx, top.y + dy}, point{top.x - dx, top.y - dy})
	p.disc(x, foot, 5, color.RGBA{129, 132, 203, 255})
	return p.img
}

// Render implements Renderer.
func (a *acrobot) Render() *image.RGBA {
	const size, scale = 500, 500 / 4.4
	p := newCanvas(size, size, paper())
	p.rect(0, size/2-scale-0.5, size, size/2-scale+0.5, ink()) // the height to reach
	x, y, angle := float64(size/2), float64(size/2), 0.0
	for _, turn := range a.state[:2] {
		angle += turn
		sin, cos := math.Sincos(angle)
		nx, ny := x+sin*scale, y+cos*scale
		dx, dy := cos*11, -sin*11
		p.polygon(color.RGBA{0, 190, 196, 255}, point{x - dx, y - dy}, point{x + dx, y + dy}, point{nx + dx, ny + dy}, point{nx - dx, ny - dy})
		p.disc(x, y, 11, yellow())
		x, y = nx, ny
	}
	return p.img
}

func (c *car) picture(goal float64) *image.RGBA {
	const width, height, scale = 600, 400, 600 / (carRight - carLeft)
	hill := func(x float64) float64 { return height - (math.Sin(3*(carLeft+x/scale))*0.45+0.55)*scale }
	at := func(position float64) float64 { return (position - carLeft) * scale }
	p := newCanvas(width, height, paper())
	for x := range width { // the ground, with a line on it
		middle := float64(x) + 0.5
		up := math.Hypot(1, hill(middle+0.5)-hill(middle-0.5))
		for y := max(int(hill(middle))-5, 0); y < height; y++ {
			deep := (float64(y) + 0.5 - hill(middle)) / up
			p.blend(x, y, grey(238), min(max(deep+0.5, 0), 1))
			p.blend(x, y, ink(), min(max(1.3-math.Abs(deep), 0), 1))
		}
	}
	x, y := at(goal), hill(at(goal))
	p.rect(x-0.75, y-52, x+0.75, y, ink())
	p.polygon(yellow(), point{x + 0.75, y - 52}, point{x + 26, y - 46}, point{x + 0.75, y - 38})
	x = at(c.state[0])
	y = hill(x)
	sin, cos := math.Sincos(math.Atan2(hill(x+0.5)-hill(x-0.5), 1))
	body := func(along, up float64) point { return point{x + along*cos + up*sin, y + along*sin - up*cos} }
	p.polygon(ink(), body(-20, 8), body(20, 8), body(20, 18), body(12, 20), body(7, 28), body(-10, 28), body(-14, 19), body(-20, 18))
	p.polygon(grey(215), body(-8, 26), body(-2, 26), body(-2, 20), body(-11, 20))
	p.polygon(grey(215), body(0, 26), body(6, 26), body(9.5, 20), body(0, 20))
	for _, along := range []float64{-11, 11} {
		w := body(along, 8)
		p.disc(w.x, w.y, 8, grey(128))
		p.disc(w.x, w.y, 3, grey(215))
	}
	return p.img
}

// Render implements Renderer.
func (c *mountainCar) Render() *image.RGBA { return c.picture(carGoal) }

// Render implements Renderer.
func (c *mountainCarContinuous) Render() *image.RGBA { return c.picture(carGoalFar) }

// Render implements Renderer: the rod, and around its end the torque, as long as it is strong.
func (p *pendulum) Render() *image.RGBA {
	const size, scale, middle = 500, 500 / 4.4, 250.0
	c := newCanvas(size, size, paper())
	sin, cos := math.Sincos(p.state[0])
	c.line(middle, middle, middle-sin*scale, middle-cos*scale, scale*0.2, red())
	if turn := p.state[2] / pendulumMaxTorque * math.Pi * 0.6; math.Abs(turn) > 0.05 {
		const radius = 42.0
		from := math.Pi / 2
		c.arc(middle, middle, radius, from, from+turn, 4, blue())
		s, k := math.Sincos(from + turn)
		tip := point{middle + k*radius, middle - s*radius}
		ahead := math.Copysign(1, turn)
		along, across := point{-s * ahead, -k * ahead}, point{k, -s}
		c.polygon(blue(), point{tip.x + along.x*13, tip.y + along.y*13},
			point{tip.x + across.x*8, tip.y + across.y*8}, point{tip.x - across.x*8, tip.y - across.y*8})
	}
	c.disc(middle, middle, scale*0.05, ink())
	return c.img
}

// Render implements Renderer.
func (p *pong) Render() *image.RGBA {
	const width, height, border, size = 480, 480, 80.0, 392.0
	c := newCanvas(width, height, color.RGBA{144, 72, 17, 255})
	light := grey(236)
	c.rect(0, border-12, width, border, light)
	c.rect(0, height-8, width, height, light)
	for y := border + 8; y < height-16; y += 24 {
		c.rect(width/2-2, y, width/2+2, y+12, color.RGBA{178, 112, 58, 255})
	}
	ours, theirs := color.RGBA{92, 186, 92, 255}, color.RGBA{213, 150, 94, 255}
	at := func(x, y float64) (float64, float64) { return 12 + x*(width-24), border + y*size }
	half := float64(pongHalf * size)
	for i, x := range [2]float64{pongOurs, pongTheirs} {
		px, py := at(x, p.s[4+i])
		px += [2]float64{4, -14}[i]
		c.rect(px, py-half, px+10, py+half, [2]color.RGBA{ours, theirs}[i])
	}
	c.text(width*0.25, 34, 8, fmt.Sprint(p.theirs), theirs)
	c.text(width*0.75, 34, 8, fmt.Sprint(p.ours), ours)
	x, y := at(p.s[0], p.s[1])
	c.box(x-5, y-5, x+5, y+5, 1, light)
	return c.img
}

// Render implements Renderer: the pixels of the newest frame, enlarged.
func (c *catch) Render() *image.RGBA {
	const zoom, side = 10, catchSide * 10
	p := newCanvas(side, side, grey(0))
	for y := range side {
		for x := range side {
			if v := uint8(c.obs[y/zoom*catchSide+x/zoom]); v > 0 {
				p.img.SetRGBA(x, y, grey(v))
			}
		}
	}
	return p.img
}
