package gym

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/logtest"
)

// hangs is the limit for environments that hang: longer than a busy machine takes for a step of those
// that do not.
const hangs = 4 * time.Second

// faults are the faults of an environment, and the text of the error for each.
var faults = []struct {
	fault, op string
	is        error
	text      string
}{
	{"raise", "step", nil, "ValueError: boom \\x1b[2J\n    Traceback (most recent call last):"},
	{"sys.exit", "step", ErrExited, "sys.exit(3)"},
	{"os._exit", "step", ErrExited, "exit status 3; it printed last:\n    goodbye"},
	{"segfault", "step", ErrExited, "segmentation fault"},
	{"kill", "step", ErrExited, "killed by signal: killed"},
	{"torn", "step", ErrExited, "killed by signal: killed"},
	{"fork", "step", ErrExited, "exit status 4"},
	{"close", "step", ErrExited, "an environment has closed file descriptor 4"},
	{"nan", "step", ErrResult, "value 0 of the observation is NaN"},
	{"inf", "step", ErrResult, "value 1 of the observation is -Inf"},
	{"big", "step", ErrResult, "too large for float32"},
	{"shape", "step", envs.ErrShape, "the observation has 3 values, its space says shape (2,)"},
	{"text", "step", envs.ErrShape, "value 0 of the observation is a str, not a number"},
	{"none", "step", envs.ErrShape, "the observation has NoneType"},
	{"reward none", "step", ErrResult, "the reward is None, a NoneType, not a number"},
	{"reward text", "step", ErrResult, "the reward is '1', a str, not a number"},
	{"reward nan", "step", ErrResult, "the reward is NaN"},
	{"four", "step", ErrResult, "step returned 4 values, obs, reward, done, info, as old versions of Gym did"},
	{"six", "step", ErrResult, "step returned 6 values"},
	{"one", "step", ErrResult, "step returned a float"},
	{"terminated", "step", ErrResult, "terminated is 'no', a str, not a bool"},
	{"truncated", "step", ErrResult, "truncated is None, a NoneType, not a bool"},
	{"raise in reset", "reset", nil, "KeyError: 'nothing to reset'"},
	{"spaces", "reset", ErrResult, "action_space is now another"},
	{"only obs", "reset", ErrResult, "reset returned a list, not obs, info"},
	{"nan in reset", "reset", ErrResult, "value 1 of the observation is NaN"},
	{"shape in reset", "reset", envs.ErrShape, "the observation has 1 values"},
	{"hang", "step", envs.ErrHung, "no answer for " + hangs.String() + "; it printed last:"},
	{"hang in reset", "reset", envs.ErrHung, "no answer for " + hangs.String()},
	{"stop", "step", envs.ErrHung, "no answer for " + hangs.String()},
}

func limitFor(fault string) time.Duration {
	if strings.HasPrefix(fault, "hang") || fault == "stop" {
		return hangs
	}
	return 0
}

// play steps until an error, at most so many times, with a reset of all environments after 5 steps.
func play(v *Vector, steps int) error {
	actions := make([]float32, v.Num()*v.ActionSpace().Dim())
	for k := range steps {
		if k%5 == 0 {
			if _, err := v.Reset(); err != nil {
				return err
			}
		}
		if _, err := v.Step(actions); err != nil {
			return err
		}
	}
	return nil
}

