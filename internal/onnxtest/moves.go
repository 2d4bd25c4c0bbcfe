package onnxtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// pick returns the tensor of a shape made of the elements of t with these indexes.
func pick(t Tensor, shape, index []int) Tensor {
	out := Tensor{Shape: shape}
	if t.Type() == Int64 {
		out.Ints = make([]int64, len(index))
		for i, k := range index {
			out.Ints[i] = t.Ints[k]
		}
		return out
	}
	out.Floats = make([]float32, len(index))
	for i, k := range index {
		out.Floats[i] = t.Floats[k]
	}
	return out
}

// vector returns the elements of an operand that must be a vector of int64.
func vector(t Tensor) ([]int, error) {
	if t.Type() != Int64 || len(t.Shape) != 1 {
		return nil, fmt.Errorf("an operand of type %d and shape %v, want a vector of int64", t.Type(), t.Shape)
	}
	out := make([]int, len(t.Ints))
	for i, v := range t.Ints {
		if v < -maxElements || v > maxElements {
			return nil, fmt.Errorf("the number %d", v)
		}
		out[i] = int(v)
	}
	return out, nil
}

func slice(_ Node, in []Tensor) (Tensor, error) {
	var numbers [3]int
	for i := range numbers {
		v, err := vector(in[i+1])
		if err != nil || len(v) != 1 {
			return Tensor{}, errors.Join(err, errors.New(shapes(in)))
		}
		numbers[i] = v[0]
	}
	from, to, axis := numbers[0], numbers[1], numbers[2]
	x := in[0]
	if axis != len(x.Shape)-1 || axis < 0 || from < 0 || to <= from || to > x.Shape[axis] {
		return Tensor{}, fmt.Errorf("elements %d to %d of axis %d of shape %v", from, to, axis, x.Shape)
	}
	width := x.Shape[axis]
	shape := slices.Clone(x.Shape)
	shape[axis] = to - from
	var index []int
	for at := range max(len(x.Floats), len(x.Ints)) {
		if k := at % width; k >= from && k < to {
			index = append(index, at)
		}
	}
	return pick(x, shape, index), nil
}

func concat(n Node, in []Tensor) (Tensor, error) {
	axis := n.Attrs["axis"].Int
	first := in[0]
	if axis < 0 || int(axis) != len(first.Shape)-1 {
		return Tensor{}, fmt.Errorf("axis %d of shape %v, want the last one", axis, first.Shape)
	}
	lead := first.Shape[:axis]
	rows, _ := elements(lead)
	out := Tensor{Shape: append(slices.Clone(lead), 0)}
	if first.Type() == Int64 {
		out.Ints = []int64{}
	}
	for _, t := range in {
		if len(t.Shape) != len(first.Shape) || !slices.Equal(t.Shape[:axis], lead) || t.Type() != first.Type() {
			return Tensor{}, errors.New(shapes(in))
		}
		out.Shape[axis] += t.Shape[axis]
	}
	if _, ok := elements(out.Shape); !ok {
		return Tensor{}, errors.New(shapes(in))
	}
	for row := range rows {
		for _, t := range in {
			w := t.Shape[axis]
			if t.Type() == Int64 {
				out.Ints = append(out.Ints, t.Ints[row*w:(row+1)*w]...)
			} else {
				out.Floats = append(out.Floats, t.Floats[row*w:(row+1)*w]...)
			}
		}
	}
	return out, nil
}

func reshape(_ Node, in []Tensor) (Tensor, error) {
	shape, err := vector(in[1])
	if err != nil {
		return Tensor{}, err
	}
	for i, d := range shape {
		if d == 0 { // as it is
			if i >= len(in[0].Shape) {
				return Tensor{}, fmt.Errorf("the shape %v for one of %v", shape, in[0].Shape)
			}
			shape[i] = in[0].Shape[i]
		}
	}
	out := in[0]
	out.Shape = shape
	if n, ok := elements(shape); !ok || n != max(len(out.Floats), len(out.Ints)) {
		return Tensor{}, fmt.Errorf("the shape %v for one of %v", shape, in[0].Shape)
	}
	return out, nil
}

func cast(n Node, in []Tensor) (Tensor, error) {
	if n.Attrs["to"].Int != Int64 || floats(in...) != nil {
		return Tensor{}, fmt.Errorf("a cast to the type %d", n.Attrs["to"].Int)
	}
	out := Tensor{Shape: in[0].Shape, Ints: make([]int64, len(in[0].Floats))}
	for i, x := range in[0].Floats {
		if !(math.Abs(float64(x)) < 1<<62) {
			return Tensor{}, fmt.Errorf("a cast of %v", x)
		}
		out.Ints[i] = int64(x)
	}
	return out, nil
}

func gather(n Node, in []Tensor) (Tensor, error) {
	table, number := in[0], in[1]
	if n.Attrs["axis"].Int != 0 || len(table.Shape) != 2 || number.Type() != Int64 || floats(table) != nil {
		return Tensor{}, errors.New(shapes(in))
	}
	count, width := table.Shape[0], table.Shape[1]
	shape := append(slices.Clone(number.Shape), width)
	if _, ok := elements(shape); !ok {
		return Tensor{}, errors.New(shapes(in))
	}
	var index []int
	for _, k := range number.Ints {
		if k < 0 || k >= int64(count) {
			return Tensor{}, fmt.Errorf("row %d of %d", k, count)
		}
		for j := range width {
			index = append(index, int(k)*width+j)
		}
	}
	return pick(table, shape, index), nil
}

func shapeOf(n Node, in []Tensor) (Tensor, error) {
	from, to := n.Attrs["start"].Int, n.Attrs["end"].Int
	if from < 0 || to < from || int(to) > len(in[0].Shape) {
		return Tensor{}, fmt.Errorf("dimensions %d to %d of shape %v", from, to, in[0].Shape)
	}
	out := Tensor{Shape: []int{int(to - from)}, Ints: []int64{}}
	for _, d := range in[0].Shape[from:to] {
		out.Ints = append(out.Ints, int64(d))
	}
	return out, nil
}

func expand(_ Node, in []Tensor) (Tensor, error) {
	to, err := vector(in[1])
	if err != nil {
		return Tensor{}, err
	}
	if slices.ContainsFunc(to, func(d int) bool { return d < 0 }) {
		return Tensor{}, fmt.Errorf("the shape %v", to)
	}
	shape, err := broadcast(in[0].Shape, to)
	if err != nil {
		return Tensor{}, err
	}
	return pick(in[0], shape, places(shape, in[0].Shape)), nil
}

func transpose(n Node, in []Tensor) (Tensor, error) {
	x, perm := in[0], n.Attrs["perm"].Ints
	order := slices.Sorted(slices.Values(perm))
	for i, p := range order {
		if int(p) != i {
			return Tensor{}, fmt.Errorf("the permutation %v", perm)
		}
	}
	if len(perm) != len(x.Shape) {
		return Tensor{}, fmt.Errorf("the permutation %v of shape %v", perm, x.Shape)
	}
	strides := make([]int, len(perm)) // of x
	stride := 1
	for i := len(perm) - 1; i >= 0; i-- {
		strides[i] = stride
		stride *= x.Shape[i]
	}
	shape := make([]int, len(perm))
	for i, p := range perm {
		shape[i] = x.Shape[p]
	}
	index := make([]int, max(len(x.Floats), len(x.Ints)))
	for flat := range index {
		rest := flat
		for i, d := range slices.Backward(shape) {
			index[flat] += rest % d * strides[perm[i]]
			rest /= d
		}
	}
	return pick(x, shape, index), nil
}
