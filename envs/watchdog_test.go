package envs_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
)

func TestP8HangingEnvironmentIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		v := envs.NewSync(2, envs.NextStep, func(i int) envs.Env[int] {
			e := &count{length: 9}
			if i == 1 {
				e.fault = func(steps int) []float32 {
					if steps == 3 {
						<-release
					}
					return nil
				}
			}
			return envs.Watchdog[int](e, time.Minute)
		})
		_, err := v.Reset(0)
		for err == nil {
			_, err = v.Step([]float32{0, 0})
		}
		var e *envs.Error
		if !errors.As(err, &e) || e.Index != 1 || !errors.Is(err, envs.ErrHung) ||
			err.Error() != "step env Count[1]: environment does not return: step of Count for more than 1m0s" {
			t.Errorf("error %v", err)
		}
		if _, err := v.Step([]float32{0, 0}); !errors.Is(err, envs.ErrHung) {
			t.Errorf("the call after: %v", err)
		}
		close(release)
	})
}

func TestWatchdogReturnsTheErrorOfAReset(t *testing.T) {
	e := envs.Watchdog(envs.NewCartPole(envs.CartPoleConfig{}), time.Hour)
	if obs, _, err := e.Reset(1, 2); !errors.Is(err, envs.ErrSeeds) || obs != nil {
		t.Errorf("two seeds: %v, %v", obs, err)
	}
	if s, err := e.Step(0); !errors.Is(err, envs.ErrNotReset) || s.Obs != nil {
		t.Errorf("a step before the reset: %v, %v", s, err)
	}
	if obs, _, err := e.Reset(1); err != nil || len(obs) != 4 {
		t.Errorf("one seed: %v, %v", obs, err)
	}
}

// An environment that hangs, or whose observation has another length, is replaced. One that
// refuses an action is not.
func TestP8OnlyAFaultOfTheEnvironmentReplacesIt(t *testing.T) {
	for name, c := range map[string]struct {
		fault    func(release chan struct{}) []float32
		action   int
		replaced bool
	}{
		"hangs":     {func(release chan struct{}) []float32 { <-release; return nil }, 0, true},
		"length":    {func(chan struct{}) []float32 { return []float32{1, 2} }, 0, true},
		"no fault":  {func(chan struct{}) []float32 { return nil }, 0, false},
		"an action": {nil, 9, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			replaced := false
			v := envs.ReplaceFaulty(envs.NewSync(1, envs.NextStep, func(int) envs.Env[int] {
				if c.fault == nil {
					return envs.NewCartPole(envs.CartPoleConfig{})
				}
				return envs.Watchdog[int](&count{length: 9, fault: func(int) []float32 { return c.fault(release) }}, time.Minute)
			}), func(int, *envs.Error) envs.Env[int] {
				replaced = true
				return &count{length: 9}
			})
			_, _ = v.Reset(0)
			_, err := v.Step([]float32{float32(c.action)})
			close(release)
			if replaced != c.replaced || (err != nil) != (name == "an action") {
				t.Errorf("%s: replaced %v: %v", name, replaced, err)
			}
		})
	}
}

func TestP8FaultyEnvironmentIsReplacedByOption(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		build := func(fault func(int) []float32) envs.Env[int] {
			e := envs.Env[int](&count{length: 9, fault: fault})
			if guarded {
				e = envs.Watchdog(e, time.Hour)
			}
			return e
		}
		var faults []string
		v := envs.ReplaceFaulty(envs.NewSync(2, envs.NextStep, func(i int) envs.Env[int] {
			if i == 0 {
				return build(nil)
			}
			return build(func(steps int) []float32 {
				if steps == 2 {
					panic("lost")
				}
				return nil
			})
		}), func(_ int, fault *envs.Error) envs.Env[int] {
			faults = append(faults, fault.Error())
			if !strings.Contains(string(fault.Stack), "TestP8FaultyEnvironmentIsReplaced") {
				t.Errorf("stack %s", fault.Stack)
			}
			return build(nil)
		})
		_, _ = v.Reset(0)
		var res *envs.Result
		for range 3 {
			var err error
			if res, err = v.Step([]float32{0, 0}); err != nil {
				t.Fatal(err)
			}
			if reset := len(faults) == 1 && res.Obs[1] == 100; res.Reset[1] != reset || res.Reset[0] {
				t.Errorf("reset %v at %v", res.Reset, res.Obs)
			}
		}
		if len(faults) != 1 || faults[0] != "step env Count[1]: panic: lost" || res.Obs[0] != 103 || res.Obs[1] != 101 {
			t.Errorf("faults %v, observations %v", faults, res.Obs)
		}
		if _, err := v.Step([]float32{0}); err == nil {
			t.Error("a mistake of the caller is not an environment's fault")
		}
	}
}

func TestWatchdogChangesNothing(t *testing.T) {
	plain, guarded := envs.NewCartPole(envs.CartPoleConfig{}), envs.Watchdog(envs.NewCartPole(envs.CartPoleConfig{}), time.Hour)
	for _, env := range []envs.Env[int]{plain, guarded} {
		if _, _, err := env.Reset(1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		a, err1 := plain.Step(i % 2)
		b, err2 := guarded.Step(i % 2)
		if err1 != nil || err2 != nil || [4]float32(a.Obs) != [4]float32(b.Obs) {
			t.Fatalf("step %d: %v %v, %v %v", i, a, err1, b, err2)
		}
	}
	if _, err := guarded.Step(5); !errors.Is(err, envs.ErrAction) {
		t.Errorf("wrong action: %v", err)
	}
}