func TestFaultNamesTheEnvironment(t *testing.T) {
	for _, f := range faults {
		t.Run(f.fault, func(t *testing.T) {
			v := open(t, "testdata/faults.py:make_env", Config{
				Num: 4, Processes: 1, Kwargs: map[string]any{"fault": f.fault}, StepTimeout: limitFor(f.fault),
			})
			err := play(v, 10)
			t.Log(err)
			var e *envs.Error
			if !errors.As(err, &e) {
				t.Fatalf("no error of an environment: %v", err)
			}
			if e.Index != 2 && f.fault != "close" || e.Op != f.op { // the process ends behind the steps
				t.Errorf("%s of environment %d: %v", e.Op, e.Index, err)
			}
			if f.is != nil && !errors.Is(err, f.is) {
				t.Errorf("it does not wrap %q: %v", f.is, err)
			}
			if p := (*PythonError)(nil); f.is == nil && (!errors.As(err, &p) || strings.Count(err.Error(), "Traceback") != 1 ||
				!strings.Contains(p.Traceback, "faults.py") || strings.Contains(p.Traceback, "ditask-bridge")) {
				t.Errorf("no exception with its traceback: %v", err)
			}
			if !strings.Contains(err.Error(), f.text) {
				t.Errorf("the text lacks %q:\n%v", f.text, err)
			}
			if faults := logtest.Faults(err.Error()); faults != "" {
				t.Error(faults)
			}
			again := play(v, 1)
			if !errors.Is(again, envs.ErrClosed) || !strings.Contains(again.Error(), err.Error()) {
				t.Errorf("the next call: %v", again)
			}
		})
	}
}

func TestRestartCutsEpisodesOfTheProcess(t *testing.T) {
	for _, f := range faults {
		for _, mode := range []envs.AutoresetMode{envs.SameStep, envs.NextStep, envs.Disabled} {
			all := slices.Contains([]string{"raise", "kill"}, f.fault)
			one := mode == envs.SameStep && slices.Contains([]string{"nan", "four", "hang", "fork", "torn"}, f.fault)
			if !all && !one {
				continue
			}
			t.Run(f.fault+"/"+mode.String(), func(t *testing.T) { testRestart(t, f.fault, mode) })
		}
	}
}

// testRestart has one fault in the third step of environment 2, one of the three in the second process.
func testRestart(t *testing.T, fault string, mode envs.AutoresetMode) {
	var log logtest.Buffer
	v := open(t, "testdata/faults.py:make_env", Config{
		Num: 5, Processes: 2, Autoreset: mode, Restart: true, StepTimeout: limitFor(fault), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Kwargs: map[string]any{"fault": fault, "which": 2, "once": filepath.Join(t.TempDir(), "struck")},
	})
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	actions := make([]float32, 5)
	for range 2 {
		if _, err := v.Step(actions); err != nil {
			t.Fatal(err)
		}
	}
	r, err := v.Step(actions)
	if err != nil {
		t.Fatal(err)
	}
	checkCut(t, r, mode)
	if v.Restarts() != 1 || strings.Count(log.String(), "a Python process is replaced") != 1 {
		t.Errorf("%d restarts, the log:\n%s", v.Restarts(), log.String())
	}
	if mode == envs.Disabled {
		if _, err := v.Step(actions); !errors.Is(err, envs.ErrEpisodeOver) {
			t.Errorf("a step after the cut: %v", err)
		}
		if _, err := v.ResetSome([]bool{false, false, true, true, true}); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = v.Step(actions); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		want := map[bool]float32{false: 4, true: 1}[i >= 2]
		if i >= 2 && mode == envs.NextStep {
			want = 0
		}
		if r.Obs[2*i] != want || r.Reset[i] != (i >= 2 && mode == envs.NextStep) ||
			r.Truncated[i] || r.Terminated[i] || r.Infos[i].Episode != nil {
			t.Errorf("environment %d, a step later: %v, reset %v, info %+v", i, r.Obs[2*i:2*i+2], r.Reset[i], r.Infos[i])
		}
	}
}

