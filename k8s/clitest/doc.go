// Package clitest tests the commands of ditask for Kubernetes, ditask k8s, as a
// user runs them: the program itself, kubectl, and a real API server, which package
// kubetest starts. Jobs are made into pods by Kubernetes' own job controller and by
// the operator of DIJob; JobSet's controller, which is not there, is a few lines of
// the tests.
package clitest
