package envs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
)

// count is an environment whose observation counts its steps: episode k starts
// at 100k. It terminates after a fixed number of steps.
type count struct {
	length, episodes, steps int
	fault                   func(steps int) []float32
	obs                     [1]float32
}

func (c *count) Name() string                 { return "Count" }
func (c *count) ObservationSpace() envs.Space { return envs.NewBox(0, 1000, 1) }
func (c *count) ActionSpace() envs.Space      { return envs.Discrete{N: 2} }
func (c *count) observe() []float32           { c.obs[0] = float32(100*c.episodes + c.steps); return c.obs[:] }
func (c *count) Reset(...uint64) ([]float32, envs.Info, error) {
	c.episodes++
	c.steps = 0
	return c.observe(), envs.Info{}, nil
}

func (c *count) Step(int) (envs.Step, error) {
	c.steps++
	if c.fault != nil {
		if obs := c.fault(c.steps); obs != nil {
			return envs.Step{Obs: obs}, nil
		}
	}
	return envs.Step{Obs: c.observe(), Reward: float64(c.steps), Terminated: c.steps == c.length}, nil
}

func counts(mode envs.AutoresetMode, lengths ...int) *envs.Sync {
	return envs.NewSync(len(lengths), mode, func(i int) envs.Env[int] {
		return envs.RecordEpisodeStatistics[int](&count{length: lengths[i]})
	})
}

func TestP1AutoresetModes(t *testing.T) {
	type row struct {
		obs, final float32
		reward     float64
		done       bool
		reset      bool
		ret        float64 // of the episode that ended, 0 for none
	}
	for _, c := range []struct {
		mode envs.AutoresetMode
		want []row
	}{
		{envs.NextStep, []row{
			{obs: 101, reward: 1},
			{obs: 102, final: 102, reward: 2, done: true, ret: 3},
			{obs: 200, reset: true},
			{obs: 201, reward: 1},
		}},
		{envs.SameStep, []row{
			{obs: 101, reward: 1},
			{obs: 200, final: 102, reward: 2, done: true, ret: 3},
			{obs: 201, reward: 1},
			{obs: 300, final: 202, reward: 2, done: true, ret: 3},
		}},
		{envs.Disabled, []row{
			{obs: 101, reward: 1},
			{obs: 102, final: 102, reward: 2, done: true, ret: 3},
		}},
	} {
		t.Run(c.mode.String(), func(t *testing.T) {
			v := counts(c.mode, 9, 2)
			obs, err := v.Reset(0)
			if err != nil || !slices.Equal(obs, []float32{100, 100}) {
				t.Fatalf("reset: %v, %v", obs, err)
			}
			for i, want := range c.want {
				res, err := v.Step([]float32{0, 0})
				if err != nil {
					t.Fatal(err)
				}
				got := row{obs: res.Obs[1], reward: res.Rewards[1], done: res.Terminated[1], reset: res.Reset[1]}
				if want.done {
					got.final = res.FinalObs[1]
				}
				if e := res.Infos[1].Episode; e != nil {
					got.ret = e.Return
				}
				if got != want {
					t.Errorf("step %d: %+v, want %+v", i+1, got, want)
				}
			}
		})
	}
}

func TestP1FinalObsIsACopy(t *testing.T) {
	v := counts(envs.SameStep, 1)
	_, _ = v.Reset(0)
	res, err := v.Step([]float32{0})
	if err != nil {
		t.Fatal(err)
	}
	// The environment wrote its next episode's observation over the last one.
	if res.FinalObs[0] != 101 || res.Obs[0] != 200 {
		t.Errorf("final %v, next %v; want 101, 200", res.FinalObs, res.Obs)
	}
}

func TestDisabledModeResetsOnDemand(t *testing.T) {
	v := counts(envs.Disabled, 9, 1)
	_, _ = v.Reset(0)
	if _, err := v.Step([]float32{0, 0}); err != nil {
		t.Fatal(err)
	}
	obs, err := v.ResetSome([]bool{false, true})
	if err != nil || !slices.Equal(obs, []float32{101, 200}) {
		t.Errorf("ResetSome: %v, %v", obs, err)
	}
	cart := envs.CartPole(1, envs.Disabled)
	_, _ = cart.Reset(0)
	for err = nil; err == nil; {
		_, err = cart.Step([]float32{0})
	}
	var e *envs.Error
	if !errors.As(err, &e) || !errors.Is(err, envs.ErrEpisodeOver) || e.Index != 0 {
		t.Errorf("step after the end: %v", err)
	}
}

