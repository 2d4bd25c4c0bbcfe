package nearest_test

import (
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/nearest"
)

func TestHint(t *testing.T) {
	names := []string{"learning_rate", "gamma", "n_steps", "steps", "seed", "env", "envs", "ppo", "dqn", "--topology", "--ports"}
	for word, want := range map[string]string{
		"learning_rte":                 "learning_rate", // a letter is missing
		"Gamma":                        "gamma",         // another case
		"rate":                         "learning_rate", // a part
		"step":                         "steps",         // nearest of two that contain it
		"ennv":                         "env",           // one letter too many
		"pp":                           "ppo",           // short
		"p":                            "",              // too short to be near to anything
		"--topolgy":                    "--topology",
		"--port":                       "--ports",
		"--zzzzzz":                     "",
		"banana":                       "",
		"":                             "",
		strings.Repeat("gamma", 1<<20): "",
	} {
		if want != "" {
			want = " (did you mean " + want + "?)"
		}
		if got := nearest.Hint(word, names); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
	if got := nearest.Hint("gamma", nil); got != "" {
		t.Errorf("%q without names", got)
	}
}

func TestName(t *testing.T) {
	names := []string{"CartPole-v1", "Pendulum-v1"}
	for word, want := range map[string]string{"cartpole": "CartPole-v1", "Pendelum": "Pendulum-v1", "": "CartPole-v1"} {
		if got := nearest.Name(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := nearest.Name("x", nil); got != "" {
		t.Errorf("%q of no names", got)
	}
}
