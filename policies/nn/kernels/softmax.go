package kernels

const (
	narrowSoftmax = 4  // columns up to which rows lie across the vectors
	softmaxBlock  = 64 // rows of a block, which stays in the first cache
)

func (l level) softmax(dst, x Matrix) {
	if x.Cols <= narrowSoftmax {
		l.softmaxNarrow(dst, x, false)
		return
	}
	l.softmaxWide(dst, x)
}

func (l level) logSoftmax(dst, x Matrix) {
	if x.Cols <= narrowSoftmax {
		l.softmaxNarrow(dst, x, true)
		return
	}
	l.logSoftmaxWide(dst, x)
}

// softmaxNarrow computes softmax or its logarithm of rows that would fill little of a vector: a vector
// has the values of one column in many rows.
func (l level) softmaxNarrow(dst, x Matrix, logarithm bool) {
	var columns [narrowSoftmax][softmaxBlock]float32
	var peaks, sums, powers [softmaxBlock]float32
	for first := 0; first < x.Rows && x.Cols > 0; first += softmaxBlock {
		n := min(softmaxBlock, x.Rows-first)
		peak, sum, power := peaks[:n], sums[:n], powers[:n]
		for j := range x.Cols {
			column := columns[j][:n]
			for i := range column {
				column[i] = x.Data[(first+i)*x.Stride+j]
			}
			if j == 0 {
				copy(peak, column)
			} else {
				l.maximum(peak, peak, column)
			}
		}
		clear(sum)
		for j := range x.Cols {
			column := columns[j][:n]
			l.sub(column, column, peak)
			l.exp(power, column)
			l.add(sum, sum, power)
			if !logarithm {
				copy(column, power)
			}
		}
		if logarithm {
			l.log(sum, sum)
		}
		for j := range x.Cols {
			column := columns[j][:n]
			if logarithm {
				l.sub(column, column, sum)
			} else {
				l.div(column, column, sum)
			}
			for i, v := range column {
				dst.Data[(first+i)*dst.Stride+j] = v
			}
		}
	}
}
