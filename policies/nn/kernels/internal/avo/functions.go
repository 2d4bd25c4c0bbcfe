package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// The coefficients interpolate at Chebyshev's nodes, and the functions of
// generic_math.go say what each step does; both give the same bits.
var (
	expQ = []float64{0.5, 0.1666657702, 0.04166655465, 0.00836317418, 0.00139261775}
	logP = []float64{
		0.3333333118, -0.2499999696, 0.2000071575, -0.1666780232, 0.1424905765,
		-0.1242568733, 0.1168541992, -0.1147973385, 0.0697161147,
	}
)

const (
	ln2Hi    = 0.693115234375
	ln2Lo    = 3.19461849453e-05
	expLow   = -105
	expHigh  = 89
	signBit  = 0x80000000
	absBits  = 0x7fffffff
	one      = 0x3f800000
	rootHalf = 0x3f3504f3
	nanBits  = 0x7fc00000
)

// poly returns the polynomial with the coefficients, lowest degree first.
func poly(v *isa, x vec, coefficients []float64) vec {
	last := len(coefficients) - 1
	p := v.constant(num(coefficients[last]))
	for i := last - 1; i >= 0; i-- {
		p = v.fma(p, x, num(coefficients[i]))
	}
	return p
}

// reduce returns the whole number n nearest to x/ln 2 and exp(x - n ln 2) - 1.
func reduce(v *isa, x vec) (n, p vec) {
	n = v.reg()
	VCVTPS2DQ(v.mul(x, num(math.Log2E)), n)
	f := v.reg()
	VCVTDQ2PS(n, f)
	r := v.fnmac(v.fnmac(x, f, num(ln2Hi)), f, num(ln2Lo))
	return n, v.fmac(r, v.mul(r, r), poly(v, r, expQ))
}

// power returns 2 to the power of n.
func power(v *isa, n vec) vec {
	r := v.reg()
	VPSLLD(Imm(23), n, r)
	v.put(VPADDD, VPADDD_BCST, word(one), r, r)
	return r
}

func exp(v *isa, x vec) vec {
	x = v.max(v.constant(num(expLow)), v.min(v.constant(num(expHigh)), x))
	// Tiny arguments would make denormals on the way, which are slow.
	x = v.keep(v.compare(notLess, v.and(x, word(absBits)), num(0x1p-26)), x)
	n, p := reduce(v, x)
	half, rest := v.reg(), v.reg()
	VPSRAD(Imm(1), n, half)
	VPSUBD(half, n, rest)
	return v.mul(v.mul(v.add(p, num(1)), power(v, half)), power(v, rest))
}

// expNegAbs returns exp(-|x|).
func expNegAbs(v *isa, x vec) vec {
	r := v.reg()
	v.put(VORPS, VORPS_BCST, word(signBit), x, r)
	return exp(v, r)
}

func tanh(v *isa, x vec) vec {
	size := v.and(x, word(absBits))
	normal := v.compare(notLess, size, num(0x1p-13))
	y := v.min(v.constant(num(10)), v.keep(normal, size))
	n, p := reduce(v, v.mul(y, num(-2)))
	s := power(v, n)
	e := v.fma(p, s, v.add(s, num(-1)))
	q := v.div(e, v.add(e, num(2)))
	return v.choose(normal, v.or(v.and(q, word(absBits)), v.and(x, word(signBit))), x)
}

func sigmoid(v *isa, x vec) vec {
	e := expNegAbs(v, x)
	above := v.choose(v.compare(less, x, v.zero()), e, v.constant(num(1)))
	return v.div(above, v.add(e, num(1)))
}

// logOf returns log(1+f) + n ln 2, for 1+f from the root of 1/2 to that of 2.
func logOf(v *isa, f, n vec) vec {
	t := v.fma(poly(v, f, logP), f, num(-0.5))
	y := v.fma(v.mul(f, f), t, v.mul(n, num(ln2Lo)))
	return v.fmac(v.add(y, f), n, num(ln2Hi))
}

func log(v *isa, x vec) vec {
	denormal := v.compare(less, x, num(0x1p-126))
	y := v.choose(denormal, v.mul(x, num(0x1p23)), x)
	e, shifted, m, n := v.reg(), v.reg(), v.reg(), v.reg()
	v.put(VPSUBD, VPSUBD_BCST, word(rootHalf), y, e)
	VPSRAD(Imm(23), e, e)
	VPSLLD(Imm(23), e, shifted)
	VPSUBD(shifted, y, m)
	VCVTDQ2PS(e, n)
	n = v.sub(n, v.keep(denormal, v.constant(num(23))))
	r := logOf(v, v.sub(m, num(1)), n)
	infinity := v.constant(num(math.Inf(1)))
	r = v.choose(v.compare(less, x, infinity), r, x)
	r = v.choose(v.compare(equal, x, v.zero()), v.constant(num(math.Inf(-1))), r)
	return v.choose(v.compare(less, x, v.zero()), v.constant(word(nanBits)), r)
}

func softplus(v *isa, x vec) vec {
	e := expNegAbs(v, x)
	big := v.compare(greater, e, num(math.Sqrt2-1))
	f := v.choose(big, v.mul(v.sub(e, num(1)), num(0.5)), e)
	return v.add(v.max(v.zero(), x), logOf(v, f, v.keep(big, v.constant(num(1)))))
}
