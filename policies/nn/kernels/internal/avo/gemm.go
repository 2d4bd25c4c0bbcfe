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
)

// tileRows is the most rows of a tile that is vecs vectors wide: as many sums as
// the registers hold next to the vectors of b and one value of a.
func (v *isa) tileRows(vecs int) int {
	if v.wide {
		return map[int]int{1: 8, 2: 8, 4: 4}[vecs]
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
	TEXT(name, NOSPLIT, "func(rows, k int, a *float32, aRow, aCol int, b *float32, bRow int, c *float32, cRow int, bias *float32, mode, cols int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s computes rows x %d vectors of c, of which the last has cols values.", name, vecs),
		"The distances of rows and columns are in bytes.")
	restore := flush()
	cols := GP64()
	Load(Param("cols"), cols)
	v.tail(cols)
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
	TESTQ(k, k)
	JZ(LabelRef(label("finish")))
	Label(label("k"))
	var bs []vec
	for j := range p.vecs {
		bs = append(bs, v.load(Mem{Base: b, Disp: j * v.bytes()}, j == p.vecs-1))
	}
	ADDQ(p.bRow, b)
	for r := range rows {
		if v.wide && p.vecs == 1 {
			VFMADD231PS_BCST(ar.at(r, 0), bs[0], acc[r][0])
			continue
		}
		x := v.reg()
		VBROADCASTSS(ar.at(r, 0), x)
		for j := range p.vecs {
			VFMADD231PS(bs[j], x, acc[r][j])
		}
	}
	ADDQ(p.aCol, a)
	if rows > 4 {
		ADDQ(p.aCol, ar.base4)
	}
	DECQ(k)
	JNZ(LabelRef(label("k")))

	Label(label("finish"))
	v.finish(p, acc, label)
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
