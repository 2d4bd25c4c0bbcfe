package presets_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/presets"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/task"
)

type quiet struct{ task.Node }

func (quiet) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestEachPresetLearns takes some steps with each, up to a few updates.
func TestEachPresetLearns(t *testing.T) {
	names := map[string]bool{}
	for _, p := range presets.All() {
		if names[p.Name] || strings.Count(p.Name, "/") != 2 || p.Settings == "" || p.EnvSteps == 0 || p.Threshold == 0 {
			t.Errorf("%+v is incomplete, or there twice", p)
		}
		names[p.Name] = true
		t.Run(p.Name, func(t *testing.T) {
			s := p.Setup(3)
			tk := task.New[rl.Online](quiet{task.Alone()})
			run := rl.New(tk, s.Policy, rl.Config{Seed: 3})
			tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(s.Envs(s.Num), s.Collect), run.Learn(s.Source, s.Learn),
				run.Evaluate(s.Envs(2), rl.EvalConfig{EverySteps: 1 << 40}), run.Stop(rl.StopConfig{Updates: 2, EnvSteps: 12_000}))
			if err := tk.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c := tk.Context(); c.Updates < 2 {
				t.Errorf("%d updates after %d env steps", c.Updates, c.EnvSteps)
			}
		})
	}
}

func TestFind(t *testing.T) {
	found, err := presets.Find("ppo/CartPole-v1/cleanrl")
	if err != nil || len(found) != 1 || found[0].Algorithm() != "ppo" || found[0].Env() != "CartPole-v1" {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := presets.Find("pp0"); err == nil || !strings.Contains(err.Error(), `no preset begins with "pp0": there are dqn/CartPole-v1/cleanrl, `) {
		t.Error(err)
	}
}
