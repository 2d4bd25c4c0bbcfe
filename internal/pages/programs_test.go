package pages

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
)

// programs returns the blocks of a page that are a whole program in Go.
func programs(page string) []string {
	var out []string
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		if strings.Contains(m[1], "package main\n") {
			out = append(out, m[1])
		}
	}
	return out
}

// TestEveryProgramRuns: those on the pages below docs, each in its own folder, alone.
func TestEveryProgramRuns(t *testing.T) {
	tree, count := os.DirFS("../.."), 0
	err := fs.WalkDir(tree, "docs", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		page, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, text := range programs(string(page)) {
			count++
			t.Run(strings.TrimPrefix(name, "docs/"), func(t *testing.T) { run(t, text) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 3 {
		t.Errorf("%d programs were found, want at least 3", count)
	}
}

func run(t *testing.T, text string) {
	t.Helper()
	w, dir := leak.Check(t), t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", program, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir, cmd.Env = dir, w.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
