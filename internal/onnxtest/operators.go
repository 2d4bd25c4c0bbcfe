package onnxtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// operator is what is known of one.
type operator struct {
	least, most int            // operands
	attrs       map[string]int // their types
	run         func(n Node, in []Tensor) (Tensor, error)
}

// operators are those of opset 17 that are known.
var operators = map[string]operator{
	"Identity": {1, 1, nil, func(_ Node, in []Tensor) (Tensor, error) { return in[0], nil }},
	"Relu":     {1, 1, nil, unary(func(x float64) float64 { return math.Max(x, 0) })},
	"Tanh":     {1, 1, nil, unary(math.Tanh)},
	"Sigmoid":  {1, 1, nil, unary(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })},
	"Add":      {2, 2, nil, elementwise(func(x, y float64) float64 { return x + y }, func(x, y int64) int64 { return x + y })},
	"Sub":      {2, 2, nil, elementwise(func(x, y float64) float64 { return x - y }, func(x, y int64) int64 { return x - y })},
	"Mul":      {2, 2, nil, elementwise(func(x, y float64) float64 { return x * y }, func(x, y int64) int64 { return x * y })},
	"Min":      {2, 2, nil, elementwise(math.Min, func(x, y int64) int64 { return min(x, y) })},
	"Max":      {2, 2, nil, elementwise(math.Max, func(x, y int64) int64 { return max(x, y) })},

	"Gemm":               {3, 3, nil, gemm},
	"MatMul":             {2, 2, nil, matMul},
	"Conv":               {3, 3, map[string]int{"strides": 7, "kernel_shape": 7}, conv},
	"LayerNormalization": {3, 3, map[string]int{"axis": 2, "epsilon": 1}, layerNorm},
	"Softmax":            {1, 1, map[string]int{"axis": 2}, softmax},
	"Clip":               {3, 3, nil, clip},
	"ReduceMean":         {1, 1, map[string]int{"axes": 7, "keepdims": 2}, reduceMean},
	"ArgMax":             {1, 1, map[string]int{"axis": 2, "keepdims": 2}, argMax},

	"Slice":     {4, 4, nil, slice},
	"Concat":    {1, 64, map[string]int{"axis": 2}, concat},
	"Reshape":   {2, 2, nil, reshape},
	"Cast":      {1, 1, map[string]int{"to": 2}, cast},
	"Gather":    {2, 2, map[string]int{"axis": 2}, gather},
	"Shape":     {1, 1, map[string]int{"start": 2, "end": 2}, shapeOf},
	"Expand":    {2, 2, nil, expand},
	"Transpose": {1, 1, map[string]int{"perm": 7}, transpose},
}

func shapes(in []Tensor) string {
	text := "operands of shape"
	for _, t := range in {
		text += fmt.Sprint(" ", t.Shape)
	}
	return text
}

// floats reports operands that are not of float32.
func floats(in ...Tensor) error {
	for _, t := range in {
		if t.Type() != Float {
			return errors.New("an operand is not of float32")
		}
	}
	return nil
}

func unary(f func(x float64) float64) func(Node, []Tensor) (Tensor, error) {
	return func(_ Node, in []Tensor) (Tensor, error) {
		out := Tensor{Shape: in[0].Shape, Floats: make([]float32, len(in[0].Floats))}
		for i, x := range in[0].Floats {
			out.Floats[i] = float32(f(float64(x)))
		}
		return out, floats(in...)
	}
}

// broadcast returns the common shape of two, as in NumPy.
func broadcast(a, b []int) ([]int, error) {
	n := max(len(a), len(b))
	out := make([]int, n)
	for i := range out {
		x, y := 1, 1
		if k := i - (n - len(a)); k >= 0 {
			x = a[k]
		}
		if k := i - (n - len(b)); k >= 0 {
			y = b[k]
		}
		if x != y && x != 1 && y != 1 {
			return nil, fmt.Errorf("the shapes %v and %v do not fit", a, b)
		}
		out[i] = x
		if x == 1 {
			out[i] = y
		}
	}
	if _, ok := elements(out); !ok {
		return nil, fmt.Errorf("a result of shape %v is too large", out)
	}
	return out, nil
}

// places returns, for each element of the shape out, the index of the element of the shape in that is broadcast to it.
func places(out, in []int) []int {
	size, _ := elements(out)
	index := make([]int, size)
	for flat := range index {
		rest, at, stride := flat, 0, 1
		for i, d := range slices.Backward(out) {
			digit := rest % d
			rest /= d
			if k := i - (len(out) - len(in)); k >= 0 {
				if in[k] != 1 {
					at += digit * stride
				}
				stride *= in[k]
			}
		}
		index[flat] = at
	}
	return index
}

