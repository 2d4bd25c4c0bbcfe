package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/train"
)

// runsOf are records with these returns.
func runsOf(returns ...float64) (all records) {
	for i, v := range returns {
		all = append(all, record{Preset: "x/y/z", Seed: uint64(i) + 1, Return: v})
	}
	return all
}

func TestVerdict(t *testing.T) {
	several, single := train.Published{Mean: 488.7, Deviation: 16.1, Runs: 3}, train.Published{Mean: -76.6, Runs: 1}
	gate := train.Gate{By: "RLlib for IMPALA", Mean: 450, EnvSteps: 2_000_000}
	quick, slow := runsOf(460, 440), runsOf(460, 440)
	quick[0].EnvSteps, quick[1].EnvSteps = 2_000_000, 1
	slow[0].EnvSteps, slow[1].EnvSteps = 2_000_001, 0
	for name, c := range map[string]struct {
		p    train.Preset
		runs records
		want string
	}{
		"within":          {train.Preset{Published: several}, runsOf(500, 480), "met: within the published deviation"},
		"above":           {train.Preset{Published: several}, runsOf(510, 510), "above by 21.3"},
		"below":           {train.Preset{Published: several}, runsOf(400, 500), "**below** by 38.7"},
		"one run, equal":  {train.Preset{Published: single}, runsOf(-76.6), "met"},
		"one run, within": {train.Preset{Published: single}, runsOf(-90, -70), "below by 3.4, within our deviation; 1 of 2 seeds reach it"},
		"one run, below":  {train.Preset{Published: single}, runsOf(-90, -88), "**below** by 12.4; 0 of 2 seeds reach it"},
		"one run, above":  {train.Preset{Published: single}, runsOf(-70, -71), "above by 6.1"},
		"negative": {train.Preset{Published: train.Published{Mean: -195, Deviation: 8.5, Runs: 3}, Unsolved: true, Threshold: -110},
			runsOf(-200, -198),
			"known negative reproduced: within the published deviation, and not solved"},
		"better than a negative": {train.Preset{Published: train.Published{Mean: -195, Deviation: 8.5, Runs: 3}, Unsolved: true,
			Threshold: -110}, runsOf(-120),
			"above by 75.0"},
		"gate passed":       {train.Preset{Gate: gate, Threshold: 450}, quick, "gate passed by 2 of 2 seeds"},
		"gate missed":       {train.Preset{Gate: gate, Threshold: 450}, slow, "gate passed by 0 of 2 seeds"},
		"threshold too low": {train.Preset{Gate: gate, Threshold: 400}, quick, "gate passed by 0 of 2 seeds"},
		"greedy gate": {train.Preset{Name: "ppo/CartPole-v1/x", Greedy: true, Gate: gate, Threshold: 475}, runsOf(460, 440),
			"gate passed by 1 of 2 seeds"},
		"nothing published": {train.Preset{Threshold: -13}, runsOf(-13, -14), "nothing published; 1 of 2 seeds reach the threshold"},
		"published and gate": {train.Preset{Published: several, Gate: gate, Threshold: 450}, quick,
			"**below** by 38.7; gate passed by 2 of 2 seeds"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verdict(&c.p, c.runs); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestRow(t *testing.T) {
	runs := runsOf(500, 412.24, -9.876)
	for i, steps := range []int{0, 1_234_567, 999} {
		runs[i].EnvSteps, runs[i].CPUSeconds = steps, float64(i)+0.26
	}
	p := train.Preset{
		Name: "x/y/z", Settings: "a | b", Threshold: -100.5, Published: train.Published{Mean: -195, Deviation: 8.5, Runs: 3},
		Gate: train.Gate{By: "RLlib for IMPALA", Mean: 450, EnvSteps: 2_000_000},
	}
	const want = "| `x/y/z` | a \\| b | -195 ± 8.5 over 3 seeds; RLlib's gate for IMPALA: 450 within 2,000,000 | " +
		"300.8 ± 222.6 | 500.0, 412.2, -9.88 | -100.5: –, 1,234,567, 999 (1,234,567) | 0.3, 1.3, 2.3 | " +
		"above by 495.8; gate passed by 0 of 3 seeds |\n"
	if got := rowOf(&p, runs).String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	for _, c := range []struct {
		steps []int
		want  string
	}{{[]int{0}, "–"}, {[]int{5}, "5"}, {[]int{0, 5}, "–"}, {[]int{9, 5}, "7"}, {[]int{0, 5, 7}, "7"}, {[]int{0, 0, 7}, "–"}} {
		all := make(records, len(c.steps))
		for i, n := range c.steps {
			all[i].EnvSteps = n
		}
		if got := median(all); got != c.want {
			t.Errorf("median of %v: %s, want %s", c.steps, got, c.want)
		}
	}
}

func TestBuilds(t *testing.T) {
	all := runsOf(1, 2, 3, 4)
	all[0].build, all[1].build = build{"ditask 1", "go1.26", "an abacus", ""}, build{"ditask 2", "go1.26", "an abacus", "2026-04-30"}
	all[2].build, all[3].build = all[1].build, all[1].build
	all[3].Preset = "u/v/w"
	want := []string{"ditask 1, go1.26, an abacus: 1 runs of `x/y/z`", "2026-04-30, ditask 2, go1.26, an abacus: 3 runs"}
	if got := builds(all); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPageIsOfItsRuns fails if docs/results.md is not made of results.json, the presets and the template.
func TestPageIsOfItsRuns(t *testing.T) {
	const docs = "../../docs"
	all, err := readRecords(recordsPath(docs))
	if err != nil {
		t.Fatal(err)
	}
	want, err := renderPage(docs, train.Presets(), all)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(pagePath(docs)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %s is not what its runs give: go run ./internal/results -render", err, pagePath(docs))
	}
	if name := foreign(all, train.Presets()); name != "" {
		t.Errorf("results.json has runs of %s, which is no preset", name)
	}
}

// TestSettingsAreThoseThatCount: a hyperparameter, the seed and what a preset sets change the sum; how a run is logged does not.
func TestSettingsAreThoseThatCount(t *testing.T) {
	read := func(text string) string {
		t.Helper()
		presets := "- name: ppo/CartPole-v1/x\n  settings: ours\n  threshold: 475\n  set: {steps: 1000, " + text + "}\n"
		all, err := train.ReadPresets("presets.yaml", strings.NewReader(presets))
		if err != nil {
			t.Fatal(err)
		}
		sum, err := settingsOf(&all[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	plain := read("gamma: 0.99")
	if got := read(""); got != plain {
		t.Errorf("gamma of its default: sum %s, and %s if it is not set", plain, got)
	}
	for _, text := range []string{"gamma: 0.98", "envs: 3", "time_limit: 100", "eval_max_steps: 10", "normalize_reward: true"} {
		if got := read(text); got == plain {
			t.Errorf("%s does not change the sum", text)
		}
	}
}

func TestLongRunsComeFirst(t *testing.T) {
	presets := []train.Preset{{Name: "short"}, {Name: "long"}, {Name: "unknown"}, {Name: "middle"}}
	known := costs{"short": {1, 2}, "long": {50}, "middle": {1, 8}}
	var todo []*job
	for i := range presets {
		todo = append(todo, &job{preset: &presets[i], seed: 1})
	}
	order(todo, known)
	var names []string
	for _, j := range todo {
		names = append(names, j.preset.Name)
	}
	if want := []string{"unknown", "long", "middle", "short"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}

	var out strings.Builder
	began := time.Unix(0, 0)
	p := progress{began: began, atOnce: 2, out: &out, todo: todo, known: known}
	todo[1].done = &record{Return: 500, CPUSeconds: 50}
	p.ended(todo[1], began.Add(25*time.Second)) // (20 + 8 + 2) CPU seconds at two in a second
	todo[0].done = &record{Return: -9.5, CPUSeconds: 500}
	p.ended(todo[0], began.Add(5500*time.Second)) // 10 CPU seconds, of which each took ten
	todo[2].err = os.ErrClosed
	p.ended(todo[2], began.Add(5500*time.Second))
	const want = "1 of 4: long, seed 1: 500.0, 50.0 CPU s, about 15 s left\n" +
		"2 of 4: unknown, seed 1: -9.5, 500.0 CPU s, about 2 min left\n" +
		"3 of 4: middle, seed 1: failed, about 20 s left\n"
	if out.String() != want {
		t.Errorf("%swant\n%s", out.String(), want)
	}
}

func FuzzRecords(f *testing.F) {
	for _, text := range []string{"[]", "[{\"preset\": \"x\", \"seed\": 1}]", "null", "[{}]", "[] 1",
		"[{\"preset\":\"x\",\"seed\":1,\"return\":1e308,\"env_steps\":3,\"go\":\"\\u0000\"}]"} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseRecords(text)
		if err != nil || len(all) == 0 {
			return
		}
		path := filepath.Join(dir, "results.json")
		if err := writeRecords(path, all); err != nil {
			t.Fatal(err)
		}
		if again, err := readRecords(path); err != nil || !slices.Equal(all, again) {
			t.Errorf("%v: %v was written, %v read", err, all, again)
		}
	})
}

// A long preset is trained only if it is named.
func TestLongPresetsAreNamed(t *testing.T) {
	all := []train.Preset{{Name: "ppo/A/x"}, {Name: "td3/A/x", Long: true}, {Name: "td3/B/x"}}
	for prefixes, want := range map[string]string{
		"": "ppo/A/x td3/B/x", "td3": "td3/A/x td3/B/x", "td3/A ppo": "ppo/A/x td3/A/x",
	} {
		chosen, err := choose(all, strings.Fields(prefixes))
		var names []string
		for _, p := range chosen {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", prefixes, got, err, want)
		}
	}
}