func TestP8FaultyEnvironmentIsNamed(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name, text string
		fault      func(int) []float32
		is         error
		stack      bool
	}{
		{"panic", "step env Count[1]: panic: boom", func(int) []float32 { panic(boom) }, boom, true},
		{"panic text", "step env Count[1]: panic: lost", func(int) []float32 { panic("lost") }, nil, true},
		{"shape", "step env Count[1]: observation of the wrong length: 2 values, the space has 1",
			func(int) []float32 { return make([]float32, 2) }, envs.ErrShape, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := envs.NewSync(3, envs.NextStep, func(i int) envs.Env[int] {
				e := &count{length: 9}
				if i == 1 {
					e.fault = c.fault
				}
				return e
			})
			_, _ = v.Reset(0)
			_, err := v.Step([]float32{0, 0, 0})
			var e *envs.Error
			if !errors.As(err, &e) || e.Error() != c.text || e.Index != 1 {
				t.Fatalf("error %v, want %q", err, c.text)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("the cause is not %v", c.is)
			}
			if got := strings.Contains(string(e.Stack), "TestP8"); got != c.stack {
				t.Errorf("stack in the error: %v", got)
			}
			if err := envs.Replace(v, 1, envs.Env[int](&count{length: 9})); err != nil {
				t.Fatal(err)
			}
			if _, err := v.Step([]float32{0, 0, 0}); err != nil {
				t.Errorf("after replacement: %v", err)
			}
		})
	}
}

func TestVectorRefuses(t *testing.T) {
	v := envs.CartPole(2)
	if _, err := v.Step([]float32{0, 0}); !errors.Is(err, envs.ErrNotReset) {
		t.Errorf("step before reset: %v", err)
	}
	if _, err := v.Reset(1, 2); !errors.Is(err, envs.ErrSeeds) {
		t.Errorf("two seeds: %v", err)
	}
	_, _ = v.Reset(0)
	if _, err := v.Step([]float32{0}); err == nil || err.Error() != "step CartPole-v1: 1 actions for 2 environments" {
		t.Errorf("one action: %v", err)
	}
	if _, err := v.Step([]float32{0, 7}); !errors.Is(err, envs.ErrAction) || !strings.Contains(err.Error(), "CartPole-v1[1]") {
		t.Errorf("wrong action: %v", err)
	}
	if _, err := v.ResetSome(nil); err == nil {
		t.Error("a mask of the wrong length passes")
	}
}

func TestVectorResetWithoutASeedStartsEpisodes(t *testing.T) {
	v := counts(envs.NextStep, 9, 9)
	for episode := 1; episode <= 2; episode++ {
		obs, err := v.Reset()
		if want := float32(100 * episode); err != nil || !slices.Equal(obs, []float32{want, want}) {
			t.Errorf("reset %d: %v, %v", episode, obs, err)
		}
	}
}

func TestVectorSeedsCountUp(t *testing.T) {
	v := envs.CartPole(3)
	obs, err := v.Reset(40)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		want, _, _ := envs.NewCartPole(envs.CartPoleConfig{}).Reset(uint64(40 + i))
		if !slices.Equal(obs[4*i:4*i+4], want) {
			t.Errorf("environment %d starts at %v, seed %d at %v", i, obs[4*i:4*i+4], 40+i, want)
		}
	}
}

func ExampleCartPole() {
	v := envs.CartPole(2)
	_, _ = v.Reset(1)
	var res *envs.Result
	for i := range 10 {
		res, _ = v.Step([]float32{0, float32(i % 2)})
	}
	fmt.Println(res.Rewards, res.Terminated, *res.Infos[0].Episode)
	// Output: [1 1] [true false] {10 10}
}

func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("CartPole/%d", n), func(b *testing.B) {
			v := envs.CartPole(n)
			_, _ = v.Reset(0)
			actions := make([]float32, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for j := range actions {
					actions[j] = float32((i + j) & 1)
				}
				if _, err := v.Step(actions); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "envsteps/s")
		})
	}
}
