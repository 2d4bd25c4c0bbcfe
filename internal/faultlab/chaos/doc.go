// Package chaos runs jobs of real processes by ditask, does harm to them, and lets
// package faultlab judge what they have written down.
//
//	make chaos TIME=10m
//	make chaos SEED=17
//
// It is a test: its program is the node too, and [leak.Check] looks for processes,
// sockets and files after each round. A round takes 5 to 20 s; what is done in it
// follows from its seed, when exactly does not. Linux only; what needs root, such
// as networks of its own for each node, is left out without, and the first line of
// the report says so.
//
// [leak.Check]: https://pkg.go.dev/github.com/ditask/ditask/internal/leak
package chaos
