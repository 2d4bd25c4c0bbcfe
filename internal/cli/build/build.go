// Package build builds the package that --package names, in a cache folder of the
// user. It also has the command "ditask build", which writes the program to a file.
//
//	prog, err := build.FromFlags(ctx, signals)
//	...
//	defer prog.Release()
//	cmd := exec.Command(prog.Path)
//
// Builds of one package wait for each other by a lock in its folder of the cache, in
// this process and in others. A wrong package or flag is a usage error; a package that
// does not compile fails with the lines of the compiler.
package build

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/safefile"
)

// Program is the program that the nodes run.
type Program struct {
	Path string // of the executable
	Main string // DITASK_MAIN
	// Release removes the files that were made only for this job.
	Release func()
}

// buildError reports a package that does not compile, with the lines of the compiler.
type buildError struct {
	pkg   string
	lines string
}

func (e *buildError) Error() string {
	return fmt.Sprintf("package %s does not compile\n%s", e.pkg, e.lines)
}

// goPackage is a package as "go list" describes it.
type goPackage struct {
	Dir        string
	ImportPath string
	Name       string
	MainModule bool // it is in the module, or workspace, of the working folder
}

// goListFormat prints one line for each package, its fields separated by tabs.
const goListFormat = `{{.Dir}}{{"\t"}}{{.ImportPath}}{{"\t"}}{{.Name}}{{"\t"}}{{with .Module}}{{.Main}}{{end}}`

// FromFlags finds or builds the program that --package and --main name. A signal
// interrupts it.
func FromFlags(ctx *urfave.Context, signals <-chan os.Signal) (Program, error) {
	var prog Program
	err := call.UntilSignal(ctx.Context, signals, func(building context.Context) (err error) {
		prog, err = resolve(building, ctx.String("package"), ctx.String("main"))
		return err
	})
	if err != nil && prog.Release != nil {
		prog.Release()
	}
	return prog, err
}

// resolve finds or builds the program that --package and --main name.
func resolve(ctx context.Context, pkg, mainFunc string) (Program, error) {
	if pkg == "" {
		return Program{}, call.Usage("--package is missing: give a folder or import path, the word main, or a built program: see ditask --help")
	}
	if err := checkMain(mainFunc); err != nil {
		return Program{}, err
	}
	if pkg == "main" {
		pkg = mainPackage()
	}
	info, err := os.Stat(pkg)
	switch {
	case err == nil && !info.IsDir():
		return built(pkg, info, mainFunc)
	case err == nil && !filepath.IsAbs(pkg) && !strings.HasPrefix(pkg, "."):
		pkg = "./" + pkg
	case err != nil && (filepath.IsAbs(pkg) || strings.HasPrefix(pkg, ".")):
		return Program{}, call.Usage("--package %s: no such folder or program", pkg)
	}
	if dir, ok := otherModule(pkg, err == nil); ok {
		return build(ctx, source{name: pkg, dir: dir, pkg: "."}, mainFunc)
	}
	return build(ctx, source{name: pkg, pkg: pkg}, mainFunc)
}

// checkMain checks that --main is the name of a function, or nothing.
func checkMain(name string) error {
	at := strings.LastIndexByte(name, '.')
	module, function := name[:max(at, 0)], name[at+1:]
	switch {
	case name == "" || token.IsIdentifier(name):
		return nil
	case at >= 0 && token.IsIdentifier(function) && !strings.ContainsFunc(module, unicode.IsSpace):
		return call.Usage("--main %q: want a function without its module: name the package of %s with --package, and give --main %s",
			name, module, function)
	}
	return call.Usage("--main %q: want the name of a function", name)
}

// source is a package as it is named to the go command.
type source struct {
	name string // as the user gave it
	dir  string // where the go command runs; empty: the working folder
	pkg  string // relative to dir
}

