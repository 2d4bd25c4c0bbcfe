package policies

import (
	"errors"
	"fmt"
	"math"
)

// Cosine goes from first to last over that many counts along half a wave of a cosine, slowly at both
// ends, and stays there: last + (first-last)/2 * (1 + cos(pi*count/over)). I. Loshchilov and
// F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts" (2017), equation 5, without
// the restarts.
func Cosine(first, last float64, over int) Schedule {
	return func(count int) float64 {
		if count >= over {
			return last
		}
		return last + (first-last)/2*(1+math.Cos(math.Pi*float64(max(count, 0))/float64(over)))
	}
}

// Point is a value that a schedule has at a count.
type Point struct {
	Count int
	Value float64
}

// PiecewiseLinear goes through the points in straight lines. Before the first point, and from the
// last one on, it has the value outside; pass the value of the last point to stay there. The lists
// that RLlib takes as schedules are such points, with the value of the last as outside. Fewer than
// two points, counts that do not increase and values that are not finite are errors, all reported
// together. The points are copied.
func PiecewiseLinear(points []Point, outside float64) (Schedule, error) {
	if err := checkPoints(points, outside); err != nil {
		return nil, err
	}
	points = append([]Point(nil), points...)
	return func(count int) float64 {
		for i, right := range points[1:] {
			left := points[i]
			if left.Count <= count && count < right.Count {
				way := float64(count-left.Count) / float64(right.Count-left.Count)
				return left.Value + way*(right.Value-left.Value)
			}
		}
		return outside
	}, nil
}

func checkPoints(points []Point, outside float64) error {
	var faults []error
	if len(points) < 2 {
		faults = append(faults, fmt.Errorf("piecewise schedule: %d points, want at least 2", len(points)))
	}
	for i, p := range points {
		if i > 0 && p.Count <= points[i-1].Count {
			faults = append(faults, fmt.Errorf("piecewise schedule: point %d is at %d, which is not after %d", i, p.Count, points[i-1].Count))
		}
		if p.Value-p.Value != 0 {
			faults = append(faults, fmt.Errorf("piecewise schedule: the value of point %d is %v", i, p.Value))
		}
	}
	if outside-outside != 0 {
		faults = append(faults, fmt.Errorf("piecewise schedule: the value outside is %v", outside))
	}
	return errors.Join(faults...)
}
