package nn

import "fmt"

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

// view is a matrix operand with strides, in elements: a transposed matrix is
// the same memory with its strides swapped.
type view struct {
	data       []float32
	rows, cols int
	row, col   int
}

func (m Matrix) view() view { return view{m.Data, m.Rows, m.Cols, m.Cols, 1} }

func (v view) transposed() view { return view{v.data, v.cols, v.rows, v.col, v.row} }

// The kernel computes tiles of tileRows x tileCols.
const (
	tileRows = 4
	tileCols = 16
)

// workspace is the scratch memory of a product.
type workspace struct {
	panel []float32
	tile  [tileRows * tileCols]float32
}

// packRows is the number of rows of c up to which packing b costs more than it
// saves.
const packRows = 16

// mulAdd adds the product of a and b to c. The columns of b are packed in
// panels of tileCols, which makes the kernel read memory in order whatever the
// strides of b are, and gives the last columns the same code as all others.
// Where few rows would use a panel, b is read where it is.
func (w *workspace) mulAdd(c Matrix, a, b view) {
	k := a.cols
	if k != b.rows || c.Rows != a.rows || c.Cols != b.cols {
		panic(fmt.Sprintf("nn: product of %d x %d and %d x %d into %d x %d", a.rows, a.cols, b.rows, b.cols, c.Rows, c.Cols))
	}
	if k == 0 { // the kernel does at least one step
		return
	}
	if cap(w.panel) < k*tileCols {
		w.panel = make([]float32, k*tileCols)
	}
	w.panel = w.panel[:k*tileCols]
	for j := 0; j < c.Cols; j += tileCols {
		cols := min(tileCols, c.Cols-j)
		panel, row := w.panel, tileCols
		if cols == tileCols && b.col == 1 && c.Rows <= packRows {
			panel, row = b.data[j:], b.row
		} else {
			w.pack(b, j, cols)
		}
		i := 0
		if cols == tileCols {
			for ; i+tileRows <= c.Rows; i += tileRows {
				kernel(k, a.data[i*a.row:], a.row, a.col, panel, row, c.Data[i*c.Cols+j:], c.Cols)
			}
		}
		for ; i < c.Rows; i += tileRows {
			w.edge(c, a, panel, row, i, j, min(tileRows, c.Rows-i), cols)
		}
	}
}

// pack copies cols columns of b from j on to the panel and fills up with zeros.
func (w *workspace) pack(b view, j, cols int) {
	if b.col == 1 && cols == tileCols {
		for p := range b.rows {
			copy(w.panel[p*tileCols:(p+1)*tileCols], b.data[p*b.row+j:])
		}
		return
	}
	clear(w.panel)
	for q := range cols {
		src := b.data[(j+q)*b.col:]
		for p := range b.rows {
			w.panel[p*tileCols+q] = src[p*b.row]
		}
	}
}

// edge computes a tile of which only rows x cols are inside of c.
func (w *workspace) edge(c Matrix, a view, panel []float32, row, i, j, rows, cols int) {
	clear(w.tile[:])
	if rows == tileRows {
		kernel(a.cols, a.data[i*a.row:], a.row, a.col, panel, row, w.tile[:], tileCols)
	} else {
		for r := range rows {
			// A row stride of 0 computes one row four times: still faster than
			// a loop of single multiplications.
			var quad [tileRows * tileCols]float32
			kernel(a.cols, a.data[(i+r)*a.row:], 0, a.col, panel, row, quad[:], tileCols)
			copy(w.tile[r*tileCols:(r+1)*tileCols], quad[:tileCols])
		}
	}
	for r := range rows {
		dst := c.Data[(i+r)*c.Cols+j:][:cols]
		for q, v := range w.tile[r*tileCols:][:cols] {
			dst[q] += v
		}
	}
}
