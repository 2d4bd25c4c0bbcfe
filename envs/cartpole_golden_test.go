package envs

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
)

type trajectory struct {
	Policy     string                `json:"policy"`
	Seed       uint64                `json:"seed"`
	Actions    string                `json:"actions"`
	Terminated bool                  `json:"terminated"`
	States     map[string][4]float64 `json:"states"`
}

func trajectories(t *testing.T) []trajectory {
	t.Helper()
	text, err := os.ReadFile("testdata/cartpole.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []trajectory
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// The tolerance covers the difference between Go's and C's sine, a unit in the
// last place of float64, over ten steps. Over hundreds of steps the unstable
// system makes it arbitrarily large: the test takes the file's state over
// wherever it has one.
const tolerance = 1e-13

func TestCartPoleFollowsThePublishedEquations(t *testing.T) {
	for _, row := range trajectories(t) {
		t.Run(fmt.Sprintf("%s/%d", row.Policy, row.Seed), func(t *testing.T) {
			env := NewCartPole(CartPoleConfig{})
			inner := env.(*timeLimit[int]).Env.(*cartPole)
			obs, _, err := env.Reset(row.Seed)
			if err != nil {
				t.Fatal(err)
			}
			if inner.state != row.States["0"] || obs[0] != float32(inner.state[0]) {
				t.Errorf("initial state %v (%v), numpy has %v", inner.state, obs, row.States["0"])
			}
			for i, a := range row.Actions {
				s, err := env.Step(int(a - '0'))
				if err != nil {
					t.Fatalf("step %d: %v", i+1, err)
				}
				if s.Reward != 1 {
					t.Errorf("step %d: reward %v, want 1", i+1, s.Reward)
				}
				last := i == len(row.Actions)-1
				if s.Terminated != (last && row.Terminated) || s.Truncated != (i+1 == CartPoleSteps) {
					t.Fatalf("step %d of %d: terminated %v, truncated %v", i+1, len(row.Actions), s.Terminated, s.Truncated)
				}
				want, ok := row.States[strconv.Itoa(i+1)]
				if !ok {
					continue // the file has every tenth state
				}
				for j, v := range want {
					if math.Abs(inner.state[j]-v) > tolerance*max(1, math.Abs(v)) || s.Obs[j] != float32(inner.state[j]) {
						t.Fatalf("step %d: state[%d] = %v (observed %v), want %v", i+1, j, inner.state[j], s.Obs[j], v)
					}
				}
				inner.state = want
			}
		})
	}
}
