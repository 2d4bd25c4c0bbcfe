package kernels

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// fence gives slices that end where memory ends that can be accessed, or begin
// where it begins.
type fence struct {
	t     *testing.T
	atEnd bool
}

// copy returns a copy of x beside a page without access.
func (f fence) copy(x []float32) []float32 {
	f.t.Helper()
	page := syscall.Getpagesize()
	size := (len(x)*4 + page) / page * page
	memory, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := syscall.Munmap(memory); err != nil {
			f.t.Error(err)
		}
	})
	for _, part := range [][]byte{memory[:page], memory[page+size:]} {
		if err := syscall.Mprotect(part, syscall.PROT_NONE); err != nil {
			f.t.Fatal(err)
		}
	}
	start := page
	if f.atEnd {
		start = page + size - len(x)*4
	}
	y := unsafe.Slice((*float32)(unsafe.Pointer(&memory[start])), max(1, len(x)))[:len(x):len(x)]
	if len(x) == 0 {
		return nil
	}
	copy(y, x)
	return y
}

// A kernel that reads or writes beyond a slice ends the test process here.
func TestKernelsStayInTheirSlices(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for _, atEnd := range []bool{true, false} {
		for _, l := range levels() {
			for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 33} {
				t.Run("", func(t *testing.T) { vectorsInFences(t, fence{t, atEnd}, rng, l, n) })
			}
			for range 60 {
				t.Run("", func(t *testing.T) { matricesInFences(t, fence{t, atEnd}, rng, l) })
			}
		}
	}
}

func vectorsInFences(t *testing.T, f fence, rng *rand.Rand, l level, n int) {
	t.Helper()
	for _, op := range operations() {
		var s [][]float32
		for range op.in + op.out {
			s = append(s, f.copy(draw(rng, n)))
		}
		op.run(l, s)
	}
	l.sumSquares(f.copy(draw(rng, n)))
	x := f.copy(draw(rng, n))
	l.adamStep(x, f.copy(draw(rng, n)), f.copy(draw(rng, n)), f.copy(draw(rng, n)), AdamStep{})
	m := Matrix{3, n, n + 1, f.copy(draw(rng, 3*n+2))}
	l.softmax(Matrix{3, n, n, f.copy(draw(rng, 3*n))}, m)
	l.logSoftmax(m, m)
}

func matricesInFences(t *testing.T, f fence, rng *rand.Rand, l level) {
	t.Helper()
	tight := func(rows, cols, gap int) Matrix { // ends with its last value
		return Matrix{rows, cols, cols + gap, f.copy(draw(rng, (rows-1)*(cols+gap)+cols))}
	}
	size := func() int { return 1 + rng.IntN([]int{9, 70}[rng.IntN(2)]) }
	batch, in, out, gap := size(), size(), size(), rng.IntN(3)
	var w Workspace
	x, weight, y := tight(batch, in, gap), tight(in, out, gap), tight(batch, out, gap)
	l.dense(&w, &y, &x, &weight, f.copy(draw(rng, out)), ActTanh)
	whole := func(n int) []float32 { return f.copy(draw(rng, n)) }
	l.denseRows(&w, whole(batch*out), whole(batch*in), whole(in*out), whole(out), batch, ActTanh)
	l.denseBackward(&w, tight(batch, in, gap), tight(in, out, gap), f.copy(draw(rng, out)), tight(batch, out, gap), x, y, weight, ActReLU)
	l.gemm(&w, tight(in, out, gap), 1, x, true, tight(out, batch, gap), true)
}
