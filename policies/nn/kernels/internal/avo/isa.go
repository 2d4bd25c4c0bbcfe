package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa writes operations on vectors of one instruction set. Methods return their
// result in a new register; avo's allocator removes the copies.
type isa struct {
	wide bool // AVX-512; otherwise AVX2 and FMA
	mask reg.Register
}

type vec = reg.VecVirtual

// konst is a constant in memory, repeated to the width of a YMM register.
type konst struct{ mem Mem }

// Predicates of VCMPPS: ordered, quiet.
const (
	equal       = 0x00
	less        = 0x11
	lessEqual   = 0x12
	greater     = 0x1e
	unordered   = 0x03
	notLess     = 0x15   // or unordered
	flushBits   = 0x8040 // flush-to-zero and denormals-are-zero in MXCSR
	floatBytes  = 4
	tableFactor = 8
)

var (
	constants = map[uint32]konst{}
	table     Mem
)

// maskTable declares eight words of ones and eight words of zeros: a load that
// starts n words before the middle gives a mask of n lanes.
func maskTable() {
	table = GLOBL("tailMask", attr.RODATA|attr.NOPTR)
	for i := range tableFactor {
		DATA(i*floatBytes, U32(math.MaxUint32))
	}
	for i := range tableFactor {
		DATA((tableFactor+i)*floatBytes, U32(0))
	}
}

// word returns the constant with the given bits.
func word(bits uint32) konst {
	if c, ok := constants[bits]; ok {
		return c
	}
	mem := GLOBL(fmt.Sprintf("const%08x", bits), attr.RODATA|attr.NOPTR)
	for i := range tableFactor {
		DATA(i*floatBytes, U32(bits))
	}
	constants[bits] = konst{mem}
	return constants[bits]
}

func num(f float64) konst { return word(math.Float32bits(float32(f))) }

func (v *isa) suffix() string {
	if v.wide {
		return "AVX512"
	}
	return "AVX2"
}

func (v *isa) lanes() int {
	if v.wide {
		return 16
	}
	return 8
}

func (v *isa) bytes() int { return v.lanes() * floatBytes }

func (v *isa) reg() vec {
	if v.wide {
		return ZMM()
	}
	return YMM()
}

// put writes an operation whose first operand is a register or a constant.
func (v *isa) put(plain, broadcast func(...Op), first any, rest ...Op) {
	c, ok := first.(konst)
	switch {
	case !ok:
		plain(append([]Op{first.(Op)}, rest...)...)
	case v.wide:
		broadcast(append([]Op{c.mem}, rest...)...)
	default:
		plain(append([]Op{c.mem}, rest...)...)
	}
}

// constant loads a constant.
func (v *isa) constant(c konst) vec {
	r := v.reg()
	if v.wide {
		VBROADCASTSS(c.mem, r)
	} else {
		VMOVUPS(c.mem, r)
	}
	return r
}

func (v *isa) copy(a vec) vec {
	r := v.reg()
	VMOVAPS(a, r)
	return r
}

func (v *isa) zero() vec {
	r := v.reg()
	VXORPS(r, r, r)
	return r
}

func (v *isa) add(a vec, b any) vec {
	r := v.reg()
	v.put(VADDPS, VADDPS_BCST, b, a, r)
	return r
}

func (v *isa) sub(a vec, b any) vec {
	r := v.reg()
	v.put(VSUBPS, VSUBPS_BCST, b, a, r)
	return r
}

func (v *isa) mul(a vec, b any) vec {
	r := v.reg()
	v.put(VMULPS, VMULPS_BCST, b, a, r)
	return r
}

func (v *isa) div(a vec, b any) vec {
	r := v.reg()
	v.put(VDIVPS, VDIVPS_BCST, b, a, r)
	return r
}

func (v *isa) sqrt(a vec) vec {
	r := v.reg()
	VSQRTPS(a, r)
	return r
}

// min returns a < b ? a : b, which is b if one of them is not a number.
func (v *isa) min(a vec, b any) vec {
	r := v.reg()
	v.put(VMINPS, VMINPS_BCST, b, a, r)
	return r
}

// max returns a > b ? a : b, which is b if one of them is not a number.
func (v *isa) max(a vec, b any) vec {
	r := v.reg()
	v.put(VMAXPS, VMAXPS_BCST, b, a, r)
	return r
}

func (v *isa) and(a vec, b any) vec {
	r := v.reg()
	v.put(VANDPS, VANDPS_BCST, b, a, r)
	return r
}

