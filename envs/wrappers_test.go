package envs_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
)

func step(t *testing.T, e envs.Env[int], action int) envs.Step {
	t.Helper()
	s, err := e.Step(action)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTimeLimitCountsEachEpisode from its own beginning, and ends with the episode.
func TestTimeLimitCountsEachEpisode(t *testing.T) {
	e := envs.RecordEpisodeStatistics(envs.TimeLimit[int](&count{length: 100}, 3))
	for episode := range 3 {
		if _, _, err := e.Reset(); err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= 3; i++ {
			s := step(t, e, 0)
			if s.Truncated != (i == 3) || s.Terminated || (s.Info.Episode != nil) != (i == 3) {
				t.Fatalf("episode %d, step %d: %+v", episode, i, s)
			}
			if i == 3 && *s.Info.Episode != (envs.Episode{Return: 6, Length: 3}) {
				t.Errorf("episode %+v, want 6 and 3", *s.Info.Episode)
			}
		}
		if _, err := e.Step(0); !errors.Is(err, envs.ErrEpisodeOver) {
			t.Errorf("a step after the limit: %v", err)
		}
	}
	// A new episode in the middle of one counts again.
	for range 2 {
		if _, _, err := e.Reset(); err != nil {
			t.Fatal(err)
		}
		if step(t, e, 0); step(t, e, 0).Truncated {
			t.Error("two steps reach a limit of 3")
		}
	}
	short := envs.TimeLimit[int](&count{length: 2}, 3)
	if _, _, err := short.Reset(); err != nil {
		t.Fatal(err)
	}
	step(t, short, 0)
	if s := step(t, short, 0); !s.Terminated || s.Truncated {
		t.Errorf("%+v, want the end of the environment", s)
	}
	if _, err := short.Step(0); !errors.Is(err, envs.ErrEpisodeOver) {
		t.Errorf("a step after the end: %v", err)
	}
}

// TestVectorsResetTruncatedEpisodes as those that terminated.
func TestVectorsResetTruncatedEpisodes(t *testing.T) {
	v := envs.NewSync(1, envs.NextStep, func(int) envs.Env[int] { return envs.TimeLimit[int](&count{length: 100}, 2) })
	if _, err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	var resets []bool
	for range 6 {
		r, err := v.Step([]float32{0})
		if err != nil {
			t.Fatal(err)
		}
		resets = append(resets, r.Reset[0])
	}
	if !slices.Equal(resets, []bool{false, false, true, false, false, true}) {
		t.Errorf("resets %v", resets)
	}
}

// TestCartPoleEndsOnBothSides: pushed one way all the time, the pole falls to the other.
func TestCartPoleEndsOnBothSides(t *testing.T) {
	for action := range 2 {
		e := envs.NewCartPole(envs.CartPoleConfig{})
		if _, _, err := e.Reset(1); err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			s := step(t, e, action)
			if s.Terminated {
				if left := s.Obs[2] < 0; left != (action == 1) {
					t.Errorf("action %d: the pole leans to %v", action, s.Obs[2])
				}
				break
			}
			if i > 50 {
				t.Fatalf("action %d: the pole stands", action)
			}
		}
	}
}

// TestCartPoleEndsWhereTheTrackEnds, on both sides.
func TestCartPoleEndsWhereTheTrackEnds(t *testing.T) {
	for _, side := range []float64{-1, 1} {
		e := envs.NewCartPole(envs.CartPoleConfig{})
		if _, _, err := e.Reset(1); err != nil {
			t.Fatal(err)
		}
		saver, ok := e.(envs.Snapshotter)
		if !ok {
			t.Fatal("it has no snapshot")
		}
		state, err := saver.AppendSnapshot(nil)
		if err != nil {
			t.Fatal(err)
		}
		// Two words of the time limit, six of flags and random numbers, then position
		// and velocity: just within the end, on its way over it.
		binary.LittleEndian.PutUint64(state[8*8:], math.Float64bits(2.39*side))
		binary.LittleEndian.PutUint64(state[8*9:], math.Float64bits(side))
		if _, err := saver.RestoreSnapshot(state); err != nil {
			t.Fatal(err)
		}
		if s := step(t, e, 0); !s.Terminated || float64(s.Obs[0])*side <= 2.4 {
			t.Errorf("side %v: %+v", side, s)
		}
	}
}
