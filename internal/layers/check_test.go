package layers

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// rule is the line of a package: what it may import, and what its tests may
// import besides.
type rule struct{ code, test []string }

// parse reads a block of arrows.
func parse(block string) (map[string]*rule, error) {
	rules := map[string]*rule{}
	for line := range strings.Lines(joined(block)) {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		from, to, ok := strings.Cut(line, "->")
		name, test := strings.CutSuffix(strings.TrimSpace(from), " (test)")
		allowed := strings.Fields(to)
		if !ok || len(strings.Fields(name)) != 1 || len(allowed) == 0 || slices.Contains(allowed, "->") {
			return nil, fmt.Errorf("%q is not a line such as: task -> std", strings.TrimSpace(line))
		}
		r := rules[name]
		if r == nil {
			r = &rule{}
			rules[name] = r
		}
		list := &r.code
		if test {
			list = &r.test
		}
		if *list != nil {
			return nil, fmt.Errorf("%s has two lines", strings.TrimSpace(from))
		}
		*list = allowed
	}
	return rules, nil
}

// joined returns a block with each continuation, which begins with a tab, on the line that it continues.
func joined(block string) string { return strings.ReplaceAll(block, "\n\t", " ") }

// line finds the rule of a package.
func line(rules map[string]*rule, pkg string) *rule {
	if r := rules[pkg]; r != nil && r.code != nil {
		return r
	}
	for dir := pkg; dir != "."; {
		dir = path.Dir(dir)
		if r := rules[dir+"/..."]; r != nil && r.code != nil {
			return r
		}
	}
	return nil
}

// edge is one import of one file.
type edge struct {
	pkg, file, to string // to: of this module without its path
}

// read lists the imports of all Go files of a module.
func read(tree fs.FS) ([]edge, error) {
	var edges []edge
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		hidden := name != "." && (base[0] == '.' || base[0] == '_')
		if d.IsDir() {
			_, nested := fs.Stat(tree, path.Join(name, "go.mod"))
			if hidden || base == "testdata" || name != "." && nested == nil {
				return fs.SkipDir
			}
			return nil
		}
		if hidden || path.Ext(base) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		// A file without imports is listed too, so that its package has a line.
		edges = append(edges, edge{path.Dir(name), name, ""})
		for _, i := range file.Imports {
			to, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: import %s: %w", name, i.Path.Value, err)
			}
			edges = append(edges, edge{path.Dir(name), name, to})
		}
		return nil
	})
	return edges, err
}

// check reports which imports no arrow allows, and which packages have no line.
func check(rules map[string]*rule, edges []edge) []string {
	faults := map[string]bool{}
	for _, e := range edges {
		r := line(rules, e.pkg)
		if r == nil {
			faults[fmt.Sprintf("package %s has no line: give it one", e.pkg)] = true
			continue
		}
		allowed, what := r.code, e.pkg
		if strings.HasSuffix(e.file, "_test.go") {
			what = "the tests of " + e.pkg
			allowed = slices.Concat(allowed, r.test, []string{e.pkg}, testsOf(rules, e.pkg))
		}
		if e.to != "" && !slices.ContainsFunc(allowed, func(a string) bool { return allows(a, e.to) }) {
			faults[fmt.Sprintf("%s: no arrow lets %s import %s", e.file, what, e.to)] = true
		}
	}
	return slices.Sorted(maps.Keys(faults))
}

// testsOf returns the imports that the tests of a package may have by lines for them alone: its
// own, and that of all packages.
func testsOf(rules map[string]*rule, pkg string) []string {
	var out []string
	for _, name := range []string{pkg, "..."} {
		if r := rules[name]; r != nil {
			out = append(out, r.test...)
		}
	}
	return out
}

// allows reports whether one word behind an arrow stands for an import.
func allows(word, to string) bool {
	inner, ours := strings.CutPrefix(to, module+"/")
	first, _, _ := strings.Cut(to, "/")
	elsewhere := strings.Contains(first, ".") && !ours
	first, _, _ = strings.Cut(word, "/")
	switch {
	case word == "any":
		return true
	case strings.Contains(first, "."):
		return elsewhere && (to == word || strings.HasPrefix(to, word+"/"))
	case word == "std":
		return !elsewhere && !ours && to != "testing" && !strings.HasPrefix(to, "testing/")
	case word == "testing":
		return to == word || strings.HasPrefix(to, "testing/")
	case ours:
		return inner == word
	default:
		return to == word
	}
}

