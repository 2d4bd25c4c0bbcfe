package runs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/runfolder"
	"github.com/ditask/ditask/parallel/rundir"
)

// State is the state of a run.
type State string

// The states.
const (
	Running  State = "running"
	Finished State = "finished"
	Stopped  State = "stopped"
	Unknown  State = "unknown"
)

// Run is a row of the table. A number that is nil is not known.
type Run struct {
	Dir      string            `json:"dir"`
	Name     string            `json:"name"` // below the folder in which it was found
	Algo     string            `json:"algo,omitempty"`
	Env      string            `json:"env,omitempty"`
	Seed     string            `json:"seed,omitempty"`
	State    State             `json:"state"`
	Reason   string            `json:"reason,omitempty"` // why it ended
	EnvSteps *float64          `json:"env_steps,omitempty"`
	Best     *float64          `json:"best_eval,omitempty"` // highest mean return of an evaluation
	Last     *float64          `json:"last_eval,omitempty"`
	Seconds  *float64          `json:"wall_seconds,omitempty"` // wall time, without interruptions
	Started  *time.Time        `json:"started,omitempty"`
	Faults   []string          `json:"faults,omitempty"` // errors of unreadable files
	Config   map[string]string `json:"-"`                // for Compare
}

// maxDepth bounds the folders around a run below the one in which it is looked for.
const maxDepth = 6

// Find lists the runs below a folder, or the one whose folder it is, by name. The error is one of the folder itself.
func Find(root string) ([]Run, error) {
	if info, err := os.Stat(root); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder", root)
	}
	var all []Run
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		switch {
		case relErr != nil:
			return relErr
		case err != nil && path == root:
			return err
		case err != nil:
			all = append(all, Run{Dir: path, Name: printable.Text(name), State: Unknown, Faults: []string{printable.Error(err).Error()}})
			return fs.SkipDir
		case !e.IsDir():
			return nil
		case isRun(path):
			all = append(all, read(path, name))
			return fs.SkipDir
		case strings.Count(name, string(filepath.Separator)) >= maxDepth:
			return fs.SkipDir
		}
		return nil
	})
	return all, err
}

// isRun reports whether a folder is that of a run.
func isRun(dir string) bool {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	return has(rundir.MarkFile) || has(runfolder.Config) && has(runfolder.Progress)
}

// read reads the folder of a run.
func read(dir, name string) Run {
	if name == "." {
		name = filepath.Base(dir)
	}
	r := Run{Dir: dir, Name: printable.Text(name)}
	fault := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Faults = append(r.Faults, printable.Error(err).Error())
		}
	}
	config, err := runfolder.ReadConfig(filepath.Join(dir, runfolder.Config))
	fault(err)
	r.Config = config
	r.Algo, r.Env, r.Seed = printable.Text(config["algo"]), printable.Text(config["env"]), printable.Text(config["seed"])
	var mark rundir.Mark
	fault(readJSON(filepath.Join(dir, rundir.MarkFile), &mark))
	if !mark.Started.IsZero() {
		r.Started = &mark.Started
	}
	table, err := runfolder.ReadTable(filepath.Join(dir, runfolder.Progress))
	fault(err)
	if err == nil {
		r.measure(table)
	}
	fault(r.state(dir))
	return r
}

// measure sets the fields that follow from a table.
func (r *Run) measure(t *runfolder.Table) {
	last := func(column string) *float64 {
		if v, ok := t.Last(column); ok && !math.IsInf(v, 0) {
			return &v
		}
		return nil
	}
	r.EnvSteps, r.Last = last(runfolder.Steps), last(runfolder.Eval)
	for _, v := range t.Column(runfolder.Eval) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) && (r.Best == nil || v > *r.Best) {
			r.Best = &v
		}
	}
	total, before := 0.0, 0.0
	for _, v := range t.Column(runfolder.Time) { // begins at 0 when a run is resumed
		if v < before {
			total += before
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			before = v
		}
	}
	if total += before; total > 0 {
		r.Seconds = &total
	}
}

// state determines the state of the run.
func (r *Run) state(dir string) error {
	held, err := rundir.Held(dir)
	var end struct{ Outcome, Reason string }
	err1 := readJSON(filepath.Join(dir, runfolder.Outcome), &end)
	r.Reason = printable.Text(end.Reason)
	switch {
	case held:
		r.State, r.Reason = Running, ""
	case err1 == nil && end.Outcome == "success":
		r.State = Finished
	case err == nil || err1 == nil:
		r.State = Stopped
	default:
		r.State = Unknown
	}
	if errors.Is(err1, fs.ErrNotExist) {
		err1 = nil
	}
	return errors.Join(err, err1)
}

// readJSON reads a small file.
func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(text, into); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return err
}

// Filter determines which runs are wanted; a field that is empty wants all.
type Filter struct {
	Algo, Env string
	State     State
	Name      string // a part of the name
}

// Select returns the runs that a filter wants.
func Select(all []Run, f Filter) []Run {
	want := func(v, of string) bool { return of == "" || v == of }
	return slices.DeleteFunc(slices.Clone(all), func(r Run) bool {
		return !want(r.Algo, f.Algo) || !want(r.Env, f.Env) || !want(string(r.State), string(f.State)) || !strings.Contains(r.Name, f.Name)
	})
}

// Key is an order of runs.
type Key string

// The keys: by name, the newest first, the best first, the most env steps first.
const (
	ByName    Key = "name"
	ByStarted Key = "started"
	ByBest    Key = "best"
	BySteps   Key = "steps"
)

// Sort sorts runs; those of which the key is not known come last.
func Sort(all []Run, by Key) error {
	number := func(of func(*Run) *float64) func(a, b Run) int {
		return func(a, b Run) int {
			x, y := of(&a), of(&b)
			switch {
			case x == nil && y == nil:
				return 0
			case x == nil:
				return 1
			case y == nil:
				return -1
			}
			return cmp.Compare(*y, *x)
		}
	}
	compare, ok := map[Key]func(a, b Run) int{
		ByName: func(Run, Run) int { return 0 },
		ByBest: number(func(r *Run) *float64 { return r.Best }), BySteps: number(func(r *Run) *float64 { return r.EnvSteps }),
		ByStarted: number(func(r *Run) *float64 {
			if r.Started == nil {
				return nil
			}
			v := float64(r.Started.UnixMicro())
			return &v
		}),
	}[by]
	if !ok {
		return fmt.Errorf("runs are not sorted by %q: give %s, %s, %s or %s", printable.Cut(string(by), 60), ByName, ByStarted, ByBest, BySteps)
	}
	slices.SortStableFunc(all, func(a, b Run) int { return cmp.Or(compare(a, b), cmp.Compare(a.Name, b.Name)) })
	return nil
}

// Difference is a key of the configuration in which runs differ.
type Difference struct {
	Key    string   `json:"key"`
	Values []string `json:"values"` // of the runs, in their order; "-": a run does not have the key
}

// Compare returns the keys in which the configurations of runs differ, in the order of their names.
func Compare(all []Run) (different []Difference) {
	keys := map[string]bool{}
	for i := range all {
		for k := range all[i].Config {
			keys[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		d := Difference{Key: printable.Text(k)}
		for i := range all {
			v, ok := all[i].Config[k]
			if !ok {
				v = "-"
			}
			d.Values = append(d.Values, printable.Text(v))
		}
		if slices.ContainsFunc(d.Values, func(v string) bool { return v != d.Values[0] }) {
			different = append(different, d)
		}
	}
	return different
}
