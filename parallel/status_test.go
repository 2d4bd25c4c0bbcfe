//go:build unix

package parallel

import (
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// The launcher may request a status after the node is ready. A node reports once that it is
// ready, before any status, and its metrics do not wait for that.
func TestTheReporterTakesUpTheInterval(t *testing.T) {
	p := launch(t, control.Env{})
	p.node.ready = make(chan struct{})
	r := &reporter{node: p.node, client: p.client}
	defer during(r.run)()
	p.tell(t, control.Message{Type: control.TypeMetrics, Metrics: &control.Metrics{Seq: 3}})
	next := func() control.Message {
		m, err := p.said.Next()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for last := false; !last; {
		if m := next(); m.Metrics != nil {
			last = m.Metrics.Last
		}
	}
	close(p.node.ready)
	for m := next(); m.Type != control.TypeReady; m = next() {
		if m.Status != nil {
			t.Fatal("a status of a node that is not ready")
		}
	}
	p.tell(t, control.Message{Type: control.TypeInterval, Interval: time.Millisecond})
	for m := next(); m.Status == nil; m = next() {
		if m.Type == control.TypeReady {
			t.Error("ready twice")
		}
	}
}
