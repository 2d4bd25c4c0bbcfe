package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// prioritised has rows 0..n-1, whose rewards are their numbers.
func prioritised(t *testing.T, n int, cfg PrioritisedConfig) *Prioritised {
	t.Helper()
	b := NewPrioritised(cfg)
	if err := b.Add(numbered(0, n)); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRowsAreDrawnByTheirPriorities: in 40,000 draws the share of each row is that of its priority
// to the power of alpha, and its weight that of the paper.
func TestRowsAreDrawnByTheirPriorities(t *testing.T) {
	for _, alpha := range []float64{0.5, 1} {
		b := prioritised(t, 5, PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 8, Seed: 3}, Alpha: alpha, Epsilon: 1e-9})
		priorities := []float32{1, 2, 4, 0.5, 8}
		if err := b.Update([]uint64{0, 1, 2, 3, 4}, priorities); err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, p := range priorities {
			sum += math.Pow(float64(p), alpha)
		}
		counts := make([]float64, 5)
		var got policies.Batch
		const draws, beta = 10_000, 0.4
		for range draws {
			if err := b.Sample(&got, 4, beta); err != nil {
				t.Fatal(err)
			}
			rows, weights := got.Words(policies.Index), got.Floats(policies.Weight)
			top := float32(0)
			for i, row := range rows {
				counts[row]++
				if got.Floats(policies.Reward)[i] != float32(row) {
					t.Fatalf("row %d is %v", row, got.At(i))
				}
				top = max(top, weights[i])
				want := math.Pow(math.Pow(float64(priorities[rows[slices.Index(weights, slices.Max(weights))]]),
					alpha)/math.Pow(float64(priorities[row]), alpha), beta)
				if math.Abs(float64(weights[i])-want) > 1e-5 {
					t.Fatalf("weight %v of row %d, want %v", weights[i], row, want)
				}
			}
			if top != 1 {
				t.Fatalf("the greatest weight is %v", top)
			}
		}
		for row, p := range priorities {
			want := math.Pow(float64(p), alpha) / sum
			if share := counts[row] / (4 * draws); math.Abs(share-want) > 0.01 {
				t.Errorf("alpha %v: row %d has a share of %v, want %v", alpha, row, share, want)
			}
		}
	}
}

func TestNewRowsHaveTheGreatestPriority(t *testing.T) {
	b := prioritised(t, 4, PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 4}, Alpha: 1})
	if err := b.Update([]uint64{0, 1, 2, 3}, []float32{0, 0, 50, 0}); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(numbered(10, 1)); err != nil { // instead of row 0
		t.Fatal(err)
	}
	seen := map[uint64]int{}
	var got policies.Batch
	for range 1000 {
		if err := b.Sample(&got, 1, 1); err != nil {
			t.Fatal(err)
		}
		seen[got.Words(policies.Index)[0]]++
	}
	if seen[0] < 400 || seen[2] < 400 || seen[1]+seen[3] > 10 {
		t.Errorf("drawn: %v, want rows 0 and 2", seen)
	}
	more := NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 3}})
	if err := more.Add(numbered(0, 8)); err != nil || more.Len() != 3 {
		t.Errorf("%d rows of 8 in a buffer of 3: %v", more.Len(), err)
	}
}

func TestP4RestoredPrioritiesDrawTheSame(t *testing.T) {
	cfg := PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 10, Seed: 4}}
	for _, n := range []int{0, 6, 14} {
		straight := NewPrioritised(cfg)
		if n > 0 {
			straight = prioritised(t, n, cfg)
			if err := straight.Update([]uint64{1, 3}, []float32{5, 0.1}); err != nil {
				t.Fatal(err)
			}
		}
		var a, read nn.Archive
		if err := straight.Save(&a); err != nil {
			t.Fatal(err)
		}
		file, err := a.AppendBinary(nil)
		resumed := NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 10, Seed: 99}})
		if err := errors.Join(err, read.UnmarshalBinary(file), resumed.Restore(&read)); err != nil {
			t.Fatal(err)
		}
		var x, y policies.Batch
		for range 20 {
			if err := errors.Join(straight.Add(numbered(50, 2)), resumed.Add(numbered(50, 2)), straight.Sample(&x, 2, 0.5),
				resumed.Sample(&y, 2, 0.5)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(x.Words(policies.Index), y.Words(policies.Index)) || !slices.Equal(x.Floats(policies.Weight),
				y.Floats(policies.Weight)) {
				t.Fatalf("%d rows: samples %v and %v", n, x.Words(policies.Index), y.Words(policies.Index))
			}
		}
		if resumed.Bytes() != straight.Bytes() {
			t.Errorf("%d bytes, want %d", resumed.Bytes(), straight.Bytes())
		}
	}
}

