package envs

import (
	"image"
	"image/color"
	"strconv"
)

func iceBlue() color.RGBA { return color.RGBA{226, 240, 250, 255} }

// Render implements Renderer.
func (f *frozenLake) Render() *image.RGBA {
	side, cols := 80, len(f.rows[0])
	if cols > 5 {
		side = 60
	}
	tile := func(cell int) byte { return f.rows[cell/cols][cell%cols] }
	p := newGrid(len(f.rows), cols, side, color.RGBA{190, 216, 236, 255}, func(cell int) color.RGBA {
		if tile(cell) == 'S' {
			return color.RGBA{240, 232, 205, 255}
		}
		return iceBlue()
	})
	u := float64(side) / 20
	for cell := range f.states {
		x, y := p.middle(cell)
		switch tile(cell) {
		case 'F': // scratches
			p.line(x-5*u, y-3*u, x-1*u, y-6*u, 0.5*u, paper())
			p.line(x+1*u, y+5*u, x+6*u, y+1*u, 0.5*u, paper())
		case 'H':
			p.oval(x, y, 7.5*u, 6.5*u, color.RGBA{160, 196, 224, 255})
			p.oval(x, y+0.6*u, 6.4*u, 5.4*u, color.RGBA{24, 62, 108, 255})
		case 'G':
			p.present(x, y, u)
		}
	}
	x, y := p.middle(f.state)
	p.person(x, y, 14*u, green(), red())
	if tile(f.state) == 'H' { // up to the neck in water
		p.oval(x, y+4*u, 5.6*u, 3.6*u, color.RGBA{24, 62, 108, 255})
	}
	return p.img
}

// present draws one in the middle of (x, y), 12 units wide.
func (p picture) present(x, y, u float64) {
	p.box(x-5*u, y-3*u, x+5*u, y+6*u, 0.5*u, red())
	p.box(x-6*u, y-4.5*u, x+6*u, y-1.5*u, 0.5*u, color.RGBA{224, 100, 96, 255})
	p.rect(x-1*u, y-4.5*u, x+1*u, y+6*u, yellow())
	p.oval(x-2*u, y-5.4*u, 2*u, 1.3*u, yellow())
	p.oval(x+2*u, y-5.4*u, 2*u, 1.3*u, yellow())
}

// Render implements Renderer.
func (c *cliffWalking) Render() *image.RGBA {
	const side = 50
	isCliff := func(cell int) bool { return cell > cliffStart && cell < cliffGoal }
	p := newGrid(cliffRows, cliffCols, side, color.RGBA{128, 158, 104, 255}, func(cell int) color.RGBA {
		if isCliff(cell) {
			return color.RGBA{88, 66, 56, 255}
		}
		return [2]color.RGBA{{152, 190, 118, 255}, {144, 182, 110, 255}}[(cell+cell/cliffCols)%2]
	})
	for cell := range cliffRows * cliffCols {
		x, y := p.middle(cell)
		switch {
		case isCliff(cell): // a dark depth below an edge
			p.rect(x-25, y-10, x+25, y+25, color.RGBA{46, 34, 32, 255})
			p.polygon(color.RGBA{88, 66, 56, 255}, point{x - 25, y - 12}, point{x + 25, y - 12}, point{x + 14, y - 3}, point{x + 3, y - 9},
				point{x - 12, y + 1})
			p.rect(x-25, y-25, x+25, y-21, color.RGBA{128, 158, 104, 255})
		case cell == cliffGoal:
			p.rect(x-9, y-18, x-6.5, y+18, ink())
			p.polygon(red(), point{x - 6.5, y - 18}, point{x + 15, y - 11}, point{x - 6.5, y - 4})
		}
	}
	x, y := p.middle(c.state)
	p.person(x, y, 40, blue(), red())
	return p.img
}

// Render implements Renderer. It draws a waiting passenger at a stand, a passenger in the taxi in its windows,
// and the destination as a house.
func (t *taxi) Render() *image.RGBA {
	const side = 90
	places := taxiPlaces()
	colours := [4]color.RGBA{{228, 120, 112, 255}, {130, 196, 130, 255}, {238, 218, 110, 255}, {122, 160, 226, 255}}
	number := func(place int) int { return places[place][0]*5 + places[place][1] }
	p := newGrid(5, 5, side, grey(205), func(cell int) color.RGBA {
		for i := range places {
			if number(i) == cell {
				return colours[i]
			}
		}
		return grey(226)
	})
	for cell := range 25 {
		if row, col := cell/5, cell%5; col < 4 && wallEast(row, col) {
			x := float64((col + 1) * side)
			p.line(x, float64(row*side)+5, x, float64((row+1)*side)-5, 8, color.RGBA{96, 92, 110, 255})
		}
	}
	s := decodeTaxi(t.state)
	x, y := p.middle(number(s.destination))
	p.house(x, y)
	if s.passenger < 4 {
		x, y := p.middle(number(s.passenger))
		p.person(x+side*0.27, y+side*0.1, 48, color.RGBA{110, 70, 150, 255}, color.RGBA{70, 40, 110, 255})
	}
	x, y = p.middle(s.row*5 + s.col)
	p.cab(x, y, s.passenger == 4)
	return p.img
}

