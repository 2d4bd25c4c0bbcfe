package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bits of the kernel's parameter mode; gemm.go of package kernels has them too.
const (
	modeAdd  = 1
	modeBias = 2
	modeReLU = 4
	modeFull = 8
)

// tileRows returns the most rows of a tile that is vecs vectors wide: as many sums as
// the registers hold next to the vectors of b and one value of a.
func (v *isa) tileRows(vecs int) int {
	if v.wide {
		return map[int]int{1: 8, 2: 8, 4: 6}[vecs]
	}
	return map[int]int{1: 8, 2: 6, 4: 2}[vecs]
}

// rowsOf gives the memory of up to eight rows that are stride bytes apart.
type rowsOf struct {
	base, base4     reg.Register
	stride, stride3 reg.Register
}

func newRows(base, stride reg.Register, rows int) rowsOf {
	r := rowsOf{base: base, stride: stride}
	if rows > 3 {
		three := GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
		r.stride3 = three
	}
	if rows > 4 {
		fourth := GP64()
		LEAQ(Mem{Base: base, Index: stride, Scale: 4}, fourth)
		r.base4 = fourth
	}
	return r
}

func (r rowsOf) at(row, offset int) Mem {
	base := r.base
	if row >= 4 {
		base = r.base4
	}
	m := Mem{Base: base, Disp: offset}
	switch row % 4 {
	case 1:
		m.Index, m.Scale = r.stride, 1
	case 2:
		m.Index, m.Scale = r.stride, 2
	case 3:
		m.Index, m.Scale = r.stride3, 1
	}
	return m
}

// product holds the registers of a kernel that all its tiles use.
type product struct {
	vecs             int
	rows, a, c       reg.Register
	aRow, aCol, bRow reg.Register
	cRow             reg.Register
}

// gemm writes the kernel for vecs vectors of columns and any number of rows. The
// mask is that of the last vector. Each value of c is one chain of fused
// multiplications and additions in the order of k.
func (v *isa) gemm(vecs int) {
	name := fmt.Sprintf("gemm%d%s", vecs, v.suffix())
	TEXT(name, NOSPLIT, "func(rows, k int, a *float32, aRow, aCol int, b *float32, bRow int, c *float32, cRow int, bias *float32, mode, "+
		"cols int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s computes rows x %d vectors of c, of which the last has cols values.", name, vecs),
		"The distances of rows and columns are in bytes.")
	restore := flush()
	last := GP64()
	Load(Param("cols"), last)
	v.tail(last)
	p := product{
		vecs: vecs, rows: Load(Param("rows"), GP64()), a: Load(Param("a"), GP64()), c: Load(Param("c"), GP64()),
		aRow: Load(Param("aRow"), GP64()), aCol: Load(Param("aCol"), GP64()),
		bRow: Load(Param("bRow"), GP64()), cRow: Load(Param("cRow"), GP64()),
	}
	most := v.tileRows(vecs)
	for rows := most; rows >= 1; rows-- {
		label := fmt.Sprintf("rows%d", rows)
		next := fmt.Sprintf("rows%d", rows-1)
		Label(label)
		CMPQ(p.rows, Imm(uint64(rows)))
		JLT(LabelRef(next))
		v.tile(p, rows)
		if rows == most {
			step := GP64()
			MOVQ(p.aRow, step)
			IMUL3Q(Imm(uint64(rows)), step, step)
			ADDQ(step, p.a)
			MOVQ(p.cRow, step)
			IMUL3Q(Imm(uint64(rows)), step, step)
			ADDQ(step, p.c)
			SUBQ(Imm(uint64(rows)), p.rows)
			JMP(LabelRef(label))
		} else {
			JMP(LabelRef("rows0"))
		}
	}
	Label("rows0")
	restore()
	VZEROUPPER()
	RET()
}

// tile writes a tile of rows x p.vecs vectors.
func (v *isa) tile(p product, rows int) {
	label := func(s string) string { return fmt.Sprintf("%s%d", s, rows) }
	acc := make([][]vec, rows)
	for r := range acc {
		acc[r] = make([]vec, p.vecs)
		for j := range acc[r] {
			acc[r][j] = v.reg()
		}
	}
	v.start(p, acc, label)

	a := GP64()
	MOVQ(p.a, a)
	ar := newRows(a, p.aRow, rows)
	b, k := GP64(), GP64()
	Load(Param("b"), b)
	Load(Param("k"), k)
	if rows == v.tileRows(p.vecs) || v.wide && p.vecs == 4 && rows == 4 { // 4: what is left of 64 and 256
		v.unrolled(p, acc, a, b, k, ar, label)
	}
	TESTQ(k, k)
	JZ(LabelRef(label("finish")))
	Label(label("k"))
	v.step(acc, func(j int) Mem { return Mem{Base: b, Disp: j * v.bytes()} }, func(r int) Mem { return ar.at(r, 0) }, true)
	ADDQ(p.bRow, b)
	ADDQ(p.aCol, a)
	if rows > 4 {
		ADDQ(p.aCol, ar.base4)
	}
	DECQ(k)
	JNZ(LabelRef(label("k")))

	Label(label("finish"))
	v.finish(p, acc, label)
}

