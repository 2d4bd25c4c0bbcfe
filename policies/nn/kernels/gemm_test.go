package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

func drawMatrix(rng *rand.Rand, rows, cols, gap int) Matrix {
	stride := max(1, cols+gap)
	return Matrix{rows, cols, stride, draw(rng, rows*stride)}
}

func TestMatrixConvertsToGonum(t *testing.T) {
	m := Matrix{2, 3, 4, make([]float32, 8)}
	if g := Matrix(blas32.General(m)); g.Rows != 2 || g.Cols != 3 || g.Stride != 4 || &g.Data[0] != &m.Data[0] {
		t.Errorf("%v became %v", m, g)
	}
}

func transposed(yes bool) blas.Transpose {
	if yes {
		return blas.Trans
	}
	return blas.NoTrans
}

// checkGemm compares one product with gonum's on all levels, and the levels with
// each other.
func checkGemm(t *testing.T, rng *rand.Rand, m, n, k, gap, form int, beta float32) {
	t.Helper()
	ta, tb := form&1 != 0, form&2 != 0
	a, b := drawMatrix(rng, m, k, gap), drawMatrix(rng, k, n, gap)
	if ta {
		a = drawMatrix(rng, k, m, gap)
	}
	if tb {
		b = drawMatrix(rng, n, k, gap)
	}
	start := drawMatrix(rng, m, n, gap)
	want := clone(start)
	if m > 0 && n > 0 && k > 0 {
		blas32.Gemm(transposed(ta), transposed(tb), 1, blas32.General(a), blas32.General(b), beta, blas32.General(want))
	} else {
		for i := range m {
			plain.scale(want.Row(i), want.Row(i), beta)
		}
	}
	var vector []float32
	for _, l := range levels() {
		got := clone(start)
		var w Workspace
		l.gemm(&w, got, beta, a, ta, b, tb)
		for i, v := range want.Data {
			if math.Abs(float64(v-got.Data[i])) > 1e-5*float64(k+1) {
				t.Fatalf("%v: %dx%dx%d form %d gap %d beta %v: value %d is %v, want %v", l, m, k, n, form, gap, beta, i, got.Data[i], v)
			}
		}
		if l == plain {
			continue
		}
		if vector != nil && !slices.Equal(pattern(vector), pattern(got.Data)) {
			t.Fatalf("%v: %dx%dx%d form %d: other bits than another level", l, m, k, n, form)
		}
		vector = got.Data
	}
}

func TestGemmEqualsGonum(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	for range 600 {
		m, n, k := 1+rng.IntN(70), 1+rng.IntN(70), 1+rng.IntN(70)
		checkGemm(t, rng, m, n, k, rng.IntN(2)*rng.IntN(9), rng.IntN(4), []float32{0, 1, -0.5}[rng.IntN(3)])
	}
	for m := range 10 {
		for _, n := range []int{0, 1, 2, 4, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 130} {
			for form := range 4 {
				checkGemm(t, rng, m, n, []int{0, 1, 2, 9}[rng.IntN(4)], rng.IntN(2), form, float32(rng.IntN(2)))
			}
		}
	}
	for form := range 4 { // nothing to add, and more than a block
		checkGemm(t, rng, 20, 40, 0, 0, form, 0)
		checkGemm(t, rng, 40, 70, 600, 3, form, 1)
		checkGemm(t, rng, 3, 150, 600, 0, form, 0)
		checkGemm(t, rng, 20, 40, 257, 64, form, 0)
	}
}

func FuzzGemm(f *testing.F) {
	f.Add(uint64(1), uint16(3), uint16(5), uint16(7), uint8(1), uint8(6))
	f.Fuzz(func(t *testing.T, seed uint64, m, n, k uint16, gap, form uint8) {
		checkGemm(t, rand.New(rand.NewPCG(seed, 1)), int(m%300), int(n%300), int(k%600), int(gap%80), int(form%4), float32(form/4%2))
	})
}

