package data

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// rewarded returns a batch of rows with the rewards from, from+1, ...
func rewarded(from, n int) *policies.Batch {
	b := new(policies.Batch)
	b.Init(policies.Column{Name: policies.Reward, Kind: policies.Float32})
	b.Resize(n)
	for i := range n {
		b.Floats(policies.Reward)[i] = float32(from + i)
	}
	return b
}

// TestSequencesComeInOrder, each so often, and the queue continues where it was saved.
func TestSequencesComeInOrder(t *testing.T) {
	run := func(restored bool) string {
		s := NewSequences(SequencesConfig{Length: 2, Batch: 2, Uses: 2})
		var got []string
		next := func() {
			var b policies.Batch
			if !s.Next(&b) {
				got = append(got, "none")
				return
			}
			got = append(got, fmt.Sprint(b.Floats(policies.Reward)))
			if err := s.Learned(&b); err != nil {
				t.Fatal(err)
			}
		}
		next()
		for _, b := range []*policies.Batch{rewarded(0, 2), rewarded(2, 6)} {
			if err := s.Add(b); err != nil {
				t.Fatal(err)
			}
		}
		next()
		if restored {
			var a nn.Archive
			if err := s.Save(&a); err != nil {
				t.Fatal(err)
			}
			s = NewSequences(SequencesConfig{Length: 2, Batch: 2, Uses: 2})
			if err := s.Restore(&a); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			next()
		}
		return strings.Join(got, " ")
	}
	const want = "none [0 1 2 3] [0 1 2 3] [4 5 6 7] [4 5 6 7] none"
	if got := run(false); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := run(true); got != want {
		t.Errorf("restored: %s, want %s", got, want)
	}
}

func TestSequencesRefuse(t *testing.T) {
	s := NewSequences(SequencesConfig{Length: 2})
	if err := s.Add(rewarded(0, 3)); err == nil || err.Error() != "add to sequences: 3 rows, want whole sequences of 2 steps" {
		t.Error(err)
	}
	var other policies.Batch
	other.Init(policies.TransitionColumns(1, 1)...)
	if err := s.Add(rewarded(0, 4)); err != nil || s.Len() != 2 {
		t.Error(s.Len(), err)
	}
	if err := s.Add(&other); err == nil || !strings.Contains(err.Error(), "batch of 8 columns, want 1") {
		t.Error(err)
	}
	var a nn.Archive
	if err := s.Restore(&a); err == nil {
		t.Error("an empty archive passes")
	}
	if err := s.Save(&a); err != nil {
		t.Fatal(err)
	}
	if err := NewSequences(SequencesConfig{Length: 3}).Restore(&a); err == nil || !strings.Contains(err.Error(),
		"4 rows used 0 times, want whole sequences of 3 steps") {
		t.Error(err)
	}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "Length is 0") || !strings.Contains(p, "Batch -1") {
			t.Errorf("panic %s", p)
		}
	}()
	NewSequences(SequencesConfig{Batch: -1})
}

// TestReplayUpdatesSoOften: that many for that many new rows, and none before there are enough of them;
// also across a checkpoint.
func TestReplayUpdatesSoOften(t *testing.T) {
	for _, restored := range []bool{false, true} {
		build := func() *Replay {
			return NewReplay(NewUniform(UniformConfig{Capacity: 100}), ReplayConfig{Batch: 4, Every: 3, Updates: 2, StartAt: 10})
		}
		r := build()
		var updates []int
		for _, n := range []int{9, 1, 1, 1, 7, 3} {
			if err := r.Add(rewarded(0, n)); err != nil {
				t.Fatal(err)
			}
			if restored {
				var a nn.Archive
				if err := r.Save(&a); err != nil {
					t.Fatal(err)
				}
				r = build()
				if err := r.Restore(&a); err != nil {
					t.Fatal(err)
				}
			}
			k := 0
			for b := (policies.Batch{}); r.Next(&b); k++ {
				if b.N != 4 {
					t.Errorf("a batch of %d rows", b.N)
				}
			}
			updates = append(updates, k)
		}
		// The rows that count are those from the addition on that makes ten.
		if fmt.Sprint(updates) != "[0 0 0 2 4 2]" {
			t.Errorf("restored %v: updates %v", restored, updates)
		}
	}
}

// TestReplayGivesPriorities that the policy has written.
func TestReplayGivesPriorities(t *testing.T) {
	buf := NewPrioritised(PrioritisedConfig{UniformConfig: UniformConfig{Capacity: 8}})
	betas := []int{}
	r := NewReplay(buf, ReplayConfig{Batch: 4, StartAt: 4, Beta: func(n int) float64 { betas = append(betas, n); return 1 }})
	if err := r.Add(rewarded(0, 4)); err != nil {
		t.Fatal(err)
	}
	var b policies.Batch
	for r.Next(&b) {
		for i, reward := range b.Floats(policies.Reward) {
			b.Floats(policies.TDError)[i] = 0
			if reward == 2 {
				b.Floats(policies.TDError)[i] = 1e9
			}
		}
		if err := r.Learned(&b); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(b.Floats(policies.Reward)); got != "[2 2 2 2]" || fmt.Sprint(betas) != "[0 1 2 3]" {
		t.Errorf("rows %s, beta asked for at %v", got, betas)
	}
}

func TestReplayRefuses(t *testing.T) {
	for want, cfg := range map[string]ReplayConfig{
		"replay config: StartAt 64 and Batch 64 are beyond the buffer's capacity of 10":  {},
		"replay config: Batch 4, Updates -1, Every 0 and StartAt 0 must not be negative": {Batch: 4, Updates: -1},
		"replay config: StartAt 11 and Batch 4 are beyond the buffer's capacity of 10":   {Batch: 4, StartAt: 11},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); p != want {
					t.Errorf("panic %q, want %q", p, want)
				}
			}()
			NewReplay(NewUniform(UniformConfig{Capacity: 10}), cfg)
		}()
	}
	r := NewReplay(NewUniform(UniformConfig{Capacity: 10}), ReplayConfig{Batch: 4})
	var a nn.Archive
	if err := r.Restore(&a); err == nil || !strings.Contains(err.Error(), "restore replay: ") {
		t.Error(err)
	}
	if err := r.Save(&a); err != nil {
		t.Fatal(err)
	}
	a.Set("replay/due", 3)
	if err := r.Restore(&a); err == nil || !strings.Contains(err.Error(), "restore replay: 3 updates are due, with 0 of 4 rows") {
		t.Error(err)
	}
}
