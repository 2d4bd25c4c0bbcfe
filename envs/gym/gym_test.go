//go:build unix

package gym

import (
	"bytes"
	"errors"
	"image/color"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/envs/nprand"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/logtest"
)

const cartPole = "testdata/cartpole.py:make_env"

// TestEqualsCartPoleOfPackageEnvs compares trajectories, both from the state that Gymnasium draws
// from a seed, with actions at random.
func TestEqualsCartPoleOfPackageEnvs(t *testing.T) {
	for seed := range uint64(5) {
		state := make([]float64, 4)
		nprand.New(seed).Uniform(state, -0.05, 0.05)
		v := open(t, cartPole, Config{Autoreset: envs.Disabled, Options: map[string]any{"state": state}})
		w := envs.CartPole(1, envs.Disabled)
		got, err := v.Reset(seed)
		if err != nil {
			t.Fatal(err)
		}
		want, err := w.Reset(seed)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: reset: %v, not %v", seed, got, want)
		}
		action, rng := []float32{0}, nprand.New(seed+100)
		for step, over := 1, false; !over; step++ {
			action[0] = float32(rng.Choice(2))
			a, err := v.Step(action)
			if err != nil {
				t.Fatal(err)
			}
			b, err := w.Step(action)
			if err != nil {
				t.Fatal(err)
			}
			for k, x := range a.Obs {
				if math.Abs(float64(x-b.Obs[k])) > 1e-6 {
					t.Fatalf("seed %d, step %d: %v, not %v", seed, step, a.Obs, b.Obs)
				}
			}
			if a.Rewards[0] != b.Rewards[0] || a.Terminated[0] != b.Terminated[0] || a.Truncated[0] != b.Truncated[0] {
				t.Fatalf("seed %d, step %d: %+v, not %+v", seed, step, a, b)
			}
			if over = b.Terminated[0]; over && *a.Infos[0].Episode != *b.Infos[0].Episode {
				t.Errorf("seed %d: episode %+v, not %+v", seed, a.Infos[0].Episode, b.Infos[0].Episode)
			}
		}
		_ = v.Close()
	}
}

func TestSeedsDoNotDependOnProcesses(t *testing.T) {
	var first []float32
	for _, processes := range []int{1, 3} {
		v := open(t, cartPole, Config{Num: 5, Processes: processes})
		obs, err := v.Reset(7)
		if err != nil {
			t.Fatal(err)
		}
		obs = slices.Clone(obs)
		if first == nil {
			first = obs
		}
		if !slices.Equal(obs, first) || slices.Equal(obs[:4], obs[4:8]) {
			t.Errorf("%d processes: %v, not %v", processes, obs, first)
		}
		again, err := v.Reset()
		if err != nil || slices.Equal(again, first) {
			t.Errorf("a reset without a seed: %v, %v", again, err)
		}
		if again, err = v.Reset(8); err != nil || !slices.Equal(again[:16], first[4:]) {
			t.Errorf("a reset with the next seed: %v, %v", again, err)
		}
		if _, err := v.Reset(1, 2); !errors.Is(err, envs.ErrSeeds) {
			t.Errorf("two seeds: %v", err)
		}
	}
}

// TestAutoreset plays episodes of 3 steps that begin in a known state.
func TestAutoreset(t *testing.T) {
	state := []float32{0.5, 0.25, 0, 0.125}
	for _, mode := range []envs.AutoresetMode{envs.SameStep, envs.NextStep, envs.Disabled} {
		v := open(t, cartPole, Config{
			Num: 2, Processes: 1, Autoreset: mode, Kwargs: map[string]any{"max_steps": 3}, Options: map[string]any{"state": state},
		})
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= 9; step++ {
			actions := []float32{1, 0}
			if mode == envs.NextStep && step%4 == 0 {
				actions[0] = float32(math.NaN()) // ignored
			}
			r, err := v.Step(actions)
			if err != nil {
				t.Fatal(err)
			}
			ends, resets := step%3 == 0, false
			if mode == envs.NextStep {
				ends, resets = step%4 == 3, step%4 == 0
			}
			begins := slices.Equal(r.Obs[:4], state)
			if r.Truncated[0] != ends || r.Terminated[0] || r.Reset[0] != resets || (r.Rewards[0] == 1) == resets ||
				begins != (ends && mode == envs.SameStep || resets) {
				t.Errorf("%v, step %d: %+v", mode, step, r)
			}
			if ends != (r.Infos[0].Episode != nil) || ends && *r.Infos[0].Episode != (envs.Episode{Return: 3, Length: 3}) {
				t.Errorf("%v, step %d: episode %+v", mode, step, r.Infos[0].Episode)
			}
			if ends && (slices.Equal(r.FinalObs[:4], state) || slices.Equal(r.FinalObs[:4], r.Obs[:4]) == (mode == envs.SameStep)) {
				t.Errorf("%v, step %d: final observation %v, observation %v", mode, step, r.FinalObs, r.Obs)
			}
			if ends && mode == envs.Disabled {
				if _, err := v.Step(actions); !errors.Is(err, envs.ErrEpisodeOver) {
					t.Errorf("a step after the end: %v", err)
				}
				obs, err := v.ResetSome(r.Truncated)
				if err != nil || !slices.Equal(obs[:4], state) {
					t.Errorf("reset: %v, %v", obs, err)
				}
			}
		}
	}
}

