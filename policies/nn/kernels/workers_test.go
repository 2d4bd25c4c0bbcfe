package kernels

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
)

// dense and its gradients, of an update with that many threads, as bits.
func updateBits(l level, workers *Workers, seed uint64, batch, in, out int) [][]uint32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	x, weight, dy := drawMatrix(rng, batch, in, 3), drawMatrix(rng, in, out, 0), drawMatrix(rng, batch, out, 0)
	y, dx, dweight := drawMatrix(rng, batch, out, 0), drawMatrix(rng, batch, in, 5), drawMatrix(rng, in, out, 0)
	bias, dbias := draw(rng, out), draw(rng, out)
	w := Workspace{Workers: workers}
	if workers != nil {
		workers.Start()
		defer workers.Stop()
	}
	l.dense(&w, &y, &x, &weight, bias, ActReLU)
	l.denseBackward(&w, dx, dweight, dbias, dy, x, y, weight, ActReLU)
	return [][]uint32{pattern(y.Data), pattern(dx.Data), pattern(dweight.Data), pattern(dbias)}
}

func TestWorkersChangeNoBit(t *testing.T) {
	shapes := [][3]int{{256, 256, 256}, {1000, 70, 64}, {3000, 6, 130}, {8, 300, 300}, {700, 600, 1}, {5000, 130, 4}, {33, 1000, 17}}
	for i, s := range shapes {
		for _, l := range levels() {
			want := updateBits(l, nil, uint64(i), s[0], s[1], s[2])
			for _, threads := range []int{1, 2, 3, 7} {
				for j, got := range updateBits(l, NewWorkers(threads), uint64(i), s[0], s[1], s[2]) {
					if !slices.Equal(got, want[j]) {
						t.Errorf("%v, %v, %d threads: result %d has other bits", l, s, threads, j)
					}
				}
			}
		}
	}
}

// TestWorkersTakePart: a product of several parts is divided, and a worker that is in the loop computes
// some of them. The caller keeps out until it has.
func TestWorkersTakePart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	a, b, c := drawMatrix(rng, 96, 96, 0), drawMatrix(rng, 96, 128, 0), drawMatrix(rng, 96, 128, 0)
	p := product{c: c}
	p.a.set(&a, false)
	p.b.set(&b, false)
	s := NewWorkers(2)
	s.level, s.split, s.p = best, divide(&c, 96, 2), p
	if n := s.split.parts(); n != 4 {
		t.Fatalf("%d parts, want 4", n)
	}
	s.number.Add(1)
	s.open.Store(true)
	var w Workspace
	s.help(&w)
	if got := s.next.Load(); got != 5 { // 4 parts, and the question for another one
		t.Errorf("a worker asked for %d parts", got)
	}
	want := clone(c)
	best.whole(&w, &product{c: want, a: p.a, b: p.b})
	if !slices.Equal(pattern(c.Data), pattern(want.Data)) {
		t.Error("the parts are not the product")
	}
}

func TestSmallProductsAreNotDivided(t *testing.T) {
	for _, c := range []struct{ rows, cols, k, threads, parts int }{
		{64, 64, 64, 4, 1}, {256, 256, 256, 1, 1}, {256, 256, 256, 2, 4}, {8192, 64, 64, 2, 4}, {1, 100_000, 100, 2, 1563}, {0, 0, 5, 4,
			1}, {800_000, 1, 0, 2, 4},
	} {
		if got := divide(&Matrix{Rows: c.rows, Cols: c.cols}, c.k, c.threads).parts(); got != c.parts {
			t.Errorf("%+v: %d parts", c, got)
		}
	}
}

// TestStopEndsTheWorkers: in a bubble, a goroutine that is left is an error.
func TestStopEndsTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewWorkers(3)
		before := runtime.NumGoroutine()
		s.Start()
		s.Start()
		if n := runtime.NumGoroutine() - before; runtime.GOMAXPROCS(0) > 1 && n != 2 {
			t.Errorf("%d goroutines of 3 threads", n)
		}
		s.Stop()
		if n := runtime.NumGoroutine() - before; runtime.GOMAXPROCS(0) > 1 && n != 2 {
			t.Errorf("%d goroutines after the inner Stop", n)
		}
		s.Stop()
	})
}

func TestWorkersAllocateNothing(t *testing.T) {
	s := NewWorkers(2)
	w := Workspace{Workers: s}
	m := drawMatrix(rand.New(rand.NewPCG(5, 5)), 200, 200, 0)
	c := clone(m)
	turn := func() {
		s.Start()
		Gemm(&w, c, 0, m, false, m, true)
		s.Stop()
	}
	for range 10 { // until the worker, too, has computed a part
		turn()
	}
	for s.spaces[0].panel == nil && runtime.GOMAXPROCS(0) > 1 {
		turn()
	}
	if n := testing.AllocsPerRun(20, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
