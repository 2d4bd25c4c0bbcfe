package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// The baselines of our figures are gonum in this process, and programs of other languages where they
// can run. The rest of the table has a "-" there.

//go:embed testdata/beside.py
var pythonProgram string

//go:embed testdata/openblas.c
var openBLASProgram string

// baselines returns the texts beside the rows, by their names.
func baselines(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, f := range table() {
		out[f.name] = nil
	}
	product := "product 256 x 256 x 256"
	add := func(row, text string) {
		if _, ok := out[row]; !ok {
			t.Errorf("a baseline of the row %q, which is not in the table", row)
		}
		out[row] = append(out[row], text)
	}
	add(product, fmt.Sprintf("gonum %.4g Gflop/s", gonum256()))
	if rate, ok := openBLAS(t); ok {
		add(product, fmt.Sprintf("OpenBLAS %s Gflop/s", rate))
	}
	for row, text := range python(t) {
		add(row, text)
	}
	for row, texts := range out {
		if len(texts) == 0 {
			out[row] = []string{"-"}
		}
	}
	return out
}

func gonum256() float64 {
	rng := rand.New(rand.NewPCG(1, 1))
	a, b, c := blas32.General(matrix256(rng)), blas32.General(matrix256(rng)), blas32.General(matrix256(rng))
	return flops256 / best(cpu, func() { blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 0, c) })
}

// openBLAS measures the product with a program in C, where there is a compiler and the library.
func openBLAS(t *testing.T) (rate string, ok bool) {
	t.Helper()
	source, program := filepath.Join(t.TempDir(), "openblas.c"), filepath.Join(t.TempDir(), "openblas")
	if err := os.WriteFile(source, []byte(openBLASProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "gcc", "-O2", "-o", program, source, "-ldl").Run(); err != nil {
		return "", false
	}
	text, err := exec.CommandContext(t.Context(), program).Output()
	return strings.TrimSpace(string(text)), err == nil
}

// python measures the rows that numpy and PyTorch can compute, where they are installed.
func python(t *testing.T) map[string]string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "python3", "-c", pythonProgram).Output()
	rows := map[string]string{}
	if err != nil {
		return rows
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Errorf("testdata/beside.py: %v", err)
	}
	return rows
}
