package gym

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
)

const withInfos = "testdata/infos.py:make_env"

func TestInfosOfTheLastStep(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.SameStep, envs.NextStep} {
		t.Run(mode.String(), func(t *testing.T) {
			v := open(t, withInfos, Config{Num: 3, Processes: 2, Autoreset: mode, Infos: []string{"score", "is_success", "none", "missing"}})
			if _, err := v.Reset(1); err != nil {
				t.Fatal(err)
			}
			episodes := 0
			for range 12 {
				res, err := v.Step([]float32{0, 1, 1})
				if err != nil {
					t.Fatal(err)
				}
				for i, info := range res.Infos {
					if !res.Terminated[i] {
						if info.Values != nil {
							t.Errorf("environment %d: %v before the end of an episode", i, info.Values)
						}
						continue
					}
					want := map[string]any{"is_success": min(float64(i), 1)}
					if episodes%2 == 0 {
						want["score"] = float64(episodes) + 0.5
					}
					if !maps.Equal(info.Values, want) || info.Episode == nil || info.Episode.Length != 3 {
						t.Errorf("episode %d of environment %d: %v, not %v, and %v", episodes, i, info.Values, want, info.Episode)
					}
				}
				if res.Terminated[0] {
					episodes++
				}
			}
			if episodes < 3 {
				t.Errorf("%d episodes", episodes)
			}
		})
	}
}

func TestInfosThatAreNotNamed(t *testing.T) {
	v := open(t, withInfos, Config{Num: 1, Autoreset: envs.SameStep, Kwargs: map[string]any{"which": "text"}})
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		res, err := v.Step([]float32{0})
		if err != nil || res.Infos[0].Values != nil {
			t.Fatalf("%v, %v", res, err)
		}
	}
}

func TestInfosThatAreNoNumbers(t *testing.T) {
	for which, text := range map[string]string{
		"text": "is 'yes', a str: only numbers", "array": "is [1, 2], a list: only numbers", "row": ", a Row: only numbers",
		"nan": "is nan, a float: it must be a finite", "inf": "is -inf, a float: it must be a finite",
		"huge": ", a int, which is not one number", "dict": "is {'r': 1.0}, a dict: only numbers",
		"object": ", a object: only numbers", "list": "the info is a list, not a dict",
	} {
		for _, restart := range []bool{false, true} {
			v := open(t, withInfos, Config{
				Num: 2, Processes: 1, Autoreset: envs.SameStep, Kwargs: map[string]any{"which": which},
				Infos: []string{"score", "wrong"}, Restart: restart,
			})
			_, err := v.Reset(1)
			for k := 0; k < 3 && err == nil; k++ {
				if _, err = v.Step([]float32{0, 0}); err == nil && k == 2 {
					t.Errorf("%s: no error", which)
				}
			}
			var e *envs.Error
			if !errors.Is(err, ErrInfo) || !errors.As(err, &e) || e.Index != 0 || e.Op != "step" || !strings.Contains(err.Error(), text) ||
				which != "list" && !strings.Contains(err.Error(), "key 'wrong'") {
				t.Errorf("%s: %v, which has not %q", which, err, text)
			}
			if n := v.Restarts(); n != 0 {
				t.Errorf("%s: %d restarts", which, n)
			}
		}
	}
}

func TestNamesOfInfosAreChecked(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "b", "a"}, {strings.Repeat("x", 65)}, strings.Split(strings.Repeat("a,", 16)+"b", ",")} {
		if _, err := tryOpen(t, withInfos, Config{Infos: names}); err == nil || !strings.Contains(err.Error(), "Infos") {
			t.Errorf("%q: %v", names, err)
		}
	}
	all := make([]string, maxInfos)
	for k := range all {
		all[k] = strings.Repeat("x", k+1)
	}
	if err := (&Config{Infos: all}).Validate(); err != nil {
		t.Error(err)
	}
}
