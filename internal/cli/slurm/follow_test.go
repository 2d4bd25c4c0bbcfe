package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

func TestJobsAsScontrolShowsThem(t *testing.T) {
	// Lines of Slurm 22.05.8, with some fields left out.
	const out = `JobId=37 JobName=req.sh UserId=root(0) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) ` +
		`Requeue=1 Restarts=1 ExitCode=0:0 RunTime=00:00:03 StdIn=/dev/null StdOut=/tmp/a b/req.out Power= 
JobId=9 ArrayJobId=9 ArrayTaskId=2 JobName=arr.sh JobState=FAILED Reason=NonZeroExitCode ` +
		`ExitCode=75:0 DerivedExitCode=0:0 StdOut=/tmp/arr.9_2
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

// scontrol puts a program of that name first into PATH, which prints text.
func scontrol(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\necho '"+text+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// watch returns a follower of job 9 that writes into two texts.
func watch() (f *follower, stdout, stderr *strings.Builder) {
	stdout, stderr = &strings.Builder{}, &strings.Builder{}
	return &follower{c: &call.Call{Stdout: stdout, Stderr: stderr}, job: "9", tails: map[string]*tail{},
		last: map[string]jobState{}}, stdout, stderr
}

func TestFollowerReportsEachChangeOnce(t *testing.T) {
	f, _, stderr := watch()
	steps := []struct {
		out  string
		over bool
	}{
		{"JobId=9 JobState=PENDING Reason=Resources ExitCode=0:0 StdOut=/tmp/none", false},
		{"JobId=9 JobState=PENDING Reason=Resources ExitCode=0:0 StdOut=/tmp/none", false},
		{"JobId=9 JobState=RUNNING Reason=None ExitCode=0:0 StdOut=/tmp/none", false},
		{"JobId=9 JobState=FAILED Reason=NonZeroExitCode ExitCode=4:0 StdOut=/dev/null", true},
	}
	for i, step := range steps {
		scontrol(t, step.out)
		if over, err := f.ask(t.Context()); over != step.over || err != nil {
			t.Errorf("%d: over %v, %v", i, over, err)
		}
		if pending := i < 2; pending != (len(f.tails) == 0) {
			t.Errorf("%d: %d files", i, len(f.tails))
		}
	}
	if want := "ditask: job 9: pending (Resources)\nditask: job 9: running\nditask: job 9: failed: exit code 4\n"; stderr.String() != want {
		t.Errorf("%q", stderr.String())
	}
	if len(f.tails) != 1 || f.code() != 4 {
		t.Errorf("%d files, exit code %d", len(f.tails), f.code())
	}
}

func TestFollowerOfAnArray(t *testing.T) {
	f, _, _ := watch()
	if f.over() || f.code() != 0 {
		t.Error("a job without a known state is over")
	}
	scontrol(t, "JobId=40 ArrayJobId=9 ArrayTaskId=1-2 JobState=PENDING ExitCode=0:0")
	if over, err := f.ask(t.Context()); over || err != nil {
		t.Error(over, err)
	}
	scontrol(t, "JobId=41 ArrayJobId=9 ArrayTaskId=1 JobState=COMPLETED ExitCode=0:0\nJobId=42 ArrayJobId=9 ArrayTaskId=2 JobState=RUNNING "+
		"ExitCode=0:0")
	if over, err := f.ask(t.Context()); over || err != nil || len(f.last) != 2 {
		t.Errorf("%v, %v, %v", over, err, f.last)
	}
	scontrol(t, "JobId=42 ArrayJobId=9 ArrayTaskId=2 JobState=TIMEOUT ExitCode=0:0")
	if over, err := f.ask(t.Context()); !over || err != nil || f.code() != call.ExitFailure {
		t.Errorf("%v, %v, %v", over, err, f.last)
	}
	scontrol(t, "")
	if over, err := f.ask(t.Context()); !over || err == nil {
		t.Errorf("%v, %v", over, err)
	}
}

func TestOutputIsCopiedByWholeLines(t *testing.T) {
	f, stdout, _ := watch()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.out"), filepath.Join(dir, "b.out")
	write := func(path, text string) {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.WriteString(text)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	defer f.close()
	f.tails[a] = &tail{path: a}
	f.read() // there is no file yet
	write(a, "one\ntwo\nthr")
	f.read()
	write(a, "ee\n")
	f.read()
	f.tails[b] = &tail{path: b}
	write(a, "four\n")
	write(b, "x\n")
	f.read()
	if want := "one\ntwo\nthree\na.out: four\nb.out: x\n"; stdout.String() != want {
		t.Errorf("%q", stdout.String())
	}
}

// script returns the batch script that a command line makes, or its fault.
func script(t *testing.T, line string) string {
	t.Helper()
	var out strings.Builder
	c := command{&call.Call{Stdout: &out}}
	app := &urfave.App{Writer: &out, ErrWriter: &out, ExitErrHandler: func(*urfave.Context, error) {}, Flags: scriptFlags(), Action: c.script}
	if err := app.Run(append([]string{"ditask"}, strings.Fields(line)...)); err != nil {
		return "fault: " + err.Error()
	}
	return out.String()
}

func TestScriptsOfFlags(t *testing.T) {
	for line, want := range map[string]string{
		"-p x --ntasks 0":                    "fault: --ntasks 0: want at least 1",
		"-p x --cpus-per-task 0":             "fault: --cpus-per-task 0: want at least 1",
		"-p x --max-retries 2":               "fault: --max-retries: has no effect without --auto-recover: give both, or leave --max-retries out",
		"-p x --signal USR3@1":               `fault: --signal "USR3@1": want USR1@60`,
		"-p x --sbatch exclusive":            `fault: --sbatch "exclusive": want an option of sbatch`,
		"-p x --platform k8s":                `fault: --platform "kubernetes": want slurm, or leave it out`,
		"-p x --grace 7s":                    "srun --export=ALL --wait=27 \\\n",
		"-p x --topology alone":              "srun --export=ALL \\\n",
		"-p x --cpus-per-task 3":             "srun --export=ALL --wait=30 --cpus-per-task=3 \\\n",
		"-p x --array 1-4":                   "#SBATCH --output=logs/%x-%A_%a.out\n",
		"-p x":                               "#SBATCH --output=logs/%x-%j.out\n",
		"-p x --time 30":                     "#SBATCH --signal=USR1@60\n",
		"-p x --signal B:USR2@9":             `trap 'kill -USR2 "$tasks"' USR2`,
		"-p x --array 1-4 --dir d/":          `dir=d/"$SLURM_ARRAY_TASK_ID"`,
		"-p x --dir d/":                      "dir=d/\n",
		"-p x --main Play":                   " --platform slurm --main Play --dir ",
		"-p ./a~b":                           "#SBATCH --job-name=a-b\n",
		"-p x --job-name mine":               "#SBATCH --job-name=mine\n",
		"-p x --token-file t --requeue":      "#SBATCH --open-mode=append\n",
		"-p x --ntasks-per-node 2 --nodes 1": "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n#SBATCH --ntasks-per-node=2\n",
	} {
		if got := script(t, line); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in:\n%s", line, want, got)
		}
	}
	if got := script(t, "-p x --token-file t"); strings.Contains(got, "urandom") {
		t.Error("a second token")
	}
	if got := script(t, "-p x"); strings.Contains(got, "scontrol requeue") || strings.Contains(got, "--requeue") || strings.Contains(got,
		"--signal") || !strings.Contains(got, "urandom") {
		t.Error(got)
	}
}
