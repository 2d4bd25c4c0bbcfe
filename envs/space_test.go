package envs_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/envs"
)

func TestSpaces(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		space   envs.Space
		dim     int
		text    string
		outside [][]float32
	}{
		{envs.Box{Low: []float32{-1, -inf, 0, -inf}, High: []float32{1, inf, inf, 5}}, 4, "Box([-1 -Inf 0 -Inf], [1 +Inf +Inf 5])",
			[][]float32{nil, {0, 0, 0}, {2, 0, 0, 0}, {0, 0, -1, 0}, {0, nan, 0, 0}}},
		{envs.NewPixels(2, 2), 4, "Pixels([2 2])", [][]float32{{0, 0, 0}, {0, 0, 0, 256}, {0.5, 0, 0, 0}, {-1, 0, 0, 0}, {nan, 0, 0, 0}}},
		{envs.Discrete{N: 3, Start: -1}, 1, "Discrete(3, start=-1)",
			[][]float32{nil, {0, 0}, {-2}, {2}, {0.5}, {nan}, {inf}, {-inf}, {math.MaxFloat32}, {-math.MaxFloat32}, {1e19}}},
		{envs.Discrete{N: 2}, 1, "Discrete(2)", [][]float32{{2}, {-1}}},
		{envs.MultiDiscrete{N: []int{2, 3}}, 2, "MultiDiscrete([2 3])", [][]float32{{0}, {2, 0}, {0, 3}, {0, -1}, {0, nan}, {0, 0.5}}},
		{envs.MultiBinary{N: 3}, 3, "MultiBinary(3)", [][]float32{{0, 1}, {0, 1, 2}, {0, 1, nan}, {0, 0.5, 1}}},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		if c.space.Dim() != c.dim || c.space.String() != c.text {
			t.Errorf("%v has %d values, want %s with %d", c.space, c.space.Dim(), c.text, c.dim)
		}
		v := make([]float32, c.dim)
		for range 1000 {
			if c.space.Sample(v, r); !c.space.Contains(v) {
				t.Fatalf("%v sampled %v", c.space, v)
			}
		}
		for _, v := range c.outside {
			if c.space.Contains(v) {
				t.Errorf("%v contains %v", c.space, v)
			}
		}
		if n := testing.AllocsPerRun(10, func() { c.space.Sample(v, r); c.space.Contains(v) }); n != 0 {
			t.Errorf("%v allocates %v times", c.space, n)
		}
	}
}