func TestPrioritisedRefuses(t *testing.T) {
	for _, cfg := range []PrioritisedConfig{{Alpha: -1}, {Epsilon: -1}} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "data: prioritised replay with ") {
					t.Errorf("%+v: panic %q", cfg, p)
				}
			}()
			NewPrioritised(cfg)
		}()
	}
	b := prioritised(t, 4, PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 4}})
	before := slices.Clone(b.tree)
	for _, p := range []float32{-1, float32(math.NaN()), float32(math.Inf(1))} {
		if err := b.Update([]uint64{0, 1}, []float32{7, p}); !errors.Is(err, ErrPriority) || !strings.Contains(err.Error(), "row 1 has") {
			t.Errorf("priority %v: %v", p, err)
		}
	}
	if err := b.Update([]uint64{4}, []float32{1}); err == nil {
		t.Error("a row that is not there gets a priority")
	}
	if err := b.Update([]uint64{1}, nil); err == nil {
		t.Error("no priorities for a row")
	}
	var dst policies.Batch
	if err := b.Sample(&dst, 5, 1); !errors.Is(err, ErrTooFew) {
		t.Errorf("5 of 4 rows: %v", err)
	}
	if !slices.Equal(b.tree, before) {
		t.Error("what was refused has changed priorities")
	}
	var a nn.Archive
	if err := b.Save(&a); err != nil {
		t.Fatal(err)
	}
	last := &a.Tensors[len(a.Tensors)-1]
	for _, words := range [][]uint64{last.Words[1:], {1, 2, 3, 4, math.Float64bits(math.NaN())}} {
		last.Words = words
		if err := NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 4}}).Restore(&a); err == nil {
			t.Errorf("priorities %v pass", words)
		}
	}
}

func TestPrioritisedAllocatesNothing(t *testing.T) {
	b := prioritised(t, 100, PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 100}})
	src, dst := numbered(0, 10), new(policies.Batch)
	priorities := make([]float32, 10)
	if n := testing.AllocsPerRun(100, func() {
		if err := errors.Join(b.Add(src), b.Sample(dst, 10, 0.4), b.Update(dst.Words(policies.Index), priorities)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("add, sample and update allocate %v times", n)
	}
}

// TestReserveCountsTheTree, with a limit in which only the rows would fit.
func TestReserveCountsTheTree(t *testing.T) {
	columns := policies.TransitionColumns(2, 1)
	rows := Price(1000, columns...)
	all := rows + 8*2*1024
	cfg := func(limit uint64) PrioritisedConfig {
		return PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 1000, LimitBytes: limit}}
	}
	for _, limit := range []uint64{rows, all - 1} {
		err := NewPrioritised(cfg(limit)).Reserve(columns...)
		if want := fmt.Sprintf("1000 rows take %d bytes, LimitBytes allows %d", all, limit); !errors.Is(err,
			ErrMemory) || !strings.Contains(err.Error(), want) {
			t.Errorf("a limit of %d: %v, want %s", limit, err, want)
		}
	}
	b := NewPrioritised(cfg(all))
	if err := b.Reserve(columns...); err != nil {
		t.Error(err)
	}
	if err := b.Add(numbered(0, 1)); err != nil || b.Bytes() != all {
		t.Errorf("%d bytes, want %d: %v", b.Bytes(), all, err)
	}
}

// Push one row and sample 64 of 100,000; then also give them priorities.
func BenchmarkReplay(b *testing.B) {
	one, all := numbered(0, 1), numbered(0, 100_000)
	dst, priorities := new(policies.Batch), make([]float32, 64)
	for i := range priorities {
		priorities[i] = float32(i)
	}
	b.Run("uniform", func(b *testing.B) {
		buf := NewUniform(UniformConfig{})
		_ = buf.Add(all)
		b.ReportAllocs()
		for b.Loop() {
			if err := errors.Join(buf.Add(one), buf.Sample(dst, 64)); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, update := range []bool{false, true} {
		name := "prioritised"
		if update {
			name += "+update"
		}
		b.Run(name, func(b *testing.B) {
			buf := NewPrioritised(PrioritisedConfig{})
			_ = buf.Add(all)
			b.ReportAllocs()
			for b.Loop() {
				err := errors.Join(buf.Add(one), buf.Sample(dst, 64, 0.4))
				if update {
					err = errors.Join(err, buf.Update(dst.Words(policies.Index), priorities))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
