package policies_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// TestGaussianNoiseHasItsDeviation in units of half of each interval, its limit, and the box's bounds.
func TestGaussianNoiseHasItsDeviation(t *testing.T) {
	box := envs.Box{Low: []float32{-2, 10}, High: []float32{2, 30}}
	const n = 20_000
	actions := make([]float32, 2*n)
	start := func() {
		for i := range n {
			actions[2*i], actions[2*i+1] = 0, 20
		}
	}
	start()
	policies.GaussianNoise(actions, box, 0.1, 0, rand.New(rand.NewPCG(1, 1)))
	for k, c := range []struct{ mean, std float64 }{{0, 0.2}, {20, 1}} {
		var sum, squares float64
		for i := range n {
			d := float64(actions[2*i+k]) - c.mean
			sum += d
			squares += d * d
		}
		if std := math.Sqrt(squares / n); math.Abs(std/c.std-1) > 0.03 || math.Abs(sum/n) > 0.03*c.std {
			t.Errorf("value %d: deviation %v about %v, want %v", k, std, c.mean+sum/n, c.std)
		}
	}
	start()
	policies.GaussianNoise(actions, box, 0.5, 0.25, rand.New(rand.NewPCG(1, 1)))
	for i, least, most := 0, []float32{-0.5, 17.5}, []float32{0.5, 22.5}; i < len(actions); i++ {
		if a := actions[i]; a < least[i%2] || a > most[i%2] {
			t.Fatalf("action %v is beyond the limit of the noise", a)
		}
	}
	if !slices.Contains(actions, 0.5) || !slices.Contains(actions, 17.5) {
		t.Error("no noise comes to its limit")
	}
	policies.GaussianNoise(actions, box, 10, 0, rand.New(rand.NewPCG(1, 1)))
	if slices.Max(actions) != 30 || slices.Min(actions) != -2 {
		t.Errorf("actions from %v to %v, want them in the box", slices.Min(actions), slices.Max(actions))
	}
}

func ExampleGaussianNoise() {
	box := envs.NewBox(-2, 2, 1)
	actions := []float32{-2.5, 0, 2}
	policies.GaussianNoise(actions, box, 0, 0, nil)
	fmt.Println(actions)
	policies.GaussianNoise(actions, box, 0.1, 0, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(box.Contains(actions[:1]), actions[1] != 0)
	// Output:
	// [-2 0 2]
	// true true
}

// TestOrnsteinUhlenbeckNoise: the process has the deviation and the correlation of one with theta 0.15 and dt 0.01, and
// begins at 0 in the rows of reset.
func TestOrnsteinUhlenbeckNoise(t *testing.T) {
	const rows, steps, std = 400, 4000, 0.5
	box := envs.Box{Low: []float32{-100, -400}, High: []float32{100, 400}}
	rng := rand.New(rand.NewPCG(1, 1))
	noise, actions := make([]float32, 2*rows), make([]float32, 2*rows)
	var before []float32
	for k := range steps {
		clear(actions)
		if policies.OrnsteinUhlenbeckNoise(actions, noise, nil, box, std, rng); k == steps-501 {
			before = slices.Clone(noise)
		}
	}
	var square, product float64
	for i, v := range noise {
		square += float64(v) * float64(v) / (2 * rows)
		product += float64(v) * float64(before[i]) / (2 * rows)
		if want := min(max(v*(box.High[i%2]-box.Low[i%2])/2, box.Low[i%2]), box.High[i%2]); math.Abs(float64(actions[i]-want)) > 1e-3 {
			t.Fatalf("action %v with the noise %v, want %v", actions[i], v, want)
		}
	}
	if want := std * std / 0.3; math.Abs(square/want-1) > 0.15 {
		t.Errorf("variance %v, want %v", square, want)
	}
	if want := math.Exp(-0.15 * 0.01 * 500); math.Abs(product/square-want) > 0.1 {
		t.Errorf("correlation %v after 500 steps, want %v", product/square, want)
	}
	reset := make([]bool, rows)
	reset[1] = true
	policies.OrnsteinUhlenbeckNoise(actions, noise, reset, box, 0, rng)
	if noise[2] != 0 || noise[3] != 0 || noise[0] == 0 {
		t.Errorf("noise %v after the reset of row 1", noise[:4])
	}
	narrow := envs.NewBox(-0.01, 0.01, 2)
	if policies.OrnsteinUhlenbeckNoise(actions, noise, nil, narrow, 1, rng); !narrow.Contains(actions[:2]) {
		t.Errorf("actions %v", actions[:2])
	}
}

// TestStateNoiseLastsForItsSteps: a row has one matrix for that many steps, and other rows have others.
func TestStateNoiseLastsForItsSteps(t *testing.T) {
	layer := nn.NewStateDeviation(1, nn.FanIn, 0)
	nn.New(1, 1, layer)
	rng := rand.New(rand.NewPCG(1, 1))
	noise, features := make([]float32, 2*(1+layer.Size())), []float32{2, 2}
	var got [7][2]float32
	for k := range got {
		policies.StateNoise(got[k][:], features, noise, layer, 3, rng)
	}
	var before [2]float32
	for k, a := range got {
		if same := a == before; same != (k%3 != 0) || a[0] == a[1] {
			t.Fatalf("noise %v, want a new one every 3 steps", got)
		}
		before = a
	}
}

func TestBoundedNamesTheValue(t *testing.T) {
	inf := float32(math.Inf(1))
	err := policies.Bounded(envs.Box{Low: []float32{0, -inf, 1, float32(math.NaN())}, High: []float32{0, 1, 2, 1}})
	for i := range 4 {
		want := fmt.Sprintf("of value %d, want finite", i)
		if err == nil || strings.Contains(err.Error(), want) != (i != 2) {
			t.Errorf("%v: %s", err, want)
		}
	}
	if err := policies.Bounded(envs.Box{Low: []float32{0}}); err == nil || !strings.Contains(err.Error(), "1 lower and 0 upper") {
		t.Errorf("%v", err)
	}
	if err := policies.Bounded(envs.NewBox(-1, 1, 3)); err != nil {
		t.Error(err)
	}
}

func TestActCheck(t *testing.T) {
	spec := policies.Spec{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 2)}
	act := policies.Act{Obs: make([]float32, 6), Action: make([]float32, 4)}
	if rows, err := act.Check(&spec); rows != 2 || err != nil {
		t.Errorf("%d rows, %v", rows, err)
	}
	act.Obs[4] = float32(math.NaN())
	if _, err := act.Check(&spec); err == nil || !strings.Contains(err.Error(), "tensor obs is not finite: value 4") {
		t.Errorf("%v", err)
	}
	for _, n := range [][2]int{{6, 3}, {5, 2}, {6, 6}} {
		act := policies.Act{Obs: make([]float32, n[0]), Action: make([]float32, n[1])}
		if _, err := act.Check(&spec); err == nil || !strings.Contains(err.Error(), "want 3 and 2 for each row") {
			t.Errorf("%v values: %v", n, err)
		}
	}
}

