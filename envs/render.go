package envs

import (
	"image"
	"image/color"
	"math"
)

// Renderer is an environment that can draw its state. [As] finds it inside
// wrappers. All environments of this package are Renderers but for Blackjack.
type Renderer interface {
	// Render returns a new picture of the present state. All pictures of an
	// environment have one size. Before the first Reset it means nothing.
	Render() *image.RGBA
}

// The colours of the pictures.
func ink() color.RGBA    { return grey(40) }
func paper() color.RGBA  { return grey(250) }
func orange() color.RGBA { return color.RGBA{214, 137, 60, 255} }
func blue() color.RGBA   { return color.RGBA{60, 110, 190, 255} }
func red() color.RGBA    { return color.RGBA{200, 70, 70, 255} }
func green() color.RGBA  { return color.RGBA{70, 160, 90, 255} }

// Render implements Renderer.
func (c *cartPole) Render() *image.RGBA {
	const width, height, scale = 300, 200, 300 / (2 * xLimit)
	p := newCanvas(width, height, paper())
	x, y := width/2+c.state[0]*scale, 150.0
	p.line(0, y, width, y, 1, ink())
	p.rect(x-20, y-12, x+20, y+12, ink())
	sin, cos := math.Sincos(c.state[2])
	p.line(x, y-8, x+sin*2*halfPole*scale*1.4, y-8-cos*2*halfPole*scale*1.4, 7, orange())
	p.disc(x, y-8, 3, blue())
	return p.img
}

// Render implements Renderer.
func (a *acrobot) Render() *image.RGBA {
	const size, scale = 220, 50
	p := newCanvas(size, size, paper())
	p.line(0, size/2-scale, size, size/2-scale, 1, grey(160)) // the height to reach
	x, y, angle := float64(size/2), float64(size/2), 0.0
	for _, turn := range a.state[:2] {
		angle += turn
		sin, cos := math.Sincos(angle)
		nx, ny := x+sin*scale, y+cos*scale
		p.line(x, y, nx, ny, 9, blue())
		p.disc(x, y, 5, orange())
		x, y = nx, ny
	}
	p.disc(x, y, 3, ink())
	return p.img
}

func (c *car) picture(goal float64) *image.RGBA {
	const width, height, scale = 300, 200, 300 / (carRight - carLeft)
	hill := func(position float64) float64 { return height - 20 - (math.Sin(3*position)*0.45+0.55)*scale*0.8 }
	at := func(position float64) float64 { return (position - carLeft) * scale }
	p := newCanvas(width, height, paper())
	for x := 0.0; x < width; x += 3 {
		p.line(x, hill(carLeft+x/scale), x+3, hill(carLeft+(x+3)/scale), 2, ink())
	}
	p.line(at(goal), hill(goal), at(goal), hill(goal)-30, 2, ink())
	p.rect(at(goal), hill(goal)-30, at(goal)+14, hill(goal)-21, green())
	x, y := at(c.state[0]), hill(c.state[0])
	slope := math.Atan2(hill(c.state[0]+0.01)-y, 0.01*scale)
	sin, cos := math.Sincos(slope)
	body := func(along, up float64) (float64, float64) { return x + along*cos + up*sin, y + along*sin - up*cos }
	x0, y0 := body(-10, 9)
	x1, y1 := body(10, 9)
	p.line(x0, y0, x1, y1, 10, red())
	for _, along := range []float64{-9, 9} {
		wx, wy := body(along, 5)
		p.disc(wx, wy, 5, ink())
	}
	return p.img
}

// Render implements Renderer.
func (c *mountainCar) Render() *image.RGBA { return c.picture(carGoal) }

// Render implements Renderer.
func (c *mountainCarContinuous) Render() *image.RGBA { return c.picture(carGoalFar) }

// Render implements Renderer.
func (p *pendulum) Render() *image.RGBA {
	const size, scale, middle = 200, 75, 100
	c := newCanvas(size, size, paper())
	sin, cos := math.Sincos(p.state[0])
	c.line(middle, middle, middle-sin*scale, middle-cos*scale, 16, red())
	c.disc(middle, middle, 4, ink())
	// The torque, as an arc from the top, to the left if it is positive.
	turn := p.state[2] / pendulumMaxTorque * math.Pi / 2
	for k := range 24 {
		a, b := turn*float64(k)/24, turn*float64(k+1)/24
		c.line(middle-math.Sin(a)*30, middle-math.Cos(a)*30, middle-math.Sin(b)*30, middle-math.Cos(b)*30, 3, blue())
	}
	return c.img
}

