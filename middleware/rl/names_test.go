package rl_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryColumnIsExplained in docs/run-folder.md: those of the log, those of evaluations, and the metrics of all policies; and no other.
func TestEveryColumnIsExplained(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "run-folder.md"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	metric := regexp.MustCompile(`Name: "([a-z]+/[a-z_0-9]+)"`)
	err = filepath.WalkDir(filepath.Join(root, "policies"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "policytest") {
			return err
		}
		source, err := os.ReadFile(path) //nolint:gosec // the files of this repository
		for _, m := range metric.FindAllSubmatch(source, -1) {
			used[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(used) < 10 {
		t.Fatalf("metrics %v: %v", used, err)
	}
	for _, file := range []string{"log.go", "logfiles.go"} {
		source := contentOf(t, file)
		declared := regexp.MustCompile(`(?s)(?:c|scoreC)olumns = \[\]string\{(.*?)\}`).FindStringSubmatch(source)
		if declared == nil {
			t.Fatalf("%s declares no columns", file)
		}
		for _, m := range regexp.MustCompile(`"([a-z_/]+)"`).FindAllStringSubmatch(declared[1], -1) {
			used[m[1]] = true
		}
	}
	for name := range used {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("docs/run-folder.md does not explain %s", name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+/[a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		if !used[m[1]] && !strings.HasPrefix(m[1], "tensorboard/") {
			t.Errorf("docs/run-folder.md explains %s, which nothing writes", m[1])
		}
	}
}