// unrolling is the steps of k in one turn of the loop for full tiles. The additions that move the
// pointers compete with those of the product for the same ports.
const unrolling = 4

// unrolled writes the loops for tiles with all rows whose rows of b can be read as whole vectors:
// one loop for rows of a whose values follow each other, one for columns. It leaves the rest of k,
// or all of it.
func (v *isa) unrolled(p product, acc [][]vec, a, b, k reg.Register, ar rowsOf, label func(string) string) {
	TESTQ(U32(modeFull), mode())
	JZ(LabelRef(label("rest")))
	CMPQ(p.aCol, Imm(floatBytes))
	JE(LabelRef(label("alongRows")))
	CMPQ(p.aRow, Imm(floatBytes))
	JNE(LabelRef(label("rest")))

	at := func(i int) func(int) Mem {
		return func(j int) Mem {
			m := Mem{Base: b, Disp: j * v.bytes()}
			if i%2 == 1 {
				m.Index, m.Scale = p.bRow, 1
			}
			return m
		}
	}
	turn := func(name string, step func(i int)) {
		Label(label(name))
		SUBQ(Imm(unrolling), k)
		JLT(LabelRef(label(name + "End")))
		Label(label(name + "Turn"))
		for i := range unrolling {
			step(i)
			if i%2 == 1 {
				LEAQ(Mem{Base: b, Index: p.bRow, Scale: 2}, b)
			}
		}
		SUBQ(Imm(unrolling), k)
		JGE(LabelRef(label(name + "Turn")))
		Label(label(name + "End"))
		ADDQ(Imm(unrolling), k)
	}
	turn("alongColumns", func(i int) {
		v.step(acc, at(i), func(r int) Mem {
			m := Mem{Base: a, Disp: r * floatBytes}
			if i%2 == 1 {
				m.Index, m.Scale = p.aCol, 1
			}
			return m
		}, false)
		if i%2 == 1 {
			LEAQ(Mem{Base: a, Index: p.aCol, Scale: 2}, a)
		}
	})
	if len(acc) > 4 {
		LEAQ(Mem{Base: a, Index: p.aRow, Scale: 4}, ar.base4)
	}
	JMP(LabelRef(label("rest")))
	turn("alongRows", func(i int) {
		v.step(acc, at(i), func(r int) Mem { return ar.at(r, i*floatBytes) }, false)
		if i == unrolling-1 {
			ADDQ(Imm(unrolling*floatBytes), a)
			if len(acc) > 4 {
				ADDQ(Imm(unrolling*floatBytes), ar.base4)
			}
		}
	})
	Label(label("rest"))
}

// step writes a step of k: acc[r][j] += a(r) * b(j). A masked load needs an operation on the ports
// of the product.
func (v *isa) step(acc [][]vec, b, a func(int) Mem, masked bool) {
	var bs []vec
	for j := range acc[0] {
		bs = append(bs, v.load(b(j), masked && j == len(acc[0])-1))
	}
	for r := range acc {
		if v.wide && len(bs) == 1 {
			VFMADD231PS_BCST(a(r), bs[0], acc[r][0])
			continue
		}
		x := v.reg()
		VBROADCASTSS(a(r), x)
		for j := range bs {
			VFMADD231PS(bs[j], x, acc[r][j])
		}
	}
}

