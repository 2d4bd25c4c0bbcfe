package envs

import (
	"fmt"
	"math"
	"slices"
)

// Moments are the mean and the variance of vectors that came one by one. The
// zero value of nothing seen has no dimension: use [NewMoments]. The fields can
// be saved and sent as they are, for example as JSON.
//
// Several environments of a [Sync] can share Moments. They are not safe for
// concurrent use, so those of an [Async] cannot.
type Moments struct {
	Count float64   // vectors seen, weighted
	Mean  []float64 // for each value
	Var   []float64 // the population's variance of each value
}

// NewMoments returns the moments with which Gymnasium's normalisation begins:
// mean 0 and variance 1 with the weight of 1/10,000 of a vector.
func NewMoments(dim int) *Moments {
	m := NewDelta(dim)
	m.Count = 1e-4
	for i := range m.Var {
		m.Var[i] = 1
	}
	return m
}

// NewDelta returns empty moments, which collect the values that one node adds to
// moments that several nodes share.
func NewDelta(dim int) *Moments {
	return &Moments{Mean: make([]float64, dim), Var: make([]float64, dim)}
}

// Add takes one more vector into account.
func (m *Moments) Add(v []float32) {
	total := m.Count + 1
	for i, x := range v {
		m.add(i, float64(x), total)
	}
	m.Count = total
}

func (m *Moments) add(i int, x, total float64) {
	delta := x - m.Mean[i]
	m.Mean[i] += delta / total
	m.Var[i] = (float64(m.Var[i]*m.Count) + delta*delta*m.Count/total) / total
}

// Merge takes everything into account that o has seen: the moments are those of
// all vectors together. It panics if o has another dimension. To keep the same
// moments on several nodes, each node collects a [NewDelta], and all merge the
// deltas of all nodes, in one order, into the moments that they shared before.
//
// Source: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating Formulae and a
// Pairwise Algorithm for Computing Sample Variances" (1979).
func (m *Moments) Merge(o *Moments) {
	if len(m.Mean) != len(o.Mean) {
		panic(fmt.Sprintf("envs: moments of %d values and of %d", len(m.Mean), len(o.Mean)))
	}
	total := m.Count + o.Count
	if total == 0 {
		return
	}
	for i := range m.Mean {
		delta := o.Mean[i] - m.Mean[i]
		m.Mean[i] += delta * o.Count / total
		m.Var[i] = (float64(m.Var[i]*m.Count) + float64(o.Var[i]*o.Count) + delta*delta*m.Count*o.Count/total) / total
	}
	m.Count = total
}

// Set makes m equal to o, with its own memory.
func (m *Moments) Set(o *Moments) {
	m.Count, m.Mean, m.Var = o.Count, slices.Clone(o.Mean), slices.Clone(o.Var)
}

// singleUntil is how many vectors NormalizeObservation sees in float32.
const singleUntil = 1 << 16

// addSingle is Add with the arithmetic and the order of numpy's float32 arrays.
func (m *Moments) addSingle(v []float32) {
	if m.Count >= singleUntil {
		m.Add(v)
		return
	}
	count, total := float32(m.Count), float32(m.Count+1)
	for i, x := range v {
		mean, variance := float32(m.Mean[i]), float32(m.Var[i])
		delta := x - mean
		squares := float32(variance*count) + float32(float32(delta*delta)*count)/total
		m.Mean[i] = float64(mean + delta/total)
		m.Var[i] = float64(squares / total)
	}
	m.Count++
}

// normalizeSingle puts (v-mean)/sqrt(var+epsilon) into dst, in float32.
func (m *Moments) normalizeSingle(dst, v []float32, epsilon float64) {
	for i, x := range v {
		scale := float32(math.Sqrt(float64(float32(m.Var[i]) + float32(epsilon))))
		dst[i] = (x - float32(m.Mean[i])) / scale
	}
}

func (m *Moments) appendTo(dst []byte) []byte {
	return appendFloats(appendFloats(appendFloats(dst, m.Count), m.Mean...), m.Var...)
}

func (m *Moments) restore(src []byte) ([]byte, error) {
	n := len(m.Mean)
	w, rest, err := words(src, 1+2*n)
	if err != nil {
		return nil, err
	}
	m.Count = math.Float64frombits(w[0])
	for i := range n {
		m.Mean[i], m.Var[i] = math.Float64frombits(w[1+i]), math.Float64frombits(w[1+n+i])
	}
	return rest, nil
}
