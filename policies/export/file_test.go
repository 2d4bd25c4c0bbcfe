package export_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/sac"
)

// forms returns the kinds of files.
func forms(p policies.Policy, meta export.Meta) map[string]func(w io.Writer) error {
	return map[string]func(w io.Writer) error{
		"onnx":        func(w io.Writer) error { return export.ONNX(w, p, meta) },
		"go":          func(w io.Writer) error { return export.Go(w, p, export.GoConfig{Meta: meta}) },
		"safetensors": func(w io.Writer) error { return export.Safetensors(w, p, meta) },
	}
}

// TestSafetensors: the tensors that act, with the names, shapes and values of Weights.
func TestSafetensors(t *testing.T) {
	inner := sac.New(sac.Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.NewBox(-2, 4, 1), Hidden: []int{3}})
	p := normalize.New(inner, normalize.Config{})
	var file bytes.Buffer
	if err := export.Safetensors(&file, p, export.Meta{Algorithm: "sac"}); err != nil {
		t.Fatal(err)
	}
	var a nn.Archive
	if err := a.UnmarshalBinary(file.Bytes()); err != nil {
		t.Fatal(err)
	}
	weights, got := p.Weights(), map[string][]float32{}
	var names []string
	for _, x := range a.Tensors {
		names, got[x.Name] = append(names, x.Name), x.Data
		if w, ok := weights.Lookup(x.Name); ok && (!slices.Equal(w.Data, x.Data) || !slices.Equal(w.Shape, x.Shape)) {
			t.Errorf("%s is %v in the file and %v in Weights", x.Name, x.Shape, w.Shape)
		}
	}
	want := []string{
		"normalize/mean", "normalize/scale", "sac.actor/dense0.weight", "sac.actor/dense0.bias",
		"sac.actor/dense2.weight", "sac.actor/dense2.bias",
		"action.half", "action.middle", "action.low", "action.high",
	}
	if !slices.Equal(names, want) {
		t.Errorf("tensors %v, want %v", names, want)
	}
	for name, x := range map[string]float32{"action.half": 3, "action.middle": 1, "action.low": -2, "action.high": 4} {
		if !slices.Equal(got[name], []float32{x}) {
			t.Errorf("%s is %v, want %v", name, got[name], x)
		}
	}
	keys := slices.Sorted(maps.Keys(a.Meta))
	if !slices.Equal(keys, []string{"action_space", "algorithm", "ditask_version", "observation_space", "updates"}) {
		t.Errorf("metadata %v", keys)
	}
}

// TestFullDisk: a full disk is an error of every format, and of WriteFile, which keeps the existing file.
func TestFullDisk(t *testing.T) {
	p := acting(t)["dqn"]
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		defer full.Close()
		for form, write := range forms(p, export.Meta{}) {
			if err := write(full); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %v", form, err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "policy.onnx")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := export.WriteFile(path, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
		return syscall.ENOSPC
	})
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "write "+path+": ") {
		t.Error(err)
	}
	holds(t, path, "before")
}

// holds fails unless the file is the only one in its folder, with that text.
func holds(t *testing.T, path, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || string(text) != want {
		t.Errorf("%s holds %q, want %q: %v", path, text, want, err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, want one: %v", files, err)
	}
}

// TestWriteFile: a file is made, and replaced; a folder in its place, or one that is missing, is an error.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.onnx")
	for _, text := range []string{"one", "two"} {
		if err := export.WriteFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		holds(t, path, text)
	}
	called := func(io.Writer) error {
		t.Error("write was called")
		return nil
	}
	const irregular = "it exists and is no regular file: give the name of a file"
	if err := export.WriteFile(dir, called); err == nil || !strings.Contains(err.Error(), irregular) {
		t.Error(err)
	}
	if err := export.WriteFile(filepath.Join(dir, "missing", "x"), called); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	holds(t, path, "two")
}
