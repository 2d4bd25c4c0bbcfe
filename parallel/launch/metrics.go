package launch

import (
	"context"
	"strconv"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
)

// ask is one node's part in the gathering of metrics. The launcher's mutex guards
// it.
type ask struct {
	proc    *proc  // nil: it does not run
	seq     uint64 // of the request that is not answered; 0: none
	samples []metrics.Sample
	done    chan struct{} // closed when it is answered, or the node is gone
}

// metricsWait is the time that a node may take to answer.
const metricsWait = time.Second

// Metrics asks all running nodes of this launcher for their counts, and returns these with labels for
// job, node and role. A node that does not answer within a second is left out, and shows as not
// answered. Callers are served in turn.
func (l *Launcher) Metrics(ctx context.Context) []metrics.Sample {
	ctx, cancel := context.WithTimeout(ctx, metricsWait)
	defer cancel()
	l.gather.Lock()
	defer l.gather.Unlock()
	l.mu.Lock()
	l.seq++
	seq := l.seq
	asked := make([]ask, len(l.asks))
	for i := range l.asks {
		if l.asks[i].proc != nil {
			l.asks[i] = ask{proc: l.asks[i].proc, seq: seq, done: make(chan struct{})}
		}
		asked[i] = l.asks[i]
	}
	l.mu.Unlock()
	for _, a := range asked {
		if a.proc != nil {
			a.proc.write(control.Message{Type: control.TypeMetrics, Metrics: &control.Metrics{Seq: seq}}, patience)
		}
	}
	for _, a := range asked {
		if a.proc == nil {
			continue
		}
		select {
		case <-a.done:
		case <-ctx.Done():
		}
	}
	return l.samples(seq)
}

// samples are the nodes' answers to request seq, and the launcher's own counts of them.
func (l *Launcher) samples(seq uint64) []metrics.Sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []metrics.Sample
	for i, s := range l.states {
		labels := []string{"job", l.cfg.Plan.Job, "node", strconv.Itoa(s.ID), "role", s.Status.Role}
		a := l.asks[i]
		answered := a.proc != nil && a.seq == 0 && a.samples != nil && l.seq == seq
		for _, m := range []struct {
			name  string
			value float64
		}{
			{metrics.NodeUp, truth(s.Phase == Running)}, {metrics.NodeAnswered, truth(answered)}, {metrics.NodeRestarts, float64(s.Restarts)},
		} {
			out = append(out, metrics.Sample{Name: m.name, Labels: labels, Value: m.value})
		}
		if answered {
			for _, m := range a.samples {
				out = append(out, m.With(labels...))
			}
		}
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// receiveMetrics handles a part of a node's metrics. The mutex is held.
func (l *Launcher) receiveMetrics(i int, m control.Metrics) {
	a := &l.asks[i]
	if a.seq == 0 || m.Seq != a.seq {
		return // too late
	}
	a.samples = append(a.samples, m.Samples...)
	if m.Last {
		a.seq = 0
		close(a.done)
	}
}

// reached records the process of a node; nil: it has ended.
func (l *Launcher) reached(i int, p *proc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := &l.asks[i]; a.seq != 0 {
		close(a.done)
	}
	l.asks[i] = ask{proc: p}
}
