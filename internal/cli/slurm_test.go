package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/parallel/slurm"
)

func TestJobsAsScontrolShowsThem(t *testing.T) {
	// Lines of Slurm 22.05.8, with some fields left out.
	const out = `JobId=37 JobName=req.sh UserId=root(0) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=1 ExitCode=0:0 RunTime=00:00:03 StdIn=/dev/null StdOut=/tmp/a b/req.out Power= 
JobId=9 ArrayJobId=9 ArrayTaskId=2 JobName=arr.sh JobState=FAILED Reason=NonZeroExitCode ExitCode=75:0 DerivedExitCode=0:0 StdOut=/tmp/arr.9_2
JobId=40 ArrayJobId=9 ArrayTaskId=3-4 JobName=arr.sh JobState=PENDING Reason=Resources ExitCode=0:0
JobId=41 JobState=CANCELLED Reason=None ExitCode=0:15 StdOut=/dev/null
garbage
`
	want := []jobState{
		{id: "37", state: "RUNNING", reason: "None", output: "/tmp/a b/req.out"},
		{id: "9_2", state: "FAILED", reason: "NonZeroExitCode", code: 75, output: "/tmp/arr.9_2"},
		{id: "9_3-4", state: "PENDING", reason: "Resources"},
		{id: "41", state: "CANCELLED", reason: "None", code: 143, output: "/dev/null"},
	}
	if d := cmp.Diff(want, parseJobs(out), cmp.AllowUnexported(jobState{})); d != "" {
		t.Error(d)
	}
	for state, code := range map[string]int{"COMPLETED": 0, "TIMEOUT": call.ExitFailure, "NODE_FAIL": call.ExitFailure} {
		if s := (jobState{state: state}); !s.over() || s.exitCode() != code {
			t.Errorf("%s: over %v, exit code %d", state, s.over(), s.exitCode())
		}
	}
}

func TestStepsShareTheTokenOfOneKey(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	step := slurm.Step{JobID: 7, Tasks: 16}
	tokens := make([]string, step.Tasks)
	var tasks sync.WaitGroup
	for i := range tokens { // all make the key at once
		tasks.Go(func() {
			token, warning, err := stepToken(step)
			if err != nil || warning != "" {
				t.Errorf("%q, %v", warning, err)
			}
			tokens[i] = token
		})
	}
	tasks.Wait()
	for _, token := range tokens {
		if len(token) != 32 || token != tokens[0] {
			t.Fatalf("tokens %q", tokens)
		}
	}
	for _, other := range []slurm.Step{{JobID: 8}, {JobID: 7, StepID: 1}, {JobID: 7, Restarts: 1}} {
		if token, _, err := stepToken(other); err != nil || token == tokens[0] {
			t.Errorf("%s: the same token, %v", other.Job(), err)
		}
	}
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(config, "ditask"))
	if err != nil || len(entries) != 1 {
		t.Errorf("files left: %v, %v", entries, err)
	}
	// Another user has another key.
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if token, _, err := stepToken(step); err != nil || token == tokens[0] {
		t.Errorf("another user has the same token, %v", err)
	}
}

func TestTokenWithoutAHomeIsNoSecretAndSaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file") // where no folder can be
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", file)
	t.Setenv("HOME", file)
	a, warning, err := stepToken(slurm.Step{JobID: 7, Tasks: 2})
	if err != nil || !strings.Contains(warning, "which is no secret: set DITASK_TOKEN to a random text before srun") {
		t.Errorf("%q, %v", warning, err)
	}
	if b, _, err := stepToken(slurm.Step{JobID: 7, Tasks: 2}); err != nil || a != b || a == "" {
		t.Errorf("%s and %s, %v", a, b, err)
	}
}

func TestKeyThatOthersCanReadIsRefused(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if _, err := slurmKey(); err != nil {
		t.Fatal(err)
	}
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(config, "ditask", "slurm.key")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := os.Chmod(path, fs.FileMode(0o640)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := stepToken(slurm.Step{JobID: 7, Tasks: 2}); !errors.Is(err, errExposed) {
		t.Errorf("%v", err)
	}
}

func TestQuoteIsOneWordOfTheShell(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "--lr=1e-3": "--lr=1e-3"} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
