package task

import (
	"context"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// probe is a context with which the engine asks the middleware that this package makes (and no other)
// for their contents, since a function has no other methods.
type probe struct {
	context.Context
	name string
	lock *Lock
}

// describe names a middleware in the form "rl.Collect" and returns the lock that
// it was given by [Locked].
func describe[C any](m Middleware[C]) (name string, lock *Lock) {
	pc := reflect.ValueOf(m).Pointer()
	if ownFile(pc) {
		p := &probe{Context: context.Background()}
		_ = m(p, nil, nil) // fills p
		return p.name, p.lock
	}
	return pcName(pc), nil
}

// ownFile reports whether the function at pc was written in this package, so that
// it knows a probe. Tests are not.
func ownFile(pc uintptr) bool {
	file, here := fileOf(pc), fileOf(reflect.ValueOf(ownFile).Pointer())
	return path.Dir(file) == path.Dir(here) && !strings.HasSuffix(file, "_test.go")
}

// funcName names any function value in the form "rl.Collect".
func funcName(fn any) string { return pcName(reflect.ValueOf(fn).Pointer()) }

func pcName(pc uintptr) string {
	return trimName(runtime.FuncForPC(pc).Name(), fileOf(pc))
}

// fileOf returns the source file of the function at pc.
func fileOf(pc uintptr) string {
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file
}

// trimName shortens a symbol such as "a.b/c/rl.Collect[...].func1" to
// "rl.Collect". The closure of a constructor that was inlined into its caller is
// called "a.b/main.play.Collect.func2": then the file says whose it is.
func trimName(symbol, file string) string {
	s := symbol[strings.LastIndexByte(symbol, '/')+1:]
	s = strings.TrimSuffix(strings.ReplaceAll(s, "[...]", ""), "-fm")
	pkg, rest, ok := strings.Cut(s, ".")
	if !ok {
		return s
	}
	var kept []string
	closure := false
	for part := range strings.SplitSeq(rest, ".") {
		part, _, _ = strings.Cut(part, "-range") // the body of a range over a function
		switch {
		case part == "":
		case isClosure(part):
			closure = closure || strings.HasPrefix(part, "func")
		default:
			kept = append(kept, part)
		}
	}
	switch {
	case len(kept) == 0:
		return s
	case closure && len(kept) == 2 && strings.HasPrefix(kept[0], "("):
		return pkg + "." + kept[1] // of a method that makes middleware, such as rl.(*Run).Collect
	case len(kept) == 1 || strings.HasPrefix(kept[0], "("):
		return pkg + "." + strings.Join(kept, ".")
	}
	return path.Base(path.Dir(file)) + "." + kept[len(kept)-1]
}

// isClosure reports whether a part of a symbol is one that the compiler counts:
// "func1", "gowrap2", "3".
func isClosure(part string) bool {
	digits := strings.TrimPrefix(strings.TrimPrefix(part, "func"), "gowrap")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}
