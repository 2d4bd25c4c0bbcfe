// Package charttest renders charts with the engine of Helm, and compares objects in
// tests.
package charttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Render returns the output of helm template for a chart, without its notes. values
// override the chart's values.
func Render(folder, namespace string, values map[string]any) (string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return "", err
	}
	if err := chart.Validate(); err != nil {
		return "", err
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "test", Namespace: namespace, Revision: 1, IsInstall: true},
		nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, "NOTES.txt") {
			text.WriteString(files[name] + "\n---\n")
		}
	}
	return text.String(), nil
}

// Objects returns the objects of a text in YAML, by kind and name. One that is not
// known to Kubernetes, or comes twice, is an error.
func Objects(text string) (map[string]map[string]any, error) {
	all := map[string]map[string]any{}
	decoder := kyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		o := unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) == 0 {
			continue // a comment
		}
		name := o.GetKind() + "/" + o.GetName()
		if o.GetKind() == "" || o.GetName() == "" || all[name] != nil {
			return nil, fmt.Errorf("no kind or name, or a second one: %q", name)
		}
		all[name] = o.Object
	}
}
