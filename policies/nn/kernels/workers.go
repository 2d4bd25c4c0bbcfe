package kernels

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Workers are goroutines that take part in the large products of the workspaces that name them.
//
//	workers := kernels.NewWorkers(4)
//	w := kernels.Workspace{Workers: workers}
//	workers.Start()
//	kernels.Gemm(&w, c, 0, a, false, b, false)   // on up to four processors
//	workers.Stop()
//
// The values of a product are divided among the goroutines, never the sum that makes a value. So the
// number of goroutines does not change a bit of the result.
//
// Between Start and Stop each worker keeps a processor busy, whether it has work or not: waiting takes
// less than waking up. Start and Stop therefore belong around an update, not around a program.
// Workers serve one product at a time: the workspaces that share them must not be used
// at the same time.
type Workers struct {
	loops  []func() // made once, so that Start allocates nothing
	spaces []Workspace
	nested int // Start without Stop
	joined sync.WaitGroup
	over   atomic.Bool // set by Stop

	open   atomic.Bool   // there is a product
	number atomic.Uint32 // of the product
	inside atomic.Int32  // workers that may be reading what follows
	next   atomic.Int32  // part of the product
	level  level
	split  split
	p      product
}

// NewWorkers returns workers that make, with the caller, that many threads. They start no goroutine
// before Start. With fewer than two threads, or on one processor, products are the caller's alone.
func NewWorkers(threads int) *Workers {
	s := new(Workers)
	s.spaces = make([]Workspace, max(0, threads-1))
	for i := range s.spaces {
		s.loops = append(s.loops, func() { s.loop(&s.spaces[i]) })
	}
	return s
}

// Start lets the workers wait for products. Each Start needs a Stop; only the first one of a nest starts
// goroutines.
func (s *Workers) Start() {
	if s.nested++; s.nested > 1 || len(s.loops) == 0 || runtime.GOMAXPROCS(0) < 2 {
		return
	}
	s.over.Store(false)
	s.joined.Add(len(s.loops))
	for _, loop := range s.loops {
		go loop()
	}
}

// Stop ends the goroutines of Start, and returns when the last one has ended.
func (s *Workers) Stop() {
	if s.nested--; s.nested > 0 {
		return
	}
	s.over.Store(true)
	s.joined.Wait()
}

// polls is how often a worker looks for a product before it lets other goroutines run.
const polls = 64

func (s *Workers) loop(w *Workspace) {
	defer s.joined.Done()
	for last := s.number.Load() - 1; !s.over.Load(); runtime.Gosched() {
		for range polls {
			if now := s.number.Load(); now != last && s.open.Load() {
				last = now
				s.help(w)
			}
		}
	}
}

// help takes part in the product, if it is still there.
func (s *Workers) help(w *Workspace) {
	s.inside.Add(1) // from here on, if the product is open, its owner waits
	if s.open.Load() {
		s.parts(w)
	}
	s.inside.Add(-1)
}

// product computes p together with the workers.
func (s *Workers) product(l level, w *Workspace, p *product, parts split) {
	s.level, s.split, s.p = l, parts, *p
	s.next.Store(0)
	s.number.Add(1)
	s.open.Store(true)
	s.parts(w)
	s.open.Store(false)
	for s.inside.Load() > 0 {
		runtime.Gosched()
	}
	s.p = product{} // the memory is the caller's
}

// parts computes parts until none is left.
func (s *Workers) parts(w *Workspace) {
	for i := s.next.Add(1) - 1; int(i) < s.split.parts(); i = s.next.Add(1) - 1 {
		p := s.split.part(int(i), &s.p)
		s.level.whole(w, &p)
	}
}

// split divides a product into parts of that many rows and columns.
type split struct {
	rows, cols   int // of a part, except for the last ones
	down, across int // the numbers of parts
}

const (
	leastWork   = 1 << 19 // multiplications of a product that is divided
	partCols    = 64      // one panel of b, which a single part then packs
	partRows    = 24      // a multiple of the rows of all tiles
	partsThread = 2       // parts for each thread, so that one that comes late has less to do
)

// divide returns how to divide a product among threads; one part if it is not worth it.
func divide(c *Matrix, k, threads int) split {
	s := split{rows: c.Rows, cols: c.Cols, down: 1, across: 1}
	if threads < 2 || c.Rows*c.Cols < leastWork/max(k, 1) {
		return s
	}
	s.cols, s.across = partCols, (c.Cols+partCols-1)/partCols
	if want := threads * partsThread; s.across < want {
		s.rows = max(c.Rows*s.across/want, 1)
		s.rows = (s.rows + partRows - 1) / partRows * partRows
		s.down = (c.Rows + s.rows - 1) / s.rows
	}
	return s
}

func (s split) parts() int { return s.down * s.across }

// part returns part i of p. Parts below each other follow each other.
func (s split) part(i int, p *product) product {
	row, col := i%s.down*s.rows, i/s.down*s.cols
	rows, cols := min(s.rows, p.c.Rows-row), min(s.cols, p.c.Cols-col)
	out := *p
	out.c = Matrix{rows, cols, p.c.Stride, p.c.Data[row*p.c.Stride+col:]}
	out.a.rows, out.b.cols = rows, cols
	if p.a.cols > 0 {
		out.a.data, out.b.data = p.a.data[row*p.a.row:], p.b.data[col*p.b.col:]
	}
	if p.bias != nil {
		out.bias = p.bias[col:]
	}
	return out
}
