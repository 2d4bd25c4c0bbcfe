package clitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// TestDefinedKindCanBeUsedAtOnce installs a definition again and again, and creates an object of it each
// time. kubectl has no cache of earlier results.
func TestDefinedKindCanBeUsedAtOnce(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	definition, object := filepath.Join(t.TempDir(), "definition.yaml"), filepath.Join(t.TempDir(), "object.yaml")
	w.Must(os.WriteFile(definition, []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`), 0o600))
	w.Must(os.WriteFile(object, []byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: one, namespace: "+w.Namespace+"}\n"),
		0o600))
	for range 5 {
		t.Run("", func(t *testing.T) {
			w.Define(t, definition)
			if _, err := w.Kubectl(w.Ctx, "create", "--cache-dir", t.TempDir(), "--filename", object); err != nil {
				t.Error(err)
			}
		})
		if out, err := w.Kubectl(w.Ctx, "create", "--cache-dir", t.TempDir(), "--filename", object); err == nil {
			t.Errorf("an object of a kind that is removed was made: %s", out)
		}
	}
}
