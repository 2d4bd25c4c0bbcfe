package data

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// versioned are n rows whose rewards go up from first, of one version.
func versioned(first, n int, version uint64) *policies.Batch {
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for i := range n {
		b.Append(policies.Transition{Obs: []float32{0}, Action: []float32{0}, NextObs: []float32{0}, Reward: float32(first + i), Steps: 1,
			Version: version})
	}
	return &b
}

// buffers make the same buffer of each kind.
var buffers = map[string]func(cfg UniformConfig) Buffer{
	"uniform":     func(cfg UniformConfig) Buffer { return NewUniform(cfg) },
	"prioritised": func(cfg UniformConfig) Buffer { return NewPrioritised(PrioritisedConfig{UniformConfig: cfg}) },
}

// forEachBuffer runs a test with each kind of buffer.
func forEachBuffer(t *testing.T, test func(t *testing.T, build func(cfg UniformConfig) Buffer)) {
	t.Helper()
	for name, build := range buffers {
		t.Run(name, func(t *testing.T) { test(t, build) })
	}
}

// prioritise gives the rows of a sample, if it is of a prioritised buffer, priorities that differ much: some
// are most of the sum of all.
func prioritise(t *testing.T, b Buffer, s *policies.Batch) {
	t.Helper()
	for i, r := range s.Floats(policies.Reward) {
		if s.Floats(policies.TDError) != nil {
			s.Floats(policies.TDError)[i] = float32(int(r)%7*int(r)%7) * 100
		}
	}
	if err := b.learned(s); err != nil {
		t.Fatal(err)
	}
}

// TestNoRowIsUsedTooOften, also of rows that replace older ones, and all uses are made.
func TestNoRowIsUsedTooOften(t *testing.T) { forEachBuffer(t, noRowIsUsedTooOften) }

func noRowIsUsedTooOften(t *testing.T, build func(cfg UniformConfig) Buffer) {
	const most = 3
	b := build(UniformConfig{Capacity: 50, Seed: 1, MaxUses: most})
	r := NewReplay(b, ReplayConfig{Batch: 10, StartAt: 10, Updates: 1})
	uses := map[float32]int{}
	var s policies.Batch
	updates := 0
	for first := 0; first < 200; first += 20 {
		if err := r.Add(versioned(first, 20, 0)); err != nil {
			t.Fatal(err)
		}
		for r.Next(&s) {
			updates++
			prioritise(t, b, &s)
			for _, x := range s.Floats(policies.Reward) {
				uses[x]++
			}
		}
		if r.Next(&s) {
			t.Fatal("updates that were left out are made up for")
		}
	}
	for x, n := range uses {
		if n > most {
			t.Errorf("row %v was in %d samples, want %d at most", x, n, most)
		}
	}
	// 20 rows bring 60 uses, 6 batches, where 20 updates are due.
	if updates < 55 || updates > 60 {
		t.Errorf("%d updates, want 60 but for uses that a last sample could not have", updates)
	}
	if b.Len() != 50 {
		t.Errorf("%d rows", b.Len())
	}
}

// TestNoOldRowIsDrawn: none of weights that are too many updates behind the newest.
func TestNoOldRowIsDrawn(t *testing.T) { forEachBuffer(t, noOldRowIsDrawn) }

func noOldRowIsDrawn(t *testing.T, build func(cfg UniformConfig) Buffer) {
	b := build(UniformConfig{Capacity: 100, Seed: 1, MaxAge: 5})
	for version := range uint64(10) {
		if err := b.Add(versioned(int(10*version), 10, version)); err != nil {
			t.Fatal(err)
		}
	}
	var s policies.Batch
	seen := map[uint64]bool{}
	for range 50 {
		if err := b.draw(&s, 20, 0.4); err != nil {
			t.Fatal(err)
		}
		prioritise(t, b, &s)
		for _, v := range s.Words(policies.Version) {
			seen[v] = true
		}
	}
	for v := range uint64(10) {
		if seen[v] != (v >= 4) {
			t.Errorf("version %d was drawn: %v", v, seen[v])
		}
	}
	if err := b.Add(versioned(0, 1, 100)); err != nil {
		t.Fatal(err)
	}
	if err := b.draw(&s, 2, 0.4); err == nil { // the one row is drawn twice
		if r := s.Floats(policies.Reward); !slices.Equal(r, []float32{0, 0}) {
			t.Errorf("drew %v", r)
		}
	} else {
		t.Error(err)
	}
	var plain policies.Batch
	plain.Init(policies.Column{Name: policies.Obs, Kind: policies.Float32})
	plain.Resize(1)
	if err := build(UniformConfig{MaxAge: 1}).Add(&plain); err == nil || !strings.Contains(err.Error(), "no column version") {
		t.Error(err)
	}
}

// TestLimitsAreRestored bit for bit, and damage is refused.
func TestLimitsAreRestored(t *testing.T) { forEachBuffer(t, limitsAreRestored) }

