package nprand_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/ditask/ditask/envs/nprand"
)

var _ rand.Source = (*nprand.PCG64)(nil)

type golden struct {
	Seed    uint64   `json:"seed,string"`
	State   []string `json:"state"`
	Raw     []string `json:"raw"`
	Uniform []string `json:"uniform"`
}

func load(t *testing.T) []golden {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []golden
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestSameNumbersAsNumpy(t *testing.T) {
	for _, row := range load(t) {
		t.Run(fmt.Sprint(row.Seed), func(t *testing.T) {
			state := make([]uint64, len(row.State))
			nprand.NewSeedSequence(row.Seed).Generate(state)
			for i, want := range row.State {
				if got := strconv.FormatUint(state[i], 10); got != want {
					t.Errorf("state[%d] = %s, numpy has %s", i, got, want)
				}
			}
			raw := nprand.New(row.Seed)
			for i, want := range row.Raw {
				if got := strconv.FormatUint(raw.Uint64(), 10); got != want {
					t.Errorf("raw[%d] = %s, numpy has %s", i, got, want)
				}
			}
			uniform := make([]float64, len(row.Uniform))
			nprand.New(row.Seed).Uniform(uniform, -0.05, 0.05)
			for i, text := range row.Uniform {
				want, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Fatal(err)
				}
				if uniform[i] != want {
					t.Errorf("uniform[%d] = %x, numpy has %s", i, uniform[i], text)
				}
			}
		})
	}
}

func TestDrawingAllocatesNothing(t *testing.T) {
	r := nprand.New(1)
	dst := make([]float64, 4)
	if n := testing.AllocsPerRun(100, func() { r.Uniform(dst, 0, 1) }); n != 0 {
		t.Errorf("Uniform allocates %v times", n)
	}
}

func ExampleNew() {
	state := make([]float64, 2)
	nprand.New(42).Uniform(state, -0.05, 0.05)
	fmt.Printf("%.8f\n", state)
	// Output: [0.02739560 -0.00611216]
}

func BenchmarkUint64(b *testing.B) {
	b.ReportAllocs()
	r := nprand.New(1)
	for b.Loop() {
		r.Uint64()
	}
}
