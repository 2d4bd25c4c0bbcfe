package slurm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

func TestNameOfAPackageIsOneOfAJob(t *testing.T) {
	for in, want := range map[string]string{
		"./agents": "agents", "a/-x": "job--x", "a/$(id)": "job--id-", "/": "job--", "a/.git": "job-.git", "a/" + strings.Repeat("x",
			200): "job-" + strings.Repeat("x", 96),
	} {
		if got := nameOf(in); got != want || !jobName.MatchString(got) {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// runs returns the commands that a script runs: srun, ditask and mkdir, which are replaced by
// one that records its arguments.
func runs(t *testing.T, script string, env ...string) (calls [][]string, err error) {
	t.Helper()
	dir := t.TempDir()
	stub := "#!/bin/sh\n{ printf '%s\\0' \"${0##*/}\" \"$@\"; printf '\\n\\0'; } >> \"$CALLS\"\n"
	for _, name := range []string{"srun", "ditask", "mkdir"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(stub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	calls = nil
	file := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command("bash")
	cmd.Stdin, cmd.Dir = strings.NewReader(script), t.TempDir()
	cmd.Env = append(append(leak.Check(t).Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SLURM_JOB_ID=7", "CALLS="+file), env...)
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		t.Logf("%s", out)
	}
	written, _ := os.ReadFile(file) // nothing may have been called
	var call []string
	for word := range bytes.SplitSeq(bytes.TrimSuffix(written, []byte{0}), []byte{0}) {
		if string(word) != "\n" {
			call = append(call, string(word))
			continue
		}
		calls, call = append(calls, call), nil
	}
	if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
		t.Errorf("the script has made %v", left)
	}
	return calls, err
}

// FuzzScript runs scripts whose texts come from outside: each is one argument of one of
// the commands, and nothing else is run.
func FuzzScript(f *testing.F) {
	if _, err := exec.LookPath("bash"); err != nil {
		f.Skip(err)
	}
	for _, s := range []string{"a", "$(id>f)", "x'y", "a\nid>f", `"; id>f; "`, "-p", "`id>f`", "\\", "a b", "~", "*", "$HOME"} {
		f.Add(s, s, true, false)
		f.Add(s, s, false, true)
	}
	f.Fuzz(func(t *testing.T, folder, text string, build, array bool) {
		if strings.ContainsRune(folder+text, 0) || text == "\n" || folder == "\n" || folder == "" {
			return
		}
		b := batch{name: "job", dir: folder, array: array, ditask: []string{"ditask", "--labels", text}, args: []string{text}, ownToken: true}
		want := []string{"srun", "--export=ALL", "ditask"}
		dir := folder
		if array {
			dir = strings.TrimSuffix(folder, "/") + "/3"
		}
		wants := [][]string{{"mkdir", "-p", "--", dir}}
		if build {
			b.build = []string{"ditask", "build", "--package", text}
			wants = append(wants, []string{"ditask", "build", "--package", text, "--output", dir + "/program"})
			want = append(want, "--package", dir+"/program")
		}
		wants = append(wants, append(want, "--labels", text, "--dir", dir, "--", text))
		got, err := runs(t, b.text(), "SLURM_ARRAY_TASK_ID=3")
		if err != nil || !slices.EqualFunc(got, wants, slices.Equal) {
			t.Errorf("it has run %q, want %q (%v)", got, wants, err)
		}
	})
}

// A name is checked where it comes in, and quoted nevertheless.
func TestNameOfAJobIsNotRun(t *testing.T) {
	got, err := runs(t, (&batch{name: "x$(id>f)", ditask: []string{"ditask"}, ownToken: true}).text())
	if err != nil || len(got) != 2 || got[0][3] != "runs/x$(id>f)-7" {
		t.Errorf("it has run %q (%v)", got, err)
	}
}

func TestScriptNeedsItsVariables(t *testing.T) {
	b := batch{name: "x", ditask: []string{"ditask"}, ownToken: true, variables: []string{"DITASK_REDIS_URL"}}
	if got, err := runs(t, b.text()); err == nil || len(got) > 0 {
		t.Errorf("without its variable it runs %q (%v)", got, err)
	}
	if got, err := runs(t, b.text(), "DITASK_REDIS_URL=redis://r"); err != nil || len(got) != 2 {
		t.Errorf("with its variable it runs %q (%v)", got, err)
	}
}
