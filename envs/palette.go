package envs

import (
	"cmp"
	"image/color"
	"slices"
)

// transparent is the entry of a palette that leaves a pixel as it is.
const transparent = 0

// paletteSize is how many colours a palette has besides the transparent one.
const paletteSize = 255

// palette returns the palette of a video, and the entry that stands for each of its colours.
//
// With too many colours it is by median cut: groups of colours are cut in two, at the mean of the channel that varies most, that
// with the greatest squared error first (P. Heckbert, "Color image quantization for frame buffer display", 1982).
// A group becomes its mean, or the colour of most of its pixels, so that plain areas keep theirs.
func (v *Video) palette() (color.Palette, []uint8) {
	near := make([]uint8, len(v.table))
	all := make([]int, len(v.table))
	for i := range all {
		all[i] = i
	}
	groups := []colourGroup{v.group(all)}
	for len(groups) < min(paletteSize, len(v.table)) {
		worst := 0
		for i, g := range groups {
			if g.fault > groups[worst].fault {
				worst = i
			}
		}
		if groups[worst].fault == 0 {
			break
		}
		a, b := groups[worst].cut(v)
		groups[worst] = v.group(a)
		groups = append(groups, v.group(b))
	}
	slices.SortFunc(groups, func(a, b colourGroup) int { return cmp.Compare(b.count, a.count) })
	p := color.Palette{color.RGBA{}}
	for k, g := range groups {
		p = append(p, g.stands(v))
		for _, i := range g.colours {
			near[i] = uint8(k + 1)
		}
	}
	return p, near
}

// colourGroup is colours that become one.
type colourGroup struct {
	colours []int
	count   float64 // pixels
	mean    [3]float64
	widest  int     // the channel that varies most
	fault   float64 // the squared error of the pixels
}

func channels(c color.RGBA) [3]float64 { return [3]float64{float64(c.R), float64(c.G), float64(c.B)} }

func (v *Video) group(colours []int) colourGroup {
	g := colourGroup{colours: colours}
	var squares [3]float64
	for _, i := range colours {
		n := float64(v.counts[i]) + 1
		g.count += n
		for k, x := range channels(v.table[i]) {
			g.mean[k] += n * x
			squares[k] += n * x * x
		}
	}
	widest := -1.0
	for k := range g.mean {
		g.mean[k] /= g.count
		spread := max(squares[k]-g.count*g.mean[k]*g.mean[k], 0)
		g.fault += spread
		if spread > widest {
			g.widest, widest = k, spread
		}
	}
	if len(colours) == 1 {
		g.fault = 0
	}
	return g
}

// cut returns the two parts of a group, neither of them empty.
func (g colourGroup) cut(v *Video) (low, high []int) {
	for _, i := range g.colours {
		if channels(v.table[i])[g.widest] <= g.mean[g.widest] {
			low = append(low, i)
		} else {
			high = append(high, i)
		}
	}
	if len(high) == 0 { // rounding
		low, high = low[:len(low)-1], low[len(low)-1:]
	}
	return low, high
}

// stands returns the colour of a group.
func (g colourGroup) stands(v *Video) color.RGBA {
	for _, i := range g.colours {
		if float64(v.counts[i]) > g.count/2 {
			return v.table[i]
		}
	}
	return color.RGBA{uint8(g.mean[0] + 0.5), uint8(g.mean[1] + 0.5), uint8(g.mean[2] + 0.5), 255}
}
