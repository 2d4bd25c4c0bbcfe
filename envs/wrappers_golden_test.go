package envs

import (
	"fmt"
	"math"
	"testing"
)

// A wrappedRun is a recorded trajectory of a wrapped environment.
type wrappedRun struct {
	Wrapper string
	Seed    uint64
	Reset   values
	Steps   []struct {
		A           values
		Obs         values
		R           float64
		Term, Trunc bool
		Reset       values
		Episode     *struct{ R, L float64 }
	}
}

func wrappedCell(name string) cell {
	pendulum := NewPendulum(PendulumConfig{})
	switch name {
	case "NormalizeObservation(Pendulum-v1)":
		return newCell(NormalizeObservation(pendulum, NormalizeConfig{}))
	case "NormalizeReward(Pendulum-v1, gamma=0.99)":
		return newCell(NormalizeReward(pendulum, NormalizeConfig{Gamma: 0.99}))
	case "RescaleAction(Pendulum-v1, -1, 1)":
		return newCell(RescaleAction(pendulum, -1, 1))
	case "ClipAction(Pendulum-v1)":
		return newCell(ClipAction(pendulum))
	case "FrameStackObservation(CartPole-v1, 3)":
		return newCell(FrameStack(NewCartPole(CartPoleConfig{}), 3))
	case "RecordEpisodeStatistics(CartPole-v1)":
		return newCell(RecordEpisodeStatistics(NewCartPole(CartPoleConfig{})))
	case "TimeLimit(MountainCar-v0, 40)":
		return newCell(TimeLimit(NewMountainCar(MountainCarConfig{MaxSteps: -1}), 40))
	}
	return nil
}

func TestWrappersEqualGymnasium(t *testing.T) {
	var file struct{ Runs []wrappedRun }
	golden(t, "gymnasium-wrappers", &file)
	if len(file.Runs) != 14 {
		t.Fatalf("%d runs", len(file.Runs))
	}
	for _, r := range file.Runs {
		t.Run(fmt.Sprintf("%s/%d", r.Wrapper, r.Seed), func(t *testing.T) {
			c := wrappedCell(r.Wrapper)
			obs, _, err := c.reset(r.Seed)
			if d := far(obs, r.Reset); err != nil || d > 1e-6 {
				t.Fatalf("reset %v, want %v (%g): %v", obs, r.Reset, d, err)
			}
			if len(r.Steps) != 260 {
				t.Errorf("%d steps", len(r.Steps))
			}
			for i, w := range r.Steps {
				s, err := c.step(w.A)
				if err != nil {
					t.Fatal(err)
				}
				if d := far(s.Obs, w.Obs); d > 1e-6 || math.Abs(s.Reward-w.R) > 1e-6 || s.Terminated != w.Term || s.Truncated != w.Trunc {
					t.Fatalf("step %d: %+v, want %+v (%g)", i, s, w, d)
				}
				if e := s.Info.Episode; (e != nil) != (w.Episode != nil) || e != nil && *e != (Episode{w.Episode.R, int(w.Episode.L)}) {
					t.Fatalf("step %d: episode %v, want %v", i, e, w.Episode)
				}
				if !w.Term && !w.Trunc {
					continue
				}
				if obs, _, err := c.reset(); err != nil || far(obs, w.Reset) > 1e-6 {
					t.Fatalf("step %d: reset %v, want %v: %v", i, obs, w.Reset, err)
				}
			}
		})
	}
}