// Render implements Renderer.
func (f *frozenLake) Render() *image.RGBA {
	g := grid{len(f.rows), len(f.rows[0])}
	p := newCanvas(g.cols*cellSize, g.rows*cellSize, grey(200))
	ice := color.RGBA{222, 238, 250, 255}
	p.cells(g, func(cell int) color.RGBA {
		switch f.rows[cell/g.cols][cell%g.cols] {
		case 'G':
			return green()
		case 'S':
			return color.RGBA{250, 240, 200, 255}
		}
		return ice
	})
	for cell := range f.states {
		if f.rows[cell/g.cols][cell%g.cols] == 'H' {
			x, y := g.middle(cell)
			p.disc(x, y, 12, color.RGBA{30, 60, 110, 255})
		}
	}
	x, y := g.middle(f.state)
	p.disc(x, y, 8, red())
	return p.img
}

// Render implements Renderer.
func (c *cliffWalking) Render() *image.RGBA {
	g := grid{cliffRows, cliffCols}
	p := newCanvas(g.cols*cellSize, g.rows*cellSize, grey(180))
	p.cells(g, func(cell int) color.RGBA {
		switch {
		case cell == cliffGoal:
			return green()
		case cell > cliffStart:
			return grey(60)
		}
		return color.RGBA{200, 225, 190, 255}
	})
	x, y := g.middle(c.state)
	p.disc(x, y, 9, red())
	return p.img
}

// Render implements Renderer. The passenger is a small disc, the destination a
// ring; places have a colour each.
func (t *taxi) Render() *image.RGBA {
	g := grid{5, 5}
	places := taxiPlaces()
	colours := [4]color.RGBA{{235, 150, 150, 255}, {160, 220, 160, 255}, {240, 225, 130, 255}, {150, 180, 235, 255}}
	number := func(place int) int { return places[place][0]*5 + places[place][1] }
	p := newCanvas(g.cols*cellSize, g.rows*cellSize, grey(220))
	p.cells(g, func(cell int) color.RGBA {
		for i := range places {
			if number(i) == cell {
				return colours[i]
			}
		}
		return paper()
	})
	for cell := range 25 {
		if row, col := cell/5, cell%5; col < 4 && wallEast(row, col) {
			x := float64(col+1) * cellSize
			p.line(x, float64(row)*cellSize, x, float64(row+1)*cellSize, 4, ink())
		}
	}
	s := decodeTaxi(t.state)
	x, y := g.middle(number(s.destination))
	p.disc(x, y, 13, red())
	p.disc(x, y, 10, colours[s.destination])
	x, y = g.middle(s.row*5 + s.col)
	p.rect(x-10, y-6, x+10, y+6, orange())
	if s.passenger < 4 {
		x, y = g.middle(number(s.passenger))
	}
	p.disc(x, y, 4, blue())
	return p.img
}

// Render implements Renderer: the bits above the goal.
func (b *bitFlip) Render() *image.RGBA {
	g := grid{2, b.n}
	p := newCanvas(b.n*cellSize, 2*cellSize, grey(200))
	p.cells(g, func(cell int) color.RGBA {
		at := cell
		if cell >= b.n {
			at = cell + b.n
		}
		switch {
		case b.obs[at] == 0:
			return paper()
		case cell >= b.n:
			return green()
		}
		return blue()
	})
	return p.img
}

// Render implements Renderer.
func (p *pong) Render() *image.RGBA {
	const size = 200
	c := newCanvas(size, size, grey(25))
	for y := 4.0; y < size; y += 16 {
		c.rect(size/2-1, y, size/2+1, y+8, grey(110))
	}
	half := float64(pongHalf * size)
	for i, x := range [2]float64{pongOurs * size, pongTheirs*size - 5} {
		y := p.s[4+i] * size
		c.rect(x, y-half, x+5, y+half, [2]color.RGBA{green(), orange()}[i])
	}
	c.disc(p.s[0]*size, p.s[1]*size, 4, grey(240))
	return c.img
}

// Render implements Renderer: the pixels of the newest frame, enlarged.
func (c *catch) Render() *image.RGBA {
	const zoom = 4
	img := image.NewRGBA(image.Rect(0, 0, catchSide*zoom, catchSide*zoom))
	for y := range catchSide * zoom {
		for x := range catchSide * zoom {
			img.SetRGBA(x, y, grey(uint8(c.obs[y/zoom*catchSide+x/zoom])))
		}
	}
	return img
}
