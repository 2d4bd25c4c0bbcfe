package envs_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/envs"
)

func TestAsyncClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	v := envs.NewAsync(3, 8, envs.NextStep, func(int) envs.Env[int] { return &count{length: 9} })
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.Step([]float32{0, 0, 0}); !errors.Is(err, envs.ErrClosed) || err.Error() != "Count: vector is closed" {
		t.Errorf("a step after Close: %v", err)
	}
	if _, err := v.Reset(); !errors.Is(err, envs.ErrClosed) {
		t.Errorf("a reset after Close: %v", err)
	}
	if _, err := v.ResetSome([]bool{true, false, false}); !errors.Is(err, envs.ErrClosed) {
		t.Errorf("a reset after Close: %v", err)
	}
	unused := envs.NewAsync(1, 1, envs.NextStep, func(int) envs.Env[int] { return &count{} })
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
}

func TestP8AsyncNamesAndReplacesTheFaulty(t *testing.T) {
	defer goleak.VerifyNone(t)
	boom := errors.New("boom")
	build := func(bad bool) *count {
		c := &count{length: 9}
		if bad {
			c.fault = func(steps int) []float32 {
				if steps == 2 {
					panic(boom)
				}
				return nil
			}
		}
		return c
	}
	for _, replace := range []bool{false, true} {
		v := envs.NewAsync(5, 2, envs.NextStep, func(i int) envs.Env[int] { return build(i >= 3) })
		var faults []int
		if replace {
			envs.ReplaceFaulty(v, func(i int, fault *envs.Error) envs.Env[int] {
				if fault.Index != i {
					t.Errorf("the fault of %d is that of %d", i, fault.Index)
				}
				faults = append(faults, i)
				return build(false)
			})
		}
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		actions := make([]float32, 5)
		if _, err := v.Step(actions); err != nil {
			t.Fatal(err)
		}
		r, err := v.Step(actions)
		var e *envs.Error
		switch {
		case replace && (err != nil || len(faults) != 2 || !r.Reset[3] || !r.Reset[4] || r.Reset[2]):
			t.Errorf("faults %v: %v", faults, err)
		case !replace && (!errors.As(err, &e) || e.Index != 3 || !errors.Is(err, boom) || e.Stack == nil):
			t.Errorf("error %v", err)
		case !replace:
			for i := 3; i < 5; i++ {
				if err := envs.Replace(v, i, envs.Env[int](build(false))); err != nil {
					t.Fatal(err)
				}
			}
			if r, err = v.Step(actions); err != nil || r.Obs[4] != 101 {
				t.Errorf("after the replacement: %v, %v", r, err)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestP8AsyncWithAWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		v := envs.NewAsync(4, 2, envs.NextStep, func(i int) envs.Env[int] {
			c := &count{length: 9}
			if i == 2 {
				c.fault = func(int) []float32 { <-release; return nil }
			}
			return envs.Watchdog[int](c, time.Minute)
		})
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		_, err := v.Step([]float32{0, 0, 0, 0})
		var e *envs.Error
		if !errors.As(err, &e) || e.Index != 2 || !errors.Is(err, envs.ErrHung) {
			t.Errorf("error %v", err)
		}
		close(release)
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestReplaceRefuses(t *testing.T) {
	v := envs.CartPole(2)
	if err := envs.Replace(v, 2, envs.NewCartPole(envs.CartPoleConfig{})); err == nil || err.Error() != "replace: no environment 2" {
		t.Errorf("a third of two: %v", err)
	}
	for name, do := range map[string]func(){
		"envs: an environment with actions of type []float32 in a vector of CartPole-v1": func() {
			_ = envs.Replace(v, 0, envs.NewPendulum(envs.PendulumConfig{}))
		},
		"envs: vector of 0 workers": func() {
			envs.NewAsync(1, 0, envs.NextStep, func(int) envs.Env[int] { return &count{} })
		},
		"envs: vector of 0 environments": func() {
			envs.NewAsync(0, 1, envs.NextStep, func(int) envs.Env[int] { return &count{} })
		},
		"envs: vector of CartPole-v1 (4) and Acrobot-v1 (6)": func() {
			envs.NewSync(2, envs.NextStep, func(i int) envs.Env[int] {
				if i == 0 {
					return envs.NewCartPole(envs.CartPoleConfig{})
				}
				return envs.NewAcrobot(envs.AcrobotConfig{})
			})
		},
		"envs: vector of BitFlip-v0 (6) and BitFlip-v0 (9)": func() {
			envs.NewSync(2, envs.NextStep, func(i int) envs.Env[int] { return envs.NewBitFlip(envs.BitFlipConfig{Bits: 2 + i}) })
		},
	} {
		func() {
			defer func() {
				if p := recover(); p != name {
					t.Errorf("panic %q, want %q", p, name)
				}
			}()
			do()
		}()
	}
	// A Replace in a vector that steps as a batch.
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	if err := envs.Replace(v, 1, envs.NewCartPole(envs.CartPoleConfig{})); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Step([]float32{0, 1}); err != nil {
		t.Error(err)
	}
}

func ExampleNewAsync() {
	v := envs.NewAsync(4, 2, envs.NextStep, func(int) envs.Env[int] { return envs.NewTaxi(envs.TaxiConfig{}) })
	defer v.Close()
	obs, err := v.Reset(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(obs[:2]) // as Gymnasium's Taxi-v4 with the seeds 100 and 101
	// Output: [413 469]
}
