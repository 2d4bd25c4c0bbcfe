package train

import (
	"slices"
	"testing"
)

// A curve keeps its shape in bounded size.
func TestCurveIsBounded(t *testing.T) {
	var c curve
	for i := range 10_000 {
		c.add(float64(i))
		if len(c.means) >= MaxCurve {
			t.Fatalf("%d values after %d", len(c.means), i)
		}
	}
	v := c.values(nil)
	if !slices.IsSorted(v) || v[0] > 100 || v[len(v)-1] < 9900 || len(v) < MaxCurve/2 {
		t.Errorf("%d values from %v to %v", len(v), v[0], v[len(v)-1])
	}
}
