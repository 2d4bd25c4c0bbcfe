package policies_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies"
)

// chain returns the transition from observation i to i+1 with reward 1, 2, 4 ...
func chain(i int) policies.Transition {
	return policies.Transition{
		Obs: []float32{float32(i)}, NextObs: []float32{float32(i + 1)}, Action: []float32{float32(i % 2)},
		Reward: float32(int(1) << i), Steps: 1, Version: uint64(10 + i),
	}
}

func TestP1NStepReturnsEqualHandComputedNumbers(t *testing.T) {
	type row struct {
		obs, next, reward     float32
		steps                 uint8
		terminated, truncated bool
		version               uint64
	}
	for _, c := range []struct {
		name      string
		n         int
		terminate bool
		want      []row
	}{
		{"one step", 1, true, []row{
			{0, 1, 1, 1, false, false, 10}, {1, 2, 2, 1, false, false, 11},
			{2, 3, 4, 1, false, false, 12}, {3, 4, 8, 1, true, false, 13},
		}},
		{"three steps, terminated", 3, true, []row{
			{0, 3, 1 + .5*2 + .25*4, 3, false, false, 10}, {1, 4, 2 + .5*4 + .25*8, 3, true, false, 11},
			{2, 4, 4 + .5*8, 2, true, false, 12}, {3, 4, 8, 1, true, false, 13},
		}},
		{"three steps, truncated", 3, false, []row{
			{0, 3, 3, 3, false, false, 10}, {1, 4, 6, 3, false, true, 11},
			{2, 4, 8, 2, false, true, 12}, {3, 4, 8, 1, false, true, 13},
		}},
		{"more steps than the episode", 9, true, []row{
			{0, 4, 1 + 1 + 1 + 1, 4, true, false, 10}, {1, 4, 2 + 2 + 2, 3, true, false, 11},
			{2, 4, 4 + 4, 2, true, false, 12}, {3, 4, 8, 1, true, false, 13},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := policies.NewNStep(c.n, 0.5, 2)
			for episode := range 2 {
				var b policies.Batch
				b.Init(policies.TransitionColumns(1, 1)...)
				var other policies.Batch
				other.Init(policies.TransitionColumns(1, 1)...)
				for i := range 4 {
					tr := chain(i)
					tr.Terminated, tr.Truncated = i == 3 && c.terminate, i == 3 && !c.terminate
					s.Add(&b, 1, tr)
					s.Add(&other, 0, chain(i%2)) // another environment does not disturb
				}
				var got []row
				for i := range b.Len() {
					e := b.At(i)
					got = append(got, row{e.Obs[0], e.NextObs[0], e.Reward, uint8(e.Steps), e.Terminated, e.Truncated, e.Version})
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("episode %d: %+v\nwant %+v", episode, got, c.want)
				}
			}
		})
	}
}

func TestNStepDropForgets(t *testing.T) {
	s := policies.NewNStep(2, 1, 1)
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	s.Add(&b, 0, chain(0))
	s.Drop(0)
	s.Add(&b, 0, chain(2))
	s.Add(&b, 0, chain(3))
	if b.Len() != 1 || b.Floats("reward")[0] != 12 {
		t.Errorf("rewards %v, want the one of 4 + 8", b.Floats("reward"))
	}
}

func TestSchedules(t *testing.T) {
	lin, exp := policies.Linear(1, 0.1, 100), policies.Exponential(0.95, 0.1, 50)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"linear start", lin(0), 1}, {"linear before", lin(-5), 1}, {"linear middle", lin(50), 0.55},
		{"linear end", lin(100), 0.1}, {"linear after", lin(1000), 0.1}, {"no way", policies.Linear(1, 0.5, 0)(0), 0.5},
		{"exp start", exp(0), 0.95}, {"exp one scale", exp(50), 0.1 + 0.85/math.E}, {"constant", policies.Constant(3)(9), 3},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestEpsGreedyExploresAsOftenAsTold(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 100_000
	for _, eps := range []float64{0, 0.3, 1} {
		actions := make([]int, n)
		policies.EpsGreedy(actions, eps, 4, rng)
		counts := [4]int{}
		for _, a := range actions {
			counts[a]++
		}
		for a, k := range counts {
			want := eps / 4
			if a == 0 {
				want += 1 - eps
			}
			if got := float64(k) / n; math.Abs(got-want) > 0.01 {
				t.Errorf("epsilon %v: action %d is chosen %v of the time, want %v", eps, a, got, want)
			}
		}
	}
}

