// Package chaos runs jobs of real processes by ditask, does harm to them, and lets
// package faultlab judge what they have written down.
//
//	make chaos TIME=10m
//	make chaos SEED=17
//	make chaos-hostile HOSTILE=credit
//
// It is a test: its program is the node too, and [leak.Check] looks for processes,
// sockets and files after each round. A round takes 5 to 20 s; what is done in it
// follows from its seed, when exactly does not. Linux only; what needs root, such
// as its own networks for each node, is left out without, and the first line of
// the report notes it.
//
// In some rounds the fault is a hostile node: package hostile, in the process of the test,
// with the token, the certificate and the addresses that the environment of honest nodes
// has. Such a round has no other fault, so that whatever an honest node suffers was done by
// the hostile one. Nodes then write down what they hold, as in the soak.
//
// [leak.Check]: https://pkg.go.dev/github.com/ditask/ditask/internal/leak
package chaos