// checkCut checks the step with the fault. Environments 0 and 1 are in the first process, which has no third
// one that could be faulty.
func checkCut(t *testing.T, r *envs.Result, mode envs.AutoresetMode) {
	t.Helper()
	for i := range 5 {
		cut := i >= 2
		if r.Terminated[i] || r.Truncated[i] != cut || r.Reset[i] {
			t.Errorf("environment %d: terminated %v, truncated %v, reset %v", i, r.Terminated[i], r.Truncated[i], r.Reset[i])
		}
		obs, final := r.Obs[2*i:2*i+2], r.FinalObs[2*i:2*i+2]
		switch {
		case !cut && (obs[0] != 3 || r.Rewards[i] != 1):
			t.Errorf("environment %d: observation %v, reward %v", i, obs, r.Rewards[i])
		case cut && (final[0] != 2 || r.Rewards[i] != 0):
			t.Errorf("environment %d: final observation %v, reward %v", i, final, r.Rewards[i])
		case cut && obs[0] != map[envs.AutoresetMode]float32{envs.SameStep: 0, envs.NextStep: 2, envs.Disabled: 2}[mode]:
			t.Errorf("environment %d: observation %v", i, obs)
		}
		episode := envs.Episode{Return: 2, Length: 3}
		if info := r.Infos[i]; cut && (info.Episode == nil || *info.Episode != episode || info.Values["restarted"] == "") {
			t.Errorf("environment %d: info %+v", i, info)
		}
	}
}

func TestRestartInAReset(t *testing.T) {
	for mode, want := range map[envs.AutoresetMode]struct {
		truncated, reset bool
		obs              float32
	}{envs.SameStep: {true, false, 0}, envs.NextStep: {false, true, 0}, envs.Disabled: {true, false, 2}} {
		t.Run(mode.String(), func(t *testing.T) {
			v := open(t, "testdata/faults.py:make_env", Config{
				Num: 3, Processes: 1, Autoreset: mode, Restart: true, Logger: slog.New(slog.DiscardHandler),
				Kwargs: map[string]any{"fault": "raise in reset", "once": filepath.Join(t.TempDir(), "struck")},
			})
			if _, err := v.Reset(1); err != nil {
				t.Fatal(err)
			}
			actions := make([]float32, 3)
			for range 2 {
				if _, err := v.Step(actions); err != nil {
					t.Fatal(err)
				}
			}
			obs, err := v.ResetSome([]bool{false, false, true})
			if err != nil || obs[0] != 2 || obs[4] != 0 || v.Restarts() != 1 {
				t.Fatalf("reset: %v, %v, %d restarts", obs, err, v.Restarts())
			}
			r, err := v.Step(actions)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if r.Terminated[i] || r.Truncated[i] != want.truncated || r.Reset[i] != want.reset || r.Obs[2*i] != want.obs {
					t.Errorf("environment %d: %+v", i, r)
				}
			}
			if r.Obs[4] != 1 || r.Truncated[2] || r.Reset[2] {
				t.Errorf("the environment that was reset: %+v", r)
			}
		})
	}
}

func TestRestartEndsWithTheThirdFault(t *testing.T) {
	v := open(t, "testdata/faults.py:make_env", Config{
		Num: 3, Processes: 1, Autoreset: envs.SameStep, Restart: true, Logger: slog.New(slog.DiscardHandler),
		Kwargs: map[string]any{"fault": "raise", "at": 1},
	})
	err := play(v, 10)
	if err == nil || !strings.Contains(err.Error(), "3 faults without a step between them") || v.Restarts() != 2 {
		t.Errorf("%d restarts: %v", v.Restarts(), err)
	}
}

