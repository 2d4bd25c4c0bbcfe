package plot

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
)

// series is a curve through points with growing x.
type series struct{ x, y []float64 }

// at interpolates between the points around x, which lies between the first and the last one.
func (s *series) at(x float64) float64 {
	i := sort.SearchFloat64s(s.x, x)
	if i == len(s.x) || i == 0 && x < s.x[0] {
		return math.NaN()
	}
	if s.x[i] == x || i == 0 {
		return s.y[i]
	}
	share := (x - s.x[i-1]) / (s.x[i] - s.x[i-1])
	return s.y[i-1] + share*(s.y[i]-s.y[i-1])
}

// iqm returns the interquartile mean of scores, which it sorts: without the lowest and the highest quarter, rounded down.
func iqm(scores []float64) float64 {
	slices.Sort(scores)
	cut := len(scores) / 4
	sum := 0.0
	for _, v := range scores[cut : len(scores)-cut] {
		sum += v
	}
	return sum / float64(len(scores)-2*cut)
}

// percentile of sorted values, 0 to 1, interpolated linearly as numpy does.
func percentile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-1)
	if i == len(sorted)-1 {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// estimate are the interquartile means of runs at each point of a grid, with their confidence bands.
type estimate struct{ mean, low, high []float64 }

// bootstrap estimates them. strata[i][j][k] is the score of run j of environment i at point k. Each of that many resamples draws whole
// runs, as many as there are of each environment.
func bootstrap(strata [][][]float64, resamples int, seed uint64) (e estimate) {
	points := len(strata[0][0])
	var scores []float64
	stat := func(k int, pick [][]int) float64 {
		scores = scores[:0]
		for i, runs := range strata {
			for j := range runs {
				if pick != nil {
					j = pick[i][j]
				}
				scores = append(scores, runs[j][k])
			}
		}
		return iqm(scores)
	}
	pick := make([][]int, len(strata))
	for i := range strata {
		pick[i] = make([]int, len(strata[i]))
	}
	of := make([][]float64, points) // the statistics of all resamples, by point
	random := rand.New(rand.NewPCG(seed, 0))
	for range resamples {
		for i := range pick {
			for j := range pick[i] {
				pick[i][j] = random.IntN(len(pick[i]))
			}
		}
		for k := range of {
			of[k] = append(of[k], stat(k, pick))
		}
	}
	for k := range of {
		slices.Sort(of[k])
		e.mean = append(e.mean, stat(k, nil))
		e.low, e.high = append(e.low, percentile(of[k], 0.025)), append(e.high, percentile(of[k], 0.975))
	}
	return e
}

// smooth returns the mean over a window around each value, which is smaller at both ends.
func smooth(values []float64, window int) []float64 {
	out := make([]float64, len(values))
	for i := range values {
		half := min(window/2, i, len(values)-1-i)
		sum := 0.0
		for _, v := range values[i-half : i+half+1] {
			sum += v
		}
		out[i] = sum / float64(2*half+1)
	}
	return out
}
