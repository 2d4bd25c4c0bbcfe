package kernels

import (
	"math"
	"testing"
)

// function is a function of one value with the error that its documentation
// states: in units of the last place of the exact result, or absolute where that
// is more.
type function struct {
	name     string
	of       func(l level, dst, x []float32)
	exact    func(float64) float64
	ulp      float64
	absolute float64
	range32  [2]float32
}

func functions() []function {
	everything := [2]float32{-math.MaxFloat32, math.MaxFloat32}
	return []function{
		{"exp", level.exp, math.Exp, 1.1, 0, everything},
		{"log", level.log, math.Log, 1, 0, [2]float32{0, math.MaxFloat32}},
		{"tanh", level.tanh, math.Tanh, 3, 0, everything},
		{"sigmoid", level.sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 3, 0, everything},
		{"softplus", level.softplus, func(x float64) float64 {
			return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
		}, 2, 0, everything},
	}
}

// ulpError returns the distance from want in units of the last place of want as
// a float32.
func ulpError(got float32, want float64) float64 {
	switch {
	case math.IsNaN(want) && got != got, math.IsInf(want, 0) && float64(got) == want:
		return 0
	case math.Abs(want) >= math.MaxFloat32*(1+0x1p-25):
		want = math.Inf(int(math.Copysign(1, want)))
		if float64(got) == want {
			return 0
		}
		return math.Inf(1)
	case math.IsNaN(float64(got)) || math.IsInf(float64(got), 0):
		return math.Inf(1)
	}
	exponent := max(math.Ilogb(want), -126)
	if want == 0 {
		exponent = -126
	}
	return math.Abs(float64(got)-want) / math.Ldexp(1, exponent-23)
}

// TestFunctionsAreAsExactAsTheirDocumentation takes every 1,009th float32; -short every
// 50,021st.
func TestFunctionsAreAsExactAsTheirDocumentation(t *testing.T) {
	step := uint32(1009)
	if testing.Short() {
		step = 50021
	}
	for _, f := range functions() {
		var worst float64
		var where float32
		x, y := make([]float32, 0, 4096), make([]float32, 4096)
		measure := func() {
			f.of(best, y[:len(x)], x)
			for i, v := range x {
				want := f.exact(float64(v))
				e := ulpError(y[i], want)
				if math.Abs(float64(y[i])-want) <= f.absolute {
					e = 0
				}
				if e > worst {
					worst, where = e, v
				}
			}
			x = x[:0]
		}
		for b := uint32(0); b < math.MaxUint32-step; b += step {
			v := math.Float32frombits(b)
			if v >= f.range32[0] && v <= f.range32[1] {
				x = append(x, v)
			}
			if len(x) == cap(x) {
				measure()
			}
		}
		measure()
		t.Logf("%s: at most %.3f units of the last place, at %v", f.name, worst, where)
		if worst > f.ulp {
			t.Errorf("%s of %v: %v units of the last place, want at most %v", f.name, where, worst, f.ulp)
		}
	}
}

func TestFunctionsOfSpecialValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	zero := float32(math.Copysign(0, -1))
	cases := []struct {
		name    string
		of      func(l level, dst, x []float32)
		x, want float32
	}{
		{"exp", level.exp, inf, inf},
		{"exp", level.exp, -inf, 0},
		{"exp", level.exp, nan, nan},
		{"exp", level.exp, 0, 1},
		{"exp", level.exp, 0x1p-149, 1},
		{"exp", level.exp, 1000, inf},
		{"exp", level.exp, -1000, 0},
		{"exp", level.exp, -103.9, 0x1p-149},
		{"log", level.log, inf, inf},
		{"log", level.log, -inf, nan},
		{"log", level.log, nan, nan},
		{"log", level.log, 0, -inf},
		{"log", level.log, zero, -inf},
		{"log", level.log, -0x1p-149, nan},
		{"log", level.log, 0x1p-149, -103.27893},
		{"log", level.log, 1, 0},
		{"tanh", level.tanh, inf, 1},
		{"tanh", level.tanh, -inf, -1},
		{"tanh", level.tanh, nan, nan},
		{"tanh", level.tanh, zero, zero},
		{"tanh", level.tanh, -0x1p-149, -0x1p-149},
		{"tanh", level.tanh, 1e30, 1},
		{"sigmoid", level.sigmoid, inf, 1},
		{"sigmoid", level.sigmoid, -inf, 0},
		{"sigmoid", level.sigmoid, nan, nan},
		{"sigmoid", level.sigmoid, zero, 0.5},
		{"softplus", level.softplus, inf, inf},
		{"softplus", level.softplus, -inf, 0},
		{"softplus", level.softplus, nan, nan},
		{"softplus", level.softplus, 1e30, 1e30},
		{"relu", level.relu, nan, nan},
		{"relu", level.relu, -inf, 0},
		{"relu", level.relu, inf, inf},
	}
	for _, l := range levels() {
		for _, c := range cases {
			got := make([]float32, 1)
			c.of(l, got, []float32{c.x})
			if pattern(got)[0] != pattern([]float32{c.want})[0] {
				t.Errorf("%v %s(%v) is %v, want %v", l, c.name, c.x, got[0], c.want)
			}
		}
	}
}

// Products of 2^23+1 and 2^23-1 put a sum so close to the middle between two
// float32 that float64 cannot tell the difference.
func TestFMARoundsOnce(t *testing.T) {
	const a, b = (1<<23 + 1) * 0x1p-35, (1<<23 - 1) * 0x1p-35 // the product is 2^-24 - 2^-70
	cases := []struct{ a, b, c, want float32 }{
		{a, b, 1, 1},
		{a, b, 1 + 0x1p-23, 1 + 0x1p-23},
		{-a, b, -1 - 0x1p-23, -1 - 0x1p-23},
		{-a, b / 2, 1 - 0x1p-24, 1 - 0x1p-24},
		{a, b / 2, -1 + 0x1p-24, -1 + 0x1p-24},
		{0x1p-12, 0x1p-12, 1, 1},
		{0x1p-12, 0x1p-12, 1 + 0x1p-23, 1 + 0x1p-22},
		{2, 3, -6, 0},
		{0x1p-75, 0x1p-75, 0, 0},
		{0x1p-75, 0x1p-75, 0x1p-149, 0x1p-148},
	}
	for _, c := range cases {
		if got := fma(c.a, c.b, c.c); got != c.want {
			t.Errorf("%v*%v + %v is %v, want %v", c.a, c.b, c.c, got, c.want)
		}
		for _, l := range levels() {
			if c.c != 0 && c.c < 0x1p-126 && c.c > 0 {
				continue // a denormal counts as 0
			}
			dst := []float32{c.c}
			if l.axpy(dst, []float32{c.a}, c.b); dst[0] != c.want {
				t.Errorf("%v: %v*%v + %v is %v, want %v", l, c.a, c.b, c.c, dst[0], c.want)
			}
		}
	}
}
