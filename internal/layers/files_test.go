package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// byName are the functions of package os that write to a named file and follow any link
// of that name; internal/safefile replaces them. os.CreateTemp and os.MkdirTemp are not
// among them: they create new files.
var byName = []string{"Create", "OpenFile", "WriteFile", "MkdirAll", "Mkdir"}

// opensItself are the packages that use them nevertheless: the one that is for it, and tools
// of tests, whose folders are their own.
var opensItself = []string{"internal/safefile", "internal/certtest", "internal/faultlab", "internal/faultlab/clock",
	"internal/mutate", "internal/slurmtest"}

// openers lists the uses of byName outside of tests.
func openers(tree fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			_, nested := fs.Stat(tree, path.Join(name, "go.mod"))
			if name != "." && (nested == nil || base[0] == '.' || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" || strings.HasSuffix(base, "_test.go") || slices.Contains(opensItself, path.Dir(name)) {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(byName, s.Sel.Name) {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" {
					found = append(found, fmt.Sprintf("%s: os.%s", set.Position(s.Pos()), s.Sel.Name))
				}
			}
			return true
		})
		return nil
	})
	return found, err
}

func TestFilesAreOpenedInOnePackage(t *testing.T) {
	found, err := openers(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("%s: use internal/safefile", f)
	}
}

func TestOpenersAreFound(t *testing.T) {
	const code = "package a\n\nimport \"os\"\n\nvar _, _ = os.Create(\"x\")\nvar _ = os.Remove(\"x\")\n"
	tree := fstest.MapFS{
		"a/a.go": {Data: []byte(code)}, "a/a_test.go": {Data: []byte(code)}, "internal/safefile/s.go": {Data: []byte(code)},
		"b/go.mod": {}, "b/b.go": {Data: []byte(code)}, "testdata/t.go": {Data: []byte(code)},
	}
	found, err := openers(tree)
	if err != nil || len(found) != 1 || found[0] != "a/a.go:5:12: os.Create" {
		t.Errorf("%q, %v", found, err)
	}
}
