package train_test

import (
	"context"
	"encoding/csv"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/internal/pythontest"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/train"
)

// withInfos is an environment in Python whose infos have a constant, half, and is_success.
const withInfos = "env=../envs/gym/testdata/infos.py:make_env"

// lastOf returns the last value in a column of a run's table, NaN if that is empty.
func lastOf(t *testing.T, dir, column string) float64 {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, train.ProgressFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	k := slices.Index(rows[0], column)
	if k < 0 {
		t.Fatalf("no column %s in %v", column, rows[0])
	}
	text := rows[len(rows)-1][k]
	if text == "" {
		return math.NaN()
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestInfosOfPythonReachTheLog of runs of all kinds: alone, in lockstep, at each process's own pace, and with learners.
func TestInfosOfPythonReachTheLog(t *testing.T) {
	pythontest.Program(t)
	for name, test := range map[string]struct {
		algo     string
		nodes    int
		settings []string
	}{
		"alone":                    {"ppo", 1, nil},
		"lockstep":                 {"ppo", 3, []string{"mode=sync"}},
		"own pace":                 {"dqn", 3, []string{"mode=async", "learning_starts=100"}},
		"learners":                 {"ppo", 2, []string{"learners=2"}},
		"learners with collectors": {"ppo", 4, []string{"learners=2", "steps=4000", "n_steps=32"}},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			dir := t.TempDir()
			settings := append([]string{
				withInfos, "env_info=half, is_success,missing", "steps=1500", "hidden=[8]", "eval_every=25%", "eval_episodes=3",
				"envs=2", "env_processes=1",
			}, test.settings...)
			cfg := parallel.Config{Nodes: test.nodes, Dir: dir, Seed: 1, Logger: slog.New(slog.DiscardHandler)}
			err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
				return config(t, test.algo, settings...).Run(ctx, node, train.Output{})
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range []string{"rollout/", "eval/"} {
				if x := lastOf(t, dir, group+"half"); x != 0.5 {
					t.Errorf("%shalf is %v", group, x)
				}
				if x := lastOf(t, dir, group+"success_rate"); !(x >= 0 && x <= 1) {
					t.Errorf("%ssuccess_rate is %v", group, x)
				}
				if x := lastOf(t, dir, group+"missing"); !math.IsNaN(x) {
					t.Errorf("%smissing is %v", group, x)
				}
			}
			trained, err := train.Load(t.Context(), train.Algorithms(), dir, train.Best)
			if err != nil {
				t.Fatal(err)
			}
			defer trained.Close()
			p, err := trained.Play(t.Context(), 4, 1, true)
			if err != nil || len(p.Episodes) != 4 || len(p.Infos) != 2 || p.Infos[0].Name != "half" || p.Infos[0].Value != 0.5 ||
				p.Infos[1].Name != "success_rate" {
				t.Errorf("%v, %+v", err, p)
			}
			best, err := rl.LoadBest(dir)
			if err != nil || len(best.Infos) != 2 {
				t.Errorf("%v, %+v", err, best)
			}
		})
	}
}

func TestFaultsOfInfos(t *testing.T) {
	c := config(t, "ppo")
	for text, want := range map[string]string{
		"a,b,a": "leave out \"a\"", "ep_len_mean": "rollout/ep_len_mean", strings.Repeat("x", 65): "no name of an info",
	} {
		if err := c.Set("env_info", text, "the test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which has not %s", text, err, want)
		}
	}
	pythontest.Program(t)
	leak.Check(t)
	c = config(t, "ppo", withInfos, "env_info=wrong", `env_args={"which": "text"}`, "steps=500")
	err := c.Run(t.Context(), lone(t, t.TempDir()), train.Output{})
	const want = "infos.py:make_env[0]: an info cannot be passed on: " +
		"key 'wrong' of the info of a step that ended an episode is 'yes', a str"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