// otherModule returns the folder of a package that is not in the module of the
// working folder: the go command must run there to find its go.mod.
func otherModule(pkg string, isFolder bool) (string, bool) {
	if !isFolder {
		return "", false
	}
	dir, err := filepath.Abs(pkg)
	if err != nil {
		return "", false
	}
	here, err := os.Getwd()
	return dir, err == nil && moduleRoot(dir) != moduleRoot(here)
}

// moduleRoot returns the nearest folder from dir upwards with a go.mod, or empty.
func moduleRoot(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// mainPackage returns the package that the word main stands for.
func mainPackage() string {
	if files, _ := filepath.Glob("*.go"); len(files) == 0 {
		if info, err := os.Stat("main"); err == nil && info.IsDir() {
			return "./main"
		}
	}
	return "."
}

// built returns a program that is already built.
func built(path string, info os.FileInfo, mainFunc string) (Program, error) {
	if strings.HasSuffix(path, ".go") {
		return Program{}, call.Usage("--package %s: give the folder of the package, %s", path, filepath.Dir(path))
	}
	if info.Mode()&0o111 == 0 {
		return Program{}, call.Usage("--package %s: is not executable; give a folder, or a built program", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Program{}, err
	}
	return Program{Path: abs, Main: mainFunc, Release: func() {}}, nil
}

// build compiles a package into the user's cache. The go command reuses what it has
// compiled before.
func build(ctx context.Context, src source, mainFunc string) (Program, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return Program{}, errors.New("--package: the go command is not in PATH: install Go, or give a built program")
	}
	p, err := goList(ctx, src)
	if err != nil {
		return Program{}, err
	}
	cache, err := Cache()
	if err != nil {
		return Program{}, fmt.Errorf("cache folder: %w: set XDG_CACHE_HOME", err)
	}
	dir := filepath.Join(cache, key(p.Dir, p.ImportPath, mainFunc))
	if err := safefile.Owned(cache); err != nil { // its programs are run
		return Program{}, fmt.Errorf("cache folder: %w: set XDG_CACHE_HOME", err)
	}
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return Program{}, fmt.Errorf("cache folder: %w: set XDG_CACHE_HOME to a folder that you can write", err)
	}
	args := []string{"build", "-o", filepath.Join(dir, outputName(p))}
	target, called := src.pkg, ""
	switch {
	case p.Name == "main":
	case mainFunc == "":
		return Program{}, call.Usage("--package %s: package %s is a library: name the function to run with --main", src.name, p.Name)
	case !token.IsExported(mainFunc):
		return Program{}, call.Usage("--main %s: is not exported by package %s", mainFunc, p.Name)
	default:
		overlay, dirOfMain, err := overlayMain(dir, p, mainFunc)
		if err != nil {
			return Program{}, err
		}
		args = append(args, "-overlay", overlay)
		target, called, mainFunc = dirOfMain, mainFunc, ""
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return Program{}, err
	}
	defer unlock()
	if out, err := Go(ctx, src.dir, append(args, target)...); err != nil {
		if called != "" {
			if err := mainFault(out, p, called); err != nil {
				return Program{}, err
			}
		}
		return Program{}, &buildError{pkg: src.name, lines: cmp.Or(strings.TrimSpace(out), err.Error())}
	}
	path, release, err := pin(args[2])
	return Program{Path: path, Main: mainFunc, Release: release}, err
}

// Cache returns the user's folder for built programs.
func Cache() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "ditask"), err
}

// mainFault returns the fault of the function that --main names, if the generated
// program does not compile because of it.
func mainFault(out string, p goPackage, mainFunc string) error {
	switch name := "library." + mainFunc; {
	case strings.Contains(out, "undefined: "+name):
		return call.Usage("--main %s: package %s has no such function", mainFunc, p.ImportPath)
	case strings.Contains(out, "cannot use "+name), strings.Contains(out, name+" (type) is not an expression"):
		return call.Usage("--main %s: want a func(context.Context, *parallel.Node) error in package %s", mainFunc, p.ImportPath)
	}
	return nil
}

// outputName returns the name of the executable, which ps shows.
func outputName(p goPackage) string {
	name := filepath.Base(p.ImportPath)
	if name == "." || name == "/" || name == "command-line-arguments" {
		name = filepath.Base(p.Dir)
	}
	return name
}

