package envs

import (
	"fmt"
	"math"
	"testing"
)

// BenchmarkPlain is the least that 64 CartPoles in one goroutine can cost: the
// equations over plain arrays, and nothing of a vector. Compare the others with
// it in the same run.
func BenchmarkPlain(b *testing.B) {
	const n = 64
	var state [n][4]float64
	var obs [4 * n]float32
	actions := make([]float32, n)
	for i := 0; b.Loop(); i++ {
		for j := range actions {
			actions[j] = float32((i + j) & 1)
		}
		for j := range state {
			s := &state[j]
			sin, cos := math.Sincos(s[2])
			temp := ((2*float64(actions[j])-1)*forceMag + poleMoment*s[3]*s[3]*sin) / totalMass
			acc := (gravity*sin - cos*temp) / (halfPole * (4.0/3.0 - massPole*cos*cos/totalMass))
			*s = [4]float64{s[0] + tau*s[1], s[1] + tau*(temp-poleMoment*acc*cos/totalMass), s[2] + tau*s[3], s[3] + tau*acc}
			if math.Abs(s[0]) > xLimit || math.Abs(s[2]) > thetaLimit {
				*s = [4]float64{}
			}
			for k, v := range s {
				obs[4*j+k] = float32(v)
			}
		}
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "envsteps/s")
}

func BenchmarkVector(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("CartPole/%d", n), func(b *testing.B) {
			v := CartPole(n)
			_, _ = v.Reset(0)
			actions := make([]float32, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for j := range actions {
					actions[j] = float32((i + j) & 1)
				}
				if _, err := v.Step(actions); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "envsteps/s")
		})
	}
}
