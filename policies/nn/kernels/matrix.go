package kernels

import (
	"fmt"
	"math/bits"
	"slices"
)

// Matrix is Rows x Cols values in row-major order. Row i starts at
// Data[i*Stride]. The fields are those of gonum's blas32.General, so that each
// type converts to the other.
type Matrix struct {
	Rows, Cols int
	Stride     int // distance of rows in values, at least Cols and at least 1
	Data       []float32
}

// Row returns row i, a view.
func (m Matrix) Row(i int) []float32 {
	if m.Cols == 0 {
		return nil // Data may be empty
	}
	at := i * m.Stride
	return m.Data[at : at+m.Cols : at+m.Cols]
}

// The methods below have pointers as receivers because copies of six words cost
// more than all else in a product of a small batch.

// check panics unless the matrix is sound.
func (m *Matrix) check(op, name string) {
	if !m.sound() {
		panic(fmt.Sprintf("kernels: %s: %s is %d x %d with a stride of %d and %d values",
			op, name, m.Rows, m.Cols, m.Stride, len(m.Data)))
	}
}

// sound reports whether the dimensions make sense and the data is long enough.
func (m *Matrix) sound() bool {
	if m.Rows < 0 || m.Cols < 0 || m.Stride < max(1, m.Cols) {
		return false
	}
	if m.empty() {
		return true
	}
	// A product of 128 bits cannot overflow, and is faster than a division.
	high, last := bits.Mul64(uint64(m.Rows-1), uint64(m.Stride))
	return high == 0 && m.Cols <= len(m.Data) && last <= uint64(len(m.Data)-m.Cols)
}

// is panics unless the matrix is sound and rows x cols.
func (m *Matrix) is(op, name string, rows, cols int) {
	m.check(op, name)
	if m.Rows != rows || m.Cols != cols {
		panic(fmt.Sprintf("kernels: %s: %s is %d x %d, want %d x %d", op, name, m.Rows, m.Cols, rows, cols))
	}
}

// empty reports whether the matrix has no values.
func (m *Matrix) empty() bool { return m.Rows == 0 || m.Cols == 0 }

// dense reports whether rows follow each other without gaps.
func (m *Matrix) dense() bool { return m.Stride == m.Cols || m.Rows <= 1 }

// all returns the values of a matrix without gaps.
func (m *Matrix) all() []float32 { return m.Data[:m.Rows*m.Cols] }

// same panics unless all lengths are equal.
func same(op string, lengths ...int) {
	for _, n := range lengths[1:] {
		if n != lengths[0] {
			unequal(op, slices.Clone(lengths)) // a copy: lengths stays on the stack
		}
	}
}

func unequal(op string, lengths []int) {
	panic(fmt.Sprintf("kernels: %s: slices of different lengths: %v", op, lengths))
}

// Workspace is scratch memory, which grows to the needs of the largest product
// and is then reused. The zero value is ready. Two goroutines must not use one
// workspace at the same time.
type Workspace struct {
	// Workers take part in large products between their Start and Stop; nil: no goroutine does.
	Workers *Workers

	panel  []float32
	narrow []float32 // a product of few columns, transposed
	unit   [1]float32
	rows   []int     // of a gradient, those that are not zero
	sparse []float32 // those rows, and their product
}

// threads returns how many goroutines there are for a product.
func (w *Workspace) threads() int {
	if w.Workers == nil || w.Workers.nested == 0 {
		return 1
	}
	return 1 + len(w.Workers.loops)
}
