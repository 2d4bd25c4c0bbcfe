// Package v1alpha1 has the types of the group ditask.dev: DIJob, a training job
// of several processes that run as pods.
//
// go generate makes the CustomResourceDefinition in config/crd and the deep copies from these
// types. Every rule of a field is a marker beside it, so the API server refuses a wrong DIJob and
// names the field.
//
// +kubebuilder:object:generate=true
// +groupName=ditask.dev
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object crd:crdVersions=v1,generateEmbeddedObjectMeta=true paths=. output:crd:dir=../../config/crd
//go:generate go run ../../internal/crdtrim ../../config/crd/ditask.dev_dijobs.yaml ../../chart/crds/ditask.dev_dijobs.yaml
