package kernels

import (
	"fmt"
	"unsafe"
)

// Bits of tile.mode; the generator has them too.
const (
	modeAdd  = 1 // sums start at c
	modeBias = 2 // sums start at the bias
	modeReLU = 4 // negative sums become 0
	modeFull = 8 // rows of b can be read as whole vectors
)

const (
	blockRows = 128 // rows of b in a packed panel: the panel and the rows of a stay in the first cache
	packRows  = 16  // up to that many rows of c, packing b costs more than it saves
	packBytes = 1 << 15
	// A product of up to that many columns and more than that many rows, with a transposed, is computed
	// as its transposition: the rows of c fill vectors that its columns would leave empty.
	narrowCols, narrowRows = 4, 16
	lineBytes              = 64
	floatSize              = 4
)

// operand is a matrix with strides in values: a transposed matrix is the same
// memory with its strides swapped.
type operand struct {
	data       []float32
	rows, cols int
	row, col   int
}

// set makes o a view of m.
func (o *operand) set(m *Matrix, transposed bool) {
	o.data = m.Data
	if transposed {
		o.rows, o.cols, o.row, o.col = m.Cols, m.Rows, 1, m.Stride
		return
	}
	o.rows, o.cols, o.row, o.col = m.Rows, m.Cols, m.Stride, 1
}

// transposed returns the same memory with rows and columns swapped.
func (o *operand) transposed() operand { return operand{o.data, o.cols, o.rows, o.col, o.row} }

// product is c = a b + c, a b + bias or a b, by its mode. It is passed by
// pointer: see Matrix.check.
type product struct {
	c    Matrix
	a, b operand
	bias []float32
	mode int
}

// tile is the call of a kernel: vecs vectors of columns of c.
type tile struct {
	rows, k, vecs, cols    int
	a, b, c, bias          *float32
	aRow, aCol, bRow, cRow int
	mode                   int
}

// Gemm computes c = op(a) op(b) + beta c, where op transposes if ta or tb is
// true. With beta 0, c is not read. c must not overlap a or b.
//
// Each value of c is the sum of products in the order of the inner dimension,
// fused and rounded once a step where the processor has AVX2 or AVX-512.
// Denormals count as 0 there. Gemm panics if the dimensions do not match.
func Gemm(w *Workspace, c Matrix, beta float32, a Matrix, ta bool, b Matrix, tb bool) {
	best.gemm(w, c, beta, a, ta, b, tb)
}

func (l level) gemm(w *Workspace, c Matrix, beta float32, a Matrix, ta bool, b Matrix, tb bool) {
	a.check("Gemm", "a")
	b.check("Gemm", "b")
	c.check("Gemm", "c")
	var p product
	p.c = c
	p.a.set(&a, ta)
	p.b.set(&b, tb)
	if p.a.cols != p.b.rows || c.Rows != p.a.rows || c.Cols != p.b.cols {
		panic(fmt.Sprintf("kernels: Gemm: product of %d x %d and %d x %d into %d x %d",
			p.a.rows, p.a.cols, p.b.rows, p.b.cols, c.Rows, c.Cols))
	}
	switch beta {
	case 0:
	case 1:
		p.mode = modeAdd
	default:
		p.mode = modeAdd
		for i := range c.Rows {
			l.scale(c.Row(i), c.Row(i), beta)
		}
	}
	l.product(w, &p)
}

// product computes p, whose dimensions match.
func (l level) product(w *Workspace, p *product) {
	c, b := &p.c, &p.b
	if c.empty() {
		return
	}
	if l != plain && c.Cols <= narrowCols && c.Rows > narrowRows && b.rows > 1 && p.a.row == 1 {
		l.narrow(w, p)
		return
	}
	l.divided(w, p)
}

// divided computes p with the workers, if there are any and it is large.
func (l level) divided(w *Workspace, p *product) {
	if parts := divide(&p.c, p.b.rows, w.threads()); parts.parts() > 1 {
		w.Workers.product(l, w, p, parts)
		return
	}
	l.whole(w, p)
}

// whole computes p in this goroutine.
func (l level) whole(w *Workspace, p *product) {
	c, b := &p.c, &p.b
	if l == plain {
		productGo(p)
		return
	}
	if b.cols == 1 {
		b.col = 1 // any distance is right, and this one needs no packing
	}
	pack := b.rows > 0 && (b.col != 1 || c.Rows > packRows && b.row*min(b.rows, blockRows)*floatSize > packBytes)
	step := b.rows
	if pack || c.Rows > packRows {
		step = min(step, blockRows)
	}
	if step == b.rows {
		l.block(w, p, 0, step, p.mode, pack)
		return
	}
	for k := 0; k < b.rows; k += step {
		mode := modeAdd
		if k == 0 {
			mode = p.mode &^ modeReLU
		}
		if k+step >= b.rows {
			mode |= p.mode & modeReLU
		}
		l.block(w, p, k, min(step, b.rows-k), mode, pack)
	}
}

