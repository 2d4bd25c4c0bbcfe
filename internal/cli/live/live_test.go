package live

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/cli/screen"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/train"
)

func ascii() Style { return Style{} }

// example returns a run in the middle.
func example() Run {
	r := &train.Report{
		Algorithm: "ppo", Env: "CartPole-v1", Steps: 42_000, Total: 100_000, Updates: 1312, Episodes: 512, Elapsed: 20 * time.Second,
		Return: 187.25, Recent: 100, Eval: &rl.Evaluation{Mean: 321.5, Std: 40, Episodes: 10, EnvSteps: 40_000},
		Best:    &rl.Evaluation{Mean: 480, EnvSteps: 30_000},
		Metrics: []train.ReportedMetric{{Name: "loss", Value: 0.12345}, {Name: "value_loss", Value: 31.25}},
		Scores:  []float64{0, 100, 200, 300, 400},
	}
	h := new(History)
	for i := range 5 {
		h.Add(&train.Report{Steps: 40_000 + 500*i, Updates: 1000 + 100*i, Elapsed: 19*time.Second + time.Duration(i)*250*time.Millisecond,
			First: 0})
	}
	return Run{
		Title: "ppo on CartPole-v1, seed 1", Folder: "runs/a", Report: r, History: h, Threshold: 475, Goal: "solved at",
		Saved: 12 * time.Second, Elapsed: 21 * time.Second,
		Nodes: []launch.State{{ID: 0, Phase: launch.Running}, {ID: 1, Phase: launch.Backoff, Restarts: 2}, {ID: 2, Phase: launch.Running}},
	}
}

func TestRows(t *testing.T) {
	got := strings.Join(Rows(example(), 80, 24, ascii()), "\n")
	want := `ppo on CartPole-v1, seed 1   runs/a
steps     [###############.......................]    42%   42,000 of 100,000
score     now 321.5   best 480.0   solved at 475.0   +- 40.0   best at 30,000
return    187.2   mean of the last 100 episodes   of 512
scores                                                    ############   400.0
                                  ............########################
                      ............####################################
          ............################################################   0.0
speed     2,100 steps/s   400.0 updates/s
learning  loss 0.123   value_loss 31.2
time      0:21   about 0:27 left   checkpoint 0:12 ago
nodes     2 of 3 up   2 restarted   1 back-off`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if got := Rows(example(), 40, 6, ascii()); len(got) != 5 || !strings.HasPrefix(got[0], "ppo on") || !strings.HasPrefix(got[4], "time") {
		t.Errorf("a low terminal:\n%s", strings.Join(got, "\n"))
	}
}

// The rows of a run fit the screen and have no control sequences but colours, with any name and any text.
func TestRowsFit(t *testing.T) {
	hostile := "\x1b[2J\n\u202e日本語日本語\x07" + strings.Repeat("long", 200)
	r := example()
	r.Title, r.Folder = hostile, hostile
	r.Report.Metrics = []train.ReportedMetric{{Name: hostile, Value: 1}, {Name: "x", Value: math.Inf(1)}}
	r.Report.Total, r.Report.Steps, r.Report.Return = 0, math.MaxInt, math.NaN()
	r.Report.Scores = []float64{math.MaxFloat64, -math.MaxFloat64, 3}
	for _, run := range []Run{example(), r, {Title: "starting", Saved: -1}, {Report: &train.Report{}, Saved: -1}} {
		for _, s := range []Style{{}, {Colour: true}, {Unicode: true}, {true, true}} {
			for _, columns := range []int{1, 2, 5, 12, 20, 40, 80, 200, 1000} {
				for _, lines := range []int{1, 2, 5, 10, 24, 60} {
					rows := Rows(run, columns, lines, s)
					if len(rows) > max(lines-1, 1) {
						t.Fatalf("%d rows in %d lines", len(rows), lines)
					}
					for _, row := range rows {
						plain := row
						for _, l := range []look{dim, bold, green, red, cyan, "0"} {
							plain = strings.ReplaceAll(plain, "\x1b["+string(l)+"m", "")
						}
						if screen.Width(row) >= max(columns, 1) && columns > 1 || strings.ContainsAny(plain,
							"\x1b\n\r\x07\u202e") || !s.Colour && plain != row {
							t.Fatalf("%d columns: %q", columns, row)
						}
					}
				}
			}
		}
	}
}

