package rl

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// TestLearnerKeepsTheBest: an evaluator that was restarted, or that evaluates for a
// resumed learner, sends the best of its first evaluations.
func TestLearnerKeepsTheBest(t *testing.T) {
	x := &paced{learns: true}
	c := new(Online)
	for i, b := range []struct {
		mean    float64
		reached bool
		want    float64
	}{{5, false, 5}, {3, false, 5}, {7, false, 7}, {6, true, 6}, {9, false, 6}, {8, true, 8}} {
		if err := x.hearBest(t.Context(), Best{Evaluation: Evaluation{Mean: b.mean}, Reached: b.reached}); err != nil {
			t.Fatal(err)
		}
		x.hear(c)
		if c.Best == nil || c.Best.Mean != b.want {
			t.Errorf("after message %d the best is %+v, want %v", i, c.Best, b.want)
		}
	}
	kept := c.Best
	if x.hear(c); c.Best != kept {
		t.Error("a best was taken over twice")
	}
}

// TestLeaderTakesOnlyItsTurn: a trajectory that a node sent to an earlier learner, or in an earlier
// turn before it was restarted, is not taken.
func TestLeaderTakesOnlyItsTurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := runOf(task.New[Online](task.Alone()))
	x := &leader{r: r, run: 5, turn: 3, peers: 2, inbox: inbox{ch: make(chan arrival, 8)}, asked: map[int]bool{}}
	of := func(run, seq uint64, envSteps int, state string) Trajectory {
		return Trajectory{Run: run, Seq: seq, Collects: 1, EnvSteps: envSteps, State: state, Batch: transitions()}
	}
	for _, a := range []arrival{
		{2, of(4, 4, 1000, "old run")}, {2, of(5, 3, 1000, "old turn")}, {2, of(5, 5, 1000, "no turn")},
		{2, of(5, 4, 1, "first")}, {2, of(5, 4, 10, "second")}, {2, of(4, 4, 1000, "old run")}, {2, of(5, 3, 1000, "old turn")}, {1,
			of(5, 4, 100, "one")},
	} {
		x.inbox.ch <- a
	}
	c := new(Online)
	if err := x.gather(ctx, c); err != nil {
		t.Fatal(err)
	}
	if c.EnvSteps != 110 || c.Collected.Collects != 2 || len(r.others) != 2 || r.others[1] != "one" || r.others[2] != "second" || !r.torn {
		t.Errorf("%d env steps, %+v, states %v", c.EnvSteps, c.Collected, r.others)
	}
}

// TestLeaderWaitsForANodeThatAsks: a node that was restarted after it had sent its trajectory
// takes the turn again. If the leader continued without it, the node might never see the
// turn that has its state.
func TestLeaderWaitsForANodeThatAsks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tk := task.New[Online](task.Alone())
	if err := tk.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tk.Close(ctx) }()
	r := runOf(tk)
	r.others[2] = "before"
	x := &leader{r: r, t: tk, run: 5, turn: 3, peers: 2, inbox: inbox{ch: make(chan arrival, 8)}, asked: map[int]bool{}}
	c := new(Online)
	x.inbox.ch <- arrival{2, Trajectory{Run: 5, Seq: 4, Collects: 1, Batch: transitions(), State: "crashed"}}
	x.inbox.ch <- arrival{2, Trajectory{Run: 5, Asks: true}}
	x.inbox.ch <- arrival{1, Trajectory{Run: 5, Seq: 4, Collects: 1, Batch: transitions(), State: "one"}}
	x.inbox.ch <- arrival{2, Trajectory{Run: 5, Seq: 4, Collects: 1, Batch: transitions(), State: "again"}}
	if err := x.gather(ctx, c); err != nil {
		t.Fatal(err)
	}
	if r.others[2] != "again" || len(x.inbox.ch) > 0 {
		t.Errorf("states %v; %d not taken", r.others, len(x.inbox.ch))
	}
}

// model is a policy without weights.
type model struct{ policies.Policy }

func (model) Version() uint64     { return 0 }
func (model) Weights() nn.State   { return nn.State{} }
func (model) Load(nn.State) error { return nil }
func (model) Spec() policies.Spec {
	return policies.Spec{Obs: envs.NewBox(-1, 1, 1), Action: envs.Discrete{N: 2}, Learns: policies.TransitionColumns(1, 1)}
}

// runOf is the run of a policy without weights.
func runOf(tk *task.Task[Online]) *Run { return New(tk, model{}, Config{}) }

// transitions is the message of a collector with one row.
func transitions() (b policies.Batch) {
	b.Init(policies.TransitionColumns(1, 1)...)
	b.Append(policies.Transition{Obs: []float32{0}, Action: []float32{1}, NextObs: []float32{0}, Steps: 1})
	return b
}

// TestTheBestGoesBackWithTheLearner: the evaluator has the best of the checkpoint again, and sends the
// better ones that it finds from then on.
func TestTheBestGoesBackWithTheLearner(t *testing.T) {
	best := new(Best)
	r := runOf(task.New[Online](task.Alone()))
	x := &leader{r: r, asked: map[int]bool{}}
	c := &Online{Best: best}
	for number, want := range []*Best{best, nil} { // in later turns only with states
		x.turn = uint64(number)
		if turn, err := x.now(c); err != nil || turn.Best != want {
			t.Errorf("turn %d has %v, want %v: %v", number, turn.Best, want, err)
		}
	}
	x.asked[0] = true
	r.others[0] = "{}"
	turn, err := x.now(c)
	if err != nil || turn.Best != best || len(turn.States) != 1 || turn.States[0] != "{}" {
		t.Fatalf("%+v, %v", turn, err)
	}
	turn.Run, turn.EnvSteps = 3, 40
	f := &follower{r: r, t: r.t}
	e := &Online{Best: new(Best), EnvSteps: 90}
	f.best = e.Best
	if err := f.enter(e, &turn); err != nil || e.Best != best || f.best != best || e.EnvSteps != 40 || f.run != 3 {
		t.Errorf("%+v, %v", e, err)
	}
}

