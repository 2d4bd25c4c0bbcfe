// Command crdtrim removes the descriptions in the pod templates of a
// CustomResourceDefinition, in place, and copies the result to other files. The
// descriptions are Kubernetes' own, and make the definition too large for kubectl
// apply.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := trim(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "crdtrim:", err)
		os.Exit(1)
	}
}

func trim(file string, copies []string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	walk(crd, false)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	out = append([]byte("# Made by go generate from k8s/api/v1alpha1.\n"), out...)
	for _, to := range append(copies, file) {
		if err := os.WriteFile(to, out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// walk goes through a schema; inside says that v belongs to a pod template.
func walk(v any, inside bool) {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text && inside {
			delete(v, "description")
		}
		for key, value := range v {
			walk(value, inside || key == "template")
		}
	case []any:
		for _, value := range v {
			walk(value, inside)
		}
	}
}