// reaches reports which packages may reach what they are to be kept apart from, over
// any number of arrows.
func reaches(rules map[string]*rule, apart string) []string {
	var faults []string
	for row := range strings.Lines(joined(strings.TrimSpace(apart))) {
		from, to, _ := strings.Cut(row, "|")
		for pkg := range strings.FieldsSeq(from) {
			r := line(rules, pkg)
			if r == nil {
				faults = append(faults, fmt.Sprintf("package %s has no line", pkg))
				continue
			}
			all := closure(rules, r.code)
			for far := range strings.FieldsSeq(to) {
				if all[far] || all["any"] {
					faults = append(faults, fmt.Sprintf("the arrows lead from %s to %s", pkg, far))
				}
			}
		}
	}
	return faults
}

func closure(rules map[string]*rule, from []string) map[string]bool {
	all := map[string]bool{}
	for todo := slices.Clone(from); len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		if all[next] {
			continue
		}
		all[next] = true
		if r := rules[next]; r != nil {
			todo = append(todo, r.code...)
		}
	}
	return all
}

func TestCheckFindsWhatNoArrowAllows(t *testing.T) {
	const block = `
a -> std # a comment
b -> std a
	gopkg.in/x
b (test) -> c
c/... -> a
pure -> strings
suite -> std testing
... (test) -> testing example.com/tool
`
	cases := map[string]struct{ file, imports, want string }{
		"standard library":          {"a/x.go", "os net/http", ""},
		"a package of ours":         {"b/x.go", "/a", ""},
		"an arrow backwards":        {"a/x.go", "/b", "a/x.go: no arrow lets a import " + module + "/b"},
		"a name like the module's":  {"b/x.go", module + "x/a", "b/x.go: no arrow lets b import " + module + "x/a"},
		"another's package":         {"b/x.go", "gopkg.in/x/y", ""},
		"another's longer name":     {"b/x.go", "gopkg.in/xy", "b/x.go: no arrow lets b import gopkg.in/xy"},
		"another's, not allowed":    {"a/x.go", "gopkg.in/x", "a/x.go: no arrow lets a import gopkg.in/x"},
		"a package without a line":  {"d/x.go", "os", "package d has no line: give it one"},
		"without line and imports":  {"d/x.go", "", "package d has no line: give it one"},
		"a line for a whole folder": {"c/d/e/x.go", "/a", ""},
		"the folder's own":          {"c/d/x.go", "os", "c/d/x.go: no arrow lets c/d import os"},
		"a list of the standard":    {"pure/x.go", "strings os", "pure/x.go: no arrow lets pure import os"},
		"testing in code":           {"a/x.go", "testing", "a/x.go: no arrow lets a import testing"},
		"testing/fstest in code":    {"a/x.go", "testing/fstest", "a/x.go: no arrow lets a import testing/fstest"},
		"testing where allowed":     {"suite/x.go", "testing testing/fstest", ""},
		"testing in a test":         {"a/x_test.go", "testing /a example.com/tool", ""},
		"a test's own arrow":        {"b/x_test.go", "/c", ""},
		"a test's arrow in code":    {"b/x.go", "/c", "b/x.go: no arrow lets b import " + module + "/c"},
		"a test with none":          {"a/x_test.go", "/c", "a/x_test.go: no arrow lets the tests of a import " + module + "/c"},
		"any build tag counts":      {"a/x_windows.go", "/b", "a/x_windows.go: no arrow lets a import " + module + "/b"},
		"testdata does not":         {"a/testdata/x.go", "/b", ""},
		"nor a hidden folder":       {".cache/x.go", "/b", ""},
	}
	rules, err := parse(block)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		var text strings.Builder
		text.WriteString("package x\n")
		for i := range strings.FieldsSeq(c.imports) {
			if i[0] == '/' {
				i = module + i
			}
			fmt.Fprintf(&text, "import %q\n", i)
		}
		edges, err := read(fstest.MapFS{"go.mod": {}, c.file: {Data: []byte(text.String())}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(check(rules, edges), "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestReadLeavesNestedModulesAlone(t *testing.T) {
	tree := fstest.MapFS{"go.mod": {}, "n/go.mod": {}, "n/x.go": {Data: []byte("package n")}, "a/x.go": {Data: []byte("package a")}}
	edges, err := read(tree)
	if err != nil || len(edges) != 1 || edges[0].pkg != "a" {
		t.Error(edges, err)
	}
}

func TestParseRefusesLinesThatMeanNothing(t *testing.T) {
	for _, block := range []string{"a", "a ->", "-> b", "a b -> c", "a -> b\na -> c", "a -> b\n\tc -> d", "a (test) -> b\na (test) -> c"} {
		if _, err := parse(block); err == nil {
			t.Errorf("%q is taken", block)
		}
	}
}

func TestReachesFollowsManyArrows(t *testing.T) {
	rules, err := parse("a -> b\nb -> c\nc -> std\nd -> any")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(reaches(rules, "a\n\t| c d\nc | a\nd | a\ne | a"), "; ")
	if want := "the arrows lead from a to c; the arrows lead from d to a; package e has no line"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
