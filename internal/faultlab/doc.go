// Package faultlab tests by injected faults that no event is lost without a report,
// none is delivered twice, and nothing hangs.
//
// Every node of a job records each emit, each delivery, each loss that it learns
// of, and its end. [Check] compares these records with the promises of
// docs/ARCHITECTURE.md, independently of their source. Two laboratories make them:
//
//   - The simulation, in this package's tests: routers, or whole tasks, in one
//     process, in virtual time, over a network whose connections are delayed,
//     stalled, torn in the middle of a frame and cut. Faults follow from a seed:
//     go test ./internal/faultlab -faultlab.seed=N
//   - Real processes: the command in chaos/ starts jobs by ditask and kills,
//     stops and cuts them, or adds a hostile node of package hostile:
//     make chaos TIME=10m SEED=N, make chaos-hostile TIME=10m
//
// A [Line] is the faulty cable of both.
package faultlab