func TestFaultBeforeTheFirstEpisode(t *testing.T) {
	empty := t.TempDir()
	fake := []string{"PYTHONPATH=" + filepath.Join("testdata", "fake")}
	for _, c := range []struct {
		name  string
		cfg   Config
		is    error
		texts []string
	}{
		{"testdata/faults.py:make_env", Config{Kwargs: map[string]any{"fault": "make"}},
			nil, []string{"make env ", "[2]: ValueError: cannot be made\n    Traceback"}},
		{"testdata/faults.py:make_env", Config{Kwargs: map[string]any{"fault": "made"}},
			ErrResult, []string{"make env", "[2]", "it has no action_space"}},
		{"testdata/faults.py:make_env", Config{Kwargs: map[string]any{"fault": "other"}},
			ErrResult, []string{"[2]", "other spaces than the first"}},
		{"testdata/faults.py:make_env", Config{Kwargs: map[string]any{"fault": "graph"}},
			ErrResult, []string{"[2]", "action_space is a object, which is none of Box"}},
		{"testdata/faults.py:make_env", Config{Kwargs: map[string]any{"color": 1}}, nil, []string{"TypeError", "color"}},
		{"testdata/faults.py:make", Config{},
			ErrPython, []string{"has no make; its functions and classes are: Faulty, Torn, chatty, make_env"}},
		{"testdata/faults.py:not_callable", Config{}, ErrPython, []string{"is a int, which cannot be called"}},
		{"testdata/imports.py:make_env", Config{}, nil, []string{"ModuleNotFoundError: No module named 'no_such_module_at_all'", "imports.py"}},
		{"testdata/syntax.py:make_env", Config{}, nil, []string{"SyntaxError", "syntax.py"}},
		{"testdata/dict.py:make_env", Config{Kwargs: map[string]any{"actions": "mixed"}}, nil, []string{"want all discrete or all boxes"}},
		{"gym:CartPole-v1", Config{Env: []string{"PYTHONPATH=" + empty}, Python: isolated(t)}, ErrPython, []string{"-m pip install gymnasium"}},
		{"gym:Nothing-v1", Config{Env: fake}, ErrPython, []string{"gymnasium knows no environment Nothing-v1: try Fake-v0"}},
		{"gym:no_such_package:Fake-v0", Config{Env: fake}, ErrPython, []string{"there is no module no_such_package"}},
		{"testdata/cartpole.py:make_env", Config{Python: "no-such-python"}, ErrPython, []string{"apt-get install python3"}},
		{"testdata/cartpole.py:make_env", Config{Python: "/bin/false"}, ErrExited, []string{"exit status 1"}},
		{"testdata/cartpole.py:make_env", Config{
			Python: script(t, `exec "$REAL" -c 'import sys; sys.version_info = (3, 7, 9); exec(sys.argv.pop())' "$3"`),
		}, ErrPython, []string{"is Python 3.7: 3.8 or newer is needed"}},
		{"testdata/cartpole.py:make_env", Config{Python: script(t, "exec sleep 1000"), StartTimeout: 200 * time.Millisecond},
			envs.ErrHung, []string{"no answer for 200ms"}},
		{"testdata/no.py:make_env", Config{}, os.ErrNotExist, nil},
		{"testdata/cartpole.py", Config{}, nil, []string{"want FILE.py:FUNCTION"}},
		{"testdata/cartpole.py:make env", Config{}, nil, []string{"want FILE.py:FUNCTION"}},
		{"gym:", Config{}, nil, []string{"want gym:ID"}},
		{"gym:a:b:c", Config{}, nil, []string{"want gym:ID"}},
		{"CartPole-v1", Config{}, nil, []string{"want gym:ID, gym:MODULE:ID or FILE.py:FUNCTION"}},
		{"testdata/cartpole.py:make_env", Config{
			Num: -1, Processes: -1, StepTimeout: -1, StartTimeout: -1, Autoreset: 9, Kwargs: map[string]any{"f": func() {}},
		}, nil, []string{"Num is -1", "Processes is -1", "StepTimeout", "StartTimeout", "Autoreset", "Kwargs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Env = append(c.cfg.Env, "REAL="+pythonForTests(t))
			if c.cfg.Num == 0 {
				c.cfg.Num, c.cfg.Processes = 4, 1
			}
			v, err := tryOpen(t, c.name, c.cfg)
			if v != nil || err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%v, %v", v, err)
			}
			for _, text := range c.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the text lacks %q:\n%v", text, err)
				}
			}
			if strings.Count(err.Error(), "Traceback") > 1 {
				t.Errorf("more than one traceback:\n%v", err)
			}
		})
	}
}

// script is a program instead of Python.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// isolated is a Python without the packages of its site.
func isolated(t *testing.T) string {
	t.Helper()
	return script(t, `shift; exec "$REAL" -u -S "$@"`)
}