func elementwise(f func(x, y float64) float64, g func(x, y int64) int64) func(Node, []Tensor) (Tensor, error) {
	return func(_ Node, in []Tensor) (Tensor, error) {
		a, b := in[0], in[1]
		if a.Type() != b.Type() {
			return Tensor{}, errors.New("operands of two types")
		}
		shape, err := broadcast(a.Shape, b.Shape)
		if err != nil {
			return Tensor{}, err
		}
		out := Tensor{Shape: shape}
		x, y := places(shape, a.Shape), places(shape, b.Shape)
		if a.Type() == Int64 {
			out.Ints = make([]int64, len(x))
			for i := range x {
				out.Ints[i] = g(a.Ints[x[i]], b.Ints[y[i]])
			}
			return out, nil
		}
		out.Floats = make([]float32, len(x))
		for i := range x {
			out.Floats[i] = float32(f(float64(a.Floats[x[i]]), float64(b.Floats[y[i]])))
		}
		return out, nil
	}
}

func gemm(n Node, in []Tensor) (Tensor, error) {
	if len(in[0].Shape) != 2 || len(in[1].Shape) != 2 || len(in[2].Shape) != 1 {
		return Tensor{}, errors.New(shapes(in))
	}
	product, err := matMul(n, in[:2])
	if err != nil {
		return Tensor{}, err
	}
	columns, bias := product.Shape[1], in[2]
	if len(bias.Floats) != columns {
		return Tensor{}, errors.New(shapes(in))
	}
	for i := range product.Floats {
		product.Floats[i] += bias.Floats[i%columns]
	}
	return product, nil
}

func matMul(_ Node, in []Tensor) (Tensor, error) {
	a, b := in[0], in[1]
	if len(a.Shape) < 2 || len(b.Shape) != 2 || a.Shape[len(a.Shape)-1] != b.Shape[0] {
		return Tensor{}, errors.New(shapes(in))
	}
	k, columns := b.Shape[0], b.Shape[1]
	shape := append(slices.Clone(a.Shape[:len(a.Shape)-1]), columns)
	size, ok := elements(shape)
	if !ok || size > maxProducts/max(k, 1) {
		return Tensor{}, errors.New(shapes(in))
	}
	if err := floats(in...); err != nil {
		return Tensor{}, err
	}
	out := Tensor{Shape: shape, Floats: make([]float32, size)}
	for i := range out.Floats {
		row, column := i/columns, i%columns
		sum := 0.0
		for j := range k {
			sum += float64(a.Floats[row*k+j]) * float64(b.Floats[j*columns+column])
		}
		out.Floats[i] = float32(sum)
	}
	return out, nil
}

func conv(n Node, in []Tensor) (Tensor, error) {
	x, w, b := in[0], in[1], in[2]
	strides, kernel := n.Attrs["strides"].Ints, n.Attrs["kernel_shape"].Ints
	if len(x.Shape) != 4 || len(w.Shape) != 4 || len(b.Shape) != 1 || b.Shape[0] != w.Shape[0] || w.Shape[1] != x.Shape[1] ||
		w.Shape[2] > x.Shape[2] || w.Shape[3] > x.Shape[3] || len(strides) != 2 || strides[0] < 1 || strides[1] < 1 ||
		!slices.Equal(kernel, []int64{int64(w.Shape[2]), int64(w.Shape[3])}) || slices.Contains(w.Shape, 0) {
		return Tensor{}, errors.New(shapes(in))
	}
	if err := floats(in...); err != nil {
		return Tensor{}, err
	}
	across := func(size, window int, stride int64) int { return int(int64(size-window)/stride) + 1 }
	shape := []int{x.Shape[0], w.Shape[0], across(x.Shape[2], w.Shape[2], strides[0]), across(x.Shape[3], w.Shape[3], strides[1])}
	size, ok := elements(shape)
	if !ok || size > maxProducts/(w.Shape[1]*w.Shape[2]*w.Shape[3]) {
		return Tensor{}, errors.New(shapes(in))
	}
	out := Tensor{Shape: shape, Floats: make([]float32, size)}
	for i := range out.Floats {
		column, line, channel, image := i%shape[3], i/shape[3]%shape[2], i/shape[3]/shape[2]%shape[1], i/shape[3]/shape[2]/shape[1]
		sum := float64(b.Floats[channel])
		for c := range w.Shape[1] {
			for p := range w.Shape[2] {
				for q := range w.Shape[3] {
					from := ((image*x.Shape[1]+c)*x.Shape[2]+line*int(strides[0])+p)*x.Shape[3] + column*int(strides[1]) + q
					sum += float64(x.Floats[from]) * float64(w.Floats[((channel*w.Shape[1]+c)*w.Shape[2]+p)*w.Shape[3]+q])
				}
			}
		}
		out.Floats[i] = float32(sum)
	}
	return out, nil
}

