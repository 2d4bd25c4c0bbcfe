// Package chaos runs jobs of real processes by ditask, injects faults, and checks the
// records of the nodes by package faultlab.
//
//	make chaos TIME=10m
//	make chaos SEED=17
//	make chaos-hostile HOSTILE=credit
//
// It is a test whose program is also the node. [leak.Check] looks for processes,
// sockets and files after each round. A round takes 5 to 20 s; its seed decides its
// faults, but not their exact times. It needs Linux. Faults that need root, such as
// those of a separate network for each node, are left out without root, and the
// first line of the report notes it.
//
// In some rounds the fault is a hostile node: package hostile, in the process of the test,
// with the token, the certificate and the addresses that the environment of honest nodes
// has. Such a round has no other fault, so that every fault of an honest node comes from
// the hostile one. Nodes then record their resources, as in the soak.
//
// [leak.Check]: https://pkg.go.dev/github.com/ditask/ditask/internal/leak
package chaos
