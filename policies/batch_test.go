package policies_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/google/go-cmp/cmp"
)

// wide returns a transition of two observed values and three action values.
func wide(i int) policies.Transition {
	v := float32(10 * i)
	return policies.Transition{
		Obs: []float32{v, v + 1}, NextObs: []float32{v + 2, v + 3}, Action: []float32{v + 4, v + 5, v + 6},
		Reward: v + 7, Terminated: i%2 == 0, Truncated: i%3 == 0, Steps: i + 1, Version: uint64(i) << 40,
	}
}

// wideBatch has transitions first to last.
func wideBatch(first, last int) *policies.Batch {
	var b policies.Batch
	b.Init(policies.TransitionColumns(2, 3)...)
	for i := first; i <= last; i++ {
		b.Append(wide(i))
	}
	return &b
}

// rows fails the test unless b has transitions want, whole.
func rows(t *testing.T, name string, b *policies.Batch, want ...int) {
	t.Helper()
	if b.Len() != len(want) {
		t.Fatalf("%s: %d transitions, want %d", name, b.Len(), len(want))
	}
	if err := b.Check(policies.TransitionColumns(2, 3)...); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for i, k := range want {
		if diff := cmp.Diff(wide(k), b.At(i)); diff != "" {
			t.Errorf("%s: transition %d (-want +got):\n%s", name, i, diff)
		}
	}
}

func TestBatchesKeepWholeTransitions(t *testing.T) {
	b := wideBatch(0, 2)
	rows(t, "appended", b, 0, 1, 2)
	b.AppendBatch(wideBatch(5, 6))
	rows(t, "batch appended", b, 0, 1, 2, 5, 6)
	b.CopyRows(1, wideBatch(7, 9), 2)
	rows(t, "row copied", b, 0, 9, 2, 5, 6)
	b.Resize(2)
	rows(t, "resized", b, 0, 9)
	b.Init(policies.TransitionColumns(2, 3)...)
	rows(t, "emptied", b)
}

// refused fails the test unless f panics.
func refused(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s is accepted", name)
		}
	}()
	f()
}

func TestBatchRefusesTransitionsOfOtherDimensions(t *testing.T) {
	for name, change := range map[string]func(tr *policies.Transition){
		"another observation":      func(tr *policies.Transition) { tr.Obs = tr.Obs[:1] },
		"another next observation": func(tr *policies.Transition) { tr.NextObs = tr.NextObs[:1] },
		"another action":           func(tr *policies.Transition) { tr.Action = tr.Action[:2] },
		"no step":                  func(tr *policies.Transition) { tr.Steps = 0 },
		"256 steps":                func(tr *policies.Transition) { tr.Steps = 256 },
	} {
		tr, b := wide(1), wideBatch(0, 0)
		change(&tr)
		refused(t, name, func() { b.Append(tr) })
		rows(t, name, b, 0)
	}
	tr, b := wide(1), wideBatch(0, 0)
	tr.Steps = 255
	b.Append(tr)
	if b.Len() != 2 || b.Bytes(policies.Steps)[1] != 255 {
		t.Error("255 steps are refused")
	}
	for _, dims := range [][2]int{{1, 3}, {2, 2}} {
		var other policies.Batch
		other.Init(policies.TransitionColumns(dims[0], dims[1])...)
		refused(t, fmt.Sprint("a batch of ", dims), func() { wideBatch(0, 0).AppendBatch(&other) })
	}
}

func TestNStepTakesOneTo255Steps(t *testing.T) {
	for _, n := range []int{-1, 0, 256} {
		refused(t, fmt.Sprint(n, " steps"), func() { policies.NewNStep(n, 1, 1) })
	}
	for _, n := range []int{1, 255} {
		if policies.NewNStep(n, 1, 1) == nil {
			t.Errorf("%d steps are refused", n)
		}
	}
}

// A joiner takes over pending transitions only if they fit it: fewer than its n steps, of as many environments.
func TestPendingTransitionsAreOfTheSameJoiner(t *testing.T) {
	from := policies.NewNStep(4, 1, 2)
	dst := wideBatch(0, -1)
	for i := range 2 {
		tr := wide(1)
		tr.Terminated, tr.Truncated, tr.Steps = false, false, 1
		tr.Reward = float32(i)
		from.Add(dst, 1, tr)
	}
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n, envs int
		fails   bool
	}{{4, 2, false}, {3, 2, false}, {2, 2, true}, {4, 1, true}, {4, 3, true}} {
		to := policies.NewNStep(c.n, 1, c.envs)
		if err := json.Unmarshal(text, to); (err != nil) != c.fails {
			t.Errorf("%d steps, %d environments: %v", c.n, c.envs, err)
		}
	}
	if err := json.Unmarshal([]byte(`[{"N":1,"Columns":[{"Name":"reward","Kind":1,"Floats":[]}]},{}]`),
		policies.NewNStep(4, 1, 2)); err == nil {
		t.Error("arrays of other lengths are accepted")
	}
	if err := json.Unmarshal([]byte(`{}`), policies.NewNStep(4, 1, 2)); err == nil {
		t.Error("an object is accepted")
	}
}
