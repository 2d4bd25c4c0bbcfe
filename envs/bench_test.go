package envs

import (
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
	for _, spec := range Specs() {
		b.Run(spec.Name+"/64", func(b *testing.B) {
			const n = 64
			v := spec.Sync(n, NextStep)
			_, _ = v.Reset(0)
			all := make([][]float32, 64)
			for k := range all {
				all[k] = make([]float32, n)
				for j := range all[k] {
					actionAt(v.ActionSpace(), 7*k+j, all[k][j:j+1])
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := v.Step(all[i&63]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "envsteps/s")
		})
	}
}
