package plot

import (
	"fmt"
	"slices"

	"golang.org/x/image/font/sfnt"
)

type face = *sfnt.Font

// label is a curve's name beside its end.
type label struct {
	group int
	name  string
	runs  string
	y     float64 // its middle
	end   float64 // of the curve
}

const (
	sampleWidth = 26.0 // of the line before a label
	nameSize    = 9.0
	runsSize    = 7.5
)

// labels returns the labels of all curves; their places are set by direct.
func (p *picture) labels() (all []label) {
	algos, envs := differ(p.all)
	for i, g := range p.all {
		l := label{group: i, name: p.fit(p.bold, nameSize, g.label(algos, envs), p.w/4), runs: fmt.Sprintf("%d runs", len(g.runs))}
		if len(g.runs) == 1 {
			l.runs = "1 run, smoothed"
		}
		all = append(all, l)
	}
	return all
}

// labelWidth returns the room to the right of the data.
func (p *picture) labelWidth(all []label) (w float64) {
	for _, l := range all {
		w = max(w, p.width(p.bold, nameSize, l.name), p.width(p.regular, runsSize, l.runs))
	}
	return 14 + sampleWidth + 5 + w
}

// direct draws the labels beside the ends of their curves, moved apart where those are close.
func (p *picture) direct(all []label) {
	for i := range all {
		g := p.all[all[i].group]
		all[i].end = p.py(g.mean[len(g.mean)-1])
		all[i].y = all[i].end
	}
	slices.SortStableFunc(all, func(a, b label) int {
		switch {
		case a.y > b.y:
			return -1
		case a.y < b.y:
			return 1
		}
		return a.group - b.group
	})
	pitch := min(23, (p.y1-p.y0+20)/float64(len(all)))
	spread(all, pitch, p.y0, p.y1)
	for _, l := range all {
		c, g := palette[l.group%len(palette)], p.all[l.group]
		x := p.x1 + 14
		if end := p.px(g.x[len(g.x)-1]); end > p.x1-0.03*(p.x1-p.x0) {
			p.line(pen{width: 0.6, ink: shade(c, 120)}, []float64{end, p.x1 + 3, x - 2}, []float64{l.end, l.end, l.y})
		}
		p.line(pen{1.9, c, dashes[l.group%len(dashes)]}, []float64{x, x + sampleWidth}, []float64{l.y, l.y})
		if len(p.all) > 1 {
			p.marker(l.group, 2.9, x+sampleWidth/2, l.y, c)
		}
		x += sampleWidth + 5
		if pitch < 19 { // no room for a second line
			p.text(p.bold, min(nameSize, pitch*0.8), x, l.y-3, left, ink, l.name)
			continue
		}
		p.text(p.bold, nameSize, x, l.y+0.5, left, ink, l.name)
		p.text(p.regular, runsSize, x, l.y-8.5, left, muted, l.runs)
	}
}

// spread moves labels, which are sorted from top to bottom, apart by at least pitch, and between lo and hi as far as they fit.
func spread(all []label, pitch, lo, hi float64) {
	top := hi
	for i := range all {
		all[i].y = min(all[i].y, top)
		top = all[i].y - pitch
	}
	bottom := lo
	for i := len(all) - 1; i >= 0; i-- {
		all[i].y = max(all[i].y, bottom)
		bottom = all[i].y + pitch
	}
}