// narrow computes p as c' = b' a' + c': the same products, summed up in the same order.
func (l level) narrow(w *Workspace, p *product) {
	c := &p.c
	t := Matrix{c.Cols, c.Rows, c.Rows, w.columns(c.Rows * c.Cols)}
	q := product{c: t, a: p.b.transposed(), b: p.a.transposed(), mode: p.mode &^ modeBias}
	switch {
	case p.mode&modeBias != 0:
		q.mode |= modeAdd
		for j, v := range p.bias {
			fill(t.Row(j), v)
		}
	case p.mode&modeAdd != 0:
		for j := range c.Cols {
			for i, dst := 0, t.Row(j); i < len(dst); i++ {
				dst[i] = c.Data[i*c.Stride+j]
			}
		}
	}
	l.divided(w, &q)
	for j := range c.Cols {
		for i, v := range t.Row(j) {
			c.Data[i*c.Stride+j] = v
		}
	}
}

func fill(dst []float32, v float32) {
	for i := range dst {
		dst[i] = v
	}
}

// block does block steps of the inner dimension from k on.
func (l level) block(w *Workspace, p *product, k, block, mode int, pack bool) {
	c, b, lanes := &p.c, &p.b, l.lanes()
	var t tile
	t.rows, t.k, t.aRow, t.aCol, t.cRow, t.mode = c.Rows, block, p.a.row, p.a.col, c.Stride, mode
	if block > 0 {
		t.a = &p.a.data[k*p.a.col]
	}
	for j := 0; j < c.Cols; j += t.cols {
		t.vecs = l.vectors(c.Rows, c.Cols-j)
		t.cols = min(c.Cols-j, t.vecs*lanes)
		t.c = &c.Data[j]
		if mode&modeBias != 0 {
			t.bias = &p.bias[j]
		}
		switch {
		case pack:
			t.bRow = t.vecs * lanes
			panel := w.aligned(block * t.bRow)
			l.pack(panel, t.bRow, b, k, block, j, t.cols)
			t.b, t.mode = unsafe.SliceData(panel), mode|modeFull
		case block > 0:
			t.b, t.bRow, t.mode = &b.data[k*b.row+j], b.row, mode
			if t.cols == t.vecs*lanes {
				t.mode |= modeFull
			}
		}
		l.tile(&t)
	}
}

// vectors returns how many vectors wide the next tile is.
func (l level) vectors(rows, cols int) int {
	switch lanes := l.lanes(); {
	case rows <= l.wideRows() && cols > 3*lanes:
		return 4
	case cols > lanes:
		return 2
	}
	return 1
}

// columns returns n values.
func (w *Workspace) columns(n int) []float32 {
	if len(w.narrow) < n {
		w.narrow = make([]float32, n)
	}
	return w.narrow[:n]
}

// aligned returns n values that start at the beginning of a cache line.
func (w *Workspace) aligned(n int) []float32 {
	if len(w.panel) < n {
		raw := make([]float32, n+lineBytes/floatSize)
		skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % lineBytes / floatSize
		w.panel = raw[skip:]
	}
	return w.panel[:n]
}

// pack copies cols columns of b from j on, block rows from k on, to rows of width
// values.
func (l level) pack(panel []float32, width int, b *operand, k, block, j, cols int) {
	if b.col == 1 {
		l.packRows(panel, width, b.data[k*b.row+j:], b.row, block, cols)
		return
	}
	whole := block &^ 7
	q := 0
	for ; q+8 <= cols; q += 8 {
		src := b.data[(j+q)*b.col+k:]
		l.transpose(panel[q:], width, src, b.col, block/8)
		for p := whole; p < block; p++ {
			for i := range 8 {
				panel[p*width+q+i] = src[i*b.col+p]
			}
		}
	}
	for ; q < cols; q++ {
		for p, v := range b.data[(j+q)*b.col+k:][:block] {
			panel[p*width+q] = v
		}
	}
}

// productGo is the product in plain Go.
func productGo(p *product) {
	for i := range p.c.Rows {
		dst := p.c.Row(i)
		switch {
		case p.mode&modeBias != 0:
			copy(dst, p.bias)
		case p.mode&modeAdd == 0:
			clear(dst)
		}
		if p.b.col == 1 {
			addRows(dst, &p.a, &p.b, i)
		} else {
			addDots(dst, &p.a, &p.b, i)
		}
		if p.mode&modeReLU != 0 {
			reluGo(dst, dst)
		}
	}
}

// addRows adds row i of the product to dst, row after row of b.
func addRows(dst []float32, a, b *operand, i int) {
	for p := range b.rows {
		x := a.data[i*a.row+p*a.col]
		for j, v := range b.data[p*b.row:][:len(dst)] {
			dst[j] += x * v
		}
	}
}

// addDots adds row i of the product to dst, column after column of b, each of
// which is contiguous.
func addDots(dst []float32, a, b *operand, i int) {
	for j, sum := range dst {
		for p, v := range b.data[j*b.col:][:b.rows] {
			sum += a.data[i*a.row+p*a.col] * v
		}
		dst[j] = sum
	}
}
