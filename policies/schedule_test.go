package policies_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/ditask/ditask/policies"
)

// TestP1PiecewiseScheduleEqualsRLlibsNumbers.
func TestP1PiecewiseScheduleEqualsRLlibsNumbers(t *testing.T) {
	points := []policies.Point{{0, 50}, {25, 100}, {30, 200}}
	s, err := policies.PiecewiseLinear(points, 14.5)
	if err != nil {
		t.Fatal(err)
	}
	points[0].Value = 7 // the schedule has its own
	for count, want := range map[int]float64{0: 50, 1: 52, 10: 70, 24: 98, 25: 100, 27: 140, 29: 180, 30: 14.5, 1000: 14.5, -1: 14.5} {
		if got := s(count); math.Abs(got-want) > 1e-12 {
			t.Errorf("at %d: %v, want %v", count, got, want)
		}
	}
}

func TestPiecewiseScheduleReportsAllFaults(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		points  []policies.Point
		outside float64
		want    string
	}{
		{nil, 1, "piecewise schedule: 0 points, want at least 2"},
		{[]policies.Point{{5, 1}}, 1, "piecewise schedule: 1 points, want at least 2"},
		{[]policies.Point{{0, 1}, {5, 2}, {5, 3}}, 1, "piecewise schedule: point 2 is at 5, which is not after 5"},
		{[]policies.Point{{3, nan}, {2, 1}}, math.Inf(1), "piecewise schedule: the value of point 0 is NaN\n" +
			"piecewise schedule: point 1 is at 2, which is not after 3\npiecewise schedule: the value outside is +Inf"},
	} {
		s, err := policies.PiecewiseLinear(c.points, c.outside)
		if s != nil || err == nil || err.Error() != c.want {
			t.Errorf("%v: error %v, want %s", c.points, err, c.want)
		}
	}
}

func TestCosineSchedule(t *testing.T) {
	s := policies.Cosine(1, 0.2, 100)
	half := 0.4 * math.Sqrt2 / 2 // of the way, times the cosine of an eighth of a turn
	for count, want := range map[int]float64{-5: 1, 0: 1, 25: 0.6 + half, 50: 0.6, 75: 0.6 - half, 100: 0.2, 1000: 0.2} {
		if got := s(count); math.Abs(got-want) > 1e-12 {
			t.Errorf("at %d: %v, want %v", count, got, want)
		}
	}
	if got := policies.Cosine(1, 0.5, 0)(0); got != 0.5 {
		t.Errorf("over no counts: %v", got)
	}
}

func ExamplePiecewiseLinear() {
	// A warm-up of 1,000 steps, then down to a tenth, and that from there on.
	rate, err := policies.PiecewiseLinear([]policies.Point{{0, 0}, {1000, 1e-3}, {11_000, 1e-4}}, 1e-4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rate(500), rate(1000), rate(20_000))
	// Output: 0.0005 0.001 0.0001
}

func ExampleCosine() {
	rate := policies.Cosine(1, 0, 100)
	fmt.Printf("%.2f %.2f %.2f %.2f\n", rate(0), rate(50), rate(90), rate(100))
	// Output: 1.00 0.50 0.02 0.00
}
