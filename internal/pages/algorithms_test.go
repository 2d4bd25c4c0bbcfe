package pages

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/train"
)

var update = flag.Bool("update", false, "write the generated parts of docs/algorithms again")

const folder = "../../docs/algorithms"

// part replaces what stands between "<!-- name -->" and "<!-- end name -->" on a page.
func part(page, name, text string) (string, error) {
	begin, end := "<!-- "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok1 := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("want the lines %q and %q", strings.TrimSpace(begin), end)
	}
	return before + begin + text + end + after, nil
}

// cell returns a text in a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// settings returns the table of an algorithm's hyperparameters.
func settings(a algorithm.Algorithm) string {
	var p algorithm.Params
	a.Declare(&p)
	var b strings.Builder
	b.WriteString("| key | default | unit | allowed | | source of the default |\n|---|---|---|---|---|---|\n")
	for _, q := range p.All() {
		name := "`" + q.Name + "`"
		for _, alias := range q.Aliases {
			name += ", `" + alias + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s | %s |\n", name, cell(q.Default), q.Unit, q.Bounds, cell(q.About), q.Source)
	}
	return b.String()
}

// presets returns the table of an algorithm's presets.
func presets(name string) string {
	var b strings.Builder
	for _, p := range train.Presets() {
		if p.Algorithm() != name {
			continue
		}
		var set []string
		for i := 0; i+1 < len(p.Set.Content); i += 2 {
			value := p.Set.Content[i+1]
			text := value.Value
			if len(value.Content) > 0 {
				var items []string
				for _, item := range value.Content {
					items = append(items, item.Value)
				}
				text = "[" + strings.Join(items, ", ") + "]"
			}
			set = append(set, fmt.Sprintf("`%s=%s`", p.Set.Content[i].Value, text))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, p.Settings, cmp.Or(p.Reported(), "–"), strings.Join(set, " "))
	}
	if b.Len() == 0 {
		return "There are no presets: the defaults above apply to every environment.\n"
	}
	return "| preset | settings from | published there | keys that differ from the defaults |\n|---|---|---|---|\n" + b.String()
}

// program returns the file with the examples of a package.
func program(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join("../../policies", name, "example_test.go"))
	if err != nil {
		return "", err
	}
	return "```go\n" + string(text) + "```\n", nil
}

// TestPagesOfAlgorithms compares the generated parts of each page with the algorithm.
func TestPagesOfAlgorithms(t *testing.T) {
	for _, a := range train.Algorithms() {
		parts := [][2]string{{"settings", settings(a)}, {"presets", presets(a.Name)}}
		check(t, a.Name, parts)
	}
	check(t, "her", nil) // it is an option of others
}

func check(t *testing.T, name string, parts [][2]string) {
	t.Helper()
	path := filepath.Join(folder, name+".md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	goProgram, err := program(name)
	if err != nil {
		t.Error(err)
		return
	}
	want := string(text)
	for _, p := range append(parts, [2]string{"example", goProgram}) {
		if want, err = part(want, p[0], p[1]); err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
	}
	if want == string(text) {
		return
	}
	if !*update {
		t.Errorf("%s is not what the program says: run go test ./internal/pages -update", path)
		return
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Error(err)
	}
}

// TestTheIndexHasEveryAlgorithm and no other, with the actions that it learns.
func TestTheIndexHasEveryAlgorithm(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\((\w+)\.md\) \|(.*)\|$`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != m[2] {
			t.Errorf("%s leads to the page of %s", m[1], m[2])
		}
		rows[m[1]] = strings.Split(m[3], "|")
	}
	for _, a := range train.Algorithms() {
		row, ok := rows[a.Name]
		if !ok || len(row) < 2 {
			t.Errorf("the index has no row for %s", a.Name)
			continue
		}
		want := strings.Join(actions(a), " and ")
		if got := strings.TrimSpace(row[0]); got != want {
			t.Errorf("%s learns %s actions, the index says %s", a.Name, want, got)
		}
		delete(rows, a.Name)
	}
	delete(rows, "her")
	for name := range rows {
		t.Errorf("the index has %s, which is no algorithm", name)
	}
}

func actions(a algorithm.Algorithm) []string {
	var out []string
	if a.Discrete {
		out = append(out, "discrete")
	}
	if a.Continuous {
		out = append(out, "continuous")
	}
	return out
}

func TestPartsAreReplaced(t *testing.T) {
	got, err := part("a\n<!-- x -->\nold\n<!-- end x -->\nb\n", "x", "new\n")
	if want := "a\n<!-- x -->\nnew\n<!-- end x -->\nb\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := part("a\n<!-- x -->\n", "x", ""); err == nil {
		t.Error("a page without an end passes")
	}
}
