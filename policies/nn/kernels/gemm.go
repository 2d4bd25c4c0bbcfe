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
)

const (
	blockRows = 256 // rows of b in a packed panel: the panel stays in the first cache
	packRows  = 16  // up to so many rows of c, packing b costs more than it saves
	packBytes = 1 << 15
	lineBytes = 64
	floatSize = 4
)

// operand is a matrix with strides in values: a transposed matrix is the same
// memory with its strides swapped.
type operand struct {
	data       []float32
	rows, cols int
	row, col   int
}

func (m Matrix) operand(transposed bool) operand {
	if transposed {
		return operand{m.Data, m.Cols, m.Rows, 1, m.Stride}
	}
	return operand{m.Data, m.Rows, m.Cols, m.Stride, 1}
}

// tile is the call of a kernel: vecs vectors of columns of c.
type tile struct {
	rows, k, vecs, cols    int
	a, b, c, bias          []float32
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
	x, y := a.operand(ta), b.operand(tb)
	if x.cols != y.rows || c.Rows != x.rows || c.Cols != y.cols {
		panic(fmt.Sprintf("kernels: Gemm: product of %d x %d and %d x %d into %d x %d",
			x.rows, x.cols, y.rows, y.cols, c.Rows, c.Cols))
	}
	mode := modeAdd
	switch beta {
	case 0:
		mode = 0
	case 1:
	default:
		for i := range c.Rows {
			l.scale(c.Row(i), c.Row(i), beta)
		}
	}
	l.product(w, c, x, y, nil, mode)
}

// product computes c from the product of a and b, which match.
func (l level) product(w *Workspace, c Matrix, a, b operand, bias []float32, mode int) {
	if c.empty() {
		return
	}
	if l == plain {
		productGo(c, a, b, bias, mode)
		return
	}
	if b.cols == 1 {
		b.col = 1 // any distance is right, and this one needs no packing
	}
	pack := b.col != 1 || c.Rows > packRows && b.row*min(b.rows, blockRows)*floatSize > packBytes
	step := b.rows
	if pack || c.Rows > packRows {
		step = min(step, blockRows)
	}
	relu := mode & modeReLU
	for k := 0; k < b.rows || k == 0; k += step {
		block := min(step, b.rows-k)
		m := mode &^ modeReLU
		if k > 0 {
			m = modeAdd
		}
		if k+block == b.rows {
			m |= relu
		}
		l.block(w, c, a, b, bias, k, block, m, pack)
		if step == 0 {
			return
		}
	}
}

// block does block steps of the inner dimension from k on.
func (l level) block(w *Workspace, c Matrix, a, b operand, bias []float32, k, block, mode int, pack bool) {
	lanes := l.lanes()
	t := tile{rows: c.Rows, k: block, aRow: a.row, aCol: a.col, cRow: c.Stride, mode: mode}
	if block > 0 {
		t.a = a.data[k*a.col:]
	}
	for j := 0; j < c.Cols; j += t.cols {
		t.vecs = l.vectors(c.Rows, c.Cols-j)
		t.cols = min(c.Cols-j, t.vecs*lanes)
		t.c = c.Data[j:]
		if mode&modeBias != 0 {
			t.bias = bias[j:]
		}
		switch {
		case pack:
			t.bRow = t.vecs * lanes
			t.b = w.aligned(block * t.bRow)
			l.pack(t.b, t.bRow, b, k, block, j, t.cols)
		case block > 0:
			t.b, t.bRow = b.data[k*b.row+j:], b.row
		}
		l.tile(&t)
	}
}

// vectors returns how many vectors wide the next tile is.
func (l level) vectors(rows, cols int) int {
	need := (cols + l.lanes() - 1) / l.lanes()
	switch {
	case need >= 4 && rows <= l.wideRows():
		return 4
	case need >= 2:
		return 2
	}
	return 1
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
func (l level) pack(panel []float32, width int, b operand, k, block, j, cols int) {
	if b.col == 1 {
		for p := range block {
			copy(panel[p*width:p*width+cols], b.data[(k+p)*b.row+j:])
		}
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
func productGo(c Matrix, a, b operand, bias []float32, mode int) {
	for i := range c.Rows {
		dst := c.Row(i)
		switch {
		case mode&modeBias != 0:
			copy(dst, bias)
		case mode&modeAdd == 0:
			clear(dst)
		}
		for p := range b.rows {
			x := a.data[i*a.row+p*a.col]
			if b.col == 1 {
				for j, v := range b.data[p*b.row:][:len(dst)] {
					dst[j] += x * v
				}
				continue
			}
			for j := range dst {
				dst[j] += x * b.data[p*b.row+j*b.col]
			}
		}
		if mode&modeReLU != 0 {
			reluGo(dst, dst)
		}
	}
}
