package onnxtest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/ditask/ditask/internal/pythontest"
)

// script is a reader in Python.
//
//go:embed testdata/onnx_check.py
var script string

// Request is a run of a model in a file, in another program.
type Request struct {
	Path   string                `json:"path"`
	Inputs map[string]PythonData `json:"inputs"`
}

// PythonData is a tensor on its way to or from another program. An int64 is exact up to 2^53.
type PythonData struct {
	Shape []int     `json:"shape"`
	Data  []float64 `json:"data"`
}

// Reply is the result of the other program for a model.
type Reply struct {
	Meta    map[string]string     `json:"meta"`
	Outputs map[string]PythonData `json:"outputs"`
}

// Python runs models with a script that uses Python's standard library only. It fails the test if the script
// fails. Without Python it skips the test, or fails it in CI.
func Python(t testing.TB, requests []Request) []Reply {
	t.Helper()
	return Script(t, pythontest.Program(t), script, requests)
}

// Script runs models with a script in Python that reads requests and writes replies as JSON.
func Script(t testing.TB, program, script string, requests []Request) []Reply {
	t.Helper()
	return Command(t, exec.CommandContext(t.Context(), program, "-c", script), requests)
}

// Command runs models with a program that reads requests from its input and writes replies to its output as JSON.
func Command(t testing.TB, cmd *exec.Cmd, requests []Request) []Reply {
	t.Helper()
	in, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	var out, faults bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &faults
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Path, err, faults.Bytes())
	}
	var replies []Reply
	if err := json.Unmarshal(out.Bytes(), &replies); err != nil || len(replies) != len(requests) {
		t.Fatalf("%d replies to %d requests: %v", len(replies), len(requests), err)
	}
	return replies
}
