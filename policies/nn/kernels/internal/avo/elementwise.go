package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kernel is an operation on the values of slices of one length. A slice whose
// name begins with "=" is written, one with "+" is read and written, others are
// read. body gets the vectors that are read and the scalars, and returns the
// vectors to write, each in the order of the slices.
type kernel struct {
	name    string
	slices  []string
	scalars []string
	flush   bool // denormals are taken as zero
	body    func(v *isa, x, s []vec) []vec
}

// names returns the slices without their marks.
func (k kernel) names() []string {
	var names []string
	for _, s := range k.slices {
		names = append(names, strings.TrimLeft(s, "=+"))
	}
	return names
}

// elementwise writes the kernel.
func (v *isa) elementwise(k kernel) {
	names := k.names()
	signature := "func(" + strings.Join(names, ", ") + " *float32"
	if len(k.scalars) > 0 {
		signature += ", " + strings.Join(k.scalars, ", ") + " float32"
	}
	TEXT(k.name+v.suffix(), NOSPLIT, signature+", n int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s is %sGo on n values, with %s.", k.name+v.suffix(), k.name, v.suffix()))
	var pointers []reg.Register
	for _, name := range names {
		pointers = append(pointers, Load(Param(name), GP64()))
	}
	n := GP64()
	Load(Param("n"), n)
	restore := func() {}
	if k.flush {
		restore = flush()
	}
	var scalars []vec
	for _, s := range k.scalars {
		scalars = append(scalars, v.scalar(s))
	}
	v.each("each", n, func(at reg.Register, masked bool) {
		var in []vec
		for i, s := range k.slices {
			if s[0] != '=' {
				in = append(in, v.load(Mem{Base: pointers[i], Index: at, Scale: floatBytes}, masked))
			}
		}
		out := k.body(v, in, scalars)
		for i, s := range k.slices {
			if s[0] == '=' || s[0] == '+' {
				v.store(out[0], Mem{Base: pointers[i], Index: at, Scale: floatBytes}, masked)
				out = out[1:]
			}
		}
	})
	restore()
	VZEROUPPER()
	RET()
}

// unary and binary make bodies of functions of one and of two vectors.
func unary(f func(v *isa, x vec) vec) func(*isa, []vec, []vec) []vec {
	return func(v *isa, x, _ []vec) []vec { return []vec{f(v, x[0])} }
}

func binary(f func(v *isa, a, b vec) vec) func(*isa, []vec, []vec) []vec {
	return func(v *isa, x, _ []vec) []vec { return []vec{f(v, x[0], x[1])} }
}

func ternary(f func(v *isa, a, b, c vec) vec) func(*isa, []vec, []vec) []vec {
	return func(v *isa, x, _ []vec) []vec { return []vec{f(v, x[0], x[1], x[2])} }
}

var (
	toDst   = []string{"=dst", "x"}
	toDst2  = []string{"=dst", "a", "b"}
	addDst2 = []string{"+dst", "a", "b"}
	toDX    = []string{"+dx", "dy", "y"}
	toDXofX = []string{"+dx", "dy", "x"}
)

