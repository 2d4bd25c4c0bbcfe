package data

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// collected has n steps, whose observations are their numbers.
func collected(n int) *policies.Batch {
	var b policies.Batch
	b.Init(policies.Column{Name: policies.Obs, Kind: policies.Float32}, policies.Column{Name: policies.Reward, Kind: policies.Float32},
		policies.Column{Name: policies.Value, Kind: policies.Float32}, policies.Column{Name: policies.Bootstrap, Kind: policies.Float32},
		policies.Column{Name: policies.Terminated, Kind: policies.Bool}, policies.Column{Name: policies.Truncated, Kind: policies.Bool})
	b.Resize(n)
	for i := range b.Columns {
		clear(b.Columns[i].Floats)
		clear(b.Columns[i].Bytes)
	}
	for i := range n {
		b.Floats(policies.Obs)[i] = float32(i)
		b.Floats(policies.Reward)[i] = 1
	}
	return &b
}

// TestEachEpochHasAllRowsOnce, in minibatches of equal size, give or take one, and another order.
func TestEachEpochHasAllRowsOnce(t *testing.T) {
	r := NewRollout(RolloutConfig{Length: 7, Epochs: 3, Minibatches: 4, Seed: 2})
	if err := r.Add(collected(14)); err != nil {
		t.Fatal(err)
	}
	var mini policies.Batch
	var orders [][]float32
	for epoch := range 3 {
		var seen []float32
		for range 4 {
			if !r.Next(&mini) || mini.N < 3 || mini.N > 4 {
				t.Fatalf("epoch %d: a minibatch of %d rows", epoch, mini.N)
			}
			seen = append(seen, mini.Floats(policies.Obs)...)
		}
		orders = append(orders, slices.Clone(seen))
		slices.Sort(seen)
		for i, v := range seen {
			if v != float32(i) {
				t.Fatalf("epoch %d has the rows %v", epoch, seen)
			}
		}
	}
	if r.Next(&mini) {
		t.Error("there is a fourth epoch")
	}
	if slices.Equal(orders[0], orders[1]) || slices.Equal(orders[1], orders[2]) {
		t.Errorf("orders %v", orders)
	}
}

// TestMinibatchesOfSequencesAreWhole: each epoch has every sequence once, its steps in their order, and
// another order of sequences.
func TestMinibatchesOfSequencesAreWhole(t *testing.T) {
	r := NewRollout(RolloutConfig{Length: 3, Epochs: 2, Minibatches: 2, Seed: 2, Sequences: true})
	if err := r.Add(collected(15)); err != nil {
		t.Fatal(err)
	}
	var mini policies.Batch
	var orders [2][]float32
	for epoch := range orders {
		for i := range 2 {
			if !r.Next(&mini) || mini.N != 6+3*i {
				t.Fatalf("epoch %d: a minibatch of %d rows", epoch, mini.N)
			}
			obs := mini.Floats(policies.Obs)
			for row := 0; row < mini.N; row += 3 {
				first := obs[row]
				if int(first)%3 != 0 || obs[row+1] != first+1 || obs[row+2] != first+2 {
					t.Errorf("epoch %d has the rows %v", epoch, obs)
				}
				orders[epoch] = append(orders[epoch], first)
			}
		}
	}
	if r.Next(&mini) || slices.Equal(orders[0], orders[1]) {
		t.Errorf("orders %v, or a third epoch", orders)
	}
	for _, order := range orders {
		if slices.Sort(order); !slices.Equal(order, []float32{0, 3, 6, 9, 12}) {
			t.Errorf("an epoch has the sequences at %v", order)
		}
	}
	r = NewRollout(RolloutConfig{Length: 4, Minibatches: 3, Sequences: true})
	if err := r.Add(collected(8)); err == nil || !strings.Contains(err.Error(), "fewer than 3 minibatches") {
		t.Errorf("2 sequences for 3 minibatches: %v", err)
	}
}

// TestRolloutComputesAdvantages in the order of the steps, whatever that of the rows.
func TestRolloutComputesAdvantages(t *testing.T) {
	r := NewRollout(RolloutConfig{Length: 3, Gamma: 0.99, Lambda: 0.95, Epochs: 1, Minibatches: 1})
	b := collected(3)
	copy(b.Floats(policies.Value), []float32{0.5, 0.6, 0.7})
	b.Bytes(policies.Truncated)[2], b.Floats(policies.Bootstrap)[2] = 1, 0.8
	if err := r.Add(b); err != nil {
		t.Fatal(err)
	}
	var mini policies.Batch
	if !r.Next(&mini) || r.Len() != 3 {
		t.Fatal("nothing to learn from")
	}
	for i, k := range mini.Floats(policies.Obs) {
		a, want := []float32{3.087884, 2.120026, 1.092}[int(k)], []float32{3.587884, 2.720026, 1.792}[int(k)]
		if got := []float32{mini.Floats(policies.Advantage)[i], mini.Floats(policies.Return)[i]}; !near(got, []float32{a, want}) {
			t.Errorf("step %v: %v, want %v and %v", k, got, a, want)
		}
	}
}

