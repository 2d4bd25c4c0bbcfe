package her

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// line is a goal on a line: an observation is a label of the episode, the place, and the place to reach.
type line struct{}

func (line) GoalParts() envs.GoalParts {
	return envs.GoalParts{Observation: envs.Part{From: 0, To: 1}, Achieved: envs.Part{From: 1, To: 2}, Desired: envs.Part{From: 2, To: 3}}
}

func (line) GoalReward(achieved, desired []float32) (reward float64, terminated bool) {
	if achieved[0] == desired[0] {
		return 10, true
	}
	return -1, false
}

// steps returns the transitions from..to of an episode which goes from place 0 upwards and has the goal 99. With
// cut, the last one is truncated.
func steps(b *policies.Batch, label, from, to int, cut bool) *policies.Batch {
	if b == nil {
		b = new(policies.Batch)
		b.Init(policies.TransitionColumns(3, 1)...)
	}
	for i := from; i < to; i++ {
		at := func(place int) []float32 { return []float32{float32(label), float32(place), 99} }
		b.Append(policies.Transition{
			Obs: at(i), NextObs: at(i + 1), Action: []float32{float32(i)}, Reward: -1, Truncated: cut && i == to-1, Steps: 1, Version: uint64(i),
		})
	}
	return b
}

// source is one whose whole buffer can be read.
func source(cfg Config) (*Replay, *data.Uniform) {
	buf := data.NewUniform(data.UniformConfig{Capacity: 1000})
	cfg.Goal = line{}
	return New(data.NewReplay(buf, data.ReplayConfig{Batch: 1, StartAt: 1}), cfg), buf
}

// content returns the content of a buffer, row by row: label, place before and after, goal, reward, and T or t for an end.
func content(t *testing.T, buf *data.Uniform) (out []string) {
	t.Helper()
	var a nn.Archive
	if err := buf.Save(&a); err != nil {
		t.Fatal(err)
	}
	b, err := data.RowsOf(&a, "replay")
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.N {
		x := b.At(i)
		end := ""
		if x.Terminated {
			end += "T"
		}
		if x.Truncated {
			end += "t"
		}
		if x.Obs[2] != x.NextObs[2] || x.Obs[0] != x.NextObs[0] {
			t.Errorf("row %d goes from %v to %v", i, x.Obs, x.NextObs)
		}
		out = append(out, fmt.Sprintf("%v:%v>%v|%v=%v%s", x.Obs[0], x.Obs[1], x.NextObs[1], x.Obs[2], x.Reward, end))
	}
	return out
}

