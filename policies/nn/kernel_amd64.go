package nn

import "golang.org/x/sys/cpu"

// vector says whether this processor runs the vector kernels.
var vector = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// kernel adds to a 4 x 16 tile of c the product of four rows of a, k long with
// the given strides, and the panel, k x 16. Strides are in elements.
func kernel(k int, a []float32, aRow, aCol int, panel []float32, panelRow int, c []float32, cRow int) {
	if !vector {
		kernelGo(k, a, aRow, aCol, panel, panelRow, c, cRow)
		return
	}
	// The last elements that the assembly touches; an index out of range
	// panics here instead of there.
	_ = a[3*aRow+(k-1)*aCol]
	_ = panel[(k-1)*panelRow+tileCols-1]
	_ = c[3*cRow+tileCols-1]
	kernelAVX2(k, &a[0], aRow, aCol, &panel[0], panelRow, &c[0], cRow)
}

//go:noescape
func kernelAVX2(k int, a *float32, aRow, aCol int, panel *float32, panelRow int, c *float32, cRow int)

// adamStep is adamGo with vectors where the processor has them.
func adamStep(weights, grad, m, v []float32, s *adamScalars) {
	n := 0
	if vector && len(weights) >= 8 {
		n = len(weights) &^ 7
		_, _, _ = grad[n-1], m[n-1], v[n-1]
		adamAVX2(n, &weights[0], &grad[0], &m[0], &v[0], s)
	}
	adamGo(weights[n:], grad[n:], m[n:], v[n:], s)
}

//go:noescape
func adamAVX2(n int, weights, grad, m, v *float32, s *adamScalars)
