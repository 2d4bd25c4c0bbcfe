// Command crdtrim takes the descriptions out of the pod templates of a
// CustomResourceDefinition, in place. They are Kubernetes' own, and with them the
// definition is larger than kubectl apply can handle.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := trim(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crdtrim:", err)
		os.Exit(1)
	}
}

func trim(file string) error {
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
	return os.WriteFile(file, append([]byte("# Made by go generate from k8s/api/v1alpha1.\n"), out...), 0o644)
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
