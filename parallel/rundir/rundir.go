// Package rundir decides in which folder a run writes. Each run has one; a folder that
// holds a run is not written by another one unless the user asks for it.
//
//	dir, err := rundir.Choose(rundir.Request{Program: "dqn", Job: "5f2c", Now: time.Now()})
//	// runs/dqn/20060102-150405-5f2c, which does not exist yet
//	made, err := rundir.Claim(dir, rundir.Mark{Job: "5f2c", Started: time.Now()})
//
// A folder holds a run if it has the file run.json, which Claim writes, or a checkpoint.
// Choose changes nothing on disk. Errors name the folder and what to do. Take locks a folder
// for the time that a job runs in it, with flock on the file run.lock, which the kernel
// frees when its holder dies.
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/safefile"
)

const (
	// Root is the folder of the folders of runs, if the user gives none.
	Root = "runs"
	// MarkFile is the file in the folder of a run that names the run.
	MarkFile = "run.json"

	checkpoints = "*.safetensors"
	stamp       = "20060102-150405"
)

// Mark names the run that a folder belongs to.
type Mark struct {
	Job     string    `json:"job"`
	Started time.Time `json:"started"`
}

// Request describes the folder that a run wants before it starts.
type Request struct {
	Dir     string    // given by the user; empty: none
	Program string    // name of the program
	Job     string    // id of the job
	Now     time.Time // start of the run
	// Derived makes the folder follow from Program and Job alone, so that all
	// launchers of a job find the same one. Job must then differ between runs.
	Derived bool
	// Resume continues from a run that there is: in Dir, or the newest of Program.
	Resume bool
	// Overwrite allows a Dir that holds a run; see Clear.
	Overwrite bool
	// Continued allows a folder that holds a run, as that is this job's own: Slurm has
	// requeued it, a pod was made again, or another launcher decides.
	Continued bool
}

// Choose returns the folder of the run.
func Choose(r Request) (string, error) {
	if r.Overwrite && r.Resume {
		return "", errors.New("--resume and --overwrite: give one of them")
	}
	if r.Dir == "" && r.Overwrite {
		return "", errors.New("--overwrite: needs --dir: without it each run has a folder of its own")
	}
	dir := r.Dir
	switch {
	case dir == "" && r.Resume:
		return newest(r.Program)
	case dir == "" && r.Derived:
		dir = filepath.Join(Root, r.Program, r.Job)
	case dir == "":
		dir = filepath.Join(Root, r.Program, r.Now.UTC().Format(stamp)+"-"+r.Job)
	}
	if r.Continued {
		return dir, nil
	}
	if r.Resume {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("--resume: there is no folder %s: give --dir of a run, or leave out --resume", absolute(dir))
		}
		return dir, nil
	}
	if who, used := holder(dir); used && !r.Overwrite {
		return "", fmt.Errorf("folder %s holds %s: continue it with --resume (DITASK_RESUME=true), "+
			"replace it with --overwrite (DITASK_OVERWRITE=true), or choose another --dir (DITASK_DIR)",
			absolute(dir), who)
	}
	return dir, nil
}

// holder describes the run that dir holds, and reports whether there is one.
func holder(dir string) (text string, used bool) {
	if m, err := read(dir); err == nil {
		return fmt.Sprintf("a run already (job %s, started %s)", m.Job, m.Started.Format(time.DateTime)), true
	}
	if _, err := os.Stat(filepath.Join(dir, MarkFile)); err == nil {
		return "a run already", true
	}
	if len(checkpointsIn(dir)) > 0 {
		return "the checkpoint of a run already", true
	}
	return "", false
}

// checkpointsIn are the names of the checkpoints in a folder, whose own name is no pattern.
func checkpointsIn(dir string) []string {
	names, _ := fs.Glob(os.DirFS(dir), checkpoints) // the pattern is well-formed
	return names
}

// newest is the folder of the newest run of a program.
func newest(program string) (string, error) {
	under := filepath.Join(Root, program)
	entries, err := os.ReadDir(under)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("--resume: %w", err)
	}
	var dir string
	var started time.Time
	for _, e := range entries {
		m, err := read(filepath.Join(under, e.Name()))
		if err == nil && !m.Started.Before(started) {
			dir, started = filepath.Join(under, e.Name()), m.Started
		}
	}
	if dir == "" {
		return "", fmt.Errorf("--resume: there is no run of %s in %s: give --dir of a run, or leave out --resume", program, absolute(under))
	}
	return dir, nil
}

// Claim makes the folder of a run, and marks it as the run's. It reports whether the
// folder had no mark before. Of several processes that claim a folder, one marks it.
func Claim(dir string, m Mark) (made bool, err error) {
	if err := safefile.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("run folder: %w", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("run folder %s: %w", dir, err)
	}
	f, err := safefile.New(filepath.Join(dir, MarkFile), 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("run folder: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("run folder: %w", err)
	}
	return true, nil
}

// Clear removes the mark and the checkpoints of the run that dir holds, so that a
// restarted node of the next run does not continue from them. Other files stay.
func Clear(dir string) error {
	for _, name := range append(checkpointsIn(dir), MarkFile) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--overwrite: %w", err)
		}
	}
	return nil
}

func read(dir string) (m Mark, err error) {
	text, err := os.ReadFile(filepath.Join(dir, MarkFile))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	m.Job = printable.Text(m.Job)
	return m, err
}

// absolute is the path of a folder, to be printed.
func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return printable.Cut(dir, maxPath)
}

// maxPath bounds a path in a message: that of the system, in bytes.
const maxPath = 4 << 10