func key(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

func goList(ctx context.Context, src source) (goPackage, error) {
	out, err := Go(ctx, src.dir, "list", "-find", "-f", goListFormat, "--", src.pkg)
	if err != nil {
		return goPackage{}, call.Usage("--package %s: %s", src.name, cmp.Or(firstFault(out), err.Error()))
	}
	line, more, _ := strings.Cut(strings.TrimSpace(out), "\n")
	fields := strings.Split(line, "\t")
	if more != "" || len(fields) < 3 {
		return goPackage{}, call.Usage("--package %s: is not one package", src.name)
	}
	return goPackage{fields[0], fields[1], fields[2], fields[len(fields)-1] == "true"}, nil
}

// firstFault returns the first fault that the go command reports, in one line. Indented
// lines below it belong to it, such as the command that corrects it.
func firstFault(out string) string {
	fault := ""
	for line := range strings.Lines(out) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "go: ")
		indented := strings.TrimLeft(line, " \t") != line
		switch {
		case text == "" || strings.HasPrefix(text, "finding ") || strings.HasPrefix(text, "downloading "):
		case fault == "" && strings.HasPrefix(text, "go.mod file not found"):
			return "not in a module: give a folder below a go.mod, or a built program"
		case fault == "" && strings.Contains(text, " is not in std ("):
			return "no such folder, program or package"
		case fault == "":
			fault = text
		case !indented:
			return fault
		case strings.HasSuffix(fault, ":"):
			fault += " " + text
		default:
			fault += "; " + text
		}
	}
	return fault
}

// Go runs the go command in a folder. It returns stdout, or after a failure stderr.
func Go(ctx context.Context, dir string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return stderr.String(), err
	}
	return stdout.String(), nil
}

// mainFile is the program that runs one function of a library package.
const mainFile = `// Code generated by ditask. DO NOT EDIT.

package main

import (
	"github.com/ditask/ditask/parallel"

	library %q
)

func main() { parallel.Main(library.%s) }
`

// overlayMain makes a main package for one function of a library. Only the go command
// sees it below the library's folder, through an overlay; nothing is written there.
func overlayMain(dir string, p goPackage, mainFunc string) (overlay, pkg string, err error) {
	if !p.MainModule {
		return "", "", call.Usage("--package %s: is in another module: give its folder, or write a main package that calls "+
			"parallel.Main(%s.%s)", p.ImportPath, p.Name, mainFunc)
	}
	file := filepath.Join(dir, "main.go")
	virtual := filepath.Join(p.Dir, "ditask_main_"+strings.ToLower(mainFunc))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(virtual, "main.go"): file}})
	if err != nil {
		return "", "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	for path, content := range map[string][]byte{
		file:    fmt.Appendf(nil, mainFile, p.ImportPath, mainFunc),
		overlay: replace,
	} {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue
		}
		if err := safefile.Write(path, content, 0o600); err != nil {
			return "", "", fmt.Errorf("cache folder: %w", err)
		}
	}
	return overlay, p.ImportPath + "/" + filepath.Base(virtual), nil
}

// pin links a program to a name that only this job uses, so that a restarted node
// runs the same program as the others, even if the package was rebuilt in the meantime.
// It removes the names of jobs that have ended.
func pin(path string) (string, func(), error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(path), host+".*"))
	for _, dir := range old {
		if !alive(strings.TrimPrefix(filepath.Ext(dir), ".")) {
			_ = os.RemoveAll(dir)
		}
	}
	dir := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s.%d", host, os.Getpid()))
	pinned := filepath.Join(dir, filepath.Base(path))
	_ = os.RemoveAll(dir) // of an earlier process with this pid
	if err := errors.Join(safefile.MkdirAll(dir, 0o755), os.Link(path, pinned)); err != nil {
		return "", nil, fmt.Errorf("cache folder: %w", err)
	}
	return pinned, func() { _ = os.RemoveAll(dir) }, nil
}
