package train_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/train"
)

// config returns one of an algorithm with settings.
func config(t *testing.T, algo string, settings ...string) *train.Config {
	t.Helper()
	c, err := train.New(train.Algorithms(), algo)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err := c.Set(key, value, "the test"); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestPresetsAreOfTheirAlgorithms(t *testing.T) {
	for _, p := range train.Presets() {
		t.Run(p.Name, func(t *testing.T) {
			c := config(t, p.Algorithm())
			if err := c.Use(&p); err != nil {
				t.Fatal(err)
			}
			if err := c.Check(); err != nil {
				t.Error(err)
			}
			if p.Settings == "" || p.Threshold == 0 || strings.Count(p.Name, "/") != 2 || c.Env() != p.Env() {
				t.Errorf("incomplete: %+v", p)
			}
		})
	}
}

func TestConfigIsReadBack(t *testing.T) {
	for _, a := range train.Algorithms() {
		t.Run(a.Name, func(t *testing.T) {
			c := config(t, a.Name, "env=CartPole-v1", "steps=12k", "eval_every=3%", "env_args={\"a\": [1, \"#\"]}")
			var first bytes.Buffer
			if err := c.WriteYAML(&first, "ditask v1: \"test\" #1"); err != nil {
				t.Fatal(err)
			}
			f, err := train.ReadFile("config.yaml", bytes.NewReader(first.Bytes()))
			if err != nil {
				t.Fatalf("%v\n%s", err, first.Bytes())
			}
			again := config(t, f.Algo)
			if err := again.Apply(f); err != nil {
				t.Fatalf("%v\n%s", err, first.Bytes())
			}
			if d := train.Differ(c, again); d != nil {
				t.Errorf("read back, the config differs in %v\n%s", d, first.Bytes())
			}
		})
	}
}

func TestFaultsOfAConfig(t *testing.T) {
	for _, c := range []struct{ algo, text, want string }{
		{"ppo", "learning_rat: 1e-3", "x.yaml:1: unknown key \"learning_rat\" (did you mean learning_rate?)"},
		{"ppo", "steps: 10\nsteps: 20", "x.yaml:2: steps is set in line 1 already"},
		{"ppo", "gamma: 1.5", "x.yaml:1: gamma: 1.5: want more than 0 and at most 1"},
		{"ppo", "\nn_steps: 1.5", "x.yaml:2: n_steps: \"1.5\": want a whole number"},
		{"ppo", "hidden: [64, 0]", "hidden: \"[64, 0]\": want whole numbers of at least 1"},
		{"ppo", "algo: dqn", "x.yaml: algo: it is a config of dqn, not of ppo"},
		{"ppo", "- steps", "x.yaml:1: want keys and values"},
		{"ppo", "steps: [", "x.yaml: yaml:"},
		{"ppo", "steps: .nan", "steps: \".nan\": want a whole number"},
		{"ppo", "gamma: nan", "gamma: NaN is not a finite number"},
		{"ppo", "learning_rate: linear(1)", "want a number, linear(FIRST, LAST)"},
		{"ppo", "learning_rate: linear(1, -1)", "-1: want at least 0"},
		{"dqn", "epsilon: \"piecewise(0: 1, 10: 0.5, 5: 0.1)\"", "5: 0.1: want points in the order of their steps"},
		{"dqn", "epsilon: \"piecewise(1: 1, 10: 0.5)\"", "want 0 as the step of the first point"},
		{"ppo", "time: soon", "time: \"soon\": want a duration"},
		{"ppo", "env_args: [1]", "want an object in JSON"},
		{"ppo", "normalize: perhaps", "normalize: \"perhaps\": want true or false"},
		{"ppo", "steps: {a: 1}", "steps: "},
		{"ppo", "seed: *x", "x.yaml: yaml: unknown anchor"},
	} {
		t.Run(c.text, func(t *testing.T) {
			cfg := config(t, c.algo)
			f, err := train.ReadFile("x.yaml", strings.NewReader(c.text))
			if err == nil {
				err = cfg.Apply(f)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := train.New(train.Algorithms(), "pppo"); err == nil || !strings.Contains(err.Error(), "did you mean ppo?") {
		t.Error(err)
	}
}

// TestARunFolderIsADataset if it has a recording: its checkpoints are no dataset files.
func TestARunFolderIsADataset(t *testing.T) {
	dir := t.TempDir()
	if err := config(t, "dqn", "env=CartPole-v1", "steps=300", "learning_starts=200", "record=true", "eval_every=0").Run(t.Context(),
		lone(t, dir), train.Output{}); err != nil {
		t.Fatal(err)
	}
	if err := config(t, "bc", "env=CartPole-v1", "data="+dir, "steps=10").Run(t.Context(), lone(t, t.TempDir()), train.Output{}); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	err := config(t, "bc", "env=CartPole-v1", "data="+dir, "steps=10").Run(t.Context(), lone(t, t.TempDir()), train.Output{})
	if want := "data: the run " + dir + " has recorded nothing: record with --set record=true"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRewardsAreNormalised by the returns of all env steps, with the discount of the algorithm. The scores and the replay
// buffer have rewards as they are: each reward of CartPole is 1, so an episode's return is its length.
func TestRewardsAreNormalised(t *testing.T) {
	for _, algo := range []string{"ppo", "dqn", "impala"} {
		t.Run(algo, func(t *testing.T) {
			dir := t.TempDir()
			c := config(t, algo, "env=CartPole-v1", "steps=2000", "gamma=0.5", "norm_reward=true", "normalize=true", "hidden=[8]",
				"eval_every=0", "record=true")
			if algo == "dqn" {
				if err := c.Set("learning_starts", "500", "the test"); err != nil {
					t.Fatal(err)
				}
			}
			steps := 0
			out := train.Output{Step: func(c *rl.Online) {
				steps = c.EnvSteps
				for _, e := range c.Collected.Episodes {
					if e.Return != float64(e.Length) {
						t.Fatalf("an episode of %d steps has the return %v", e.Length, e.Return)
					}
				}
				for _, reward := range c.Collected.Batch.Floats(policies.Reward) {
					if reward != 1 {
						t.Fatalf("a reward of %v was collected", reward)
					}
				}
			}}
			if err := c.Run(t.Context(), lone(t, dir), out); err != nil {
				t.Fatal(err)
			}
			trained, err := train.Load(t.Context(), train.Algorithms(), dir, train.Last)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := trained.Close(); err != nil {
					t.Error(err)
				}
			}()
			// Returns are 1, 1.5, 1.75 and so on, nearly 2 in all but the first steps of an episode.
			p := trained.Policy.(*normalize.Policy)
			if m := p.Returns(); int(m.Count+0.5) != steps || steps < 2000 || m.Mean[0] < 1.7 || m.Mean[0] > 2 || m.Var[0] > 0.1 {
				t.Errorf("after %d env steps the returns are %v", steps, *m)
			}
			if m := p.Moments(); int(m.Count+0.5) != steps {
				t.Errorf("after %d env steps the observations are %v", steps, *m)
			}
		})
	}
}

func TestEachAlgorithmLearns(t *testing.T) {
	envs := map[string]string{"td3": "Pendulum-v1", "ddpg": "Pendulum-v1", "qlearning": "FrozenLake-v1"}
	dir := t.TempDir()
	record := config(t, "dqn", "env=CartPole-v1", "steps=600", "learning_starts=200", "record=true", "eval_every=0")
	if err := record.Run(t.Context(), lone(t, dir), train.Output{}); err != nil {
		t.Fatal(err)
	}
	for _, a := range train.Algorithms() {
		t.Run(a.Name, func(t *testing.T) {
			env := envs[a.Name]
			if env == "" {
				env = "CartPole-v1"
			}
			c := config(t, a.Name, "env="+env, "steps=1200", "eval_every=50%", "eval_episodes=2")
			if a.Offline {
				if err := c.Set("data", filepath.Join(dir, "data"), "the test"); err != nil {
					t.Fatal(err)
				}
			}
			for _, key := range []string{"learning_starts", "batch_size"} {
				_ = c.Set(key, "32", "the test") // those that have it
			}
			_ = c.Set("hidden", "[8]", "the test")
			run := t.TempDir()
			var lines bytes.Buffer
			if err := c.Run(t.Context(), lone(t, run), train.Output{Program: "test", Summary: &lines}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{train.ConfigFile, train.ProgressFile, train.MetricsFile, "checkpoint.safetensors", "best.safetensors"} {
				if info, err := os.Stat(filepath.Join(run, name)); err != nil || info.Size() == 0 {
					t.Errorf("%s: %v", name, err)
				}
			}
			if !strings.Contains(lines.String(), "best evaluation: ") || a.Offline && !strings.Contains(lines.String(), "updates\nrun folder") {
				t.Errorf("no summary, or one of another kind:\n%s", lines.String())
			}
		})
	}
}

// TestHindsight: the preset of the environment with goals learns, and settings that hindsight cannot be are refused before a run.
func TestHindsight(t *testing.T) {
	p, err := train.FindPreset("dqn/BitFlip-v0/her")
	if err != nil {
		t.Fatal(err)
	}
	c, dir := config(t, "dqn"), t.TempDir()
	if err := c.Use(p); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context(), lone(t, dir), train.Output{}); err != nil {
		t.Fatal(err)
	}
	trained, err := train.Load(t.Context(), train.Algorithms(), dir, train.Best)
	if err != nil {
		t.Fatal(err)
	}
	episodes, err := trained.Episodes(t.Context(), 200, 1, true)
	if err := errors.Join(err, trained.Close()); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, e := range episodes {
		sum += e.Return
	}
	if mean := sum / 200; mean < p.Threshold {
		t.Errorf("mean return %v, want %v", mean, p.Threshold)
	}
	for settings, want := range map[string]string{
		"env=BitFlip-v0 her_goals=4 n_steps=3": "" +
			"dqn on BitFlip-v0: her_goals: 4 goals: a transition in hindsight has one reward, and n_steps is 3: set n_steps=1",
		"env=CartPole-v1 her_goals=4": "dqn on CartPole-v1: her_goals: the environment has no goals",
	} {
		if err := config(t, "dqn", strings.Fields(settings)...).Try(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestLiftUntil: only a return that was reached is lifted, and only where another end is given in its place.
func TestLiftUntil(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	if err := config(t, "qlearning", "env=FrozenLake-v1", "steps=4000", "eval_every=1000", "until=0.01").Run(t.Context(), lone(t, dir),
		train.Output{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, until, given string
		lifted            bool
	}{
		{dir, "0.01", "steps", true}, {dir, "0.01", "seed time", true}, {dir, "0.01", "", false}, {dir, "0.01", "seed", false},
		{dir, "0.01", "steps until", false}, {dir, "2", "steps", false}, {dir, "0", "steps", false}, {empty, "0.01", "steps", false},
	} {
		cfg := config(t, "qlearning", "env=FrozenLake-v1", "until="+c.until)
		before := cfg.Until()
		lifted, err := cfg.LiftUntil(c.dir, strings.Fields(c.given))
		if err != nil || lifted != c.lifted || (cfg.Until() == before) == lifted {
			t.Errorf("%+v: lifted %v, until %v: %v", c, lifted, cfg.Until(), err)
		}
	}
}

// TestResumedBehindUntilIsAStraightRun: the return that ended a run has changed nothing that is learned.
func TestResumedBehindUntilIsAStraightRun(t *testing.T) {
	for name, own := range map[string][]string{
		"ppo": {"env=CartPole-v1"}, "dqn": {"env=CartPole-v1", "learning_starts=200"},
		"ppo with state-dependent noise": {"env=MountainCarContinuous-v0", "use_sde=true", "sde_sample_freq=7"},
		"ddpg with noise of Ornstein-Uhlenbeck": {
			"env=MountainCarContinuous-v0", "noise_type=ornstein-uhlenbeck", "learning_starts=500", "random_steps=100",
			"hidden=[8]", "batch_size=8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			algo, _, _ := strings.Cut(name, " ")
			until := "until=5"
			if algo != name { // of another environment
				until = "until=-1000"
			}
			settings := append([]string{"steps=6000", "eval_every=1000", "eval_episodes=2"}, own...)
			straight, stopped := t.TempDir(), t.TempDir()
			run := func(n train.Node, more ...string) string {
				t.Helper()
				var summary bytes.Buffer
				if err := config(t, algo, append(settings, more...)...).Run(t.Context(), n, train.Output{Summary: &summary}); err != nil {
					t.Fatal(err)
				}
				return summary.String()
			}
			run(lone(t, straight))
			if text := run(lone(t, stopped), until); strings.Contains(text, "nothing was left") {
				t.Error(text)
			}
			const want = "nothing was left to do: mean return "
			if text := run(resumed(t, stopped), until); !strings.HasPrefix(text, want) || !strings.Contains(text, "with --until above ") {
				t.Errorf("%s, want %s", text, want)
			}
			if text := run(resumed(t, stopped)); strings.Contains(text, "nothing was left") {
				t.Error(text)
			}
			if a, b := weights(t, straight), weights(t, stopped); !bytes.Equal(a, b) {
				t.Error("the weights of the resumed run are not those of one that was not stopped")
			}
		})
	}
}

// weights returns the weights of the last checkpoint in a folder, as bytes.
func weights(t *testing.T, dir string) []byte {
	t.Helper()
	trained, err := train.Load(t.Context(), train.Algorithms(), dir, train.Last)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(trained.Policy.Weights())
	if err := errors.Join(err, trained.Close()); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestFaultsOfPresets(t *testing.T) {
	const good = "- name: ppo/CartPole-v1/x\n  settings: ours\n  threshold: 1\n  set: {}\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":      {"", "p.yaml: it has no presets"},
		"no list":    {"name: x", "p.yaml: yaml: "},
		"unknown":    {good + "  publishd: 1\n", "field publishd not found"},
		"a figure":   {good + "  published: 488\n", "p.yaml: yaml: "},
		"no runs":    {good + "  published: {mean: 1}\n", "published: want a mean"},
		"not finite": {good + "  published: {mean: .nan, runs: 1}\n", "published: want a mean"},
		"a gate":     {good + "  gate: {mean: 5}\n", "gate: want by, mean and env_steps"},
		"twice":      {good + good, "p.yaml: preset 2, \"ppo/CartPole-v1/x\": there is another one of this name"},
		"a path":     {strings.Replace(good, "/x", "/..", 1), "name: want ALGORITHM/ENVIRONMENT/SOURCE"},
		"all": {"- {}",
			"name: want ALGORITHM/ENVIRONMENT/SOURCE, each of letters, digits, - and _\nsettings: want where they are from\nthreshold: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := train.ReadPresets("p.yaml", strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	all, err := train.ReadPresets("p.yaml", strings.NewReader(good))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if _, err := train.PresetOf(all, "ppo/CartPole-v1/y"); err == nil || !strings.Contains(err.Error(), "did you mean ppo/CartPole-v1/x?") {
		t.Error(err)
	}
}
