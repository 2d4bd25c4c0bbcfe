package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/train"
)

// record is the result of one run, and its build.
type record struct {
	Preset     string  `json:"preset"`
	Seed       uint64  `json:"seed"`
	Return     float64 `json:"return"`    // mean of the episodes that count
	EnvSteps   int     `json:"env_steps"` // until the threshold; 0: it was not reached
	CPUSeconds float64 `json:"cpu_seconds"`
	Settings   string  `json:"settings"` // see settingsOf
	build
}

// build identifies the program and the machine of a run.
type build struct {
	Program   string `json:"program"` // version
	Go        string `json:"go"`
	Processor string `json:"processor"`
	Date      string `json:"date"`
}

// String returns a sentence without its full stop.
func (b build) String() string {
	text := b.Program + ", " + b.Go + ", " + b.Processor
	if b.Date != "" {
		text = b.Date + ", " + text
	}
	return text
}

// settingsOf returns a checksum of the settings on which the result of a run depends: the algorithm's hyperparameters,
// the number of environments, the length of the run, and those of the other keys that are set. A new key whose default
// keeps the former behaviour therefore changes no checksum.
func settingsOf(p *train.Preset, seed uint64) (string, error) {
	c, err := full(p, seed)
	if err != nil {
		return "", fmt.Errorf("preset %s: %w", p.Name, err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, p.Algorithm(), p.Threshold, p.Greedy)
	for _, k := range c.Keys() {
		if k.Own || k.Name == "envs" || k.Name == "steps" || !strings.HasPrefix(k.Origin, "default") {
			fmt.Fprintf(&b, "%s=%q\n", k.Name, k.String())
		}
	}
	return sum([]byte(b.String())), nil
}

func sum(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:8])
}

// store is a folder of runs.
type store struct {
	options

	self   string // this program
	binary string // its sum
	build  build
}

// finished is result.json in the folder of a run that has ended.
type finished struct {
	record

	Binary string `json:"binary"` // sum of the program
}

const (
	resultFile = "result.json"
	partial    = ".partial-" // begins the names of folders of runs that have not ended
)

// openStore locks the folder, identifies this program, and removes the files of killed runs.
func openStore(o options) (*store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	s := &store{options: o, self: self, binary: sum(text), build: built(o.date)}
	if err := safefile.MkdirAll(o.runs, 0o755); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(o.runs, partial+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return s, err
}

// built returns the build of this program.
func built(date string) build {
	b := build{Program: "ditask (devel)", Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Processor: processor(),
		Date: date}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	var revision, changed, commit string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = fmt.Sprintf(" %.12s", s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " (changed)"
		case s.Key == "vcs.time":
			commit = s.Value
		}
	}
	if revision != "" {
		b.Program = "ditask" + revision + changed
	}
	b.Date = dateOf(date, commit)
	return b
}

// processor names the kind of processor, as Linux knows it.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // other systems do not have it
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// dir returns the folder of a run that has ended.
func (s *store) dir(preset string, seed uint64) string {
	return filepath.Join(s.runs, filepath.FromSlash(preset), "seed-"+strconv.FormatUint(seed, 10))
}

// finished reads the result of a run; nil: it has not ended yet.
func (s *store) finished(preset string, seed uint64) (*finished, error) {
	path := filepath.Join(s.dir(preset, seed), resultFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	var f finished
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil && (f.Preset != preset || f.Seed != seed) {
		err = fmt.Errorf("it is of %.80q, seed %d", f.Preset, f.Seed)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: remove the folder, and the run is made again", path, err)
	}
	return &f, nil
}

// find returns the record of a run that has ended with these settings, or nil if it must be made.
func (s *store) find(p *train.Preset, seed uint64, settings string) (*record, error) {
	f, err := s.finished(p.Name, seed)
	if f == nil || f.Settings != settings || f.Binary != s.binary && !s.reuse {
		return nil, err
	}
	return &f.record, nil
}

// train makes one run in its own process, and keeps its folder.
func (s *store) train(ctx context.Context, p *train.Preset, seed uint64, settings string) (r record, err error) {
	dir, err := os.MkdirTemp(s.runs, partial)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // of a run that has failed
	folder := filepath.Join(dir, "run")
	cmd := exec.CommandContext(ctx, s.self, "-one", strconv.FormatUint(seed, 10), "-presets", s.presets, "-out", folder, p.Name)
	alive, err := cmd.StdinPipe() // ends with this process
	if err != nil {
		return r, err
	}
	if r, err = resultOf(cmd); err != nil {
		return r, errors.Join(err, ctx.Err())
	}
	_ = alive.Close() // Wait has closed it
	r.Preset, r.Seed, r.Settings, r.build = p.Name, seed, settings, s.build
	text, err := json.MarshalIndent(finished{r, s.binary}, "", "  ")
	if err != nil {
		return r, err
	}
	if err := safefile.Write(filepath.Join(folder, resultFile), append(text, '\n'), 0o644); err != nil {
		return r, err
	}
	final := s.dir(p.Name, seed)
	if err := errors.Join(os.RemoveAll(final), safefile.MkdirAll(filepath.Dir(final), 0o755)); err != nil {
		return r, err
	}
	return r, os.Rename(folder, final)
}

// clear removes the folder of the runs.
func (s *store) clear() error { return os.RemoveAll(s.runs) }

// records are the results of runs, by preset and then by seed.
type records []record

func recordsPath(docs string) string { return filepath.Join(docs, "results", "results.json") }

// readRecords reads results.json; a file that is not there has none.
func readRecords(path string) (records, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseRecords(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func parseRecords(text []byte) (all records, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the list")
	}
	var faults []error
	seen := map[string]bool{}
	for i := range all {
		r := &all[i]
		key := r.Preset + " " + strconv.FormatUint(r.Seed, 10)
		if r.Preset == "" || r.Seed == 0 || r.EnvSteps < 0 || r.CPUSeconds < 0 || seen[key] {
			faults = append(faults, fmt.Errorf("record %d, preset %.80q, seed %d: it is not whole, or there twice", i+1, r.Preset, r.Seed))
		}
		seen[key] = true
	}
	return all, errors.Join(faults...)
}

// writeRecords writes them with one line a run.
func writeRecords(path string, all records) error {
	var b bytes.Buffer
	for i := range all {
		line, err := json.Marshal(all[i])
		if err != nil {
			return err
		}
		b.WriteString(map[bool]string{true: "[\n", false: ",\n"}[i == 0])
		b.Write(line)
	}
	b.WriteString("\n]\n")
	return replace(path, b.Bytes())
}

// replace writes a file whole, or leaves it as it was.
func replace(path string, text []byte) error {
	if err := safefile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := safefile.Write(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// of returns the records of a preset, by seed.
func (all records) of(preset string) (some records) {
	for _, r := range all {
		if r.Preset == preset {
			some = append(some, r)
		}
	}
	return some
}
