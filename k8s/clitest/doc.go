// Package clitest tests the commands of ditask for Kubernetes, ditask k8s, as a
// user runs them: the program itself, kubectl, and a real API server, which package
// kubetest starts. Kubernetes' own job controller and the operator of DIJob make the
// pods of jobs; the tests act as JobSet's controller, in a few lines.
package clitest
