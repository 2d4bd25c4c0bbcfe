package job

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/slurm"
)

// with sets variables, each name=value, and unsets all others that place a launcher or
// stand for flags.
func with(t *testing.T, variables ...string) {
	t.Helper()
	unset := append(append(slurm.Variables(), kube.Variables()...), "SLURM_NTASKS")
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "DITASK_") {
			unset = append(unset, name)
		}
	}
	for _, name := range unset {
		t.Setenv(name, "") // so that it is restored
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, kv := range variables {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

// args returns the context of a command with the flags of a job.
func args(t *testing.T, words ...string) *urfave.Context {
	t.Helper()
	var got *urfave.Context
	app := &urfave.App{
		Flags: flags.Job(), Writer: io.Discard, ErrWriter: io.Discard,
		Action: func(ctx *urfave.Context) error { got = ctx; return nil },
	}
	if err := app.Run(append([]string{"ditask"}, words...)); err != nil {
		t.Fatal(err)
	}
	return got
}

// fields is args with the words of one text.
func fields(t *testing.T, line string) *urfave.Context {
	t.Helper()
	return args(t, strings.Fields(line)...)
}

// expect checks that a fault is a usage error with that text; empty: none.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if _, usage := errors.AsType[call.UsageError](err); err != nil && !usage {
		t.Errorf("no usage error: %v", err)
	}
}
