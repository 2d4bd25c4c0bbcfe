package rundir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/rundir"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// claim marks a folder as that of a run.
func claim(t *testing.T, dir, job string, started time.Time) {
	t.Helper()
	if made, err := rundir.Claim(dir, rundir.Mark{Job: job, Started: started}); err != nil || !made {
		t.Fatal(made, err)
	}
}

func write(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// long is a folder below dir that fits into the 4095 bytes of a path of Linux, as its files do not.
func long(dir string) string {
	for len(dir) < 4090 {
		dir += "/" + strings.Repeat("x", min(200, 4090-len(dir)-1))
	}
	return dir
}

func TestChoose(t *testing.T) {
	t.Chdir(t.TempDir())
	claim(t, "runs/dqn/z-old", "old", began)
	claim(t, "runs/dqn/a-new", "new", began.Add(time.Hour))
	claim(t, "runs/dqn/fixed", "fixed", began.Add(-time.Hour))
	write(t, "runs/dqn/b-no-run/file")
	write(t, "older/checkpoint.safetensors") // of a version without marks
	write(t, "damaged/run.json")
	write(t, "prepared/program")
	for name, c := range map[string]struct {
		r    rundir.Request
		want string // the folder, or after an exclamation mark a part of the error
	}{
		"default": {rundir.Request{}, "runs/dqn/20260304-050607-j"},
		"derived": {rundir.Request{Derived: true}, "runs/dqn/j"},
		"derived, used": {rundir.Request{Derived: true, Job: "fixed"},
			"!runs/dqn/fixed holds a run already (job fixed, started 2026-03-04 04:06:07)"},
		"derived, used, continued": {rundir.Request{Derived: true, Job: "fixed", Continued: true}, "runs/dqn/fixed"},
		"given":                    {rundir.Request{Dir: "d"}, "d"},
		"given, with other files":  {rundir.Request{Dir: "prepared"}, "prepared"},
		"used": {rundir.Request{Dir: "runs/dqn/a-new"},
			"!holds a run already (job new, started 2026-03-04 06:06:07): continue it with --resume (DITASK_RESUME=true), replace it " +
				"with --overwrite (DITASK_OVERWRITE=true), or choose another --dir"},
		"used by an older version":   {rundir.Request{Dir: "older"}, "!older holds the checkpoint of a run"},
		"damaged mark":               {rundir.Request{Dir: "damaged"}, "!damaged holds a run already:"},
		"used, overwrite":            {rundir.Request{Dir: "older", Overwrite: true}, "older"},
		"used, resume":               {rundir.Request{Dir: "older", Resume: true}, "older"},
		"used, continued":            {rundir.Request{Dir: "older", Continued: true}, "older"},
		"missing, continued":         {rundir.Request{Dir: "nope", Continued: true}, "nope"},
		"missing, resume":            {rundir.Request{Dir: "nope", Resume: true}, "!--resume: there is no folder "},
		"missing, overwrite":         {rundir.Request{Dir: "nope", Overwrite: true}, "nope"},
		"a file, resume":             {rundir.Request{Dir: "older/checkpoint.safetensors", Resume: true}, "!--resume: there is no folder "},
		"resume the newest":          {rundir.Request{Resume: true}, "runs/dqn/a-new"},
		"resume the newest, derived": {rundir.Request{Resume: true, Derived: true}, "runs/dqn/a-new"},
		"resume, no run":             {rundir.Request{Resume: true, Program: "ppo"}, "!--resume: there is no run of ppo in "},
		"resume and overwrite": {rundir.Request{Dir: "older", Resume: true, Overwrite: true},
			"!--resume and --overwrite: give one of them"},
		"overwrite what": {rundir.Request{Overwrite: true}, "!--overwrite: needs --dir"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.r
			r.Now = began
			if r.Program == "" {
				r.Program = "dqn"
			}
			if r.Job == "" {
				r.Job = "j"
			}
			got, err := rundir.Choose(r)
			part, wrong := strings.CutPrefix(c.want, "!")
			switch {
			case wrong && (err == nil || !strings.Contains(err.Error(), part)):
				t.Errorf("%q, %v; want the error %q", got, err, part)
			case !wrong && (got != c.want || err != nil):
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := os.Stat("runs/dqn/20260304-050607-j"); !os.IsNotExist(err) {
		t.Errorf("Choose made a folder: %v", err)
	}
}

// TestNamesOfRunsSort: a list of folders is in the order in which the runs began.
func TestNamesOfRunsSort(t *testing.T) {
	var before string
	for i, at := range []time.Time{began, began.Add(time.Second), began.Add(time.Hour).In(time.FixedZone("", -7200)), began.AddDate(0, 9, 0)} {
		dir, err := rundir.Choose(rundir.Request{Program: "dqn", Job: fmt.Sprint(9 - i), Now: at})
		if err != nil || dir <= before {
			t.Errorf("%q after %q, %v", dir, before, err)
		}
		before = dir
	}
}

func TestOneProcessMarksTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	var made [8]bool
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], err = rundir.Claim(dir, rundir.Mark{Job: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first := -1
	for i, m := range made {
		if m && first >= 0 {
			t.Errorf("%d and %d have marked the folder", first, i)
		}
		if m {
			first = i
		}
	}
	_, err := rundir.Choose(rundir.Request{Dir: dir})
	if first < 0 || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(job %d,", first)) {
		t.Errorf("marked by %d: %v", first, err)
	}
}

func TestClaimNamesAFolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file)
	if _, err := rundir.Claim(filepath.Join(file, "run"), rundir.Mark{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want an error with the folder", err)
	}
}

func TestClearRemovesTheRun(t *testing.T) {
	dir := t.TempDir()
	claim(t, dir, "old", began)
	for _, name := range []string{"checkpoint.safetensors", "best.safetensors", "notes.txt"} {
		write(t, filepath.Join(dir, name))
	}
	for range 2 { // the second has nothing to remove
		if err := rundir.Clear(dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "notes.txt" {
		t.Errorf("left: %v, %v", entries, err)
	}
	claim(t, dir, "new", began)
}

func TestClearReportsFilesItCannotRemove(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a.safetensors"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.safetensors", "file"))
	if err := rundir.Clear(dir); err == nil || !strings.HasPrefix(err.Error(), "--overwrite: ") {
		t.Errorf("%v", err)
	}
}

func ExampleChoose() {
	dir, err := rundir.Choose(rundir.Request{Program: "dqn", Job: "5f2c", Now: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)})
	fmt.Println(filepath.ToSlash(dir), err)
	// Output: runs/dqn/20260102-150405-5f2c <nil>
}

func TestAMarkThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	made, err := rundir.Claim(dir, rundir.Mark{Started: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}) // JSON has no such year
	if made || err == nil || !strings.HasPrefix(err.Error(), "run folder "+dir+": ") {
		t.Errorf("made %v: %v", made, err)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.MarkFile)); err == nil {
		t.Error("the folder is marked")
	}
}

