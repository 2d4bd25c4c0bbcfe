package controller

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts events of jobs, in addition to controller-runtime's metrics.
type Metrics struct {
	events *prometheus.CounterVec
}

// NewMetrics makes the counters and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ditask_dijob_events_total",
		Help: "Events of DIJobs by reason: PodFailed, PodPreempted, Running, Succeeded, Failed and others.",
	}, []string{"reason"})}
	return m, registry.Register(m.events)
}

func (m *Metrics) count(reason string) {
	if m != nil {
		m.events.WithLabelValues(reason).Inc()
	}
}
