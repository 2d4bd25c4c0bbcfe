package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Sums have 16 chains whatever the width of a vector, and their order is fixed,
// so that all instruction sets give the same bits: value i goes to chain i%16,
// then the upper half of the chains is added to the lower half until one is
// left. With 8 lanes, two registers take turns.

func swap(a, b vec) {
	t := YMM()
	VMOVAPS(a, t)
	VMOVAPS(b, a)
	VMOVAPS(t, b)
}

// fold combines the lanes of a (and of b, with 8 lanes) into the lowest one.
func (v *isa) fold(f func(...Op), a, b vec) reg.Register {
	low := YMM()
	if v.wide {
		high := YMM()
		VEXTRACTF64X4(Imm(1), a, high)
		f(high, a.AsY(), low)
	} else {
		f(b, a, low)
	}
	x, t := low.AsX(), XMM()
	VEXTRACTF128(Imm(1), low, t)
	f(t, x, x)
	VPERMILPS(Imm(0x0e), x, t)
	f(t, x, x)
	VPERMILPS(Imm(0x01), x, t)
	f(t, x, x)
	return x
}

// accumulator returns one or two registers of zeros.
func (v *isa) accumulator() (a, b vec) {
	a = v.zero()
	if !v.wide {
		b = v.zero()
	}
	return a, b
}

// collect adds x to the accumulator.
func (v *isa) collect(a, b, x vec) {
	VADDPS(x, a, a)
	if !v.wide {
		swap(a, b)
	}
}

func (v *isa) broadcast(x reg.Register) vec {
	r := v.reg()
	VBROADCASTSS(x, r)
	return r
}

// sumSquares writes the sum of squares in float64.
func (v *isa) sumSquares() {
	name := "sumSquares" + v.suffix()
	TEXT(name, NOSPLIT, "func(x *float32, n int) float64")
	Pragma("noescape")
	Doc(name + " is sumSquaresGo, with " + v.suffix() + ".")
	p := Load(Param("x"), GP64())
	n := GP64()
	Load(Param("n"), n)
	acc := []vec{v.zero(), v.zero()}
	if !v.wide {
		acc = append(acc, v.zero(), v.zero())
	}
	v.each("sum", n, func(at reg.Register, masked bool) {
		x := v.load(Mem{Base: p, Index: at, Scale: floatBytes}, masked)
		low, high := v.reg(), v.reg()
		if v.wide {
			t := YMM()
			VCVTPS2PD(x.AsY(), low)
			VEXTRACTF64X4(Imm(1), x, t)
			VCVTPS2PD(t, high)
		} else {
			t := XMM()
			VCVTPS2PD(x.AsX(), low)
			VEXTRACTF128(Imm(1), x, t)
			VCVTPS2PD(t, high)
		}
		VFMADD231PD(low, low, acc[0])
		VFMADD231PD(high, high, acc[1])
		if !v.wide {
			swap(acc[0], acc[2])
			swap(acc[1], acc[3])
		}
	})
	y := YMM()
	if v.wide {
		VADDPD(acc[1], acc[0], acc[0])
		t := YMM()
		VEXTRACTF64X4(Imm(1), acc[0], t)
		VADDPD(t, acc[0].AsY(), y)
	} else {
		VADDPD(acc[2], acc[0], acc[0])
		VADDPD(acc[3], acc[1], acc[1])
		VADDPD(acc[1], acc[0], y)
	}
	x, t := y.AsX(), XMM()
	VEXTRACTF128(Imm(1), y, t)
	VADDPD(t, x, x)
	VPERMILPD(Imm(1), x, t)
	VADDSD(t, x, x)
	Store(x, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// softmax writes softmax or its logarithm for each row of a matrix.
func (v *isa) softmax(base string, logarithm bool) {
	name := base + v.suffix()
	TEXT(name, NOSPLIT, "func(dst *float32, dstRow int, x *float32, xRow int, rows, cols int)")
	Pragma("noescape")
	Doc(name + " is " + base + "Go, with " + v.suffix() + ". The distances of rows are in bytes.")
	dst, x := Load(Param("dst"), GP64()), Load(Param("x"), GP64())
	rows, cols := GP64(), GP64()
	Load(Param("rows"), rows)
	Load(Param("cols"), cols)
	from := func(at reg.Register) Mem { return Mem{Base: x, Index: at, Scale: floatBytes} }
	to := func(at reg.Register) Mem { return Mem{Base: dst, Index: at, Scale: floatBytes} }

	Label("row")
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	CMPQ(cols, Imm(uint64(v.lanes())))
	JG(LabelRef("long"))
	v.softmaxShort(cols, from, to, logarithm)
	JMP(LabelRef("next"))

	Label("long")
	v.softmaxLong(cols, from, to, logarithm)
	Label("next")
	dstRow, xRow := Param("dstRow"), Param("xRow")
	step := GP64()
	ADDQ(Load(dstRow, step), dst)
	ADDQ(Load(xRow, step), x)
	DECQ(rows)
	JMP(LabelRef("row"))
	Label("end")
	VZEROUPPER()
	RET()
}

// softmaxShort does a row that one vector holds.
func (v *isa) softmaxShort(cols reg.GPVirtual, from, to func(reg.Register) Mem, logarithm bool) {
	n, at := GP64(), GP64()
	MOVQ(cols, n)
	v.tail(n)
	XORQ(at, at)
	x := v.load(from(at), true)
	low := v.choose(v.mask, x, v.constant(num(math.Inf(-1))))
	x = v.sub(x, v.broadcast(v.fold(VMAXPS, low, low)))
	e := v.keep(v.mask, exp(v, x))
	sum := v.broadcast(v.fold(VADDPS, e, v.zero()))
	if logarithm {
		v.store(v.sub(x, log(v, sum)), to(at), true)
	} else {
		v.store(v.div(e, sum), to(at), true)
	}
}

// softmaxLong does a row of any length, in three passes.
func (v *isa) softmaxLong(cols reg.GPVirtual, from, to func(reg.Register) Mem, logarithm bool) {
	n := GP64()
	top := v.constant(num(math.Inf(-1)))
	MOVQ(cols, n)
	v.each("max", n, func(at reg.Register, masked bool) {
		value := v.load(from(at), masked)
		if masked {
			value = v.choose(v.mask, value, v.constant(num(math.Inf(-1))))
		}
		VMAXPS(top, value, top)
	})
	peak := v.broadcast(v.fold(VMAXPS, top, top))

	a, b := v.accumulator()
	MOVQ(cols, n)
	v.each("exp", n, func(at reg.Register, masked bool) {
		e := exp(v, v.sub(v.load(from(at), masked), peak))
		if !logarithm {
			v.store(e, to(at), masked)
		}
		if masked {
			e = v.keep(v.mask, e)
		}
		v.collect(a, b, e)
	})
	sum := v.broadcast(v.fold(VADDPS, a, b))
	if logarithm {
		sum = log(v, sum)
	}

	MOVQ(cols, n)
	v.each("out", n, func(at reg.Register, masked bool) {
		if logarithm {
			v.store(v.sub(v.sub(v.load(from(at), masked), peak), sum), to(at), masked)
		} else {
			v.store(v.div(v.load(to(at), masked), sum), to(at), masked)
		}
	})
}