// recorder is a part that records the state with which it was begun.
type recorder struct{ begun []string }

func (r *recorder) fresh(*Online) error      { r.begun = append(r.begun, "fresh"); return nil }
func (r *recorder) state() (any, error)      { return len(r.begun), nil }
func (r *recorder) resume(text []byte) error { r.begun = append(r.begun, string(text)); return nil }

// TestPartsGoBack to the newest states, and to the beginning without any.
func TestPartsGoBack(t *testing.T) {
	r, c := runOf(task.New[Online](task.Alone())), new(Online)
	r.began = true
	first, second := new(recorder), new(recorder)
	err := errors.Join(r.join(c, "part", first), r.join(c, "part", second), r.goBack(c, `{"part":"1","part.2":"2"}`),
		r.goBack(c, `{"part":"3"}`), r.goBack(c, ""))
	if err != nil || !slices.Equal(first.begun, []string{"fresh", "1", "3", "fresh"}) || !slices.Equal(second.begun,
		[]string{"fresh", "2", "fresh", "fresh"}) {
		t.Errorf("%v, %v: %v", first.begun, second.begun, err)
	}
	if states, err := r.states(); err != nil || states != `{"part":"4","part.2":"4"}` {
		t.Errorf("states %s, %v", states, err)
	}
}

// TestStateOfALog restores what a log has to remember, also of numbers that JSON does not have, and refuses a state that no
// log can have.
func TestStateOfALog(t *testing.T) {
	fresh := func(names ...string) *logger {
		return &logger{r: &Run{first: 100}, columns: append(slices.Clone(columns), "rollout/success_rate"), row: map[string]float64{},
			infos: infoLog{names: names, had: make([]bool, len(names))}}
	}
	l := fresh("is_success", "score")
	l.last, l.eval, l.files.rows = 90, Evaluation{EnvSteps: 80, Episodes: 3, Mean: 1.0 / 3}, 7
	l.episodes = []envs.Episode{{Return: 0.1, Length: 5}, {Return: -2, Length: 9}}
	l.infos.add([]float64{1, math.NaN(), 0, 2.5}, window)
	l.set([]policies.Metric{{Name: "train/loss", Value: math.Inf(1)}, {Name: "train/own", Value: 0.1}})
	l.row["time/fps"], l.row["time/episodes"], l.row["rollout/success_rate"] = 12, 2, 0.5
	l.trained.add(3, []policies.Metric{{Name: "train/loss", Value: math.NaN()}}, Lag{Mean: 1.5, Max: 4})
	text, err := l.state(&Online{EnvSteps: 100})
	if err != nil {
		t.Fatal(err)
	}
	same := fresh("is_success", "score")
	if err := same.restore(text); err != nil {
		t.Fatal(err)
	}
	if again, err := same.state(&Online{EnvSteps: 100}); err != nil || again != text || strings.Contains(text, `"time/fps","value"`) {
		t.Errorf("%v: %s\nwant %s, without columns of time", err, again, text)
	}
	newer := fresh("is_success", "score")
	newer.r.first, newer.last = 120, 120 // the state of another learner
	if err := newer.restore(text); err != nil || newer.last != 120 || newer.episodes != nil {
		t.Errorf("%v: %+v has the state of an earlier checkpoint", err, newer)
	}
	other := fresh("score")
	if err := other.restore(text); err != nil || len(other.infos.values) != 0 || other.infos.episodes != 0 || len(other.episodes) != 2 ||
		other.row["rollout/success_rate"] != 0 || other.row["train/own"] != 0.1 {
		t.Errorf("%v: %+v has infos of other names", err, other)
	}
	for name, damaged := range map[string]string{
		"no JSON":                 text[1:],
		"a row after the state":   `{"at": 100, "last": 101}`,
		"a negative row":          `{"at": 100, "last": -1}`,
		"too many episodes":       `{"episodes": [` + strings.Repeat("{},", window) + `{}]}`,
		"half an episode's infos": `{"infos": {"names": ["is_success", "score"], "had": [true, true], "values": [1]}}`,
		"infos without names":     `{"infos": {"values": [1]}}`,
		"a text for a number":     `{"row": [{"name": "train/loss", "value": "high"}]}`,
	} {
		if err := fresh("is_success", "score").restore(damaged); err == nil || !strings.Contains(err.Error(), "resume the log: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFinalStateOfALearnerIsKept: a learner that has finished sends its state once, which may be taken for the checkpoint of a step
// before the first learner makes the last one.
func TestFinalStateOfALearnerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &group{
			t: task.New[Online](task.Alone()), size: 2, ids: []int{0, 1}, last: map[int]Share{}, changed: make(chan struct{}, 1),
			heard: map[int]Join{1: {Run: 5}},
		}
		g.key = g.keyNow()
		g.queues = map[int][]Share{1: {
			{Group: g.key, Kind: ShareSaved, Own: []byte("earlier")}, {Group: g.key, Kind: ShareSaved, Own: []byte("last"), Finished: true},
		}}
		for _, want := range []string{"earlier", "last", "last"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := g.stateOf(ctx, 1)
			cancel()
			if err != nil || string(s.Own) != want {
				t.Errorf("%q, %v; want %q", s.Own, err, want)
			}
		}
	})
}
