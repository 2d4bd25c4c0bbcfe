package rl_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/task"
)

// informer is a walk with infos: every second episode is a success, every third has a score, which is its number.
type informer struct {
	walk
	wrong any // in the last step of an episode
}

func (w *informer) Step(a int) (envs.Step, error) {
	s, err := w.walk.Step(a)
	s.Info.Values = map[string]any{"is_success": "of the last step only", "score": "as well"}
	if s.Terminated {
		s.Info.Values = map[string]any{"is_success": w.episodes%2 == 0, "wrong": w.wrong, "episode": map[string]float64{"r": 1}}
		if w.episodes%3 == 0 {
			s.Info.Values["score"] = int32(w.episodes)
		}
	}
	return s, err
}

func (*informer) Name() string { return "Informer" }

func informers(length int, wrong any) envs.Vector {
	return envs.NewSync(1, envs.SameStep, func(int) envs.Env[int] { return &informer{walk: walk{length: length}, wrong: wrong} })
}

func TestInfosAreLogged(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	table, lines := filepath.Join(dir, "progress.csv"), filepath.Join(dir, "metrics.jsonl")
	node := logged{task.Alone(), slog.New(slog.NewTextHandler(&log, nil))}
	r := newTrainerOn(node, rl.Config{Seed: 1, Infos: []string{"is_success", "score", "missing", "never"}}, informers(5, nil))
	r.tk.Use(r.run.Log(rl.LogConfig{EverySteps: 5, CSV: table, JSON: lines}),
		r.run.Evaluate(informers(8, nil), rl.EvalConfig{EverySteps: 60, Episodes: 4}))
	if err := r.tk.Run(t.Context(), task.MaxSteps(1100)); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(contentOf(t, table))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := func(row int, column string) float64 {
		k := slices.Index(rows[0], column)
		if k < 0 {
			t.Fatalf("no column %s in %v", column, rows[0])
		}
		if rows[row][k] == "" {
			return math.NaN()
		}
		x, err := strconv.ParseFloat(rows[row][k], 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for row := 1; row < len(rows); row++ {
		ended := int(at(row, "time/episodes"))
		success, scores, with := 0.0, 0.0, 0.0
		newest := 0
		for n := max(1, ended-99); n <= ended; n++ {
			newest++
			if n%2 == 0 {
				success++
			}
			if n%3 == 0 {
				scores, with = scores+float64(n), with+1
			}
		}
		if got, want := at(row, "rollout/success_rate"), success/float64(newest); math.Abs(got-want) > 1e-9 {
			t.Fatalf("row %d of %d episodes: success rate %v, want %v", row, ended, got, want)
		}
		if got, want := at(row, "rollout/score"), scores/with; math.Abs(got-want) > 1e-9 || math.IsNaN(got) != math.IsNaN(want) {
			t.Fatalf("row %d: score %v, want %v", row, got, want)
		}
		if x := at(row, "rollout/missing"); !math.IsNaN(x) {
			t.Fatalf("row %d: %v is missing", row, x)
		}
	}
	last := len(rows) - 1
	if got := at(last, "eval/success_rate"); got != 0.5 {
		t.Errorf("success rate of the evaluation is %v", got)
	}
	if got := at(last, "eval/score"); math.IsNaN(got) || math.Mod(got*2, 3) != 0 {
		t.Errorf("score of the evaluation is %v", got)
	}
	decoder := json.NewDecoder(strings.NewReader(contentOf(t, lines)))
	object := map[string]float64{}
	for decoder.More() {
		clear(object)
		if err := decoder.Decode(&object); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := object["rollout/missing"]; ok || object["rollout/success_rate"] != 0.5 || object["eval/success_rate"] != 0.5 {
		t.Errorf("last line %v", object)
	}
	n := strings.Count(log.String(), "no episode has such an info")
	if n != 1 || !strings.Contains(log.String(), "infos=missing,never env=Informer episodes=20") {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// TestRunsWithoutInfos has the same columns as before, and reads no info.
func TestRunsWithoutInfos(t *testing.T) {
	table := filepath.Join(t.TempDir(), "progress.csv")
	r := newTrainer(informers(5, "text"))
	r.tk.Use(r.run.Log(rl.LogConfig{EverySteps: 5, CSV: table}), r.run.Evaluate(informers(8, "text"), rl.EvalConfig{EverySteps: 20}))
	if err := r.tk.Run(t.Context(), task.MaxSteps(40)); err != nil {
		t.Fatal(err)
	}
	if text := contentOf(t, table); strings.Contains(text, "wrong") || strings.Contains(text, "success") {
		t.Error(text)
	}
}

func TestInfosThatAreNotNumbersEndTheRun(t *testing.T) {
	for _, wrong := range []any{"text", []float64{1}, map[string]any{}, math.NaN(), math.Inf(1), struct{}{}} {
		for _, evaluates := range []bool{false, true} {
			cfg := rl.Config{Seed: 1, Infos: []string{"is_success", "wrong"}}
			good, bad := informers(5, 1.5), informers(5, wrong)
			if evaluates {
				good, bad = bad, good
			}
			r := newTrainerOn(quiet{task.Alone()}, cfg, bad)
			r.tk.Use(r.run.Evaluate(good, rl.EvalConfig{EverySteps: 3}))
			err := r.tk.Run(t.Context(), task.MaxSteps(40))
			var e *envs.Error
			if !errors.Is(err, rl.ErrInfo) || !errors.As(err, &e) || e.Env != "Informer" || e.Index != 0 ||
				!strings.Contains(err.Error(), `info "wrong"`) {
				t.Errorf("%v: %v", wrong, err)
			}
		}
	}
}

func TestNumbersOfInfos(t *testing.T) {
	for value, want := range map[any]float64{
		true: 1, false: 0, 1.5: 1.5, float32(0.25): 0.25, -3: -3, int64(1 << 40): 1 << 40, int32(-7): -7, uint8(255): 255,
		uint32(9): 9, uint64(8): 8,
	} {
		got, err := rl.AppendInfos(nil, []string{"x"}, "E", 1, envs.Info{Values: map[string]any{"x": value}})
		if err != nil || !slices.Equal(got, []float64{want}) {
			t.Errorf("%T %v: %v, %v", value, value, got, err)
		}
	}
	got, err := rl.AppendInfos([]float64{1}, []string{"x", "y"}, "E", 1, envs.Info{Values: map[string]any{"x": nil}})
	if err != nil || len(got) != 3 || !math.IsNaN(got[1]) || !math.IsNaN(got[2]) {
		t.Errorf("%v, %v", got, err)
	}
	nan := math.NaN()
	means := rl.InfoMeans([]string{"is_success", "x", "none"}, []float64{1, nan, nan, 0, 3, nan, 0, 5, nan, 1, nan, nan})
	if want := []policies.Metric{{Name: "success_rate", Value: 0.5}, {Name: "x", Value: 4}}; !slices.Equal(means, want) {
		t.Errorf("%v, want %v", means, want)
	}
}

func TestNamesOfInfosAreChecked(t *testing.T) {
	if err := rl.CheckInfos([]string{"is_success", "x_position", "reward/forward", "grün"}); err != nil {
		t.Error(err)
	}
	for text, names := range map[string][]string{
		`"" is no name`:            {""},
		`"a b" is no name`:         {"x", "a b"},
		`"a\n" is no name`:         {"a\n"},
		`is no name of an info`:    {strings.Repeat("x", 65)},
		"rollout/ep_rew_mean":      {"ep_rew_mean"},
		"eval/mean_reward":         {"mean_reward"},
		"exploration_rate":         {"exploration_rate"},
		`leave out "success_rate"`: {"is_success", "success_rate"},
		`leave out "a"`:            {"a", "b", "a"},
		"17 names of infos":        strings.Split("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", ","),
	} {
		if err := rl.CheckInfos(names); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want %s", names, err, text)
		}
	}
}
