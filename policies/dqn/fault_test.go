package dqn

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

func TestTargetNetworkBeginsAsTheOnlineOne(t *testing.T) {
	q := New(full)
	if !slices.Equal(q.Online.Weights(), q.Target.Weights()) {
		t.Error("the networks differ before the first update")
	}
	q.Online.Weights()[0]++
	if q.Online.Weights()[0] == q.Target.Weights()[0] {
		t.Error("the networks share their weights")
	}
}

// TestP7FirstGradientThatIsNotFiniteIsNamed, and no one before it: a large activation has
// a large gradient of the next weight only.
func TestP7FirstGradientThatIsNotFiniteIsNamed(t *testing.T) {
	q := New(Config{Obs: box(1), Action: two, Hidden: []int{1}, Loss: MSE})
	clear(q.Online.Weights())
	q.Online.Params()[0].Value[0] = 1e38
	q.Online.Params()[2].Value[0] = 1e-38
	_, err := q.Learn(one([2]float32{1, 1e10}))
	where, ok := errors.AsType[*nn.NonFiniteError](err)
	if !ok || where.Tensor != "dense2.weight.grad" || where.Index != 0 || !math.IsInf(float64(where.Value), -1) {
		t.Errorf("%v", err)
	}
}

// TestRestoreNamesThePartThatIsMissing, and what of it.
func TestRestoreNamesThePartThatIsMissing(t *testing.T) {
	for _, part := range []string{"dqn", "dqn.target", "dqn.adam"} {
		var a nn.Archive
		if err := New(full).Save(&a); err != nil {
			t.Fatal(err)
		}
		delete(a.Meta, part+"/version")
		if err := New(full).Restore(&a); err == nil || err.Error() != "restore "+part+": archive: "+part+"/version is missing" {
			t.Errorf("without %s: %v", part, err)
		}
	}
}

// TestWeightsThatDoNotFitChangeNothing, the count of updates included.
func TestWeightsThatDoNotFitChangeNothing(t *testing.T) {
	q := New(full)
	before := slices.Clone(q.Online.Weights())
	s := New(Config{Obs: box(3), Action: two}).Weights()
	s.Version = 9
	if err := q.Load(s); err == nil || q.Version() != 0 || !slices.Equal(q.Online.Weights(), before) {
		t.Errorf("version %d, %v", q.Version(), err)
	}
}

// TestBatchesOfAllSizes: a smaller batch after a larger one learns as if there had been none.
func TestBatchesOfAllSizes(t *testing.T) {
	used, fresh := New(full), New(full)
	if _, err := used.Learn(batch(rand.New(rand.NewPCG(1, 1)), 64, 4)); err != nil {
		t.Fatal(err)
	}
	var a nn.Archive
	if err := errors.Join(used.Save(&a), fresh.Restore(&a)); err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{5, 6, 64, 65, 1} {
		b := batch(rand.New(rand.NewPCG(2, uint64(i))), n, 4)
		got, err1 := used.Learn(b)
		want, err2 := fresh.Learn(b)
		if err := errors.Join(err1, err2); err != nil || !slices.Equal(got, want) || !slices.Equal(used.Online.Weights(),
			fresh.Online.Weights()) {
			t.Errorf("%d transitions: %+v, want %+v: %v", n, got, want, err)
		}
	}
}

func TestActionsOutOfRangeAreRefused(t *testing.T) {
	for _, action := range []float32{-1, -0.5, 2, 1.5, 1e30, float32(math.NaN()), float32(math.Inf(1))} {
		var b policies.Batch
		b.Init(policies.TransitionColumns(1, 1)...)
		b.Append(policies.Transition{Obs: []float32{1}, NextObs: []float32{1}, Action: []float32{action}, Steps: 1})
		q := tiny(Config{}, [2]float32{}, [2]float32{})
		if _, err := q.Learn(&b); err == nil || q.Version() != 0 {
			t.Errorf("action %v passes", action)
		}
	}
}
