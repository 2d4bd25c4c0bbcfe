//go:build onnxruntime

package export_test

import (
	"cmp"
	"os"
	"testing"

	"github.com/ditask/ditask/internal/onnxtest"
)

// TestOfficialRuntime: the checker of the Python package onnx accepts all models, and onnxruntime acts alike.
// PYTHON is the program to run, python3 if it is empty. "make onnxruntime" runs it.
func TestOfficialRuntime(t *testing.T) {
	script, err := os.ReadFile("testdata/official.py")
	if err != nil {
		t.Fatal(err)
	}
	inPython(t, func(t testing.TB, requests []onnxtest.Request) []onnxtest.Reply {
		return onnxtest.Script(t, cmp.Or(os.Getenv("PYTHON"), "python3"), string(script), requests)
	})
}