// TestRolloutScalesRewards once, with the scale at the first minibatch, and not those of the caller.
func TestRolloutScalesRewards(t *testing.T) {
	r := NewRollout(RolloutConfig{Length: 3, Gamma: 0.99, Lambda: 0.95, Epochs: 2, Minibatches: 1})
	scale, calls := float32(1), 0
	r.ScaleRewards(func(rewards []float32) {
		calls++
		for i := range rewards {
			rewards[i] *= scale
		}
	})
	b := collected(3)
	copy(b.Floats(policies.Reward), []float32{4, 4, 4})
	copy(b.Floats(policies.Value), []float32{0.5, 0.6, 0.7})
	b.Bytes(policies.Terminated)[2] = 1
	for round := 1; round <= 2; round++ {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
		scale = 0.25 // as what the rows told of has changed it
		var mini policies.Batch
		for r.Next(&mini) {
			for i, k := range mini.Floats(policies.Obs) {
				want := []float32{[]float32{2.387329, 1.37515, 0.3}[int(k)], []float32{2.887329, 1.97515, 1}[int(k)]}
				if got := []float32{mini.Floats(policies.Advantage)[i], mini.Floats(policies.Return)[i]}; !near(got, want) {
					t.Errorf("step %v: %v, want %v", k, got, want)
				}
			}
		}
		if calls != round || b.Floats(policies.Reward)[0] != 4 {
			t.Errorf("%d calls after %d additions; the caller's reward is %v", calls, round, b.Floats(policies.Reward)[0])
		}
	}
}

func TestP4RestoredRolloutGivesTheSameOrders(t *testing.T) {
	cfg := RolloutConfig{Length: 4, Seed: 3}
	straight, resumed := NewRollout(cfg), NewRollout(RolloutConfig{Length: 4, Seed: 9})
	pass := func(r *Rollout) (rows []float32) {
		if err := r.Add(collected(8)); err != nil {
			t.Fatal(err)
		}
		var mini policies.Batch
		for r.Next(&mini) {
			rows = append(rows, mini.Floats(policies.Obs)...)
		}
		return rows
	}
	pass(straight)
	pass(resumed)
	var a nn.Archive
	if err := straight.Save(&a); err != nil {
		t.Fatal(err)
	}
	if err := resumed.Restore(&a); err != nil {
		t.Fatal(err)
	}
	var mini policies.Batch
	if resumed.Next(&mini) || resumed.Len() != 0 {
		t.Error("a restored rollout has rows")
	}
	if x, y := pass(straight), pass(resumed); len(x) != 32 || !slices.Equal(x, y) {
		t.Errorf("orders %v and %v", x, y)
	}
	for _, text := range []string{"", "x", "00"} {
		a.SetText("rollout/random", text)
		if err := resumed.Restore(&a); err == nil {
			t.Errorf("random state %q passes", text)
		}
	}
}

func TestRolloutRefuses(t *testing.T) {
	r := NewRollout(RolloutConfig{Length: 4, Minibatches: 5})
	for want, b := range map[string]*policies.Batch{
		"0 rows, want whole sequences of 4 steps": collected(0), "6 rows, want": collected(6),
		"4 rows are fewer than 5 minibatches":       collected(4),
		"want the columns reward, value, bootstrap": func() *policies.Batch { b := collected(8); b.Columns = b.Columns[:5]; return b }(),
		`column "obs" of 8 rows`:                    func() *policies.Batch { b := collected(8); b.Columns[0].Floats = nil; return b }(),
	} {
		if err := r.Add(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	whole := NewRollout(RolloutConfig{Length: 4, Minibatches: 3, Sequences: true})
	const few = "2 sequences of 4 steps are fewer than 3 minibatches, which are of whole sequences: " +
		"want fewer minibatches or more environments"
	if err := whole.Add(collected(8)); err == nil || !strings.Contains(err.Error(), few) {
		t.Errorf("%v, want %s", err, few)
	}
	defer func() {
		p := fmt.Sprint(recover())
		for _, want := range []string{"Length is 0", "Gamma is 2", "Lambda is -1", "Epochs is -1", "Minibatches is -1"} {
			if !strings.Contains(p, want) {
				t.Errorf("panic %q, want %s", p, want)
			}
		}
	}()
	NewRollout(RolloutConfig{Gamma: 2, Lambda: -1, Epochs: -1, Minibatches: -1})
}

func TestRolloutAllocatesNothing(t *testing.T) {
	for _, sequences := range []bool{false, true} {
		r, b := NewRollout(RolloutConfig{Length: 4, Sequences: sequences}), collected(16)
		var mini policies.Batch
		if n := testing.AllocsPerRun(20, func() {
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
			for r.Next(&mini) {
			}
		}); n != 0 {
			t.Errorf("sequences %v: a rollout allocates %v times", sequences, n)
		}
	}
}