func mode() Mem {
	b, err := Param("mode").Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// start sets the sums to 0, to c, or to the bias.
func (v *isa) start(p product, acc [][]vec, label func(string) string) {
	TESTQ(U32(modeAdd), mode())
	JNZ(LabelRef(label("add")))
	TESTQ(U32(modeBias), mode())
	JNZ(LabelRef(label("bias")))
	for _, row := range acc {
		for _, x := range row {
			VXORPS(x, x, x)
		}
	}
	JMP(LabelRef(label("started")))
	Label(label("bias"))
	bias := Load(Param("bias"), GP64())
	for j := range p.vecs {
		x := v.load(Mem{Base: bias, Disp: j * v.bytes()}, j == p.vecs-1)
		for r := range acc {
			VMOVAPS(x, acc[r][j])
		}
	}
	JMP(LabelRef(label("started")))
	Label(label("add"))
	cr := newRows(p.c, p.cRow, len(acc))
	for r := range acc {
		for j := range p.vecs {
			x := v.load(cr.at(r, j*v.bytes()), j == p.vecs-1)
			VMOVAPS(x, acc[r][j])
		}
	}
	Label(label("started"))
}

// finish applies ReLU and stores the sums.
func (v *isa) finish(p product, acc [][]vec, label func(string) string) {
	TESTQ(U32(modeReLU), mode())
	JZ(LabelRef(label("store")))
	zero := v.zero()
	for _, row := range acc {
		for _, x := range row {
			VMAXPS(x, zero, x)
		}
	}
	Label(label("store"))
	cr := newRows(p.c, p.cRow, len(acc))
	for r := range acc {
		for j, x := range acc[r] {
			v.store(x, cr.at(r, j*v.bytes()), j == p.vecs-1)
		}
	}
}

// pack writes the copy of rows of up to vecs vectors to rows that follow each other.
func (v *isa) pack(vecs int) {
	name := fmt.Sprintf("pack%d%s", vecs, v.suffix())
	TEXT(name, NOSPLIT, "func(dst, src *float32, srcRow, rows, cols int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s copies rows to rows of %d vectors, of which the last takes cols values", name, vecs),
		"and becomes 0 behind them. The distance of rows is in bytes.")
	last := Load(Param("cols"), GP64()).(reg.GPVirtual)
	v.tail(last)
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	srcRow, rows := Load(Param("srcRow"), GP64()), Load(Param("rows"), GP64())
	Label("row")
	TESTQ(rows, rows)
	JZ(LabelRef("end"))
	for j := range vecs {
		at := j * v.bytes()
		v.store(v.load(Mem{Base: src, Disp: at}, j == vecs-1), Mem{Base: dst, Disp: at}, false)
	}
	ADDQ(srcRow, src)
	ADDQ(U32(vecs*v.bytes()), dst)
	DECQ(rows)
	JMP(LabelRef("row"))
	Label("end")
	VZEROUPPER()
	RET()
}

// transpose writes the transposition of eight rows of 8*n values.
func transpose() {
	TEXT("transposeAVX2", NOSPLIT, "func(dst *float32, dstRow int, src *float32, srcRow, n int)")
	Pragma("noescape")
	Doc("transposeAVX2 writes 8 rows of 8*n values of src as 8*n rows of 8 values.", "The distances of rows are in bytes.")
	dst, dstRow := Load(Param("dst"), GP64()), Load(Param("dstRow"), GP64())
	src, srcRow := Load(Param("src"), GP64()), Load(Param("srcRow"), GP64())
	n := Load(Param("n"), GP64())
	from, to := newRows(src, srcRow, 8), newRows(dst, dstRow, 8)
	Label("block")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	for half := range 2 {
		var r [4]vec
		for i := range r {
			r[i] = YMM()
			VMOVUPS(from.at(i, half*16), r[i].AsX())
			VINSERTF128(Imm(1), from.at(i+4, half*16), r[i], r[i])
		}
		low01, high01, low23, high23 := YMM(), YMM(), YMM(), YMM()
		VUNPCKLPS(r[1], r[0], low01)
		VUNPCKHPS(r[1], r[0], high01)
		VUNPCKLPS(r[3], r[2], low23)
		VUNPCKHPS(r[3], r[2], high23)
		for i, pair := range [][2]vec{{low01, low23}, {low01, low23}, {high01, high23}, {high01, high23}} {
			out := YMM()
			VSHUFPS(Imm(uint64([]int{0x44, 0xee}[i%2])), pair[1], pair[0], out)
			VMOVUPS(out, to.at(half*4+i, 0))
		}
	}
	ADDQ(Imm(32), src)
	ADDQ(Imm(32), from.base4)
	step := GP64()
	LEAQ(Mem{Base: dstRow, Index: dstRow, Scale: 1}, step)
	LEAQ(Mem{Base: dst, Index: step, Scale: 4}, dst)
	LEAQ(Mem{Base: to.base4, Index: step, Scale: 4}, to.base4)
	DECQ(n)
	JMP(LabelRef("block"))
	Label("end")
	VZEROUPPER()
	RET()
}