func TestGemmWithBeta0DoesNotReadC(t *testing.T) {
	nan := float32(math.NaN())
	for _, l := range levels() {
		for _, k := range []int{0, 2} {
			c := Matrix{1, 2, 2, []float32{nan, nan}}
			a := Matrix{1, k, max(1, k), []float32{1, 2}[:k]}
			b := Matrix{k, 2, 2, []float32{1, 2, 3, 4}[:2*k]}
			var w Workspace
			l.gemm(&w, c, 0, a, false, b, false)
			if want := [][]float32{{0, 0}, {}, {7, 10}}[k]; !slices.Equal(c.Data, want) {
				t.Errorf("%v, k %d: %v, want %v", l, k, c.Data, want)
			}
		}
	}
}

func TestGemmLeavesGapsAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, l := range levels() {
		a, b, c := drawMatrix(rng, 9, 9, 0), drawMatrix(rng, 9, 19, 0), drawMatrix(rng, 9, 19, 7)
		before := clone(c)
		var w Workspace
		l.gemm(&w, c, 0, a, false, b, false)
		for i, v := range c.Data {
			if i%c.Stride >= c.Cols && v != before.Data[i] {
				t.Fatalf("%v: value %d between rows has changed", l, i)
			}
		}
	}
}

// denseReference computes a layer and its gradients in float64.
func denseReference(x, weight Matrix, bias []float32, act Activation, dy Matrix) (y, dx, dw, db []float64) {
	in, out := weight.Rows, weight.Cols
	y, dx = make([]float64, x.Rows*out), make([]float64, x.Rows*in)
	dw, db = make([]float64, in*out), make([]float64, out)
	for i := range x.Rows {
		for j := range out {
			s := float64(bias[j])
			for p := range in {
				s += float64(x.Row(i)[p]) * float64(weight.Row(p)[j])
			}
			slope := 1.0
			switch act {
			case ActReLU:
				slope, s = heaviside(s > 0, 1), max(0, s)
			case ActTanh:
				s = math.Tanh(s)
				slope = 1 - s*s
			}
			y[i*out+j] = s
			g := float64(dy.Row(i)[j]) * slope
			db[j] += g
			for p := range in {
				dw[p*out+j] += g * float64(x.Row(i)[p])
				dx[i*in+p] += g * float64(weight.Row(p)[j])
			}
		}
	}
	return y, dx, dw, db
}

func compare(t *testing.T, what string, m Matrix, add float64, want []float64) {
	t.Helper()
	for i := range m.Rows {
		for j, v := range m.Row(i) {
			if w := want[i*m.Cols+j] + add; math.Abs(float64(v)-w) > 1e-4 {
				t.Fatalf("%s: value %d, %d is %v, want %v", what, i, j, v, w)
			}
		}
	}
}

func TestDense(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	for range 400 {
		batch, in, out, gap := rng.IntN(41), rng.IntN(41), rng.IntN(41), rng.IntN(2)*rng.IntN(5)
		act := Activation(rng.IntN(int(endOfActivations)))
		x, weight, dy0 := drawMatrix(rng, batch, in, gap), drawMatrix(rng, in, out, gap), drawMatrix(rng, batch, out, gap)
		bias := draw(rng, out)
		wantY, wantDX, wantDW, wantDB := denseReference(x, weight, bias, act, dy0)
		for _, l := range levels() {
			var w Workspace
			y, dy := drawMatrix(rng, batch, out, gap), clone(dy0)
			l.dense(&w, &y, &x, &weight, bias, act)
			compare(t, "y", y, 0, wantY)
			dx, dw, db := drawMatrix(rng, batch, in, gap), Matrix{in, out, max(1, out), make([]float32, in*out)}, make([]float32, out)
			for i := range dw.Data {
				dw.Data[i] = 1
			}
			for i := range db {
				db[i] = 1
			}
			l.denseBackward(&w, dx, dw, db, dy, x, y, weight, act)
			compare(t, "dx", dx, 0, wantDX)
			compare(t, "dweight", dw, 1, wantDW)
			compare(t, "dbias", Matrix{1, out, out, db}, 1, wantDB)
		}
	}
}