func TestCallsThatHarmNothing(t *testing.T) {
	v := open(t, cartPole, Config{Num: 2, Processes: 2})
	if _, err := v.Step([]float32{0, 0}); !errors.Is(err, envs.ErrNotReset) {
		t.Errorf("a step before the reset: %v", err)
	}
	if _, err := v.ResetSome([]bool{true, true}); err != nil {
		t.Error(err)
	}
	if _, err := v.Step([]float32{0, 0}); !errors.Is(err, envs.ErrNotReset) { // as of a Sync
		t.Errorf("a step before the reset of all: %v", err)
	}
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Step([]float32{0}); err == nil {
		t.Error("a step with one action for two environments")
	}
	if _, err := v.ResetSome([]bool{true}); err == nil {
		t.Error("a reset with a mask of one for two environments")
	}
	var e *envs.Error
	for _, bad := range []float32{2, -1, 0.5, float32(math.NaN())} {
		if _, err := v.Step([]float32{0, bad}); !errors.Is(err, envs.ErrAction) || !errors.As(err, &e) || e.Index != 1 {
			t.Errorf("action %v: %v", bad, err)
		}
	}
	if _, err := v.Frame(0); !errors.Is(err, ErrResult) || !errors.Is(err, envs.ErrNoPictures) || !strings.Contains(err.Error(), "rgb_array") {
		t.Errorf("a picture without a render mode: %v", err)
	}
	if _, err := v.Frame(2); err == nil {
		t.Error("a picture of an environment that is not there")
	}
	if _, err := v.Step([]float32{0, 1}); err != nil {
		t.Error(err)
	}
}

func TestFrame(t *testing.T) {
	v := open(t, cartPole, Config{Num: 3, Processes: 2, RenderMode: "rgb_array"})
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Step([]float32{0, 1, 0}); err != nil {
		t.Fatal(err)
	}
	img, err := v.Frame(2)
	if err != nil || img.Rect.Dx() != 3 || img.Rect.Dy() != 2 ||
		img.RGBAAt(2, 1) != (color.RGBA{0, 0, 1, 255}) || img.RGBAAt(1, 0) != (color.RGBA{0, 255, 0, 255}) {
		t.Errorf("%v, %v", img, err)
	}
	var video envs.Video
	if err := errors.Join(video.Add(img), video.WriteGIF(io.Discard)); err != nil {
		t.Error(err)
	}
}

func TestPartsOfObservations(t *testing.T) {
	v := open(t, "testdata/dict.py:make_env", Config{Autoreset: envs.SameStep})
	want := []Part{
		{"velocity", 0, 2, "Box", []int{2}, nil, 0}, {"gear", 2, 5, "Discrete", nil, []int{3}, -1}, {"more/0", 5, 10, "MultiDiscrete", []int{2},
			[]int{2, 3}, 0},
		{"more/1", 10, 12, "MultiBinary", []int{2}, nil, 0}, {"more/2/image", 12, 16, "Box", []int{2, 2}, nil, 0},
	}
	layout := v.Layout()
	for i := range layout {
		if len(layout[i].Shape) == 0 {
			layout[i].Shape = nil
		}
	}
	if diff := cmp.Diff(want, layout); diff != "" {
		t.Error(diff)
	}
	box, ok := v.ObservationSpace().(envs.Box)
	if !ok || !slices.Equal(box.Low, []float32{-1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) ||
		!slices.Equal(box.High, []float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9, 9, 9}) {
		t.Errorf("the space is %v", v.ObservationSpace())
	}
	obs, err := v.Reset(1)
	if err != nil || !slices.Equal(obs, []float32{0.5, 0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 2, 3, 4}) {
		t.Errorf("reset: %v, %v", obs, err)
	}
	r, err := v.Step([]float32{1})
	if err != nil || !slices.Equal(r.Obs, []float32{0.5, -0.25, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 2, 3, 4}) {
		t.Errorf("step: %+v, %v", r, err)
	}
}

func TestActionsInTheFormOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		kind, space string
		action      []float32
		python      string
	}{
		{"numbers", "MultiDiscrete([3 2 2 2 4])", []float32{0, 1, 0, 1, 3}, "{'gear': -1, 'lights': [1, 0], 'seats': [1, 3]}"},
		{"binary", "MultiDiscrete([2 2 2])", []float32{1, 0, 1}, "[1, 0, 1]"},
		{"boxes", "Box([-1 -2 0 0 0 0 0], [1 2 1 1 1 1 5])", []float32{0.5, -2, 0, 0.25, 0.5, 1, 4},
			"([0.5, -2.0], {'matrix': [[0.0, 0.25], [0.5, 1.0]], 'one': 4.0})"},
	} {
		var printed logtest.Buffer
		v := open(t, "testdata/dict.py:make_env", Config{Kwargs: map[string]any{"actions": c.kind}, Stderr: &printed})
		if got := v.ActionSpace().String(); got != c.space {
			t.Errorf("%s: the space is %s, not %s", c.kind, got, c.space)
		}
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Step(c.action); err != nil {
			t.Fatal(err)
		}
		_ = v.Close()
		if want := "testdata/dict.py:make_env[0]: " + c.python + "\n"; printed.String() != want {
			t.Errorf("%s: the environment had\n%snot\n%s", c.kind, printed.String(), want)
		}
	}
}

func TestLargeObservations(t *testing.T) {
	for name, pixels := range map[string]bool{"make_env": false, "make_bytes": true} {
		v := open(t, "testdata/large.py:"+name, Config{Num: 3, Processes: 2, Autoreset: envs.SameStep, Kwargs: map[string]any{"size": 7056}})
		box, ok := v.ObservationSpace().(envs.Box)
		if !ok || box.Dim() != 7056 || box.Pixels != pixels || pixels && !slices.Equal(box.Shape, []int{4, 1764}) {
			t.Fatalf("%s: %d values, pixels %v, shape %v", name, box.Dim(), box.Pixels, box.Shape)
		}
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		var r *envs.Result
		for range 100 {
			var err error
			if r, err = v.Step([]float32{0, 1, 0}); err != nil {
				t.Fatal(err)
			}
		}
		if slices.ContainsFunc(r.Obs, func(x float32) bool { return x != 0 }) ||
			slices.ContainsFunc(r.FinalObs, func(x float32) bool { return x != 100 }) ||
			!r.Truncated[2] {
			t.Errorf("%s: after 100 steps: %v, final %v", name, r.Obs[:3], r.FinalObs[:3])
		}
	}
}

