package kernels

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:generate go -C internal/avo run . -out ../../kernels_amd64.s -stubs ../../stubs_amd64.go -pkg kernels -dispatch ../..

// levels returns the levels that this processor can run, the fastest first.
func levels() []level {
	x := cpu.X86
	switch has2 := x.HasAVX2 && x.HasFMA; {
	case has2 && x.HasBMI2 && x.HasAVX512F && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512BW:
		return []level{avx512, avx2, plain}
	case has2:
		return []level{avx2, plain}
	}
	return []level{plain}
}

// lanes returns the values of a vector, and 0 for plain Go.
func (l level) lanes() int {
	switch l {
	case avx512:
		return 16
	case avx2:
		return 8
	}
	return 0
}

// wideRows returns up to how many rows a product uses tiles of four vectors: with the 32 registers
// of AVX-512 they need the fewest loads for any number of rows.
func (l level) wideRows() int {
	if l == avx512 {
		return math.MaxInt
	}
	return 2
}

// tile runs a kernel. It computes vecs vectors of columns, cols values, of all
// rows of c, from the rows of a and the k rows of b.
func (l level) tile(t *tile) {
	const size = 4
	a, b, c, bias := t.a, t.b, t.c, t.bias
	last := t.cols - (t.vecs-1)*l.lanes()
	aRow, aCol, bRow, cRow := t.aRow*size, t.aCol*size, t.bRow*size, t.cRow*size
	switch {
	case l == avx512 && t.vecs == 1:
		gemm1AVX512(t.rows, t.k, a, aRow, aCol, b, bRow, c, cRow, bias, t.mode, last)
	case l == avx512 && t.vecs == 2:
		gemm2AVX512(t.rows, t.k, a, aRow, aCol, b, bRow, c, cRow, bias, t.mode, last)
	case l == avx512:
		gemm4AVX512(t.rows, t.k, a, aRow, aCol, b, bRow, c, cRow, bias, t.mode, last)
	case t.vecs == 1:
		gemm1AVX2(t.rows, t.k, a, aRow, aCol, b, bRow, c, cRow, bias, t.mode, last)
	case t.vecs == 2:
		gemm2AVX2(t.rows, t.k, a, aRow, aCol, b, bRow, c, cRow, bias, t.mode, last)
	default:
		gemm4AVX2(t.rows, t.k, a, aRow, aCol, b, bRow, c, cRow, bias, t.mode, last)
	}
}

// packRows copies rows of cols values to rows of width values.
func (l level) packRows(dst []float32, width int, src []float32, srcRow, rows, cols int) {
	vecs := width / l.lanes()
	last := cols - (vecs-1)*l.lanes()
	_, _ = dst[rows*width-1], src[(rows-1)*srcRow+cols-1]
	switch {
	case l == avx512 && vecs == 1:
		pack1AVX512(&dst[0], &src[0], srcRow*4, rows, last)
	case l == avx512 && vecs == 4:
		pack4AVX512(&dst[0], &src[0], srcRow*4, rows, last)
	case l == avx512:
		pack2AVX512(&dst[0], &src[0], srcRow*4, rows, last)
	case vecs == 1:
		pack1AVX2(&dst[0], &src[0], srcRow*4, rows, last)
	default:
		pack2AVX2(&dst[0], &src[0], srcRow*4, rows, last)
	}
}

// transpose writes 8 rows of 8*n values as 8*n rows of 8 values.
func (level) transpose(dst []float32, dstRow int, src []float32, srcRow, n int) {
	if n > 0 {
		_, _ = dst[(8*n-1)*dstRow+7], src[7*srcRow+8*n-1]
		transposeAVX2(&dst[0], dstRow*4, &src[0], srcRow*4, n)
	}
}

func (l level) sumSquares(x []float32) float64 {
	switch l {
	case avx512:
		return sumSquaresAVX512(unsafe.SliceData(x), len(x))
	case avx2:
		return sumSquaresAVX2(unsafe.SliceData(x), len(x))
	}
	return sumSquaresGo(x)
}

func (l level) softmaxWide(dst, x Matrix) {
	d, s := unsafe.SliceData(dst.Data), unsafe.SliceData(x.Data)
	switch l {
	case avx512:
		softmaxAVX512(d, dst.Stride*4, s, x.Stride*4, x.Rows, x.Cols)
	case avx2:
		softmaxAVX2(d, dst.Stride*4, s, x.Stride*4, x.Rows, x.Cols)
	default:
		softmaxGo(dst, x)
	}
}

func (l level) logSoftmaxWide(dst, x Matrix) {
	d, s := unsafe.SliceData(dst.Data), unsafe.SliceData(x.Data)
	switch l {
	case avx512:
		logSoftmaxAVX512(d, dst.Stride*4, s, x.Stride*4, x.Rows, x.Cols)
	case avx2:
		logSoftmaxAVX2(d, dst.Stride*4, s, x.Stride*4, x.Rows, x.Cols)
	default:
		logSoftmaxGo(dst, x)
	}
}
