package qrdqn

import (
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/policytest"
)

// BenchmarkUpdate makes updates of a batch of 32 with the defaults, plain and with all extensions.
func BenchmarkUpdate(b *testing.B) {
	for name, cfg := range map[string]Config{"plain": {}, "double+dueling+noisy": {Double: true, Dueling: true, Noisy: true}} {
		b.Run(name, func(b *testing.B) {
			cfg.Obs, cfg.Action = envs.NewBox(-1, 1, 4), envs.Discrete{N: 2}
			q := New(cfg)
			batch := policytest.RandomBatch(q.Spec(), rand.New(rand.NewPCG(1, 1)), 32)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.Learn(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		})
	}
}
