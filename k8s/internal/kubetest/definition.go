package kubetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Define installs the CustomResourceDefinitions of a file until the test ends. It returns when
// kubectl finds their kinds, so that a test can create objects of them at once; at the end of the
// test it waits until kubectl finds them no more.
//
// kubectl wait --for=condition=Established does neither: it fails for a definition that has no
// conditions yet, and a kind can be established before discovery lists it.
func (c *Cluster) Define(t testing.TB, file string) {
	t.Helper()
	definitions, err := define(c.Config, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := envtest.UninstallCRDs(c.Config, envtest.CRDInstallOptions{CRDs: definitions})
		if err == nil {
			err = untilListed(c.Config, definitions, false)
		}
		if err != nil {
			t.Errorf("remove the definitions of %s: %v", file, err)
		}
	})
}

// define installs the definitions of a file or a folder, and waits until discovery lists them.
func define(config *rest.Config, path string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	// InstallCRDs looks at one group and version; kubectl looks at the list of all.
	definitions, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true,
		MaxTime: patience})
	if err == nil && len(definitions) == 0 {
		err = errors.New("it has none")
	}
	if err == nil {
		err = untilListed(config, definitions, true)
	}
	if err != nil {
		return nil, fmt.Errorf("install the definitions of %s: %w", path, err)
	}
	return definitions, nil
}

// untilListed waits until discovery lists every kind that is defined, or none of them.
func untilListed(config *rest.Config, definitions []*apiextensionsv1.CustomResourceDefinition, listed bool) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		var lists []*metav1.APIResourceList
		if _, lists, last = client.ServerGroupsAndResources(); last != nil {
			return false, nil //nolint:nilerr // a group that has just gone is an error for a moment
		}
		return !slices.ContainsFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return serves(lists,
				d) != listed
		}), nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("discovery: %w", last)
	}
	return err
}

// serves reports whether the lists have the resource of a definition.
func serves(lists []*metav1.APIResourceList, d *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
		return list.GroupVersion == d.Spec.Group+"/"+d.Spec.Versions[0].Name &&
			slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == d.Spec.Names.Plural })
	})
}