func TestFinalIsTheEndOfTheEpisode(t *testing.T) {
	r, buf := source(Config{Strategy: Final})
	if err := r.Add(steps(nil, 7, 0, 2, false)); err != nil {
		t.Fatal(err)
	}
	if got := content(t, buf); !slices.Equal(got, []string{"7:0>1|99=-1", "7:1>2|99=-1"}) {
		t.Errorf("before the end: %v", got)
	}
	if err := r.Add(steps(nil, 7, 2, 3, true)); err != nil {
		t.Fatal(err)
	}
	want := []string{"7:0>1|99=-1", "7:1>2|99=-1", "7:2>3|99=-1t", "7:0>1|3=-1", "7:1>2|3=-1", "7:2>3|3=10T"}
	if got := content(t, buf); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestGoalsOfEachStrategy: each transition gets that many, each of them one that the strategy allows, and
// with enough draws all of these.
func TestGoalsOfEachStrategy(t *testing.T) {
	for _, s := range []Strategy{Future, Episode} {
		r, buf := source(Config{Strategy: s, Goals: 40})
		if err := r.Add(steps(nil, 1, 0, 4, true)); err != nil {
			t.Fatal(err)
		}
		got := content(t, buf)
		var want []string
		for place := range 4 {
			if n := len(got[4:]); n != 160 {
				t.Fatalf("%v: %d copies, want 40 for each of 4 transitions", s, n)
			}
			for goal := 1; goal <= 4; goal++ {
				switch { // place+1 is what the transition achieves
				case goal == place+1:
					want = append(want, fmt.Sprintf("1:%d>%d|%d=10T", place, place+1, goal))
				case goal > place+1 || s == Episode:
					cut := ""
					if place == 3 {
						cut = "t"
					}
					want = append(want, fmt.Sprintf("1:%d>%d|%d=-1%s", place, place+1, goal, cut))
				}
			}
		}
		slices.Sort(want)
		copies := slices.Sorted(slices.Values(got[4:]))
		if copies = slices.Compact(copies); !slices.Equal(copies, want) {
			t.Errorf("%v: %v\nwant %v", s, copies, want)
		}
	}
}

// TestEndOfACopyIsThatOfItsGoal: the transition that ended the episode does not end it for a goal before.
func TestEndOfACopyIsThatOfItsGoal(t *testing.T) {
	r, buf := source(Config{Strategy: Episode, Goals: 20})
	b := steps(nil, 1, 0, 2, false)
	b.Bytes(policies.Terminated)[1] = 1
	if err := r.Add(b); err != nil {
		t.Fatal(err)
	}
	copies := slices.Sorted(slices.Values(content(t, buf)[2:]))
	if want := []string{"1:0>1|1=10T", "1:0>1|2=-1", "1:1>2|1=-1", "1:1>2|2=10T"}; !slices.Equal(slices.Compact(copies), want) {
		t.Errorf("%v, want %v", slices.Compact(copies), want)
	}
}

// TestEpisodesAreFoundWhateverTheOrder: two of them step by step in turn, and one alone, which has ended
// when another one takes its slot.
func TestEpisodesAreFoundWhateverTheOrder(t *testing.T) {
	r, buf := source(Config{Strategy: Final})
	for _, b := range []*policies.Batch{
		steps(steps(nil, 1, 0, 1, false), 2, 0, 1, false),
		steps(steps(nil, 2, 1, 2, true), 1, 1, 2, false),
		steps(steps(nil, 3, 0, 2, true), 1, 2, 3, true),
		steps(nil, 4, 5, 5, false), // no row
	} {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	var copies []string
	for _, row := range content(t, buf) {
		if !strings.Contains(row, "|99") {
			copies = append(copies, row)
		}
	}
	want := []string{"2:0>1|2=-1", "2:1>2|2=10T", "3:0>1|2=-1", "3:1>2|2=10T", "1:0>1|3=-1", "1:1>2|3=-1", "1:2>3|3=10T"}
	if !slices.Equal(copies, want) || r.rows != 0 || len(r.open) != 2 {
		t.Errorf("%v, want %v; %d rows in %d slots", copies, want, r.rows, len(r.open))
	}
}

// TestMaxRowsEndsTheOldestEpisode, which nothing may ever end.
func TestMaxRowsEndsTheOldestEpisode(t *testing.T) {
	r, _ := source(Config{Strategy: Final, MaxRows: 3})
	for _, b := range []*policies.Batch{steps(steps(nil, 2, 0, 1, false), 1, 0, 1, false), steps(nil, 2, 1, 2, false)} {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	var a nn.Archive
	again, buf := source(Config{Strategy: Final, MaxRows: 3})
	if err := errors.Join(r.Save(&a), again.Restore(&a), again.Add(steps(nil, 3, 0, 1, false))); err != nil {
		t.Fatal(err)
	}
	want := []string{"2:0>1|99=-1", "1:0>1|99=-1", "2:1>2|99=-1", "3:0>1|99=-1", "1:0>1|1=10T"}
	if got := content(t, buf); !slices.Equal(got, want) || again.rows != 3 {
		t.Errorf("%v, want %v; %d rows", got, want, again.rows)
	}
}

// TestP4GoesOnToTheBit with unfinished episodes, and without any.
func TestP4GoesOnToTheBit(t *testing.T) {
	for _, first := range []int{0, 1, 2, 5} {
		straight, buf := source(Config{Goals: 3, Seed: 5})
		add := func(r *Replay, i int) {
			b := steps(steps(nil, 1, i%4, i%4+1, i%4 == 3), 2, i%3, i%3+1, i%3 == 2)
			if err := r.Add(b); err != nil {
				t.Fatal(err)
			}
			var sample policies.Batch
			for r.Next(&sample) {
				if err := r.Learned(&sample); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range first {
			add(straight, i)
		}
		var a nn.Archive
		again, buf2 := source(Config{Goals: 3, Seed: 6})
		add(again, 0) // Restore replaces these rows
		if err := errors.Join(straight.Save(&a), again.Restore(&a)); err != nil {
			t.Fatal(err)
		}
		for i := first; i < first+9; i++ {
			add(straight, i)
			add(again, i)
		}
		if want, got := content(t, buf), content(t, buf2); !slices.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", first, got, want)
		}
		var a1, a2 nn.Archive
		err := errors.Join(straight.Save(&a1), again.Save(&a2))
		text1, err1 := a1.AppendBinary(nil)
		text2, err2 := a2.AppendBinary(nil)
		if err := errors.Join(err, err1, err2); err != nil || !slices.Equal(text1, text2) {
			t.Errorf("after %d: the checkpoints differ: %v", first, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	r, _ := source(Config{})
	for _, c := range []struct {
		edit func(b *policies.Batch)
		want string
	}{
		{func(b *policies.Batch) { b.Bytes(policies.Steps)[1] = 3 }, "add to hindsight replay: transition 1 has 3 steps, want 1"},
		{func(b *policies.Batch) { b.Init(policies.TransitionColumns(2, 1)...) }, "of at least 3 values"},
		{func(b *policies.Batch) { b.Columns = b.Columns[:6] }, "want steps"},
		{func(b *policies.Batch) { b.Columns = slices.Delete(b.Columns, 2, 3) }, "want reward"},
		{func(b *policies.Batch) { b.Columns = b.Columns[1:] }, "want obs and next_obs"},
		{func(b *policies.Batch) { b.Columns[0].Floats = b.Columns[0].Floats[1:] }, "column"},
	} {
		b := steps(nil, 1, 0, 2, false)
		c.edit(b)
		if err := r.Add(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if err := r.Add(steps(nil, 1, 0, 2, false)); err != nil {
		t.Fatal(err)
	}
	wider := new(policies.Batch)
	wider.Init(policies.TransitionColumns(4, 1)...)
	wider.Append(policies.Transition{Obs: make([]float32, 4), NextObs: make([]float32, 4), Action: []float32{0}, Steps: 1})
	if err := r.Add(wider); err == nil || !strings.Contains(err.Error(), "obs float32 [4], want obs float32 [3]") {
		t.Error(err)
	}
	for _, text := range []string{"", "{}", `{"Rows":[1],"Last":[1]}`, `{"Rows":[3],"Last":[1]}`, `{"Rows":[-1,3],"Last":[1,1]}`,
		`{"Rows":[2],"Last":[1],"At":2}`} {
		var a nn.Archive
		if err := r.Save(&a); err != nil {
			t.Fatal(err)
		}
		a.SetText(stateKey, text)
		again, _ := source(Config{})
		if err := again.Restore(&a); err == nil || !strings.HasPrefix(err.Error(), "restore hindsight replay: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := errors.Join(Config{Strategy: 3, Goals: -1, MaxRows: -1}.Validate(), Config{Goal: unequal{}, Strategy: Final, Goals: 2}.Validate())
	for _, want := range []string{"Goal is nil", "Strategy is Strategy(3)", "Goals is -1", "MaxRows is -1", "want parts of one length",
		"Goals is 2, want 1 with Final"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// unequal is a goal whose parts have two lengths.
type unequal struct{ line }

func (unequal) GoalParts() envs.GoalParts {
	return envs.GoalParts{Achieved: envs.Part{From: 0, To: 1}, Desired: envs.Part{From: 1, To: 3}}
}

func TestAddAllocatesNothing(t *testing.T) {
	r, _ := source(Config{})
	b := steps(steps(nil, 1, 0, 9, true), 2, 0, 9, true)
	add := func() {
		if err := r.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	add()
	if n := testing.AllocsPerRun(50, add); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}
