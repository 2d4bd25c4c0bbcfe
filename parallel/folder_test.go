package parallel

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/rundir"
)

// joined is the node of env, and its log.
func joined(t *testing.T, env control.Env, launched bool) (*Node, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	n, err := join(env, launched, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return n, &log
}

// markOf reads the mark of a run folder.
func markOf(t *testing.T, dir string) (m rundir.Mark) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, rundir.MarkFile))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// usedDir is a folder that holds a run.
func usedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := rundir.Claim(dir, rundir.Mark{Job: "before"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Each run of a program without a launcher has its own folder, which is made
// at the first call of Dir.
func TestALoneProgramHasAFolderOfItsOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	n, log := joined(t, control.Env{}, false)
	if exists(rundir.Root) || log.Len() > 0 {
		t.Errorf("a folder before the first call of Dir: %s", log)
	}
	dir := n.Dir()
	parts := regexp.MustCompile(`^runs/parallel\.test/\d{8}-\d{6}-([a-z0-9]{8})$`).FindStringSubmatch(filepath.ToSlash(dir))
	if parts == nil {
		t.Fatalf("the folder is %s", dir)
	}
	if mark := markOf(t, dir); mark.Job != parts[1] || mark.Started.IsZero() {
		t.Errorf("its mark is %+v", mark)
	}
	if again := n.Dir(); again != dir || strings.Count(log.String(), "run folder") != 1 || !strings.Contains(log.String(), dir) {
		t.Errorf("again: %s, log:\n%s", again, log)
	}
	if other, _ := joined(t, control.Env{}, false); other.Dir() == dir {
		t.Error("another run has the same folder")
	}
}

// A folder that holds a run is refused, unless the run continues in it or replaces it.
func TestAFolderOfARunIsRefused(t *testing.T) {
	for _, c := range []struct {
		name     string
		env      control.Env
		launched bool
		fails    bool
		holds    string // the job of the mark afterwards
	}{
		{"by hand", control.Env{}, false, true, "before"},
		{"to resume", control.Env{Resume: true}, false, false, "before"},
		{"to continue", control.Env{Continue: true}, false, false, "before"},
		{"to replay", control.Env{Replay: "x"}, false, false, "before"},
		{"to overwrite", control.Env{Overwrite: true}, false, false, ""},
		{"both", control.Env{Overwrite: true, Resume: true}, false, true, "before"},
		{"by a launcher", control.Env{JobID: "j", Nodes: 1}, true, false, "before"},
	} {
		c.env.Dir = usedDir(t)
		n, err := join(c.env, c.launched, slog.New(slog.DiscardHandler))
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if marked := exists(filepath.Join(c.env.Dir, rundir.MarkFile)); marked != (c.holds != "") ||
			marked && markOf(t, c.env.Dir).Job != c.holds {
			t.Errorf("%s: marked %v", c.name, marked)
		}
		if err == nil && n.Dir() != c.env.Dir {
			t.Errorf("%s: the folder is %s", c.name, n.Dir())
		}
	}
}

// The nodes of a job whose launcher names no folder find the same one by the job's id,
// also when the job has run before.
func TestNodesWithoutAFolderUseTheOneOfTheJob(t *testing.T) {
	t.Chdir(t.TempDir())
	want := filepath.Join(rundir.Root, "parallel.test", "j7")
	for id := range 2 {
		n, log := joined(t, control.Env{JobID: "j7", NodeID: id, Nodes: 1}, true)
		if n.Dir() != want || markOf(t, want).Job != "j7" || (log.Len() > 0) != (id == 0) {
			t.Errorf("node %d: %s, log:\n%s", id, n.Dir(), log)
		}
	}
}

// Node 0 marks the folder of the run, and the others only make it. No node makes the folder of a run
// that the user resumes.
func TestOnlyNodeZeroMarksTheFolder(t *testing.T) {
	for _, c := range []struct {
		env          control.Env
		made, marked bool
	}{
		{control.Env{JobID: "j"}, true, true},
		{control.Env{JobID: "j", NodeID: 1}, true, false},
		{control.Env{JobID: "j", Resume: true}, false, false},
	} {
		c.env.Dir, c.env.Nodes = filepath.Join(t.TempDir(), "run", "1"), 1
		n, log := joined(t, c.env, true)
		_ = n.Dir()
		if marked := exists(filepath.Join(c.env.Dir, rundir.MarkFile)); exists(c.env.Dir) != c.made || marked != c.marked {
			t.Errorf("%+v: made %v, marked %v", c.env, exists(c.env.Dir), marked)
		}
		if strings.Contains(log.String(), "run folder") != c.marked {
			t.Errorf("%+v: log\n%s", c.env, log)
		}
	}
}

func TestAFolderThatCannotBeMadeIsLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for id := range 2 {
		n, log := joined(t, control.Env{JobID: "j", NodeID: id, Nodes: 1, Dir: filepath.Join(file, "x")}, true)
		if n.Dir() != filepath.Join(file, "x") || !strings.Contains(log.String(), "the run folder cannot be made") {
			t.Errorf("node %d: log\n%s", id, log)
		}
	}
}

// Without a folder there is nothing to make: the nodes of Run may have none.
func TestNoFolderIsMadeWithoutAName(t *testing.T) {
	t.Chdir(t.TempDir())
	var log bytes.Buffer
	n := newNode(control.Env{}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if n.Dir() != "" || log.Len() > 0 || exists(rundir.MarkFile) {
		t.Errorf("%q, log:\n%s", n.Dir(), &log)
	}
}

func TestResumeFollowsFromTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		env          control.Env
		resume, must bool
	}{
		{control.Env{}, false, false},
		{control.Env{Attempt: 1}, true, false},
		{control.Env{Continue: true}, true, false},
		{control.Env{Resume: true}, true, true},
	} {
		n := newNode(c.env, nil, slog.New(slog.DiscardHandler))
		if n.Resume() != c.resume || n.MustResume() != c.must {
			t.Errorf("%+v: resume %v, must %v", c.env, n.Resume(), n.MustResume())
		}
	}
}
