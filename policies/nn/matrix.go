package nn

import (
	"fmt"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Matrix is Rows x Cols values in row-major order without gaps.
type Matrix struct {
	Rows, Cols int
	Data       []float32 // Rows*Cols
}

// Row returns row i, a view.
func (m Matrix) Row(i int) []float32 { return m.Data[i*m.Cols : (i+1)*m.Cols : (i+1)*m.Cols] }

// check panics unless the matrix, the input of a layer, has cols columns and its data fits.
func (m Matrix) check(cols int) {
	if m.Cols != cols || len(m.Data) != m.Rows*m.Cols {
		panic(fmt.Sprintf("nn: input of %d x %d with %d values, want %d columns", m.Rows, m.Cols, len(m.Data), cols))
	}
}

// kernel returns the matrix as an operand of the kernels.
func (m Matrix) kernel() kernels.Matrix {
	return kernels.Matrix{Rows: m.Rows, Cols: m.Cols, Stride: max(m.Cols, 1), Data: m.Data}
}