func TestNamesOfGymnasium(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("testdata", "fake"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]float32{"gym:Fake-v0": 1, "gym:own_package:Own-v0": 7} {
		v := open(t, name, Config{Dir: dir})
		obs, err := v.Reset(1)
		if err != nil || obs[0] != value || v.Name() != name {
			t.Errorf("%s: %v, %v", v.Name(), obs, err)
		}
		r, err := v.Step([]float32{0})
		if err != nil || !r.Terminated[0] {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for name, want := range map[string]bool{
		"gym:X-v0": true, "a/b.py:f": true, "b.py": true, "CartPole-v1": false, "": false, "x.py/y": false,
	} {
		if Matches(name) != want {
			t.Errorf("Matches(%q) is not %v", name, want)
		}
	}
}

func TestAFaultThatWasToldIsAllThatIsPrinted(t *testing.T) {
	var out logtest.Buffer
	if _, err := Open(t.Context(), "testdata/cartpole.py:missing", Config{Stderr: &out}); err == nil {
		t.Error("an environment that is missing was opened")
	}
	if out.String() != "" {
		t.Errorf("besides the error:\n%s", out.String())
	}
}

func TestWhatEnvironmentsPrint(t *testing.T) {
	var printed logtest.Buffer
	v := open(t, "testdata/faults.py:chatty", Config{Num: 2, Processes: 1, Stderr: &printed})
	if err := play(v, 3); err != nil {
		t.Fatal(err)
	}
	_ = v.Close()
	text := printed.String()
	if n := strings.Count(text, "testdata/faults.py:chatty[0-1]: a word\n"); n != 6 {
		t.Errorf("%d words of 6:\n%s", n, text)
	}
	if n := strings.Count(text, "no message\n"); n != 6 || logtest.Faults(text) != "" {
		t.Errorf("%d lines of 6: %s", n, logtest.Faults(text))
	}
}

func TestLinesAreBounded(t *testing.T) {
	var out bytes.Buffer
	l := lines{w: &lockedWriter{w: &out}, prefix: "> "}
	l.copy(strings.NewReader("a\r\n\n\x1b[2J" + strings.Repeat("x", maxLine+1) + "\nlast"))
	want := "> a\n> \n> \\x1b[2J" + strings.Repeat("x", maxLine-4) + "\n> xxxxx\n> last\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
	if len(l.tail) > maxTail || !strings.HasSuffix(l.last(), "\n    xxxxx\n    last") {
		t.Errorf("%d bytes: %q", len(l.tail), l.last())
	}
}

func TestChildThatGoesOnIsNotHeard(t *testing.T) {
	v := open(t, "testdata/faults.py:make_env", Config{Num: 3, Processes: 1, Kwargs: map[string]any{"fault": "fork on"}})
	if err := play(v, 20); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	var printed, log logtest.Buffer
	cfg := Config{
		Num: 3, Processes: 1, Kwargs: map[string]any{"fault": "closed"},
		Stderr: &printed, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	v := open(t, "testdata/faults.py:make_env", cfg)
	for range 2 {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	if !strings.HasSuffix(printed.String(), ": closed\n") {
		t.Errorf("the environment was not closed: %q", printed.String())
	}
	if _, err := v.Reset(); !errors.Is(err, envs.ErrClosed) {
		t.Errorf("a reset after Close: %v", err)
	}
	if _, err := v.Frame(0); !errors.Is(err, envs.ErrClosed) {
		t.Errorf("a picture after Close: %v", err)
	}
	cfg.Kwargs = map[string]any{"fault": "close hangs"}
	v = open(t, "testdata/faults.py:make_env", cfg)
	_ = v.Close()
	if !strings.Contains(printed.String(), "faults.py\", line") || log.String() != "" {
		t.Errorf("SIGTERM shows where it hangs: %q; log %q", printed.String(), log.String())
	}
	cfg.Kwargs = nil
	v = open(t, "testdata/faults.py:make_env", cfg)
	stop(t, v.procs[0].proc)
	_ = v.Close()
	if !strings.Contains(log.String(), "did not end and was killed") {
		t.Errorf("a process that is stopped is killed: %q", log.String())
	}
}

// stop stops a process and returns when it is.
func stop(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsACall(t *testing.T) {
	hangs := make(chan struct{})
	v := open(t, "testdata/faults.py:make_env", Config{
		Num: 3, Processes: 1, Restart: true, Kwargs: map[string]any{"fault": "hang"}, Stderr: onceWritten(hangs), // it reports the restart
	})
	result := make(chan error)
	go func() { result <- play(v, 10) }()
	<-hangs
	_ = v.Close()
	if err := <-result; !errors.Is(err, envs.ErrClosed) {
		t.Errorf("the call ended with %v", err)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	w := leak.Check(t)
	ctx := t.Context()
	began := make(chan struct{})
	cause := errors.New("enough")
	ctx, cancel := contextThat(ctx, began, cause)
	defer cancel()
	python := script(t, "echo started; exec sleep 1000")
	_, err := Open(ctx, cartPole, Config{Python: python, Env: w.Environ(), Stderr: onceWritten(began)})
	if !errors.Is(err, cause) {
		t.Errorf("Open ended with %v", err)
	}
}

// varParent is set in the environment of the program that TestProcessesEndWithTheirParent kills.
const varParent = "DITASK_GYM_PARENT"

// TestParent is that program.
func TestParent(t *testing.T) {
	fault := os.Getenv(varParent)
	if fault == "" {
		return
	}
	v, err := Open(t.Context(), "testdata/faults.py:make_env", Config{Num: 6, Processes: 2, Kwargs: map[string]any{"fault": fault}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_ = play(v, 10)
	<-make(chan struct{})
}

func TestProcessesEndWithTheirParent(t *testing.T) {
	python := pythonForTests(t)
	for _, fault := range []string{"none of them", "hang"} {
		w := leak.Check(t)
		cmd := exec.Command(os.Args[0], "-test.run", "^TestParent$")
		cmd.Env = append(w.Environ(), varParent+"="+fault, "DITASK_PYTHON="+python)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, 6)
		if _, err := io.ReadFull(out, ready); err != nil || string(ready) != "ready\n" {
			t.Errorf("%q, %v", ready, err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if left := leak.Await(w.Processes, 20*time.Second); len(left) > 0 {
			t.Errorf("%s: left behind: %v", fault, left)
		}
	}
}

func TestMemoryWhereThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	m := places(3, 5, 1, 0, false, true)
	if err := m.open(filepath.Join(dir, "missing"), dir); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if filepath.Dir(m.Path) != dir || len(m.b) != m.Size {
		t.Errorf("%s, %d bytes of %d", m.Path, len(m.b), m.Size)
	}
	if info, err := os.Stat(m.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := places(1, 1, 1, 0, false, true).open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := os.Stat("/dev/full"); err == nil { // a disk without room
		big := places(1<<16, 1<<24, 1, 0, false, true)
		if err := big.open(dir); err == nil || !strings.Contains(err.Error(), "use more processes") {
			t.Errorf("more than there may be: %v", err)
		}
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	v := open(t, cartPole, Config{Num: 4, Processes: 2, Autoreset: envs.SameStep})
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	actions := make([]float32, 4)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := v.Step(actions); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in a step", n)
	}
}

// TestEnvironmentOfTheDocumentation steps the example of docs/python-environments.md.
func TestEnvironmentOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/python-environments.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n```python\n")
	program, _, ok := strings.Cut(rest, "\n```\n")
	path := filepath.Join(t.TempDir(), "walk.py")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil || !ok {
		t.Fatalf("%v, a program: %v", err, ok)
	}
	v := open(t, path+":make_env", Config{Num: 2, Processes: 1, Autoreset: envs.SameStep, Kwargs: map[string]any{"size": 2}})
	if obs, err := v.Reset(1); err != nil || !slices.Equal(obs, []float32{1, 1}) {
		t.Fatalf("reset: %v, %v", obs, err)
	}
	r, err := v.Step([]float32{0, 1})
	if err != nil || !slices.Equal(r.FinalObs, []float32{0, 2}) || !slices.Equal(r.Rewards, []float64{0, 1}) ||
		!slices.Equal(r.Terminated, []bool{true, true}) || !slices.Equal(r.Obs, []float32{1, 1}) {
		t.Errorf("step: %+v, %v", r, err)
	}
}

// TestAdviceOnProcesses has steps that are short, or not, and a number of processes that is chosen, or not.
func TestAdviceOnProcesses(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // as many processes as the default
	for _, c := range []struct {
		processes int
		step      time.Duration
		advised   bool
	}{{0, adviceShort / 2, true}, {0, 4 * adviceShort, false}, {2, adviceShort / 2, false}} {
		var log logtest.Buffer
		v := open(t, cartPole, Config{Num: 4, Processes: c.processes, Autoreset: envs.SameStep, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := v.Reset(); err != nil {
			t.Fatal(err)
		}
		for k := range adviceAfter + 2 {
			for _, p := range v.procs {
				p.turns.step = usual(c.step)
			}
			if _, err := v.Step(make([]float32, 4)); err != nil {
				t.Fatal(err)
			}
			if said := strings.Count(log.String(), "one process may be faster"); said > 1 || (said == 1) != (c.advised && k >= adviceAfter-1) {
				t.Fatalf("%v: step %d: %q", c, k, log.String())
			}
		}
	}
}
