// Package e2e tests ditask on a real Kubernetes: a control plane, and three
// machines that are network namespaces with a kubelet, containerd and kube-proxy
// each. make e2e-kubernetes runs it, with the build tag e2e, as root.
//
// Everything runs in separate process, mount and network namespaces: when the test
// ends or is killed, the kernel ends all its processes, mounts and networks. The
// test removes its folder and cgroups at its end, or at the beginning of the next
// run.
//
// On a machine that cannot run it, the test names what is missing and ends with
// exit code 69.
package e2e