func (v *isa) or(a, b vec) vec {
	r := v.reg()
	VORPS(b, a, r)
	return r
}

// fma returns a*b + c, rounded once.
func (v *isa) fma(a, b vec, c any) vec {
	r := v.copy(a)
	v.put(VFMADD213PS, VFMADD213PS_BCST, c, b, r)
	return r
}

// fmac returns c + a*b, where b may be a constant.
func (v *isa) fmac(c, a vec, b any) vec {
	r := v.copy(c)
	v.put(VFMADD231PS, VFMADD231PS_BCST, b, a, r)
	return r
}

// fnmac returns c - a*b, where b may be a constant.
func (v *isa) fnmac(c, a vec, b any) vec {
	r := v.copy(c)
	v.put(VFNMADD231PS, VFNMADD231PS_BCST, b, a, r)
	return r
}

// compare returns the lanes in which a and b are in the relation.
func (v *isa) compare(relation int, a vec, b any) reg.Register {
	var r reg.Register
	if v.wide {
		r = K()
	} else {
		r = YMM()
	}
	pred := func(f func(...Op)) func(...Op) {
		return func(ops ...Op) { f(append([]Op{Imm(uint64(relation))}, ops...)...) }
	}
	v.put(pred(VCMPPS), pred(VCMPPS_BCST), b, a, r)
	return r
}

// choose returns yes in the lanes of m and no elsewhere.
func (v *isa) choose(m reg.Register, yes, no vec) vec {
	r := v.reg()
	if v.wide {
		VBLENDMPS(yes, no, m, r)
	} else {
		VBLENDVPS(m, yes, no, r)
	}
	return r
}

// keep returns yes in the lanes of m and 0 elsewhere.
func (v *isa) keep(m reg.Register, yes vec) vec {
	r := v.reg()
	if v.wide {
		VMOVAPS_Z(yes, m, r)
	} else {
		VANDPS(m, yes, r)
	}
	return r
}

// tail makes a mask of the first n lanes, from 1 to all, and destroys n.
func (v *isa) tail(n reg.GPVirtual) {
	if v.wide {
		ones := GP32()
		MOVL(I32(-1), ones)
		BZHIL(n.As32(), ones, ones)
		k := K()
		KMOVW(ones, k)
		v.mask = k
		return
	}
	base := GP64()
	LEAQ(table, base)
	NEGQ(n)
	m := YMM()
	VMOVUPS(Mem{Base: base, Index: n, Scale: floatBytes, Disp: tableFactor * floatBytes}, m)
	v.mask = m
}

// load reads a vector. With a mask, other lanes are 0 and their memory is not
// touched.
func (v *isa) load(m Mem, masked bool) vec {
	r := v.reg()
	switch {
	case !masked:
		VMOVUPS(m, r)
	case v.wide:
		VMOVUPS_Z(m, v.mask, r)
	default:
		VMASKMOVPS(m, v.mask, r)
	}
	return r
}

func (v *isa) store(r vec, m Mem, masked bool) {
	switch {
	case !masked:
		VMOVUPS(r, m)
	case v.wide:
		VMOVUPS(r, v.mask, m)
	default:
		VMASKMOVPS(r, v.mask, m)
	}
}

// flush makes the processor take denormals as zero until the function that it
// returns is called.
func flush() func() {
	old, now := AllocLocal(8), AllocLocal(8)
	VSTMXCSR(old)
	bits := GP32()
	MOVL(old, bits)
	ORL(U32(flushBits), bits)
	MOVL(bits, now)
	VLDMXCSR(now)
	return func() { VLDMXCSR(old) }
}

// scalar broadcasts a parameter.
func (v *isa) scalar(name string) vec {
	x := XMM()
	Load(Param(name), x)
	r := v.reg()
	VBROADCASTSS(x, r)
	return r
}

// each runs body for each vector of n values; at is the index of the first. It
// destroys n.
func (v *isa) each(label string, n reg.GPVirtual, body func(at reg.Register, masked bool)) {
	at := GP64()
	XORQ(at, at)
	Label(label + "Loop")
	CMPQ(n, Imm(uint64(v.lanes())))
	JLT(LabelRef(label + "Tail"))
	body(at, false)
	ADDQ(Imm(uint64(v.lanes())), at)
	SUBQ(Imm(uint64(v.lanes())), n)
	JMP(LabelRef(label + "Loop"))
	Label(label + "Tail")
	TESTQ(n, n)
	JZ(LabelRef(label + "Done"))
	v.tail(n)
	body(at, true)
	Label(label + "Done")
}
