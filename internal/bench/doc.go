// Package bench measures what a user gets of events between processes, beside
// what the same sockets give to a plain loop of frames, in the same run.
//
//	go test -bench . ./internal/bench
//
// Each process has its share of the processors, as the nodes of a job have. The
// other process is this package's test program, started again. Every
// operation is a burst of messages and one answer when all have been received, for
// ditask and for the plain loop alike, so nothing in progress is left uncounted.
package bench
