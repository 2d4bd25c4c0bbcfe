package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/race"
)

// bin is the folder of the programs that TestMain builds.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "results-test-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
		for name, flag := range map[string]string{"results": "-ldflags=", "other": "-ldflags=-s"} { // other is another build
			args := []string{"build", flag, "-race=" + strconv.FormatBool(race.Enabled), "-o", filepath.Join(dir, name), "."}
			if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
				panic(err.Error() + "\n" + string(out))
			}
		}
		return deadline.Each(m, 5*time.Minute).Run()
	}())
}

const (
	walk = "- {name: qlearning/CliffWalking-v1/tiny, settings: a test, greedy: true, threshold: -13, " +
		"set: {steps: 3000, learning_rate: 0.5, time_limit: 300}}\n"
	cart = "- {name: ppo/CartPole-v1/tiny, settings: a test, published: {mean: 20, deviation: 5, runs: 3}, threshold: 25, " +
		"set: {steps: 6000}}\n"
	long = "- {name: a2c/CartPole-v1/tiny, settings: a test, threshold: 500, set: {steps: 100M}}\n"
)

// place is a folder in which the program runs.
type place struct {
	t     *testing.T
	dir   string
	watch *leak.Watch
}

func newPlace(t *testing.T, presets string) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), watch: leak.Check(t)}
	p.write("presets.yaml", presets)
	return p
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) read(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *place) command(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(bin, program), append([]string{"-presets", "presets.yaml"}, args...)...)
	cmd.Dir, cmd.Env = p.dir, p.watch.Environ()
	return cmd
}