func TestBatchCheckRefuses(t *testing.T) {
	good := func() *policies.Batch {
		var b policies.Batch
		b.Init(policies.TransitionColumns(1, 1)...)
		b.Append(chain(1))
		return &b
	}
	columns := policies.TransitionColumns(1, 1)
	if err := good().Check(columns...); err != nil {
		t.Error(err)
	}
	if err := good().Check(policies.TransitionColumns(2, 1)...); err == nil {
		t.Error("another dimension passes")
	}
	if err := good().Check(columns[:7]...); err == nil {
		t.Error("one column more passes")
	}
	for i, spoil := range []func(*policies.Batch){
		func(b *policies.Batch) { b.Columns[0].Floats = nil },
		func(b *policies.Batch) { b.Columns[3].Floats = append(b.Columns[3].Floats, 1) },
		func(b *policies.Batch) { b.Columns[4].Bytes = nil },
		func(b *policies.Batch) { b.Columns[7].Words = nil },
		func(b *policies.Batch) { b.Columns[7].Ints = []int32{1} },
		func(b *policies.Batch) { b.Columns[2].Kind = policies.Int32 },
		func(b *policies.Batch) { b.Columns[2].Name = "return" },
		func(b *policies.Batch) { b.Columns = b.Columns[:7] },
		func(b *policies.Batch) { b.N = 2 },
		func(b *policies.Batch) { b.N = -1 },
	} {
		b := good()
		spoil(b)
		if b.Check(columns...) == nil {
			t.Errorf("fault %d passes", i)
		}
	}
}

func TestBatchKeepsItsMemory(t *testing.T) {
	var a, b policies.Batch
	columns := policies.TransitionColumns(1, 1)
	a.Init(columns...)
	tr := chain(1)
	s := policies.NewNStep(3, 0.9, 1)
	if n := testing.AllocsPerRun(100, func() {
		a.Init(columns...)
		for range 10 {
			s.Add(&a, 0, tr)
		}
		b.InitLike(&a)
		b.AppendBatch(&a)
	}); n != 0 {
		t.Errorf("filling a batch again allocates %v times", n)
	}
}

func TestCheckRefusesDimensionsThatOverflow(t *testing.T) {
	for _, shape := range [][]int{{1 << 62}, {1 << 31, 1 << 31}, {-1}, {-2, -2}} {
		c := policies.Column{Name: "x", Kind: policies.Float32, Shape: shape}
		b := policies.Batch{N: 4, Columns: []policies.Block{{Column: c}}} // 4 times 2^62 is 0
		if err := b.Check(c); err == nil {
			t.Errorf("4 rows of shape %v in no values pass", shape)
		}
	}
}

// FuzzNStepUnmarshalJSON reads what a checkpoint holds of pending transitions.
func FuzzNStepUnmarshalJSON(f *testing.F) {
	s := policies.NewNStep(3, 0.5, 1)
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	s.Add(&b, 0, chain(0))
	text, err := s.MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		s := policies.NewNStep(3, 0.5, 1)
		if s.UnmarshalJSON(text) != nil {
			return
		}
		if s.Check(policies.TransitionColumns(1, 1)...) == nil {
			var b policies.Batch
			b.Init(policies.TransitionColumns(1, 1)...)
			for i := range 4 {
				s.Add(&b, 0, chain(i))
			}
			if b.Len() == 0 {
				t.Fatal("nothing comes out")
			}
		}
		s.Drop(0)
		if _, err := s.MarshalJSON(); err != nil {
			t.Log(err) // JSON has no infinity
		}
	})
}

func ExampleNStep() {
	s := policies.NewNStep(2, 0.5, 1)
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for i := range 3 {
		s.Add(&b, 0, policies.Transition{
			Obs: []float32{float32(i)}, NextObs: []float32{float32(i + 1)}, Action: []float32{0},
			Reward: 1, Terminated: i == 2, Steps: 1,
		})
	}
	for i := range b.Len() {
		t := b.At(i)
		fmt.Println(t.Reward, t.NextObs, t.Steps, t.Terminated)
	}
	// Output:
	// 1.5 [2] 2 false
	// 1.5 [3] 2 true
	// 1 [3] 1 true
}

func ExampleLinear() {
	epsilon := policies.Linear(1, 0.05, 10_000)
	fmt.Printf("%.3f %.3f %.3f\n", epsilon(0), epsilon(5_000), epsilon(20_000))
	// Output: 1.000 0.525 0.050
}
