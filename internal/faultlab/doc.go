// Package faultlab proves by faults injected on purpose that no event is lost in
// silence, none comes twice, and nothing hangs.
//
// Every node of a job writes down what it does: each emit, each delivery, each
// loss that it learns of, and how it ends. [Check] judges these records against
// the promises of docs/ARCHITECTURE.md; it knows nothing of how they came about.
// Two laboratories make them:
//
//   - The simulation, in this package's tests: routers, or whole tasks, in one
//     process, in virtual time, over a network whose connections are delayed,
//     stalled, torn in the middle of a frame and cut. Faults follow from a seed:
//     go test ./internal/faultlab -faultlab.seed=N
//   - Real processes: the command in chaos/ starts jobs by ditask and kills,
//     stops and cuts them, and lets a hostile node in, which package hostile is:
//     make chaos TIME=10m SEED=N, make chaos-hostile TIME=10m
//
// A [Line] is the faulty cable of both.
package faultlab
