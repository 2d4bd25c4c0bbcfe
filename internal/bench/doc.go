// Package bench measures events between processes as a user sends them, beside a
// plain loop of frames over the same sockets, in the same run.
//
//	go test -bench . ./internal/bench
//
// Each process has its share of the processors, as the nodes of a job have. The
// other process is this package's test program, started again. Every
// operation is a burst of messages and one answer when all have been received, for
// ditask and for the plain loop alike, so nothing in progress is left uncounted.
package bench
