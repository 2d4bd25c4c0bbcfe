package nn

// kernelGo is the kernel in plain Go, for processors without vector units that
// we know, and the oracle of those with.
func kernelGo(k int, a []float32, aRow, aCol int, panel []float32, panelRow int, c []float32, cRow int) {
	for r := range tileRows {
		dst := c[r*cRow:][:tileCols]
		for p := range k {
			x := a[r*aRow+p*aCol]
			for q, v := range panel[p*panelRow:][:tileCols] {
				dst[q] += x * v
			}
		}
	}
}
