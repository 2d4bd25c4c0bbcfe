package envs

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// values are recorded numbers, one or several, nested or not.
type values []float32

func (v *values) UnmarshalJSON(text []byte) error {
	var raw any
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*v = flatten(nil, raw)
	return nil
}

func flatten(dst []float32, raw any) []float32 {
	switch x := raw.(type) {
	case []any:
		for _, y := range x {
			dst = flatten(dst, y)
		}
	case float64:
		dst = append(dst, float32(x))
	case bool:
		dst = append(dst, float32(flags(x)))
	}
	return dst
}

// golden reads a recorded file of testdata.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// far returns how far got is from want, or +Inf for another length.
func far(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	d := 0.0
	for i := range got {
		d = max(d, math.Abs(float64(got[i])-float64(want[i])))
	}
	return d
}

// A run is a recorded trajectory.
type run struct {
	Env        string             `json:"env"`
	Seed       uint64             `json:"seed"`
	Options    map[string]float64 `json:"options"`
	Map        []string           `json:"map"`
	Reset      values             `json:"reset"`
	Actions    []values           `json:"actions"`
	Obs        []values           `json:"obs"`
	Rewards    []float64          `json:"rewards"`
	Terminated []int              `json:"terminated"`
	Truncated  []int              `json:"truncated"`
	Resets     [][2]any           `json:"resets"`
}

// recorded returns a cell of each recorded environment.
func recorded(r run) cell {
	o := r.Options
	yes := func(name string) bool { return o[name] != 0 }
	switch r.Env {
	case "CartPole-v1":
		return newCell(NewCartPole(CartPoleConfig{SuttonBarto: yes("sutton_barto_reward")}))
	case "Acrobot-v1":
		return newCell(NewAcrobot(AcrobotConfig{NIPS: yes("nips"), TorqueNoise: o["torque_noise_max"]}))
	case "MountainCar-v0":
		return newCell(NewMountainCar(MountainCarConfig{GoalVelocity: o["goal_velocity"]}))
	case "MountainCarContinuous-v0":
		return newCell(NewMountainCarContinuous(MountainCarConfig{GoalVelocity: o["goal_velocity"]}))
	case "Pendulum-v1":
		return newCell(NewPendulum(PendulumConfig{Gravity: o["g"]}))
	case "FrozenLake-v1", "FrozenLake8x8-v1":
		return newCell(NewFrozenLake(FrozenLakeConfig{Map: r.Map, Sure: yes("sure"), SuccessRate: o["success_rate"],
			Goal: o["goal"], Hole: o["hole"], Ice: o["ice"]}))
	case "CliffWalking-v1", "CliffWalkingSlippery-v1":
		return newCell(NewCliffWalking(CliffWalkingConfig{Slippery: r.Env != "CliffWalking-v1"}))
	case "Taxi-v4":
		return newCell(NewTaxi(TaxiConfig{}))
	case "Blackjack-v1":
		return newCell(NewBlackjack(BlackjackConfig{Rules: BlackjackRules(o["rules"])}))
	}
	return nil
}

// follow takes every step of a run and compares it.
func (r run) follow(t *testing.T, tolerance float64) {
	c := recorded(r)
	obsSpace, actionSpace := c.spaces()
	resets := map[int]values{}
	for _, x := range r.Resets {
		resets[int(x[0].(float64))] = flatten(nil, x[1])
	}
	ends := [2]map[int]bool{{}, {}}
	for k, list := range [][]int{r.Terminated, r.Truncated} {
		for _, i := range list {
			ends[k][i] = true
		}
	}
	if c.name() != r.Env {
		t.Errorf("the name is %s", c.name())
	}
	obs, _, err := c.reset(r.Seed)
	if err != nil || far(obs, r.Reset) > tolerance || !obsSpace.Contains(obs) {
		t.Fatalf("reset gives %v, want %v: %v", obs, r.Reset, err)
	}
	for i, a := range r.Actions {
		if !c.clips() && !actionSpace.Contains(a) {
			t.Fatalf("step %d: action %v is not in %v", i, a, actionSpace)
		}
		s, err := c.step(a)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if d := far(s.Obs, r.Obs[i]); d > tolerance || !obsSpace.Contains(s.Obs) {
			t.Fatalf("step %d, action %v: observation %v, want %v (%g apart)", i, a, s.Obs, r.Obs[i], d)
		}
		if math.Abs(s.Reward-r.Rewards[i]) > tolerance || s.Terminated != ends[0][i] || s.Truncated != ends[1][i] {
			t.Fatalf("step %d: reward %v, terminated %v, truncated %v; want %v, %v, %v", i,
				s.Reward, s.Terminated, s.Truncated, r.Rewards[i], ends[0][i], ends[1][i])
		}
		if !s.Terminated && !s.Truncated {
			continue
		}
		if obs, _, err := c.reset(); err != nil || far(obs, resets[i]) > tolerance {
			t.Fatalf("reset after step %d gives %v, want %v: %v", i, obs, resets[i], err)
		}
	}
}

func TestEnvironmentsEqualGymnasium(t *testing.T) {
	var file struct{ Runs []run }
	golden(t, "gymnasium-single", &file)
	if len(file.Runs) != 18 {
		t.Fatalf("%d runs", len(file.Runs))
	}
	for _, r := range file.Runs {
		t.Run(fmt.Sprintf("%s/%d", r.Env, r.Seed), func(t *testing.T) {
			if len(r.Obs) != 600 || len(r.Actions) != 600 || len(r.Rewards) != 600 {
				t.Fatalf("%d steps", len(r.Obs))
			}
			tolerance := 1e-6
			if _, ok := recorded(r).(*intCell); ok && len(r.Reset) != 4 && len(r.Reset) != 6 && len(r.Reset) != 2 {
				tolerance = 0
			}
			r.follow(t, tolerance)
		})
	}
}

// Acrobot swings, and doubles a difference in the last place of a sine every
// few steps: over the longest of these episodes it stays below 1e-6.
func TestEnvironmentsEqualAnIndependentStatement(t *testing.T) {
	var file struct {
		Runs  []run
		Lakes []struct {
			Size   int
			Frozen float64
			Seed   uint64
			Map    []string
		}
	}
	golden(t, "options", &file)
	if len(file.Runs) != 40 || len(file.Lakes) != 6 {
		t.Fatalf("%d runs, %d lakes", len(file.Runs), len(file.Lakes))
	}
	for _, r := range file.Runs {
		t.Run(fmt.Sprintf("%s/%v/%d", r.Env, r.Options, r.Seed), func(t *testing.T) { r.follow(t, 1e-6) })
	}
	for _, l := range file.Lakes {
		if got := RandomLake(l.Size, l.Frozen, l.Seed); !slices.Equal(got, l.Map) {
			t.Errorf("lake of seed %d: %q, want %q", l.Seed, got, l.Map)
		}
	}
}