func TestP1TargetsEqualHandComputedNumbers(t *testing.T) {
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for i, steps := range []int{1, 3, 1, 1} {
		b.Append(policies.Transition{
			Obs: []float32{0}, Action: []float32{0}, NextObs: []float32{0}, Reward: float32(i), Steps: steps, Terminated: i == 2, Truncated: i == 3,
		})
	}
	got := b.Targets([]float32{7}, 0.5, []float32{8, 8, 8, 16})
	if want := []float32{7, 0 + 4, 1 + 1, 2, 3 + 8}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestP4NumbersAndRandomPartsAreExact, through a file.
func TestP4NumbersAndRandomPartsAreExact(t *testing.T) {
	numbers, source := []float32{1, 2}, rand.NewPCG(1, 2)
	source.Uint64()
	parts := policies.Parts{policies.ValuesPart("x.numbers", numbers, nil), policies.RandomPart("x.random", source)}
	var a, read nn.Archive
	if err := parts.Save(&a); err != nil {
		t.Fatal(err)
	}
	file, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := source.Uint64()
	numbers[1] = 9
	if err := read.UnmarshalBinary(file); err != nil {
		t.Fatal(err)
	}
	if err := parts.Restore(&read); err != nil || numbers[1] != 2 || source.Uint64() != want {
		t.Errorf("%v: %v", numbers, err)
	}
	for want, s := range map[string]nn.State{
		"tensor values has 0 values, want 2":  {},
		"tensor values is not finite":         {Tensors: []nn.Tensor{{Name: "values", Data: []float32{0, float32(math.NaN())}}}},
		"tensor values has 1 values, want 2:": {Tensors: []nn.Tensor{{Name: "values", Data: []float32{0}}}},
	} {
		if err := parts[0].Load(s); err == nil || !strings.Contains(err.Error()+":", want) || numbers[0] != 1 {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := parts[1].Load(nn.State{}); err == nil || !strings.Contains(err.Error(), "random state of 0 bytes") {
		t.Errorf("%v", err)
	}
}
