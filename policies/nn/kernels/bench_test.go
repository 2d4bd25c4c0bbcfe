package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/nn/kernels"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

func matrix(rng *rand.Rand, rows, cols int) kernels.Matrix {
	m := kernels.Matrix{Rows: rows, Cols: cols, Stride: cols, Data: make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64()) * 0.1
	}
	return m
}

func speed(b *testing.B, flops int) {
	b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
}

func BenchmarkGemm(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{64, 128, 256, 512} {
		size := fmt.Sprintf("%dx%dx%d", n, n, n)
		x, y, z := matrix(rng, n, n), matrix(rng, n, n), matrix(rng, n, n)
		for form, name := range []string{"nn", "tn", "nt"} {
			b.Run(size+"/"+name, func(b *testing.B) {
				var w kernels.Workspace
				b.ReportAllocs()
				for b.Loop() {
					kernels.Gemm(&w, z, 0, x, form == 1, y, form == 2)
				}
				speed(b, 2*n*n*n)
			})
		}
		b.Run(size+"/gonum", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, blas32.General(x), blas32.General(y), 0, blas32.General(z))
			}
			speed(b, 2*n*n*n)
		})
	}
}

// mlp is a network of dense layers with ReLU between them.
type mlp struct {
	w                   kernels.Workspace
	act, grad           []kernels.Matrix // of each layer: input first, output last
	weight, dweight     []kernels.Matrix
	bias, dbias         [][]float32
	values, grads, m, v []float32
}

func newMLP(rng *rand.Rand, batch int, widths []int) *mlp {
	n := &mlp{act: []kernels.Matrix{matrix(rng, batch, widths[0])}, grad: []kernels.Matrix{{}}}
	size := 0
	for i := 1; i < len(widths); i++ {
		size += (widths[i-1] + 1) * widths[i]
	}
	all := matrix(rng, 4, size)
	n.values, n.grads, n.m, n.v = all.Row(0), all.Row(1), all.Row(2), all.Row(3)
	clear(n.v)
	at := 0
	for i := 1; i < len(widths); i++ {
		in, out := widths[i-1], widths[i]
		view := func(x []float32) kernels.Matrix {
			return kernels.Matrix{Rows: in, Cols: out, Stride: out, Data: x[at:]}
		}
		n.weight, n.dweight = append(n.weight, view(n.values)), append(n.dweight, view(n.grads))
		at += in * out
		n.bias, n.dbias = append(n.bias, n.values[at:at+out]), append(n.dbias, n.grads[at:at+out])
		at += out
		n.act, n.grad = append(n.act, matrix(rng, batch, out)), append(n.grad, matrix(rng, batch, out))
	}
	return n
}

func (n *mlp) activation(layer int) kernels.Activation {
	if layer == len(n.weight)-1 {
		return kernels.ActIdentity
	}
	return kernels.ActReLU
}

func (n *mlp) forward() {
	for i := range n.weight {
		kernels.Dense(&n.w, n.act[i+1], n.act[i], n.weight[i], n.bias[i], n.activation(i))
	}
}

func (n *mlp) backward() {
	clear(n.grads)
	for i, weight := range slices.Backward(n.weight) {
		kernels.DenseBackward(&n.w, n.grad[i], n.dweight[i], n.dbias[i], n.grad[i+1], n.act[i], n.act[i+1], weight, n.activation(i))
	}
}

func name(widths []int) string {
	s := fmt.Sprint(widths[0])
	for _, w := range widths[1:] {
		s += fmt.Sprintf("-%d", w)
	}
	return s
}

var nets = [][]int{{4, 64, 64, 2}, {4, 128, 128, 64, 2}, {24, 256, 256, 4}}

func BenchmarkForward(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	cases := []struct {
		batch  int
		widths []int
	}{{1, nets[0]}, {8, nets[0]}, {64, nets[0]}, {64, nets[1]}, {64, nets[2]}}
	for _, c := range cases {
		at := fmt.Sprintf("%s/batch%d", name(c.widths), c.batch)
		n := newMLP(rng, c.batch, c.widths)
		b.Run(at, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.forward()
			}
		})
	}
}

func BenchmarkBackward(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, widths := range nets {
		n := newMLP(rng, 64, widths)
		n.forward()
		b.Run(name(widths)+"/batch64", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.backward()
			}
		})
	}
}

// An update is what DQN computes: two forward passes, a backward pass, Adam.
func BenchmarkUpdate(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 4))
	step := kernels.AdamStep{Decay1: 0.9, Gain1: 0.1, Decay2: 0.999, Gain2: 0.001, Rate: 1e-6, Epsilon: 1e-8}
	for _, widths := range nets {
		n := newMLP(rng, 64, widths)
		b.Run(name(widths)+"/batch64", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.forward()
				n.forward()
				n.backward()
				kernels.Adam(n.values, n.grads, n.m, n.v, step)
			}
		})
	}
}

func BenchmarkAdam(b *testing.B) {
	step := kernels.AdamStep{Decay1: 0.9, Gain1: 0.1, Decay2: 0.999, Gain2: 0.001, Rate: 1e-3, Epsilon: 1e-8}
	for _, n := range []int{5_000, 70_000} {
		weights, grad, m, v := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range grad {
			grad[i] = 0.5
		}
		for _, kind := range []string{"kernels", "denormal"} {
			b.Run(fmt.Sprintf("%d/%s", n, kind), func(b *testing.B) {
				g := grad
				if kind == "denormal" {
					g = make([]float32, n)
					for i := range g {
						g[i], m[i], v[i], weights[i] = 1e-39, 1e-39, 1e-39, 1e-39
					}
				}
				b.SetBytes(int64(16 * n))
				b.ReportAllocs()
				for b.Loop() {
					kernels.Adam(weights, g, m, v, step)
				}
			})
		}
	}
}

func BenchmarkGemmDenormal(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 5))
	x, y, z := matrix(rng, 64, 64), matrix(rng, 64, 64), matrix(rng, 64, 64)
	for _, kind := range []string{"normal", "denormal"} {
		b.Run("64x64x64/"+kind, func(b *testing.B) {
			if kind == "denormal" {
				for i := range y.Data {
					y.Data[i] = 1e-39
				}
			}
			var w kernels.Workspace
			b.ReportAllocs()
			for b.Loop() {
				kernels.Gemm(&w, z, 0, x, false, y, false)
			}
			speed(b, 2*64*64*64)
		})
	}
}

func BenchmarkFunctions(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 6))
	x, y := matrix(rng, 64, 64), make([]float32, 4096)
	for name, f := range map[string]func(dst, x []float32){
		"exp": kernels.Exp, "tanh": kernels.Tanh, "sigmoid": kernels.Sigmoid, "log": kernels.Log, "softplus": kernels.Softplus,
	} {
		b.Run(name+"/4096", func(b *testing.B) {
			b.SetBytes(4 * 4096)
			b.ReportAllocs()
			for b.Loop() {
				f(y, x.Data)
			}
		})
	}
	for _, cols := range []int{2, 4, 18} {
		m, probabilities := matrix(rng, 64, cols), matrix(rng, 64, cols)
		b.Run(fmt.Sprintf("softmax/64x%d", cols), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				kernels.Softmax(probabilities, m)
			}
		})
	}
}