// elementwise are the kernels.
var elementwise = []kernel{
	{name: "add", slices: toDst2, body: binary(func(v *isa, a, b vec) vec { return v.add(a, b) })},
	{name: "sub", slices: toDst2, body: binary(func(v *isa, a, b vec) vec { return v.sub(a, b) })},
	{name: "mul", slices: toDst2, body: binary(func(v *isa, a, b vec) vec { return v.mul(a, b) })},
	{name: "div", slices: toDst2, body: binary(func(v *isa, a, b vec) vec { return v.div(a, b) })},
	{name: "minimum", slices: toDst2, body: binary(func(v *isa, a, b vec) vec {
		return v.choose(v.compare(unordered, a, a), a, v.min(a, b))
	})},
	{name: "maximum", slices: toDst2, body: binary(func(v *isa, a, b vec) vec {
		return v.choose(v.compare(unordered, a, a), a, v.max(a, b))
	})},
	{name: "clamp", slices: toDst, scalars: []string{"lo", "hi"}, body: func(v *isa, x, s []vec) []vec {
		return []vec{v.max(s[0], v.min(s[1], x[0]))}
	}},
	{name: "scale", slices: toDst, scalars: []string{"alpha"}, flush: true, body: func(v *isa, x, s []vec) []vec {
		return []vec{v.mul(x[0], s[0])}
	}},
	{name: "axpy", slices: []string{"+dst", "x"}, scalars: []string{"alpha"}, flush: true, body: func(v *isa, x, s []vec) []vec {
		return []vec{v.fmac(x[0], x[1], s[0])}
	}},
	{name: "polyak", slices: []string{"+dst", "x"}, scalars: []string{"tau"}, flush: true, body: func(v *isa, x, s []vec) []vec {
		return []vec{v.fmac(x[0], v.sub(x[1], x[0]), s[0])}
	}},
	{name: "mulAdd", slices: addDst2, flush: true, body: ternary(func(v *isa, dst, a, b vec) vec { return v.fmac(dst, a, b) })},
	{name: "divAdd", slices: addDst2, flush: true, body: ternary(func(v *isa, dst, a, b vec) vec { return v.add(dst, v.div(a, b)) })},
	{name: "divSub", slices: []string{"+db", "dy", "y", "b"}, flush: true, body: func(v *isa, x, _ []vec) []vec {
		return []vec{v.fnmac(x[0], x[1], v.div(x[2], x[3]))}
	}},
	{name: "relu", slices: toDst, body: unary(func(v *isa, x vec) vec { return v.max(v.zero(), x) })},
	{name: "exp", slices: toDst, body: unary(exp)},
	{name: "log", slices: toDst, body: unary(log)},
	{name: "tanh", slices: toDst, body: unary(tanh)},
	{name: "sigmoid", slices: toDst, body: unary(sigmoid)},
	{name: "softplus", slices: toDst, body: unary(softplus)},
	{name: "reluBackward", slices: toDX, flush: true, body: ternary(func(v *isa, dx, dy, y vec) vec {
		return v.add(dx, v.keep(v.compare(greater, y, v.zero()), dy))
	})},
	{name: "tanhBackward", slices: toDX, flush: true, body: ternary(func(v *isa, dx, dy, y vec) vec {
		return v.fmac(dx, dy, v.fnmac(v.constant(num(1)), y, y))
	})},
	{name: "sigmoidBackward", slices: toDX, flush: true, body: ternary(func(v *isa, dx, dy, y vec) vec {
		return v.fmac(dx, dy, v.fnmac(y, y, y))
	})},
	{name: "softplusBackward", slices: toDXofX, flush: true, body: ternary(func(v *isa, dx, dy, x vec) vec {
		return v.fmac(dx, dy, sigmoid(v, x))
	})},
	{name: "clampBackward", slices: toDXofX, scalars: []string{"lo", "hi"}, flush: true, body: func(v *isa, x, s []vec) []vec {
		inside := v.keep(v.compare(lessEqual, s[0], x[2]), x[1])
		return []vec{v.add(x[0], v.keep(v.compare(lessEqual, x[2], s[1]), inside))}
	}},
	{name: "minBackward", slices: []string{"+da", "+db", "dy", "a", "b"}, flush: true, body: func(v *isa, x, _ []vec) []vec {
		return split(v, v.compare(lessEqual, x[3], x[4]), x)
	}},
	{name: "maxBackward", slices: []string{"+da", "+db", "dy", "a", "b"}, flush: true, body: func(v *isa, x, _ []vec) []vec {
		return split(v, v.compare(lessEqual, x[4], x[3]), x)
	}},
	{name: "reluGrad", slices: []string{"+dy", "y"}, flush: true, body: binary(func(v *isa, dy, y vec) vec {
		return v.keep(v.compare(greater, y, v.zero()), dy)
	})},
	{name: "tanhGrad", slices: []string{"+dy", "y"}, flush: true, body: binary(func(v *isa, dy, y vec) vec {
		return v.mul(dy, v.fnmac(v.constant(num(1)), y, y))
	})},
	{
		name: "adam", slices: []string{"+w", "grad", "+m", "+v"}, flush: true,
		scalars: []string{"decay1", "gain1", "decay2", "gain2", "rate", "eps", "keep"}, body: adam,
	},
}

// split adds x[2] to x[0] in the lanes of first and to x[1] elsewhere.
func split(v *isa, first reg.Register, x []vec) []vec {
	toA := v.keep(first, x[2])
	toB := v.choose(first, v.zero(), x[2])
	return []vec{v.add(x[0], toA), v.add(x[1], toB)}
}

// adam returns the step of optimiser Adam. Nothing is fused.
func adam(v *isa, x, s []vec) []vec {
	w, g, m, u := x[0], x[1], x[2], x[3]
	m = v.add(v.mul(m, s[0]), v.mul(g, s[1]))
	u = v.add(v.mul(u, s[2]), v.mul(v.mul(g, g), s[3]))
	step := v.div(v.mul(m, s[4]), v.add(v.sqrt(u), s[5]))
	return []vec{v.sub(v.mul(w, s[6]), step), m, u}
}
