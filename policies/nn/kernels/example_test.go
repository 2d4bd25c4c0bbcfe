package kernels_test

import (
	"fmt"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// A layer of two inputs and two outputs, forward and backward, for one row.
func ExampleDense() {
	var w kernels.Workspace
	x := kernels.Matrix{Rows: 1, Cols: 2, Stride: 2, Data: []float32{1, 2}}
	weight := kernels.Matrix{Rows: 2, Cols: 2, Stride: 2, Data: []float32{1, -1, 2, -2}}
	y := kernels.Matrix{Rows: 1, Cols: 2, Stride: 2, Data: make([]float32, 2)}
	kernels.Dense(&w, y, x, weight, []float32{0.5, 0.5}, kernels.ActReLU)
	fmt.Println(y.Data)

	dy := kernels.Matrix{Rows: 1, Cols: 2, Stride: 2, Data: []float32{1, 1}}
	dx := kernels.Matrix{Rows: 1, Cols: 2, Stride: 2, Data: make([]float32, 2)}
	dweight := kernels.Matrix{Rows: 2, Cols: 2, Stride: 2, Data: make([]float32, 4)}
	dbias := make([]float32, 2)
	kernels.DenseBackward(&w, dx, dweight, dbias, dy, x, y, weight, kernels.ActReLU)
	fmt.Println(dx.Data, dweight.Data, dbias)
	// Output:
	// [5.5 0]
	// [1 2] [1 0 2 0] [1 0]
}

// The same layer for one row, as a policy acts on it.
func ExampleDenseRows() {
	var w kernels.Workspace
	y := make([]float32, 2)
	kernels.DenseRows(&w, y, []float32{1, 2}, []float32{1, -1, 2, -2}, []float32{0.5, 0.5}, 1, kernels.ActReLU)
	fmt.Println(y)
	// Output: [5.5 0]
}

// The transposition of a matrix costs no copy by the caller.
func ExampleGemm() {
	var w kernels.Workspace
	a := kernels.Matrix{Rows: 2, Cols: 1, Stride: 1, Data: []float32{1, 2}}
	c := kernels.Matrix{Rows: 1, Cols: 1, Stride: 1, Data: []float32{10}}
	kernels.Gemm(&w, c, 1, a, true, a, false)
	fmt.Println(c.Data)
	// Output: [15]
}

// The greatest of three values gets most of the probability.
func ExampleSoftmax() {
	x := kernels.Matrix{Rows: 1, Cols: 3, Stride: 3, Data: []float32{0, 1, 3}}
	kernels.Softmax(x, x)
	fmt.Printf("%.3f\n", x.Data)
	// Output: [0.042 0.114 0.844]
}

// The first step of Adam moves each weight by the learning rate.
func ExampleAdam() {
	weights, grad := []float32{1, 1}, []float32{0.5, -8}
	m, v := make([]float32, 2), make([]float32, 2)
	kernels.Adam(weights, grad, m, v, kernels.AdamStep{
		Decay1: 0.5, Gain1: 0.5, Decay2: 0.75, Gain2: 0.25,
		Rate: 0.25 * 0.5 / 0.5, // rate * sqrt(1-0.75) / (1-0.5)
	})
	fmt.Println(weights)
	// Output: [0.75 1.25]
}

func ExamplePolyak() {
	target, online := []float32{0, 8}, []float32{4, 4}
	kernels.Polyak(target, online, 0.25)
	fmt.Println(target)
	// Output: [1 7]
}
