package kernels

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// exported returns the functions that give the operations their names.
func exported() map[string]func(s [][]float32) {
	one := func(f func(dst, x []float32)) func([][]float32) {
		return func(s [][]float32) { f(s[0], s[1]) }
	}
	two := func(f func(dst, a, b []float32)) func([][]float32) {
		return func(s [][]float32) { f(s[0], s[1], s[2]) }
	}
	return map[string]func(s [][]float32){
		"add": two(Add), "sub": two(Sub), "mul": two(Mul), "div": two(Div), "min": two(Min), "max": two(Max),
		"mulAdd": two(MulAdd), "divAdd": two(DivAdd), "reluBackward": two(ReLUBackward), "tanhBackward": two(TanhBackward),
		"sigmoidBackward": two(SigmoidBackward), "softplusBackward": two(SoftplusBackward),
		"relu": one(ReLU), "exp": one(Exp), "log": one(Log), "tanh": one(Tanh), "sigmoid": one(Sigmoid), "softplus": one(Softplus),
		"clamp":         func(s [][]float32) { Clamp(s[0], s[1], -0.5, 0.25) },
		"scale":         func(s [][]float32) { Scale(s[0], s[1], 0.75) },
		"axpy":          func(s [][]float32) { Axpy(s[0], s[1], 0.75) },
		"polyak":        func(s [][]float32) { Polyak(s[0], s[1], 0.125) },
		"divSub":        func(s [][]float32) { DivBackward(s[0], s[1], s[2], s[3]) },
		"clampBackward": func(s [][]float32) { ClampBackward(s[0], s[1], s[2], -0.5, 0.25) },
		"minBackward":   func(s [][]float32) { MinBackward(s[0], s[1], s[2], s[3], s[4]) },
		"maxBackward":   func(s [][]float32) { MaxBackward(s[0], s[1], s[2], s[3], s[4]) },
	}
}

func TestExportedFunctionsRunTheirKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	functions := exported()
	for _, op := range operations() {
		f, ok := functions[op.name]
		if !ok {
			if op.name != "reluGrad" && op.name != "tanhGrad" { // parts of DenseBackward
				t.Errorf("no function for %s", op.name)
			}
			continue
		}
		var before [][]float32
		for range op.out + op.in {
			before = append(before, draw(rng, 20))
		}
		want := runOn(best, op, before)
		f(before)
		for i := range want {
			if !slices.Equal(pattern(before[i]), pattern(want[i])) {
				t.Errorf("%s: slice %d differs", op.name, i)
			}
		}
	}
}

func TestExportedMatrixFunctionsRunTheirKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	x := drawMatrix(rng, 3, 5, 1)
	soft, logs, wantSoft, wantLogs := clone(x), clone(x), clone(x), clone(x)
	Softmax(soft, x)
	LogSoftmax(logs, x)
	best.softmax(wantSoft, x)
	best.logSoftmax(wantLogs, x)
	if !slices.Equal(pattern(soft.Data), pattern(wantSoft.Data)) || !slices.Equal(pattern(logs.Data), pattern(wantLogs.Data)) {
		t.Error("Softmax or LogSoftmax differs from its kernel")
	}
	if got, want := SumSquares(x.Data), best.sumSquares(x.Data); got != want {
		t.Errorf("SumSquares is %v, want %v", got, want)
	}
}

func TestDestinationMayBeAnOperand(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 3))
	for _, op := range operations() {
		if op.out > 1 {
			continue
		}
		for _, l := range levels() {
			before := [][]float32{draw(rng, 37)}
			for range op.in {
				before = append(before, before[0])
			}
			want := runOn(plain, op, before) // on copies
			got := slices.Clone(before[0])
			s := make([][]float32, 1+op.in)
			for i := range s {
				s[i] = got
			}
			op.run(l, s)
			if !slices.Equal(pattern(got), pattern(want[0])) {
				t.Errorf("%v %s: other values in place", l, op.name)
			}
		}
	}
}
