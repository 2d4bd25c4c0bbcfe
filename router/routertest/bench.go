package routertest

import (
	"testing"
	"time"

	"github.com/ditask/ditask/router"
)

// Recovery measures the time from the end of a cut of one second until all events
// that were sent meanwhile have arrived, as ns/heal: an operation is one cut.
//
//	go test -run xxx -bench Recovery -benchtime 5x ./router/socket
func Recovery(b *testing.B, s Setup) {
	const events = 1000
	var total time.Duration
	for range b.N {
		l := s.lab(b, 2, nil)
		spec := router.Spec{Name: "n"}
		in, out := l.nodes[0].listen(spec, false), l.nodes[1].declare(spec, false)
		l.start()
		l.wire.Cut()
		for i := range events {
			send(l, out, num(i))
		}
		<-time.After(time.Second)
		healed := time.Now()
		l.wire.Heal()
		ascending(b, in.wait(l.ctx, b, events), events)
		total += time.Since(healed)
		l.finish()
	}
	b.ReportMetric(float64(total)/float64(b.N), "ns/heal")
}
