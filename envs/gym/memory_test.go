package gym

import (
	"math"
	"slices"
	"testing"
)

func TestRowsOfAnySize(t *testing.T) {
	rng := random()
	for dim := 1; dim <= 70; dim++ {
		bytewise, floats := places(3, dim, 1, 0, true, true), places(3, dim, 1, 0, false, true)
		for _, m := range []*memory{bytewise, floats} {
			m.b = make([]byte, m.Size)
			want, got := make([]float32, dim), make([]float32, dim)
			for k := range want {
				if m == bytewise {
					x := byte(rng.IntN(256))
					m.b[m.Obs+m.Row+headBytes+k], want[k] = x, float32(x)
					continue
				}
				want[k] = float32(rng.NormFloat64())
				setFloat(m, 1, k, want[k])
			}
			if m.row(got, m.Obs, 1); !slices.Equal(got, want) {
				t.Errorf("%d values: %v, not %v", dim, got, want)
			}
			if x, k := m.notFinite(m.Obs, 1); k != -1 {
				t.Errorf("%d values: value %d is %v", dim, k, x)
			}
		}
		for k := range dim {
			for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
				setFloat(floats, 1, k, bad)
				if _, at := floats.notFinite(floats.Obs, 1); at != k {
					t.Errorf("%d values: %v is found at %d, not %d", dim, bad, at, k)
				}
			}
			setFloat(floats, 1, k, 1)
		}
	}
}

func setFloat(m *memory, row, k int, x float32) {
	bits := math.Float32bits(x)
	at := m.Obs + row*m.Row + headBytes + 4*k
	m.b[at], m.b[at+1], m.b[at+2], m.b[at+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
}
