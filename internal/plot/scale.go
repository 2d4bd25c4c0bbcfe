package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// tick is a place on an axis with its label.
type tick struct {
	at    float64
	label string
}

// ticks are round numbers between lo and hi, about count of them.
func ticks(lo, hi float64, count int) (all []tick) {
	return stepped(lo, hi, niceStep((hi-lo)/float64(count)), short)
}

// roundUp returns the next tick behind hi, if that is so close that an axis had better end there.
func roundUp(hi float64, count int) float64 {
	step := niceStep(hi / float64(count))
	if next := math.Ceil(hi/step-1e-9) * step; next <= hi*1.03 {
		return next
	}
	return hi
}

// niceStep is 1, 2, 2.5 or 5 times a power of ten, and at least raw.
func niceStep(raw float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func stepped(lo, hi, step float64, label func(v, step float64) string) (all []tick) {
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+1e-9*step; i++ {
		v := i * step
		if v == 0 {
			v = 0 // not -0
		}
		all = append(all, tick{v, label(v, step)})
	}
	return all
}

// short writes numbers as 250k, 1M or 0.05, with as many digits as a step needs.
func short(v, step float64) string {
	unit, suffix := 1.0, ""
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= u.size*(1-1e-9) && (u.size > 1e3 || step >= 100 || math.Abs(v) >= 1e4) {
			unit, suffix = u.size, u.name
			break
		}
	}
	digits := max(0, min(9, int(math.Ceil(-math.Log10(step/unit)-1e-9))+1))
	text := strconv.FormatFloat(v/unit, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		text = "0"
	}
	return strings.Replace(text, "-", "\u2212", 1) + suffix
}

// timeTicks are round times between lo and hi seconds.
func timeTicks(lo, hi float64, count int) []tick {
	raw := (hi - lo) / float64(count)
	for _, u := range []struct {
		seconds float64
		name    string
		steps   []float64
	}{
		{1, "s", []float64{1, 2, 5, 10, 15, 30}}, {60, "min", []float64{1, 2, 5, 10, 15, 30}}, {3600, "h", []float64{1, 2, 3, 6, 12}},
	} {
		for _, s := range u.steps {
			if raw > 0.5 && s*u.seconds >= raw {
				return stepped(lo, hi, s*u.seconds, func(v, _ float64) string { return fmt.Sprintf("%g %s", math.Round(v/u.seconds), u.name) })
			}
		}
	}
	unit, name := 86400.0, " d"
	if raw <= 0.5 {
		unit, name = 1, " s"
	}
	return stepped(lo, hi, niceStep(raw/unit)*unit, func(v, step float64) string { return short(v/unit, step/unit) + name })
}
