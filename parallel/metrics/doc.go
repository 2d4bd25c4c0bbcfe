// Package metrics is what nodes and launchers count, in Prometheus' words.
//
//	samples := node.Metrics() // of one node, or of all: launch.Launcher.Metrics
//	err := metrics.Write(w, samples)
//	http.Handle("/metrics", metrics.Handler(func(context.Context) []metrics.Sample { return node.Metrics() }))
//
// [Table] has every metric that there is, with its type and what it means;
// docs/observability.md is written from it. The text format (version 0.0.4) is
// fifty lines and needs no registry, so it is written here; tests read it back
// with Prometheus' own parser.
//
// # Concurrency
//
// All functions are safe for concurrent use.
package metrics
