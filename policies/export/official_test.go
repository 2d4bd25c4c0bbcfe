//go:build onnxruntime

package export_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/internal/onnxtest"
	"github.com/ditask/ditask/policies/graph"
)

// inPython runs a script of testdata in Python. PYTHON is the program to run, python3 if it is empty.
func inPython(t testing.TB, file string, requests []onnxtest.Request) []onnxtest.Reply {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return onnxtest.Script(t, cmp.Or(os.Getenv("PYTHON"), "python3"), string(script), requests)
}

// TestOfficialRuntime: the checker of the Python package onnx accepts all models, and onnxruntime acts alike.
// "make onnxruntime" runs it, or the next one.
func TestOfficialRuntime(t *testing.T) {
	actsAlike(t, func(t testing.TB, requests []onnxtest.Request) []onnxtest.Reply {
		return inPython(t, "official.py", requests)
	})
}

// TestOfficialRuntimeInNode: onnxruntime's packages for Node act alike, the native one and the one in WebAssembly. NODE_PATH is the
// folder of the packages.
func TestOfficialRuntimeInNode(t *testing.T) {
	for _, name := range []string{"onnxruntime-node", "onnxruntime-web"} {
		t.Run(name, func(t *testing.T) {
			actsAlike(t, func(t testing.TB, requests []onnxtest.Request) []onnxtest.Reply {
				return onnxtest.Command(t, exec.CommandContext(t.Context(), "node", "testdata/onnxruntime/official.js", name), requests)
			})
		})
	}
}

// TestOfficialChecker: the checker of the Python package onnx accepts all models, and its strict inference finds the shape of every
// value. "make onnx-checker" runs it.
func TestOfficialChecker(t *testing.T) {
	dir := t.TempDir()
	var requests []onnxtest.Request
	for name, p := range acting(t) {
		path := filepath.Join(dir, name+".onnx")
		if err := os.WriteFile(path, onnx(t, name, p), 0o600); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, onnxtest.Request{Path: path})
	}
	for i, r := range inPython(t, "checker.py", requests) {
		if _, ok := r.Outputs[graph.Action]; !ok || r.Meta["env"] != "Test-v0" {
			t.Errorf("%s: outputs %v, metadata %v", requests[i].Path, r.Outputs, r.Meta)
		}
	}
}