func TestSpeedAndRemainingTime(t *testing.T) {
	h := new(History)
	r := &train.Report{Total: 1000}
	run := Run{Report: r, History: h, Saved: -1}
	if run.left() >= 0 {
		t.Error("a time that is left, of nothing")
	}
	for i := range 200 { // 10 steps a second, then 20
		r.Elapsed += 500 * time.Millisecond
		r.Steps += 5
		if i >= 100 {
			r.Steps += 5
		}
		r.Updates = r.Steps / 5
		h.Add(r)
	}
	if steps, updates := h.Speed(); steps != 20 || updates != 4 || len(h.points) > maxPoints {
		t.Errorf("%v steps/s, %v updates/s, %d points", steps, updates, len(h.points))
	}
	r.Total = r.Steps + 100
	if left := run.left(); left != 5*time.Second {
		t.Errorf("%v left", left)
	}
	run.Limit = r.Elapsed + 2*time.Second
	if left := run.left(); left != 2*time.Second {
		t.Errorf("%v left of a time limit", left)
	}
	r.Elapsed, r.Steps = time.Second, 10 // the process was restarted
	h.Add(r)
	if steps, _ := h.Speed(); steps != 10 {
		t.Errorf("%v steps/s after a restart", steps)
	}
}

func TestSpark(t *testing.T) {
	for want, c := range map[string]struct {
		values []float64
		height int
		s      Style
	}{
		"▁▂▃▄▅▆▇█":   {[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 1, Style{Unicode: true}},
		"  ▁█\n▁▆██": {[]float64{0, 5, 8, 15}, 2, Style{Unicode: true}},
		"_.-=*#":     {[]float64{0, 1, 2, 3, 4, 5}, 1, ascii()},
		"▁▁":         {[]float64{3, 3}, 1, Style{Unicode: true}},
	} {
		if got := strings.Join(spark(c.values, c.height, c.s), "\n"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := resample([]float64{1, 3, 5, 7, 9}, 2); !slices.Equal(got, []float64{2, 7}) {
		t.Errorf("%v", got)
	}
	if got := resample([]float64{1, 2}, 4); !slices.Equal(got, []float64{1, 1, 2, 2}) {
		t.Errorf("%v", got)
	}
	for share, want := range map[float64]string{0: "[....]", 0.5: "[##..]", 2: "[####]", -1: "[....]"} {
		if got := bar(share, 6, ascii()); got != want {
			t.Errorf("%v: %q", share, got)
		}
	}
	if got := bar(0.3, 4, Style{Unicode: true}); got != "█▏░░" {
		t.Errorf("%q", got)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", -1000: "-1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for v, want := range map[float64]string{0: "0.0", -0.5: "-0.50", 12.34: "12.3", 1500.4: "1,500", 2.5e8: "2.5e+08"} {
		if got := number(v); got != want {
			t.Errorf("%v: %s", v, got)
		}
	}
	for d, want := range map[time.Duration]string{59 * time.Second: "0:59", time.Hour + time.Minute: "1:01:00",
		25 * time.Hour: "1d 01:00:00"} {
		if got := clock(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
}

func TestStyle(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want Style
	}{
		{nil, Style{Colour: true}},
		{map[string]string{"LANG": "de_DE.UTF-8"}, Style{true, true}},
		{map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, Style{true, false}},
		{map[string]string{"LC_CTYPE": "C.utf8", "NO_COLOR": "1"}, Style{false, true}},
	} {
		if got := StyleOf(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %+v", c.env, got)
		}
	}
	if Capable("") || Capable("dumb") || !Capable("xterm") {
		t.Error("capable terminals")
	}
}

func TestSeedRows(t *testing.T) {
	run := example()
	all := []Seed{{Name: "seed 1", Run: run, Done: true}, {Name: "seed 2", Run: run}, {Name: "seed 3", Run: run, Failed: true}}
	for range 9 {
		all = append(all, Seed{Name: "seed n", Waiting: true})
	}
	got := SeedRows("ppo, 12 seeds", all, time.Minute, 100, 8, ascii())
	want := []string{
		"ppo, 12 seeds   1 of 12 done   1 failed   1:00",
		"seed 2    [###.....]    42%   now   321.5   best   480.0    0:27 left",
		"seed 3    failed   runs/a",
		"seed n    waiting", "seed n    waiting", "seed n    waiting", "7 more",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	for _, columns := range []int{10, 40, 100, 300} {
		for _, row := range SeedRows("title", all, 0, columns, 30, Style{true, true}) {
			if screen.Width(row) >= columns {
				t.Errorf("%d columns: %q", columns, row)
			}
		}
	}
}