// lastAxis reports an attribute axis that is not -1, and a value without rows or elements along it.
func lastAxis(n Node, x Tensor) (int, error) {
	if n.Attrs["axis"].Int != -1 || len(x.Shape) == 0 || x.Shape[len(x.Shape)-1] < 1 {
		return 0, fmt.Errorf("axis %d of shape %v, want the last one", n.Attrs["axis"].Int, x.Shape)
	}
	return x.Shape[len(x.Shape)-1], floats(x)
}

func layerNorm(n Node, in []Tensor) (Tensor, error) {
	width, err := lastAxis(n, in[0])
	if err != nil || len(in[1].Floats) != width || len(in[2].Floats) != width {
		return Tensor{}, errors.Join(err, errors.New(shapes(in)))
	}
	out := Tensor{Shape: in[0].Shape, Floats: make([]float32, len(in[0].Floats))}
	for at := 0; at < len(out.Floats); at += width {
		row := in[0].Floats[at : at+width]
		mean, variance := 0.0, 0.0
		for _, x := range row {
			mean += float64(x) / float64(width)
		}
		for _, x := range row {
			variance += (float64(x) - mean) * (float64(x) - mean) / float64(width)
		}
		for i, x := range row {
			y := (float64(x) - mean) / math.Sqrt(variance+float64(n.Attrs["epsilon"].Float))
			out.Floats[at+i] = float32(y*float64(in[1].Floats[i]) + float64(in[2].Floats[i]))
		}
	}
	return out, nil
}

func softmax(n Node, in []Tensor) (Tensor, error) {
	width, err := lastAxis(n, in[0])
	if err != nil {
		return Tensor{}, err
	}
	out := Tensor{Shape: in[0].Shape, Floats: make([]float32, len(in[0].Floats))}
	for at := 0; at < len(out.Floats); at += width {
		row := in[0].Floats[at : at+width]
		top, sum := float64(slices.Max(row)), 0.0
		for _, x := range row {
			sum += math.Exp(float64(x) - top)
		}
		for i, x := range row {
			out.Floats[at+i] = float32(math.Exp(float64(x)-top) / sum)
		}
	}
	return out, nil
}

func clip(n Node, in []Tensor) (Tensor, error) {
	if len(in[1].Shape) != 0 || len(in[2].Shape) != 0 || floats(in...) != nil {
		return Tensor{}, errors.New(shapes(in))
	}
	low, high := float64(in[1].Floats[0]), float64(in[2].Floats[0])
	return unary(func(x float64) float64 { return math.Min(math.Max(x, low), high) })(n, in[:1])
}

func reduceMean(n Node, in []Tensor) (Tensor, error) {
	x, axes := in[0], n.Attrs["axes"].Ints
	if err := floats(x); err != nil {
		return Tensor{}, err
	}
	if len(axes) != 1 || axes[0] < 0 || int(axes[0]) >= len(x.Shape) || n.Attrs["keepdims"].Int != 1 {
		return Tensor{}, fmt.Errorf("axes %v of shape %v", axes, x.Shape)
	}
	outer, _ := elements(x.Shape[:axes[0]])
	inner, _ := elements(x.Shape[axes[0]+1:])
	count := x.Shape[axes[0]]
	out := Tensor{Shape: slices.Clone(x.Shape), Floats: make([]float32, outer*inner)}
	out.Shape[axes[0]] = 1
	for i := range outer {
		for j := range inner {
			sum := 0.0
			for k := range count {
				sum += float64(x.Floats[(i*count+k)*inner+j])
			}
			out.Floats[i*inner+j] = float32(sum / float64(count))
		}
	}
	return out, nil
}

func argMax(n Node, in []Tensor) (Tensor, error) {
	width, err := lastAxis(n, in[0])
	if err != nil || n.Attrs["keepdims"].Int != 1 {
		return Tensor{}, errors.Join(err, fmt.Errorf("keepdims is %d", n.Attrs["keepdims"].Int))
	}
	out := Tensor{Shape: slices.Clone(in[0].Shape), Ints: make([]int64, 0, len(in[0].Floats)/width)}
	out.Shape[len(out.Shape)-1] = 1
	for at := 0; at < len(in[0].Floats); at += width {
		best := at
		for i := at; i < at+width; i++ {
			if in[0].Floats[i] > in[0].Floats[best] {
				best = i
			}
		}
		out.Ints = append(out.Ints, int64(best-at))
	}
	return out, nil
}
