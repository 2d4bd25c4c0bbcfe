package gym

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
)

// TestNumpy steps environments with arrays, where numpy is installed: make gymnasium.
func TestNumpy(t *testing.T) {
	if !*withGymnasium {
		return
	}
	python := pythonForTests(t)
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("numpy is not installed for %s: %s -m pip install numpy: %v\n%s", python, python, err, out)
	}
	for kind, want := range map[string][]float32{
		"box": {2, 3, 4, 5, 6, 7}, "same": {2, 3, 4, 5, 6, 7}, "gaps": {2, 3, 4, 5, 6, 7}, "dict": {0, 0, 1, 0.5, -1},
		"image": slices.Repeat([]float32{2}, 12),
	} {
		v := open(t, "testdata/arrays.py:make_env", Config{Num: 2, Processes: 1, Autoreset: envs.SameStep, Kwargs: map[string]any{"kind": kind}})
		if _, numpy := v.Versions(); numpy == "" {
			t.Errorf("%s: no numpy", kind)
		}
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= 6; step++ {
			r, err := v.Step([]float32{0.5, -1, 0.5, -1})
			if err != nil {
				t.Fatal(err)
			}
			if d := len(want); step == 2 && !slices.Equal(r.Obs[d:], want) {
				t.Errorf("%s: %v, not %v", kind, r.Obs[d:], want)
			}
			if r.Truncated[1] != (step == 5) || r.Terminated[1] || r.Rewards[1] != 0.5 {
				t.Errorf("%s, step %d: %+v", kind, step, r)
			}
		}
	}
	v := open(t, "testdata/arrays.py:make_env", Config{Kwargs: map[string]any{"kind": "wrong"}})
	err := play(v, 3)
	if !errors.Is(err, envs.ErrShape) ||
		!strings.Contains(err.Error(), "the observation has shape (2, 3, 2), its space says shape (2, 2, 3)") {
		t.Errorf("an image of another shape: %v", err)
	}
	b := open(t, "testdata/arrays.py:make_env", Config{Kwargs: map[string]any{"kind": "image"}}).ObservationSpace()
	if box, ok := b.(envs.Box); !ok || !box.Pixels || !slices.Equal(box.Shape, []int{2, 2, 3}) {
		t.Errorf("the space of images: %v", b)
	}
}