// house draws one in the middle of (x, y).
func (p picture) house(x, y float64) {
	p.rect(x-24, y-10, x+24, y+34, color.RGBA{250, 244, 232, 255})
	p.polygon(color.RGBA{140, 70, 56, 255}, point{x - 32, y - 8}, point{x, y - 36}, point{x + 32, y - 8})
	p.rect(x-6, y+12, x+6, y+34, color.RGBA{120, 84, 60, 255})
	for _, dx := range []float64{-16, 16} {
		p.rect(x+dx-5, y-2, x+dx+5, y+8, blue())
	}
}

// cab draws a taxi in the middle of (x, y), with a passenger or without.
func (p picture) cab(x, y float64, taken bool) {
	body, glass := color.RGBA{246, 190, 36, 255}, color.RGBA{206, 228, 240, 255}
	p.rect(x-7, y-26, x+7, y-19, ink()) // the sign
	p.polygon(body, point{x - 24, y}, point{x - 16, y - 20}, point{x + 14, y - 20}, point{x + 24, y})
	p.polygon(glass, point{x - 19, y - 1}, point{x - 13, y - 16}, point{x - 2, y - 16}, point{x - 2, y - 1})
	p.polygon(glass, point{x + 2, y - 1}, point{x + 2, y - 16}, point{x + 12, y - 16}, point{x + 18, y - 1})
	if taken {
		p.disc(x-8, y-7, 4.5, color.RGBA{244, 205, 170, 255})
		p.rect(x-13, y-3, x-3, y-1, color.RGBA{110, 70, 150, 255})
	}
	p.box(x-35, y-2, x+36, y+17, 5, body)
	for k := range 12 { // two rows of squares
		dx := float64(k*6) - 35
		p.rect(x+dx, y+4+float64(k%2)*3, x+dx+6, y+7+float64(k%2)*3, ink())
	}
	for _, dx := range []float64{-20, 20} {
		p.disc(x+dx, y+17, 8.5, ink())
		p.disc(x+dx, y+17, 3.5, grey(190))
	}
}

// Render implements Renderer: the bits above the goal. A bit that equals its goal is green.
func (b *bitFlip) Render() *image.RGBA {
	const side, margin = 60, 20
	p := newCanvas(b.n*side+2*margin, 2*side+2*margin+20, grey(248))
	for cell := range 2 * b.n {
		i, goal := cell%b.n, cell >= b.n
		x, y := float64(margin+i*side), float64(margin)
		bit := b.obs[i]
		face, text := color.RGBA{238, 196, 130, 255}, ink()
		if b.obs[i] == b.obs[2*b.n+i] {
			face = color.RGBA{150, 206, 158, 255}
		}
		if goal {
			y, bit, face = y+side+20, b.obs[2*b.n+i], grey(226)
		}
		p.box(x+3, y+3, x+side-3, y+side-3, 8, face)
		p.text(x+side/2, y+side/2, 6, strconv.Itoa(int(bit)), text)
	}
	return p.img
}

// Render implements Renderer: the dealer's cards above the player's, with their totals on the left. Cards that are not
// known yet, or were dealt before the environment was restored from a snapshot, lie face down.
func (b *blackjack) Render() *image.RGBA {
	const width, height = 600, 400
	p := newCanvas(width, height, color.RGBA{36, 110, 72, 255})
	p.rect(20, height/2-1, width-20, height/2+1, color.RGBA{64, 138, 98, 255})
	for i, h := range []*hand{&b.dealer, &b.player} {
		y := float64(100 + 200*i)
		total, known := strconv.Itoa(h.total()), h.cards
		if i == 0 && !b.over { // one card is known
			total, known = "", 1
		}
		p.text(60, y, 8, total, color.RGBA{240, 226, 160, 255})
		step := min(100, 440/float64(max(h.cards, 1)))
		for k := range h.cards {
			rank := 0
			if k < known {
				rank = int(h.shown[k])
			}
			p.card(160+step*float64(k), y, rank)
		}
	}
	return p.img
}

// card draws a card with a rank of 1 to 10, or 0 for its back.
func (c canvas) card(x, y float64, rank int) {
	c.box(x-40, y-60, x+40, y+60, 8, color.RGBA{24, 78, 50, 255})
	if rank == 0 {
		c.box(x-39, y-59, x+39, y+59, 7, paper())
		c.box(x-33, y-53, x+33, y+53, 4, red())
		for k := range 5 {
			d := float64(k) * 10
			c.arc(x, y, 3+d/1.8, 0, 6.2832, 2, color.RGBA{232, 150, 146, 255})
		}
		return
	}
	c.box(x-39, y-59, x+39, y+59, 7, paper())
	text := strconv.Itoa(rank)
	if rank == 1 {
		text = "A"
	}
	size, inset := 9.0, 26.0
	if len(text) > 1 {
		size, inset = 7, 21
	}
	c.text(x, y, size, text, ink())
	c.text(x-inset, y-44, 2.5, text, red())
	c.text(x+inset, y+44, 2.5, text, red())
}
