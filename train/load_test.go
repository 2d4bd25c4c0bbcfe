package train_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/train"
)

func TestFileOfWeights(t *testing.T) {
	for w, want := range map[train.Weights]string{
		train.Best: filepath.Join("run", rl.BestFile), train.Last: filepath.Join("run", rl.CheckpointFile), "17": filepath.Join("run",
			"checkpoint-000000017.safetensors"),
	} {
		if got, err := w.File("run"); err != nil || got != want {
			t.Errorf("%s: %s, %v", w, got, err)
		}
	}
	for _, w := range []train.Weights{"", "worst", "-1", "1.5", "../17"} {
		if got, err := w.File("run"); err == nil || !strings.Contains(err.Error(), "want best, last, or the updates") {
			t.Errorf("%q: %s, %v", w, got, err)
		}
	}
}

// TestLoadWithoutWeights names what is missing in a folder with a config alone.
func TestLoadWithoutWeights(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, train.ConfigFile), []byte("algo: ppo\nenv: CartPole-v1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for w, want := range map[train.Weights]string{
		train.Best: "it has no best weights yet", train.Last: "it has no last weights yet",
		"17": "no checkpoint after 17 updates", "x": "want best, last",
	} {
		if _, err := train.Load(t.Context(), train.Algorithms(), dir, w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", w, err, want)
		}
	}
}