func limitsAreRestored(t *testing.T, buffer func(cfg UniformConfig) Buffer) {
	build := func() Buffer { return buffer(UniformConfig{Capacity: 40, Seed: 3, MaxUses: 2, MaxAge: 3}) }
	go1 := func(b Buffer, from, to int) (drawn []float32) {
		var s policies.Batch
		for i := from; i < to; i++ {
			if err := b.Add(versioned(7*i, 7, uint64(i/2))); err != nil {
				t.Fatal(err)
			}
			if err := b.draw(&s, 5, 0.4); err == nil {
				prioritise(t, b, &s)
				drawn = append(drawn, s.Floats(policies.Reward)...)
			} else if !errors.Is(err, ErrTooFew) {
				t.Fatal(err)
			}
		}
		return drawn
	}
	a := build()
	go1(a, 0, 9)
	var archive nn.Archive
	if err := a.Save(&archive); err != nil {
		t.Fatal(err)
	}
	b := build()
	go1(b, 0, 3) // something else before
	if err := b.Restore(&archive); err != nil {
		t.Fatal(err)
	}
	if x, y := go1(a, 9, 20), go1(b, 9, 20); !slices.Equal(x, y) || len(x) == 0 {
		t.Errorf("drawn %v, restored %v", x, y)
	}
	at := slices.IndexFunc(archive.Tensors, func(t nn.Tensor) bool { return t.Name == freshPart+"/rows" || t.Name == spentPart+"/uses" })
	words := archive.Tensors[at].Words
	for name, damaged := range map[string][]uint64{
		"as many uses as are allowed": append([]uint64{0}, slices.Repeat([]uint64{2}, len(words)-1)...),
		"none":                        {}, "a row beyond": {0, 40 << 32}, "twice": {0, 1 << 32,
			1 << 32}, "too many": append(slices.Clone(words), make([]uint64, 50)...),
	} {
		archive.Tensors[at].Words = damaged
		if err := build().Restore(&archive); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
}

func TestLimitsThatCannotBe(t *testing.T) {
	for _, bad := range []func(){
		func() { NewUniform(UniformConfig{MaxUses: -1}) },
		func() { NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{MaxUses: -1}}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a bad config was taken")
				}
			}()
			bad()
		}()
	}
}

func TestLimitsCostNoAllocation(t *testing.T) {
	forEachBuffer(t, func(t *testing.T, build func(cfg UniformConfig) Buffer) {
		b := build(UniformConfig{Capacity: 100, MaxUses: 1000, MaxAge: 10})
		rows := versioned(0, 10, 1)
		var s policies.Batch
		if n := testing.AllocsPerRun(100, func() {
			_ = b.Add(rows)
			_ = b.draw(&s, 8, 0.4)
			_ = b.learned(&s)
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestLimitsKeepTheShares: of rows within the limits, one with twice the priority is drawn twice as often, and has
// the paper's weight, also in the sample that ends it.
func TestLimitsKeepTheShares(t *testing.T) {
	b := NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 8, Seed: 3, MaxUses: 100_000, MaxAge: 5}, Alpha: 1,
		Epsilon: 1e-9})
	for version, n := range []int{1, 0, 0, 0, 0, 0, 0, 3} { // the first row is too old
		if err := b.Add(versioned(version, n, uint64(version))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Update([]uint64{0, 1, 2, 3}, []float32{50, 1, 2, 4}); err != nil {
		t.Fatal(err)
	}
	counts := make([]float64, 4)
	var s policies.Batch
	const draws = 10_000
	for range draws {
		if err := b.Sample(&s, 4, 1); err != nil {
			t.Fatal(err)
		}
		rows, weights := s.Words(policies.Index), s.Floats(policies.Weight)
		least := slices.Min(rows)
		for i, row := range rows {
			counts[row]++
			if want := math.Exp2(float64(least) - float64(row)); math.Abs(float64(weights[i])-want) > 1e-5 {
				t.Fatalf("weight %v of row %d beside row %d, want %v", weights[i], row, least, want)
			}
		}
	}
	for row, want := range []float64{0, 1, 2, 4} {
		if share := counts[row] / (4 * draws); math.Abs(share-want/7) > 0.01 {
			t.Errorf("row %d has a share of %v, want %v", row, share, want/7)
		}
	}
}

// TestSpentRowsStaySpent: a priority that comes after the last use does not make a row one that may be drawn.
func TestSpentRowsStaySpent(t *testing.T) {
	b := NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 4, MaxUses: 1}})
	var s policies.Batch
	if err := errors.Join(b.Add(versioned(0, 4, 0)), b.Sample(&s, 4, 1)); err != nil {
		t.Fatal(err)
	}
	if rows := slices.Sorted(slices.Values(s.Words(policies.Index))); !slices.Equal(rows, []uint64{0, 1, 2, 3}) {
		t.Errorf("drew %v, want each row once", rows)
	}
	if err := b.Update([]uint64{0, 1, 2, 3}, []float32{9, 9, 9, 9}); err != nil {
		t.Fatal(err)
	}
	if err := b.Sample(&s, 1, 1); !errors.Is(err, ErrTooFew) {
		t.Errorf("a fifth use of four rows: %v", err)
	}
	if err := errors.Join(b.Add(versioned(7, 1, 0)), b.Sample(&s, 1, 1)); err != nil || s.Floats(policies.Reward)[0] != 7 {
		t.Errorf("a new row: drew %v, %v", s.Floats(policies.Reward), err)
	}
}
