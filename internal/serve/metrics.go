package serve

import (
	"math"
	"strconv"
	"sync/atomic"

	"github.com/ditask/ditask/parallel/metrics"
)

// The names of the metrics. [Table] describes them.
const (
	metricRequests = "ditask_serve_requests_total"
	metricInFlight = "ditask_serve_in_flight"
	metricLatency  = "ditask_serve_request_seconds"
	metricBatch    = "ditask_serve_batch_observations"
	metricVersion  = "ditask_serve_weights_version"
	metricReloads  = "ditask_serve_reloads_total"
	metricSessions = "ditask_serve_sessions"
	metricEnded    = "ditask_serve_sessions_ended_total"
	metricConns    = "ditask_serve_connections"
	metricRefused  = "ditask_serve_connections_refused_total"
	metricReady    = "ditask_serve_ready"
)

// Table lists every metric of a server, in the order in which they are written.
func Table() []metrics.Desc {
	return []metrics.Desc{
		{Name: metricReady, Type: metrics.Gauge, Help: "1 while /readyz is 200, 0 from the signal on that ends the server."},
		{Name: metricRequests, Type: metrics.Counter, Labels: []string{"outcome"}, Help: "Requests that were answered; outcome is ok, " +
			"or the code of the error. " +
			"GET requests count when they are refused."},
		{Name: metricInFlight, Type: metrics.Gauge, Help: "Requests that act or wait for the policy."},
		{Name: metricLatency, Type: metrics.Histogram, Labels: []string{"le"}, Help: "Time from the header of a request to act until " +
			"its answer was written."},
		{Name: metricBatch, Type: metrics.Histogram, Labels: []string{"le"}, Help: "Observations in one call of the policy."},
		{Name: metricVersion, Type: metrics.Gauge, Help: "Updates behind the weights that act."},
		{Name: metricReloads, Type: metrics.Counter, Labels: []string{"outcome"}, Help: "New weights of --reload; outcome is ok, or " +
			"failed where the old ones were kept."},
		{Name: metricSessions, Type: metrics.Gauge, Help: "Sessions of a policy with memory."},
		{Name: metricEnded, Type: metrics.Counter, Labels: []string{"reason"}, Help: "Sessions that the server ended; reason is idle, " +
			"or room for others."},
		{Name: metricConns, Type: metrics.Gauge, Help: "Connections that are open."},
		{Name: metricRefused, Type: metrics.Counter, Help: "Connections that were closed at once, because there were as many as " +
			"--max-connections."},
	}
}

// histogram counts values by upper bounds.
type histogram struct {
	bounds []float64
	counts []atomic.Uint64 // one more than bounds
	sum    atomic.Uint64   // bits of a float64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// samples appends those of the histogram.
func (h *histogram) samples(dst []metrics.Sample, name string) []metrics.Sample {
	total := uint64(0)
	for i := range h.counts {
		total += h.counts[i].Load()
		le := "+Inf"
		if i < len(h.bounds) {
			le = strconv.FormatFloat(h.bounds[i], 'g', -1, 64)
		}
		dst = append(dst, metrics.Sample{Name: name + "_bucket", Labels: []string{"le", le}, Value: float64(total)})
	}
	return append(dst, metrics.Sample{Name: name + "_sum", Value: math.Float64frombits(h.sum.Load())},
		metrics.Sample{Name: name + "_count", Value: float64(total)})
}

// count counts a request of an outcome.
func (s *Server) count(code string) {
	for i, c := range s.codes {
		if c == code {
			s.outcomes[i].Add(1)
			return
		}
	}
}

// Metrics returns the counters of the server, in the form of [Table].
func (s *Server) Metrics() []metrics.Sample {
	one := func(name string, v float64, labels ...string) metrics.Sample {
		return metrics.Sample{Name: name, Labels: labels, Value: v}
	}
	ready := 1.0
	if s.ending.Load() {
		ready = 0
	}
	live, idled, pushed := s.sessions.counts()
	out := []metrics.Sample{
		one(metricReady, ready), one(metricInFlight, float64(s.inFlight.Load())), one(metricVersion, float64(s.Version())),
		one(metricReloads, float64(s.reloaded.Load()), "outcome", "ok"), one(metricReloads, float64(s.kept.Load()), "outcome", "failed"),
		one(metricSessions, float64(live)),
		one(metricEnded, float64(idled), "reason", "idle"), one(metricEnded, float64(pushed), "reason", "room"),
		one(metricConns, float64(s.conns.Load())), one(metricRefused, float64(s.refused.Load())),
	}
	for i, code := range s.codes {
		out = append(out, one(metricRequests, float64(s.outcomes[i].Load()), "outcome", code))
	}
	return s.batches.samples(s.latency.samples(out, metricLatency), metricBatch)
}
