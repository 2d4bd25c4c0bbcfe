package token

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ditask/ditask/parallel/slurm"
)

func TestStepsShareTheTokenOfOneKey(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	step := slurm.Step{JobID: 7, Tasks: 16}
	tokens := make([]string, step.Tasks)
	var tasks sync.WaitGroup
	for i := range tokens { // all make the key at once
		tasks.Go(func() {
			token, warning, err := OfStep(step)
			if err != nil || warning != "" {
				t.Errorf("%q, %v", warning, err)
			}
			tokens[i] = token
		})
	}
	tasks.Wait()
	for _, token := range tokens {
		if len(token) != 32 || token != tokens[0] {
			t.Fatalf("tokens %q", tokens)
		}
	}
	for _, other := range []slurm.Step{{JobID: 8}, {JobID: 7, StepID: 1}, {JobID: 7, Restarts: 1}} {
		if token, _, err := OfStep(other); err != nil || token == tokens[0] {
			t.Errorf("%s: the same token, %v", other.Job(), err)
		}
	}
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(config, "ditask"))
	if err != nil || len(entries) != 1 {
		t.Errorf("files left: %v, %v", entries, err)
	}
	// Another user has another key.
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if token, _, err := OfStep(step); err != nil || token == tokens[0] {
		t.Errorf("another user has the same token, %v", err)
	}
}

func TestTokenWithoutAHomeIsNotSecretAndIsLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file") // where no folder can be
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", file)
	t.Setenv("HOME", file)
	a, warning, err := OfStep(slurm.Step{JobID: 7, Tasks: 2})
	if err != nil || !strings.Contains(warning, "which is not secret: set DITASK_TOKEN to a random text before srun") {
		t.Errorf("%q, %v", warning, err)
	}
	if b, _, err := OfStep(slurm.Step{JobID: 7, Tasks: 2}); err != nil || a != b || a == "" {
		t.Errorf("%s and %s, %v", a, b, err)
	}
}

func TestKeyThatOthersCanReadIsRefused(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if _, err := slurmKey(); err != nil {
		t.Fatal(err)
	}
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(config, "ditask", "slurm.key")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := os.Chmod(path, fs.FileMode(0o640)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OfStep(slurm.Step{JobID: 7, Tasks: 2}); !errors.Is(err, errExposed) {
		t.Errorf("%v", err)
	}
}

func TestKeysHaveALength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slurm.key")
	for size, want := range map[int]bool{0: false, 31: false, 32: true} {
		if err := os.WriteFile(path, []byte(" "+strings.Repeat("x", size)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := readKey(path); (err == nil) != want || want && len(key) != size {
			t.Errorf("%d: %q, %v", size, key, err)
		}
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("SLURM_CLUSTER_NAME", "a")
	one, _, err := OfStep(slurm.Step{JobID: 7})
	t.Setenv("SLURM_CLUSTER_NAME", "b")
	other, _, err2 := OfStep(slurm.Step{JobID: 7})
	if one == other || err != nil || err2 != nil {
		t.Errorf("two clusters: %s, %s, %v, %v", one, other, err, err2)
	}
	if a, b := Random(4), Random(4); len(a) != 8 || a == b {
		t.Errorf("random: %s, %s", a, b)
	}
}