// ok runs a program that must end well, and returns its output.
func (p *place) ok(program string, args ...string) string {
	p.t.Helper()
	out, err := p.command(program, args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// fails runs a program that must fail, and returns its output.
func (p *place) fails(args ...string) string {
	p.t.Helper()
	out, err := p.command("results", args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		p.t.Fatalf("%v: %v, want exit status 1\n%s", args, err, out)
	}
	return string(out)
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

func TestReproduce(t *testing.T) {
	p := newPlace(t, walk+cart)
	want(t, p.ok("results", "-seeds", "2", "-date", "2026-04-30"), "4 runs: 0 have ended before, 4 are to be made", "4 of 4: ",
		"results.md is written")
	page := p.read("docs/results.md")
	want(t, page, "2026-04-30, ditask", ": 4 runs\n", "## CartPole-v1\n", "![Learning curves on CartPole-v1](results/CartPole-v1.svg)",
		"| `qlearning/CliffWalking-v1/tiny` | a test | – | -13.0 ± 0 | -13.0, -13.0 | -13: –, – (–) |",
		"nothing published; 2 of 2 seeds reach the threshold |",
		"| `ppo/CartPole-v1/tiny` | a test | 20 ± 5 over 3 seeds |", "| above by 10.1 |")
	for _, name := range []string{"CartPole-v1", "CliffWalking-v1"} {
		want(t, p.read("docs/results/"+name+".svg"), "</svg>")
	}

	want(t, p.ok("results", "-seeds", "2", "-date", "2026-04-30"), "4 runs: 4 have ended before, 0 are to be made")
	if p.read("docs/results.md") != page {
		t.Error("the page of the same runs differs")
	}
	want(t, p.ok("results", "-check", "-seeds", "2"), "4 runs: 0 have ended before", "all 4 runs equal the page")
	want(t, p.ok("results", "-seeds", "1", "ppo"), "has more seeds of these presets, and stays as it is", "| `ppo/CartPole-v1/tiny` |")
	if err := os.Remove(filepath.Join(p.dir, "docs/results.md")); err != nil {
		t.Fatal(err)
	}
	p.ok("results", "-render")
	if p.read("docs/results.md") != page {
		t.Error("the page that is rendered again differs")
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, ".reproduce/*check*")); left != nil {
		t.Errorf("a check has left %v", left)
	}
}

func TestChosenRowsAreReplaced(t *testing.T) {
	p := newPlace(t, walk+cart)
	p.ok("results", "-seeds", "2", "-date", "2026-04-30")
	p.write("presets.yaml", strings.Replace(walk, "300}", "200}", 1)+strings.Replace(cart, "6000", "4000", 1))
	want(t, p.ok("results", "-render"), "") // the runs are of other settings now
	want(t, p.read("docs/results.md"), "have changed since their runs: `qlearning/CliffWalking-v1/tiny` `ppo/CartPole-v1/tiny`.")
	want(t, p.fails("-check", "ppo"), "ppo/CartPole-v1/tiny, seed 1: the settings are not those of the page",
		"ppo/CartPole-v1/tiny, seed 3: the page does not have it: make it with make reproduce PRESET=ppo/CartPole-v1/tiny")
	want(t, p.ok("results", "-seeds", "2", "-date", "2026-05-01", "ppo"), "2 runs: 0 have ended before")
	page := p.read("docs/results.md")
	want(t, page, "2026-04-30, ditask", "2026-05-01, ditask", ": 2 runs\n", "have changed since their runs: `qlearning/CliffWalking-v1/tiny`.")

	want(t, p.ok("other", "-seeds", "2", "-reuse", "ppo"), "2 runs: 2 have ended before")
	want(t, p.ok("other", "-seeds", "2", "ppo"), "2 runs: 0 have ended before")
}

func TestCheckListsDifferences(t *testing.T) {
	p := newPlace(t, walk+cart)
	p.ok("results", "-seeds", "2")
	path := "docs/results/results.json"
	text := p.read(path)
	changed := regexp.MustCompile(`("ppo/CartPole-v1/tiny","seed":2,"return":)[0-9.]+(,"env_steps":)[0-9]+(.*"processor":)"[^"]*"`).
		ReplaceAllString(text, `${1}8.5${2}0${3}"an abacus"`)
	if changed == text {
		t.Fatalf("no record is found in\n%s", text)
	}
	p.write(path, changed)
	out := p.fails("-check", "-seeds", "2")
	want(t, out, "1 of 4 runs differ from the page:\nppo/CartPole-v1/tiny, seed 2: ", ", on the page 8.5 without the threshold",
		"the page's are of an abacus, and this is ")
	if strings.Contains(out, "seed 1: 3") && strings.Contains(out, "seed 1: 31.2, on the page") {
		t.Errorf("an equal run is listed:\n%s", out)
	}
	if p.read(path) != changed {
		t.Error("the check has changed the file")
	}
}

func TestGoesOnAfterItsEnd(t *testing.T) {
	for name, signal := range map[string]os.Signal{"killed": os.Kill, "interrupted": os.Interrupt, "terminated": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && signal != os.Kill {
				t.Skip("Windows has no signals")
			}
			p := newPlace(t, walk+long)
			stdout, stderr := p.end(signal)
			if signal != os.Kill {
				want(t, stderr, "interrupted: 2 of 4 runs are kept in .reproduce: the same command continues with the others")
			}
			if strings.Contains(stdout, "failed") {
				t.Errorf("a run counts as failed:\n%s", stdout)
			}
			first := p.read(".reproduce/qlearning/CliffWalking-v1/tiny/seed-1/result.json")
			p.write("presets.yaml", walk+strings.Replace(long, "100M", "2000", 1))
			want(t, p.ok("results", "-seeds", "2", "-at-once", "1"), "4 runs: 2 have ended before, 2 are to be made", "results.md is written")
			if first != p.read(".reproduce/qlearning/CliffWalking-v1/tiny/seed-1/result.json") {
				t.Error("a run that had ended is made again")
			}
			if left, _ := filepath.Glob(filepath.Join(p.dir, ".reproduce", partial+"*")); left != nil {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// end starts the program, and ends it by a signal when it has made two runs, and the third has begun.
func (p *place) end(signal os.Signal) (stdout, stderr string) {
	p.t.Helper()
	cmd := p.command("results", "-seeds", "2", "-at-once", "1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var lines strings.Builder
	in := bufio.NewScanner(out)
	for in.Scan() {
		lines.WriteString(in.Text() + "\n")
		if strings.HasPrefix(in.Text(), "2 of 4: ") {
			break
		}
	}
	begun := func() []string {
		if found, _ := filepath.Glob(filepath.Join(p.dir, ".reproduce", partial+"*", "run", "config.yaml")); found == nil {
			return []string{"no run has begun"}
		}
		return nil
	}
	if missing := leak.Await(begun, time.Minute); missing != nil {
		p.t.Error(missing)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		p.t.Error(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil {
		p.t.Error(err)
	}
	lines.Write(rest)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || signal != os.Kill && exit.ExitCode() != 130 {
		p.t.Errorf("%v, want exit status 130\n%s", err, errs.String())
	}
	return lines.String(), errs.String()
}

func TestRunsThatFail(t *testing.T) {
	p := newPlace(t, strings.Replace(walk, "CliffWalking-v1", "Nowhere-v1", 1)+cart+
		strings.NewReplacer("tiny", "short", "6000", "8").Replace(strings.Replace(cart, "{steps", "{n_steps: 2, steps", 1)))
	out := p.fails("-seeds", "1")
	want(t, out, "qlearning/Nowhere-v1/tiny, seed 1: failed", "qlearning/Nowhere-v1/tiny, seed 1: exit status 1\nresults: ", "Nowhere-v1",
		"ppo/CartPole-v1/short, seed 1: exit status 1\nresults: no episode has ended",
		"2 of 3 runs have failed, and nothing was written but those in .reproduce")
	if _, err := os.Stat(filepath.Join(p.dir, "docs")); err == nil {
		t.Error("a page is written")
	}
	want(t, p.ok("results", "-seeds", "1", "ppo/CartPole-v1/tiny"), "1 runs: 1 have ended before")
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct{ files, args, want string }{
		"a flag": {"", "-seed 5", "flag provided but not defined: -seed"},
		"flags": {"", "-seeds 0 -at-once 0 -nodes 0 -date today",
			"-seeds 0: want 1 to 1000\n-at-once 0: want at least 1\n-nodes 0: want at least 1\n-date \"today\": want a date"},
		"two modes": {"", "-check -render", "-check and -render: want one of them"},
		"a preset":  {"", "ppo/CartPol-v1", "unknown preset \"ppo/CartPol-v1\" (did you mean ppo/CartPole-v1/tiny?)"},
		"no file":   {"", "-presets none.yaml", "open none.yaml: "},
		"a setting": {"presets.yaml " + strings.Replace(cart, "steps", "stepz", 1), "",
			"preset ppo/CartPole-v1/tiny: unknown key \"stepz\" (did you mean steps?)"},
		"an algorithm": {"presets.yaml " + strings.Replace(cart, "ppo", "popo", 1), "",
			"preset popo/CartPole-v1/tiny: unknown algorithm \"popo\""},
		"no page":        {"", "-check -seeds 1", "ppo/CartPole-v1/tiny, seed 1: the page does not have it"},
		"nothing to say": {"", "-render", "results.json has no runs: make some first, with make reproduce"},
		"a result": {".reproduce/ppo/CartPole-v1/tiny/seed-1/result.json {", "-seeds 1",
			"result.json: unexpected end of JSON input: remove the folder, and the run is made again"},
		"another's": {".reproduce/ppo/CartPole-v1/tiny/seed-1/result.json {\"preset\": \"x\", \"seed\": 7}", "-seeds 1",
			"it is of \"x\", seed 7: remove the folder"},
		"a record": {"docs/results/results.json [{\"preset\": \"\", \"seed\": 1}]", "-seeds 1",
			"results.json: record 1, preset \"\", seed 1: it is not whole, or there twice"},
		"a list": {"docs/results/results.json [] []", "-seeds 1", "results.json: something follows the list"},
		"other runs": {"docs/results/results.json [{\"preset\": \"x\", \"seed\": 1}]", "-seeds 1",
			"has runs of x, which is not in presets.yaml: choose another folder with -docs"},
		"two to make": {"", "-one 1", "-one: want the name of one preset, not 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, cart)
			if file, text, ok := strings.Cut(c.files, " "); ok {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(p.dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				p.write(file, text)
			}
			want(t, p.fails(strings.Fields(c.args)...), c.want)
		})
	}
}

// TestWithProcesses prints a row of runs with several processes.
func TestWithProcesses(t *testing.T) {
	watch := leak.Check(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "results"), "-seeds", "1", "-nodes", "4", "qlearning/CliffWalking")
	cmd.Dir, cmd.Env = "../..", watch.Environ() // it builds ditask there
	out, err := cmd.CombinedOutput()
	row := regexp.MustCompile("(?m)^\\| `qlearning/CliffWalking-v1/ours` \\| -13.0 ± 0 \\| -13.0 \\| -13: [0-9,]+ \\| [0-9.]+ \\|$")
	if err != nil || !row.Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}