// The name of a folder is not treated as a pattern.
func TestFolderWithBracketsInItsName(t *testing.T) {
	for _, name := range []string{"lr[1e-3]", "lr[", "a*"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "a.safetensors"))
		if _, err := rundir.Choose(rundir.Request{Dir: dir}); err == nil ||
			!strings.Contains(err.Error(), "holds the checkpoint of a run already") {
			t.Errorf("%s: its checkpoint is not found: %v", name, err)
		}
		if err := rundir.Clear(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: left: %v, %v", name, entries, err)
		}
	}
}

func TestResumeReportsAFolderThatCannotBeRead(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir(rundir.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(rundir.Root, "dqn")) // a file
	if _, err := rundir.Choose(rundir.Request{Program: "dqn", Resume: true}); err == nil || strings.Contains(err.Error(), "there is no run") {
		t.Errorf("%v", err)
	}
}

// A mark without a time also marks a run, and of equal times the last name is chosen.
func TestResumeOfRunsWithoutTimes(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, job := range []string{"a", "b"} {
		dir := filepath.Join(rundir.Root, "dqn", job)
		claim(t, dir, job, time.Time{})
		if got, err := rundir.Choose(rundir.Request{Program: "dqn", Resume: true}); err != nil || got != dir {
			t.Errorf("%q, %v; want %q", got, err, dir)
		}
	}
}

// Errors have the absolute paths of folders.
func TestErrorsNameTheWholePath(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	claim(t, "used", "j", began)
	for _, c := range []struct {
		r    rundir.Request
		want string
	}{
		{rundir.Request{Dir: "used"}, "folder " + filepath.Join(root, "used") + " holds "},
		{rundir.Request{Dir: "nope", Resume: true}, "there is no folder " + filepath.Join(root, "nope") + ":"},
		{rundir.Request{Program: "dqn", Resume: true}, " in " + filepath.Join(root, "runs", "dqn") + ":"},
	} {
		if dir, err := rundir.Choose(c.r); dir != "" || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %v; want %q", dir, err, c.want)
		}
	}
}

// The mark is one line of JSON, which other programs read.
func TestMarkIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	claim(t, dir, "first", began)
	if made, err := rundir.Claim(dir, rundir.Mark{Job: "second"}); made || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, rundir.MarkFile))
	if want := `{"job":"first","started":"2026-03-04T05:06:07Z"}` + "\n"; string(text) != want || err != nil {
		t.Errorf("%q, want %q: %v", text, want, err)
	}
}
