package algorithm_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
)

func ExampleParams() {
	var p algorithm.Params
	rate := p.Rate("linear(1e-3, 0)", "CleanRL")
	steps := p.Int("n_steps", 128, "time steps", "length of a rollout", "CleanRL", algorithm.AtLeast(1))
	fmt.Println(p.Lookup("lr").Set("0.01"), rate.First(), *steps)
	fmt.Println(p.Lookup("n_steps").Set("0"))
	// Output:
	// <nil> 0.01 128
	// n_steps: 0: want at least 1
}

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		text  string
		at    int
		want  float64
		total int
	}{
		{"0.5", 7, 0.5, 10},
		{"linear(1, 0)", 250, 0.75, 1000},
		{"linear(1, 0, 50%)", 250, 0.5, 1000},
		{"linear(1, 0, 100)", 250, 0, 1000},
		{"linear( 1 ,0 , 1k )", 500, 0.5, 10},
		{"cosine(1, 0)", 500, 0.5, 1000},
		{"exponential(1, 0, 100)", 100, math.Exp(-1), 1000},
		{"piecewise(0: 50, 25: 100, 30: 200)", 10, 70, 1000},
		{"piecewise(0: 50, 25: 100, 30: 200)", 99, 200, 1000},
		{"piecewise(0%: 1, 50%: 0)", 250, 0.5, 1000},
		{"piecewise(0: 1, 10%: 0.5, 11%: 0)", 9, 0, 5}, // all parts of so short a run are one step
	} {
		s, err := algorithm.ParseSchedule(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := s.Over(c.total)(c.at); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s at %d of %d: %v, want %v", c.text, c.at, c.total, got, c.want)
		}
		again, err := algorithm.ParseSchedule(s.String())
		if err != nil || again.String() != s.String() || again.Over(c.total)(c.at) != s.Over(c.total)(c.at) {
			t.Errorf("%s is written as %s: %v", c.text, s.String(), err)
		}
	}
	for text, want := range map[string]string{
		"":                                "want a number, linear(",
		"fast":                            "want a number, linear(",
		"linear(1)":                       "want a number, linear(",
		"linear(1, 2":                     "want a number, linear(",
		"sigmoid(1, 0)":                   "want a number, linear(",
		"exponential(1, 0)":               "want a number, linear(",
		"piecewise(0: 1)":                 "want a number, linear(",
		"linear(1, x)":                    "\"x\": want a number",
		"linear(1, 0, 0)":                 "want more than 0 steps",
		"linear(1, 0, -5)":                "-5 steps: want at least 0",
		"linear(1, 0, 101%)":              "want 0% to 100%",
		"linear(2, 0)":                    "2: want at most 1",
		"nan":                             "is not a finite number",
		"linear(inf, 0)":                  "is not a finite number",
		"piecewise(0: 1, 5: 1, 5: 0)":     "want points in the order of their steps",
		"piecewise(5: 1, 6: 1)":           "want 0 as the step of the first point",
		"piecewise(0: 1, 5: 1, 50%: 0)":   "all numbers, or all parts",
		strings.Repeat("x", 1000) + "(1)": "xxx...",
	} {
		if _, err := algorithm.ParseSchedule(text, algorithm.AtMost(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestWholeNumbers(t *testing.T) {
	for text, want := range map[string]int{"7": 7, "-1": -1, "5e5": 500_000, "500_000": 500_000, "1.5k": 1500, "2M": 2_000_000} {
		if got, err := algorithm.ParseInt(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1.5", "k", "1e300", "0x10", "nan", "inf", "1 2"} {
		if got, err := algorithm.ParseInt(text); err == nil {
			t.Errorf("%s passes as %d", text, got)
		}
	}
}

func TestValuesAreReadBack(t *testing.T) {
	var p algorithm.Params
	widths := p.Ints("hidden", []int{64, 64}, "units", "", "")
	p.Bool("double", false, "", "")
	p.OneOf("loss", "mse", []string{"mse", "huber"}, "", "")
	every := p.Count("every", "5%", "env steps", "", "")
	for _, s := range []struct{ name, value, want string }{
		{"hidden", "[128,32 16]", "[128, 32, 16]"},
		{"hidden", "", "[]"},
		{"hidden", "8", "[8]"},
		{"double", "true", "true"},
		{"loss", "huber", "huber"},
		{"every", "10k", "10k"},
		{"every", " 2.5% ", "2.5%"},
	} {
		q := p.Lookup(s.name)
		if err := q.Set(s.value); err != nil || q.String() != s.want {
			t.Errorf("%s=%s: %s, %v", s.name, s.value, q.String(), err)
		}
	}
	if len(*widths) != 1 || every.Of(1000) != 25 || every.Of(1) != 1 {
		t.Errorf("%v, %d, %d", *widths, every.Of(1000), every.Of(1))
	}
	for _, s := range []struct{ name, value string }{{"hidden", "[64, 0]"}, {"hidden", "a"}, {"double", "maybe"}, {"loss", "l1"},
		{"every", "x%"}, {"every", "-1"}} {
		if err := p.Lookup(s.name).Set(s.value); err == nil || !strings.HasPrefix(err.Error(), s.name+": ") {
			t.Errorf("%s=%s: %v", s.name, s.value, err)
		}
	}
	if p.Lookup("hidden").String() != "[8]" {
		t.Error("a value that was refused has changed the hyperparameter")
	}
}

func TestReplay(t *testing.T) {
	task := algorithm.Task{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}, Envs: 4, Steps: 1000}
	for setting, want := range map[string]string{
		"":                     "",
		"prioritized=true":     "",
		"batch_size=200":       "batch_size: 200 rows: the buffer keeps 100: see buffer_size",
		"learning_starts=1000": "learning_starts: 1000 rows: the buffer keeps 100: see buffer_size",
		"her_goals=4":          "her_goals: the environment has no goals",
	} {
		var p algorithm.Params
		r := p.Replay(algorithm.ReplayDefaults{Capacity: 100, Batch: 8, StartAt: 10, Every: 16, Updates: 2})
		if name, value, ok := strings.Cut(setting, "="); ok {
			if err := p.Lookup(name).Set(value); err != nil {
				t.Fatal(err)
			}
		}
		s, err := r.Setup(task, func() policies.Policy { return nil })
		if want == "" && (err != nil || s.Source == nil || s.VectorSteps != 4) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %+v, %v", setting, s, err)
		}
		if got := r.TargetEvery(160); got != 20 {
			t.Errorf("160 env steps are %d updates, want 20", got)
		}
	}
}

// TestBoundsAreDescribed for each kind, in the words of the errors.
func TestBoundsAreDescribed(t *testing.T) {
	var p algorithm.Params
	p.Float("float", 1, "", "", "", algorithm.Above(0), algorithm.AtMost(1))
	p.Int("int", 1, "", "", "", algorithm.AtLeast(1))
	p.Schedule("schedule", "1", "", "", "", algorithm.Below(2))
	p.Ints("ints", nil, "", "", "")
	p.Bool("bool", false, "", "")
	p.OneOf("word", "a", []string{"a", "b"}, "", "")
	p.Float("any", 1, "", "", "")
	for name, want := range map[string]string{
		"float": "more than 0 and at most 1", "int": "at least 1", "schedule": "less than 2", "ints": "at least 1 each", "bool": "true or false",
		"word": "a, b", "any": "",
	} {
		if got := p.Lookup(name).Bounds; got != want {
			t.Errorf("bounds of %s: %q, want %q", name, got, want)
		}
	}
}
