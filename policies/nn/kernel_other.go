//go:build !amd64

package nn

func kernel(k int, a []float32, aRow, aCol int, panel []float32, panelRow int, c []float32, cRow int) {
	kernelGo(k, a, aRow, aCol, panel, panelRow, c, cRow)
}

func adamStep(weights, grad, m, v []float32, s *adamScalars) { adamGo(weights, grad, m, v, s) }
