package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/export"
)

// program is a main package that acts with all policies: {"name": [observations of each step]} to actions.
const program = `package main

import (
	"encoding/json"
	"os"
%s)

func number(v int) []float64 { return []float64{float64(v)} }

func many[T int | float32](v []T) (out []float64) {
	for _, x := range v {
		out = append(out, float64(x))
	}
	return out
}

func main() {
	var in map[string][][]float32
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		panic(err)
	}
	out := map[string][][]float64{}
%s	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}
`

// call acts with one policy.
const call = `	{
		const name = %q
		p := %s.New()
%s		for _, obs := range in[name] {
			out[name] = append(out[name], %s(p.Act(obs)))
		}
	}
`

// TestGoActsAlike compiles the Go files of all policies without any module but theirs, and runs them.
func TestGoActsAlike(t *testing.T) {
	dir, watch := t.TempDir(), leak.Check(t)
	write := func(path string, text []byte) {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	all := acting(t)
	var imports, calls strings.Builder
	in, want := map[string][][]float32{}, map[string]steps{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		pkg := strings.NewReplacer(" ", "", "-", "").Replace("x" + name)
		var text bytes.Buffer
		err := export.Go(&text, p, export.GoConfig{Package: pkg, Meta: export.Meta{Algorithm: name, Env: "a\nb", Version: "v1.2.3"}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if formatted, err := format.Source(text.Bytes()); err != nil || !bytes.Equal(formatted, text.Bytes()) {
			t.Errorf("%s: the file is not formatted: %v", name, err)
		}
		write(pkg+"/policy.go", text.Bytes())
		kind := "many"
		if _, ok := p.Spec().Action.(envs.Discrete); ok {
			kind = "number"
		}
		reset := ""
		if p.Spec().StateSize > 0 {
			reset = "\t\tp.Evaluate(in[name][0])\n\t\tp.Reset()\n"
		}
		fmt.Fprintf(&imports, "\t%q\n", "acting/"+pkg)
		fmt.Fprintf(&calls, call, name, pkg, reset, kind)
		want[name] = follow(t, p, 1, 20)
		in[name] = want[name].obs
	}
	write("go.mod", []byte("module acting\n\ngo 1.26\n"))
	write("main.go", fmt.Appendf(nil, program, imports.String(), calls.String()))
	request, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet", "./..."}, {"run", "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		var out, faults bytes.Buffer
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, bytes.NewReader(request), &out, &faults
		cmd.Env = append(watch.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "CGO_ENABLED=0")
		if err := cmd.Run(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, faults.Bytes())
		}
		if args[0] == "vet" {
			continue
		}
		var got map[string][][]float64
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		for name, s := range want {
			if len(got[name]) != len(s.action) {
				t.Errorf("%s: %d actions, want %d", name, len(got[name]), len(s.action))
				continue
			}
			for i := range s.action {
				if err := differ(got[name][i], s.action[i]); err != nil {
					t.Errorf("%s, step %d: %v", name, i, err)
				}
			}
		}
	}
}

// TestGoFileIsAsBefore, a golden file: what a user reads.
func TestGoFileIsAsBefore(t *testing.T) {
	p := dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 3, Start: 1}, Hidden: []int{8}})
	for i := range p.Online.Weights() { // the same on every processor
		p.Online.Weights()[i] = float32(i%7-3) / 4
	}
	var text bytes.Buffer
	meta := export.Meta{Algorithm: "dqn", Env: "Test-v0", Version: "v1.2.3"}
	if err := export.Go(&text, p, export.GoConfig{Package: "small", Meta: meta}); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/small.go.golden"
	if *update {
		if err := os.WriteFile(golden, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(text.Bytes(), want) {
		t.Errorf("%s differs (go test -update writes it): %v\n%s", golden, err, text.Bytes())
	}
}

// TestGoRefusesNames that are no package's.
func TestGoRefusesNames(t *testing.T) {
	p := acting(t)["dqn"]
	for _, name := range []string{"a b", "_", "func", "1x", "x.y", "x;"} {
		var out bytes.Buffer
		err := export.Go(&out, p, export.GoConfig{Package: name})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("Package is %q, want the name of a package", name)) || out.Len() > 0 {
			t.Errorf("%q: %v", name, err)
		}
	}
}
