package data

import (
	"errors"
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
		b.Append(policies.Transition{Obs: []float32{0}, Action: []float32{0}, NextObs: []float32{0}, Reward: float32(first + i), Steps: 1, Version: version})
	}
	return &b
}

// TestNoRowIsUsedTooOften, also of rows that replace older ones, and all uses are made.
func TestNoRowIsUsedTooOften(t *testing.T) {
	const most = 3
	b := NewUniform(UniformConfig{Capacity: 50, Seed: 1, MaxUses: most})
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
func TestNoOldRowIsDrawn(t *testing.T) {
	b := NewUniform(UniformConfig{Capacity: 100, Seed: 1, MaxAge: 5})
	for version := range uint64(10) {
		if err := b.Add(versioned(int(10*version), 10, version)); err != nil {
			t.Fatal(err)
		}
	}
	var s policies.Batch
	seen := map[uint64]bool{}
	for range 50 {
		if err := b.Sample(&s, 20); err != nil {
			t.Fatal(err)
		}
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
	if err := b.Sample(&s, 2); err == nil { // the one row is drawn twice
		if r := s.Floats(policies.Reward); !slices.Equal(r, []float32{0, 0}) {
			t.Errorf("drew %v", r)
		}
	}
	var plain policies.Batch
	plain.Init(policies.Column{Name: policies.Obs, Kind: policies.Float32})
	plain.Resize(1)
	if err := NewUniform(UniformConfig{MaxAge: 1}).Add(&plain); err == nil || !strings.Contains(err.Error(), "no column version") {
		t.Error(err)
	}
}

// TestLimitsAreRestored to the bit, and damage is refused.
func TestLimitsAreRestored(t *testing.T) {
	cfg := UniformConfig{Capacity: 40, Seed: 3, MaxUses: 2, MaxAge: 3}
	build := func() *Uniform { return NewUniform(cfg) }
	go1 := func(b *Uniform, from, to int) (drawn []float32) {
		var s policies.Batch
		for i := from; i < to; i++ {
			if err := b.Add(versioned(7*i, 7, uint64(i/2))); err != nil {
				t.Fatal(err)
			}
			if err := b.Sample(&s, 5); err == nil {
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
	at := slices.IndexFunc(archive.Tensors, func(t nn.Tensor) bool { return t.Name == freshPart+"/rows" })
	words := archive.Tensors[at].Words
	for name, damaged := range map[string][]uint64{
		"none": {}, "a row beyond": {0, 40 << 32}, "twice": {0, 1 << 32, 1 << 32}, "too many": append(slices.Clone(words), make([]uint64, 50)...),
	} {
		archive.Tensors[at].Words = damaged
		if err := build().Restore(&archive); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
	for _, bad := range []func(){
		func() { NewUniform(UniformConfig{MaxUses: -1}) },
		func() { NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{MaxUses: 1}}) },
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
	b := NewUniform(UniformConfig{Capacity: 100, MaxUses: 1000, MaxAge: 10})
	rows := versioned(0, 10, 1)
	var s policies.Batch
	if n := testing.AllocsPerRun(100, func() {
		_ = b.Add(rows)
		_ = b.Sample(&s, 8)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
