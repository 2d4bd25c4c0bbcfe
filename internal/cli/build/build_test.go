package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/cli/call"
)

// The texts are those of Go 1.26.
func TestFirstFaultHasTheRemedy(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		"go: updates to go.mod needed; to update it:\n\tgo mod tidy\n": "updates to go.mod needed; to update it: go mod tidy",
		"go: finding module\ngo: downloading example.com/dep v1.0.0\ngo: go.mod file not found in current directory or any parent directory; " +
			"see 'go help modules'\n": "not in a module: give a folder below a go.mod, or a built program",
		"no required module provides package example.com/dep/y; to add it:\n\tgo get example.com/dep/y\n": "" +
			"no required module provides package example.com/dep/y; to add it: go get example.com/dep/y",
		"first\nsecond\n\tof the second\n": "first",
		"go: inconsistent vendoring in /m:\n\texample.com/dep@v1.0.0: is explicitly required in go.mod, " +
			"but not marked as explicit in vendor/modules.txt\n\n" +
			"\tTo ignore the vendor directory, use -mod=readonly or -mod=mod.\n\tTo sync the vendor directory, run:\n\t\tgo mod vendor\n": "" +
			"inconsistent vendoring in /m: example.com/dep@v1.0.0: is explicitly required in go.mod, " +
			"but not marked as explicit in vendor/modules.txt; " +
			"To ignore the vendor directory, use -mod=readonly or -mod=mod.; To sync the vendor directory, run: go mod vendor",
	} {
		if got := firstFault(in); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", in, got, want)
		}
	}
}

func TestMainIsTheNameOfAFunction(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "Play": "", "play": "",
		"a b":       `--main "a b": want the name of a function`,
		"a b.c":     `--main "a b.c": want the name of a function`,
		"a.":        `--main "a.": want the name of a function`,
		"1":         `--main "1": want the name of a function`,
		"m.main":    `--main "m.main": want a function without its module: name the package of m with --package, and give --main main`,
		"a.b.Train": `--main "a.b.Train": want a function without its module: name the package of a.b with --package, and give --main Train`,
	} {
		got := ""
		if err := checkMain(in); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestMainFault(t *testing.T) {
	p := goPackage{ImportPath: "m/lib"}
	const form = "--main Play: want a func(context.Context, *parallel.Node) error in package m/lib"
	for out, want := range map[string]string{
		"main.go:9:39: undefined: library.Play":                   "--main Play: package m/lib has no such function",
		"main.go:9:39: cannot use library.Play (variable of type": form,
		"library.Play (type) is not an expression":                form,
		"lib.go:3:1: undefined: x":                                "",
	} {
		got := ""
		if err := mainFault(out, p, "Play"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", out, got, want)
		}
	}
}

func TestOutputNameIsTheNameInPs(t *testing.T) {
	for in, want := range map[goPackage]string{
		{Dir: "/a/b", ImportPath: "m/prog"}:                 "prog",
		{Dir: "/a/b", ImportPath: "command-line-arguments"}: "b",
		{Dir: "/a/b", ImportPath: "."}:                      "b",
		{Dir: "/a/b", ImportPath: "/"}:                      "b",
	} {
		if got := outputName(in); got != want {
			t.Errorf("%+v: %s", in, got)
		}
	}
}

func TestKeysAreThoseOfPackageAndFunction(t *testing.T) {
	keys := map[string]bool{}
	for _, parts := range [][]string{{"a", "b"}, {"ab", ""}, {"a", "c"}, {"a", "b"}} {
		keys[key(parts...)] = true
	}
	if len(keys) != 3 {
		t.Error(keys)
	}
}

func TestBuiltProgramsAreExecutable(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		mode os.FileMode
		want string
	}{
		{"prog", 0o700, ""},
		{"group", 0o610, ""},
		{"notes", 0o600, "is not executable; give a folder, or a built program"},
		{"main.go", 0o700, "give the folder of the package, " + dir},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, nil, c.mode); err != nil {
			t.Fatal(err)
		}
		prog, err := resolve(t.Context(), path, "Play")
		switch {
		case c.want == "" && (err != nil || prog.Path != path || prog.Main != "Play"):
			t.Errorf("%s: %+v, %v", c.name, prog, err)
		case c.want != "" && (err == nil || err.Error() != "--package "+path+": "+c.want):
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for pkg, want := range map[string]string{
		"": "--package is missing", "./nothing": "no such folder or program", "/nothing": "no such folder or program",
	} {
		if _, err := resolve(t.Context(), pkg, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", pkg, err)
		}
	}
}

func TestPinnedProgramOutlivesANewBuild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(path, []byte("old"), 0o700); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(filepath.Dir(path), host+".4194999") // beyond the largest pid
	live := filepath.Join(filepath.Dir(path), host+".1")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(live, 0o700); err != nil {
		t.Fatal(err)
	}
	pinned, release, err := pin(path)
	if err != nil || filepath.Base(pinned) != "prog" {
		t.Fatal(pinned, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(pinned); string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the files of an ended job are still there")
	}
	if _, err := os.Stat(live); err != nil {
		t.Error(err)
	}
	release()
	if _, err := os.Stat(filepath.Dir(pinned)); err == nil {
		t.Error("it is there after its release")
	}
}

func TestCopyReplacesAWholeFile(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for path, text := range map[string]string{from: "new", to: "old"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyProgram(from, to); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	b, readErr := os.ReadFile(to)
	if err != nil || readErr != nil || string(b) != "new" || info.Mode().Perm() != 0o755 {
		t.Errorf("%q %v %v %v", b, info, err, readErr)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := copyProgram(from, filepath.Join(dir, "folder")); err == nil {
		t.Error("a folder was replaced")
	}
	if err := copyProgram(filepath.Join(dir, "none"), to); err == nil {
		t.Error("nothing was copied")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestCommandsOfUsersAreUsageErrors(t *testing.T) {
	if _, err := resolve(t.Context(), "", ""); (&call.Call{Stderr: &strings.Builder{}}).Exit(err) != call.ExitUsage {
		t.Error(err)
	}
}
