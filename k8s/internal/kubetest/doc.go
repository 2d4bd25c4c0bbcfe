// Package kubetest gives tests a real Kubernetes API: etcd, kube-apiserver and
// the garbage collector of kube-controller-manager, as processes of
// k8s/internal/controlplane, with DIJob installed.
//
// Kubelet stands in for a kubelet: it binds pods to a node, reports them as running,
// and ends them when they are deleted or when a test asks for it.
//
// The programs are in the folder KUBEBUILDER_ASSETS; make control-plane builds them.
// Without them a test is skipped, or fails if the variable CI is set.
package kubetest
