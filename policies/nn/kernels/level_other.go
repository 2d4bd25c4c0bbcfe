//go:build !amd64

package kernels

func levels() []level { return []level{plain} }

func (level) lanes() int    { return 0 }
func (level) wideRows() int { return 0 }

// Products in plain Go need neither tiles nor packing.
func (level) tile(*tile)                                        {}
func (level) packRows([]float32, int, []float32, int, int, int) {}
func (level) transpose([]float32, int, []float32, int, int)     {}

func (level) sumSquares(x []float32) float64 { return sumSquaresGo(x) }
func (level) softmaxWide(dst, x Matrix)      { softmaxGo(dst, x) }
func (level) logSoftmaxWide(dst, x Matrix)   { logSoftmaxGo(dst, x) }
