// Package e2e tests ditask on a real Kubernetes: a control plane, and three
// machines that are network namespaces with a kubelet, containerd and kube-proxy
// each. It is what make e2e-kubernetes runs, behind the build tag e2e, and needs
// root.
//
// Everything runs in process, mount and network namespaces of the test's own: when
// the test is over, or is killed, the kernel ends every process, mount and network
// of it. What is left then, a folder and cgroups, goes too, or else at the
// beginning of the next run.
//
// With a machine that cannot run it, the test says what is missing and ends with
// exit code 69.
package e2e