// TestDenseRowsIsDense bit for bit, on both sides of the number of rows from which products are arranged otherwise.
func TestDenseRowsIsDense(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 5))
	for range 400 {
		batch, in, out := rng.IntN(2*packRows), 1+rng.IntN(140), 1+rng.IntN(140)
		act := Activation(rng.IntN(int(endOfActivations)))
		x, weight, bias := drawMatrix(rng, batch, in, 0), drawMatrix(rng, in, out, 0), draw(rng, out)
		for _, l := range levels() {
			var w Workspace
			want, got := drawMatrix(rng, batch, out, 0), draw(rng, batch*out)
			l.dense(&w, &want, &x, &weight, bias, act)
			l.denseRows(&w, got, x.Data[:batch*in], weight.all(), bias, batch, act)
			if !slices.Equal(got, want.Data[:batch*out]) {
				t.Fatalf("%v: %d x %d x %d, activation %d: %v, want %v", l, batch, in, out, act, got, want.Data)
			}
		}
	}
}

// TestRowsOfZerosAreLeftOut of a product, and change no bit of the others.
func TestRowsOfZerosAreLeftOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	const batch, in, out = 64, 130, 140
	for _, gap := range []int{0, 3} {
		for _, zeros := range []int{0, 5, 32, 63, 64} {
			dy, weight := drawMatrix(rng, batch, out, gap), drawMatrix(rng, in, out, gap)
			for _, i := range rng.Perm(batch)[:zeros] {
				clear(dy.Row(i))
			}
			for _, l := range levels() {
				var w Workspace
				got, want := drawMatrix(rng, batch, in, gap), drawMatrix(rng, batch, in, gap)
				for range 2 { // the second uses the memory of the first
					p := product{}
					p.b.set(&weight, true)
					l.inputGrad(&w, &p, &got, &dy)
				}
				p := product{c: want}
				p.a.set(&dy, false)
				p.b.set(&weight, true)
				l.product(&w, &p)
				for i := range batch {
					if !slices.Equal(got.Row(i), want.Row(i)) {
						t.Fatalf("%v: %d rows of zeros, row %d: %v, want %v", l, zeros, i, got.Row(i), want.Row(i))
					}
				}
			}
		}
	}
}

func TestDenseWithoutBiasAndWithoutDX(t *testing.T) {
	for _, l := range levels() {
		var w Workspace
		x, weight, y := Matrix{1, 1, 1, []float32{3}}, Matrix{1, 2, 2, []float32{2, -2}}, Matrix{1, 2, 2, make([]float32, 2)}
		l.dense(&w, &y, &x, &weight, nil, ActReLU)
		if !slices.Equal(y.Data, []float32{6, 0}) {
			t.Errorf("%v: y is %v", l, y.Data)
		}
		dw := Matrix{1, 2, 2, make([]float32, 2)}
		l.denseBackward(&w, Matrix{}, dw, nil, Matrix{1, 2, 2, []float32{1, 1}}, x, y, weight, ActReLU)
		if !slices.Equal(dw.Data, []float32{3, 0}) {
			t.Errorf("%v: dweight is %v", l, dw.Data)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 4))
	var w Workspace
	x, weight, y, dy := drawMatrix(rng, 64, 24, 0), drawMatrix(rng, 24, 70, 0), drawMatrix(rng, 64, 70, 0), drawMatrix(rng, 64, 70, 0)
	dx, dw, db := drawMatrix(rng, 64, 24, 0), drawMatrix(rng, 24, 70, 0), draw(rng, 70)
	c := drawMatrix(rng, 64, 64, 0)
	steps := map[string]func(){
		"Dense":         func() { Dense(&w, y, x, weight, db, ActTanh) },
		"DenseBackward": func() { DenseBackward(&w, dx, dw, db, dy, x, y, weight, ActTanh) },
		"DenseRows": func() {
			DenseRows(&w, y.Data, x.Data, weight.Data, db, 64, ActTanh)
			DenseRows(&w, y.Data[:70], x.Data[:24], weight.Data, db, 1, ActReLU)
		},
		"Gemm":       func() { Gemm(&w, c, 1, x, false, x, true) },
		"Adam":       func() { Adam(dw.Data, weight.Data, weight.Data, weight.Data, AdamStep{}) },
		"Softmax":    func() { Softmax(y, y) },
		"SumSquares": func() { SumSquares(db) },
		"Add":        func() { Add(db, db, db) },
	}
	for name, f := range steps {
		if n := testing.AllocsPerRun(10, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
