// Package kubetest gives tests a real Kubernetes API: etcd, kube-apiserver and
// the garbage collector of kube-controller-manager, as processes of
// k8s/internal/controlplane, with DIJob installed.
//
// There is no kubelet, so Kubelet takes its part: it binds pods to a node, says
// that they run, and lets them end when they are deleted or when a test asks for it.
//
// The programs are where KUBEBUILDER_ASSETS says; make control-plane builds them.
// Without them a test is skipped, which CI takes for a failure.
package kubetest
