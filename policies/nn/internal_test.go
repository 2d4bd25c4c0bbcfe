package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

func random(rng *rand.Rand, rows, cols int) Matrix {
	m := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// naive adds the product in float64, by definition.
func naive(c Matrix, a, b view) {
	for i := range c.Rows {
		for j := range c.Cols {
			sum := float64(c.Data[i*c.Cols+j])
			for p := range a.cols {
				sum += float64(a.data[i*a.row+p*a.col]) * float64(b.data[p*b.row+j*b.col])
			}
			c.Data[i*c.Cols+j] = float32(sum)
		}
	}
}

func TestProductEqualsItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	sizes := []int{1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64}
	var w workspace
	for _, m := range sizes {
		for _, n := range sizes {
			for _, k := range []int{1, 2, 5, 16, 33} {
				for form := range 4 {
					a, b := random(rng, m, k).view(), random(rng, k, n).view()
					if form&1 != 0 {
						a = random(rng, k, m).view().transposed()
					}
					if form&2 != 0 {
						b = random(rng, n, k).view().transposed()
					}
					got, want := random(rng, m, n), Matrix{m, n, nil}
					want.Data = slices.Clone(got.Data)
					w.mulAdd(got, a, b)
					naive(want, a, b)
					for i, v := range want.Data {
						if math.Abs(float64(v-got.Data[i])) > 1e-4 {
							t.Fatalf("%dx%dx%d form %d: value %d is %v, want %v", m, k, n, form, i, got.Data[i], v)
						}
					}
				}
			}
		}
	}
}

func TestKernelsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{1, 3, 64} {
		a, panel := random(rng, 4, k), random(rng, k, tileCols+3)
		got, want := random(rng, 4, 20), Matrix{4, 20, nil}
		want.Data = slices.Clone(got.Data)
		kernel(k, a.Data, k, 1, panel.Data, tileCols+3, got.Data, 20)
		kernelGo(k, a.Data, k, 1, panel.Data, tileCols+3, want.Data, 20)
		for i, v := range want.Data {
			if math.Abs(float64(v-got.Data[i])) > 1e-5*float64(k) {
				t.Fatalf("k %d: value %d is %v, want %v", k, i, got.Data[i], v)
			}
		}
	}
}

func TestAdamKernelsAgreeToTheBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, n := range []int{1, 7, 8, 9, 1000} {
		s := &adamScalars{0.9, 0.1, 0.999, 0.001, 1e-3, 1e-8}
		w, g, m, v := random(rng, 1, n).Data, random(rng, 1, n).Data, random(rng, 1, n).Data, random(rng, 1, n).Data
		for i := range v {
			v[i] *= v[i]
		}
		w2, m2, v2 := slices.Clone(w), slices.Clone(m), slices.Clone(v)
		adamStep(w, g, m, v, s)
		adamGo(w2, g, m2, v2, s)
		if !slices.Equal(w, w2) || !slices.Equal(m, m2) || !slices.Equal(v, v2) {
			t.Errorf("%d weights: the kernels differ", n)
		}
	}
}

func TestMatrixOfAnotherSizeIsRefused(t *testing.T) {
	for name, m := range map[string]Matrix{"columns": {1, 3, make([]float32, 3)}, "values": {2, 2, make([]float32, 3)}} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "nn: input of ") || !strings.HasSuffix(p, "want 2 columns") {
					t.Errorf("%s: panic %q", name, p)
				}
			}()
			m.check(2)
		}()
	}
	Matrix{2, 2, make([]float32, 4)}.check(2)
}

func TestProductRefusesOtherSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][6]int{{2, 3, 4, 2, 2, 2}, {2, 3, 3, 2, 1, 2}, {2, 3, 3, 2, 2, 1}, {2, 3, 3, 2, 3, 2}, {2, 3, 3, 2, 2, 3}} {
		func() {
			defer func() {
				want := fmt.Sprintf("nn: product of %d x %d and %d x %d into %d x %d", s[0], s[1], s[2], s[3], s[4], s[5])
				if p := fmt.Sprint(recover()); p != want {
					t.Errorf("panic %q, want %q", p, want)
				}
			}()
			new(workspace).mulAdd(random(rng, s[4], s[5]), random(rng, s[0], s[1]).view(), random(rng, s[2], s[3]).view())
		}()
	}
}

// within returns n values in the middle of a larger array, of which they cannot become more.
func within(n int) []float32 { return make([]float32, n+256)[:n:n] }

// TestKernelsStayWithinTheirOperands: an operand with a value too few panics, and Adam's
// weights are as they were.
func TestKernelsStayWithinTheirOperands(t *testing.T) {
	const k = 3
	sizes := []int{4 * k, k * tileCols, 4 * tileCols}
	for short := range sizes {
		ops := make([][]float32, len(sizes))
		for i, n := range sizes {
			if i == short {
				n--
			}
			ops[i] = within(n)
			for j := range ops[i] {
				ops[i][j] = 1
			}
		}
		for _, stride := range [][2]int{{k, 1}, {1, 4}} {
			if !panicked(func() { kernel(k, ops[0], stride[0], stride[1], ops[1], tileCols, ops[2], tileCols) }) {
				t.Errorf("operand %d is short, and the kernel goes on with the strides %v", short, stride)
			}
		}
	}
	for short := 1; short < 4; short++ {
		ops := [4][]float32{within(8), within(8), within(8), within(8)}
		ops[short] = within(7)
		s := &adamScalars{0.9, 0.1, 0.999, 0.001, 1e-3, 1e-8}
		ops[1][0] = 1
		if !panicked(func() { adamStep(ops[0], ops[1], ops[2], ops[3], s) }) || ops[0][0] != 0 {
			t.Errorf("operand %d of 8 is short, and weight 0 becomes %v", short, ops[0][0])
		}
	}
}

func panicked(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// TestProductOfNothing adds nothing: k is 0 for the gradient of an empty batch.
func TestProductOfNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{{5, 17, 0}, {0, 17, 3}, {5, 0, 3}, {0, 0, 0}} {
		c := random(rng, s[0], s[1])
		want := slices.Clone(c.Data)
		new(workspace).mulAdd(c, random(rng, s[0], s[2]).view(), random(rng, s[2], s[1]).view())
		if !slices.Equal(c.Data, want) {
			t.Errorf("%v: %v", s, c.Data)
		}
	}
}

// The forward product of a layer of 128 x 128 on a batch of 64, by this
// package, by gonum's BLAS, and by three loops.
func BenchmarkProduct(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	x, w, y := random(rng, 64, 128), random(rng, 128, 128), random(rng, 64, 128)
	report := func(b *testing.B) {
		b.ReportMetric(2*64*128*128*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
	}
	b.Run("nn", func(b *testing.B) {
		var ws workspace
		b.ReportAllocs()
		for b.Loop() {
			ws.mulAdd(y, x.view(), w.view())
		}
		report(b)
	})
	b.Run("gonum", func(b *testing.B) {
		general := func(m Matrix) blas32.General {
			return blas32.General{Rows: m.Rows, Cols: m.Cols, Stride: m.Cols, Data: m.Data}
		}
		b.ReportAllocs()
		for b.Loop() {
			blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, general(x), general(w), 1, general(y))
		}
		report(b)
	})
	b.Run("loops", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range 64 {
				for j := range 128 {
					sum := y.Data[i*128+j]
					for p := range 128 {
						sum += x.Data[i*128+p] * w.Data[p*128+j]
					}
					y.Data[i*128+j] = sum
				}
			}
		}
		report(b)
	})
}
