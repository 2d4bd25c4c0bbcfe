package dqn

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

var two = envs.Discrete{N: 2}

// box returns the space of that many values.
func box(n int) envs.Space { return envs.NewBox(-1e30, 1e30, n) }

// greedy writes the greedy actions.
func greedy(q *DQN, dst []int, obs []float32) error {
	a := policies.Act{Obs: obs, Action: make([]float32, len(dst)), Greedy: true}
	err := q.Act(&a)
	for i := range dst {
		dst[i] = int(a.Action[i])
	}
	return err
}

// metric returns the metric of that name.
func metric(all []policies.Metric, name string) float64 {
	for _, m := range all {
		if m.Name == name {
			return m.Value
		}
	}
	return math.NaN()
}

// tiny returns a DQN whose online and target networks are linear maps given by
// hand: Q(s) = s*w, one observed value, two actions.
func tiny(cfg Config, online, target [2]float32) *DQN {
	cfg.Obs, cfg.Action, cfg.Hidden = box(1), two, []int{}
	q := New(cfg)
	clear(q.Online.Weights())
	clear(q.Target.Weights())
	copy(q.Online.Params()[0].Value, online[:])
	copy(q.Target.Params()[0].Value, target[:])
	return q
}

func TestP1TargetsEqualHandComputedNumbers(t *testing.T) {
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for _, t := range []policies.Transition{
		{Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{0}, Reward: 1, Steps: 1},
		{Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{1}, Reward: 1, Steps: 1, Terminated: true},
		{Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{1}, Reward: 1, Steps: 1, Truncated: true},
		{Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{1}, Reward: 1, Steps: 3},
		{Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{1}, Reward: 1, Steps: 1, Terminated: true, Truncated: true},
	} {
		b.Append(t)
	}
	// At the next observation 2 the online network has values 8, 6, the target
	// network 10, 20.
	for _, c := range []struct {
		name   string
		double bool
		want   []float32
	}{
		{"plain: target's best, 20", false, []float32{11, 1, 11, 3.5, 1}},
		{"double: online's best by the target, 10", true, []float32{6, 1, 6, 2.25, 1}},
	} {
		q := tiny(Config{Gamma: 0.5, Double: c.double, Loss: MSE}, [2]float32{4, 3}, [2]float32{5, 10})
		m, err := q.Learn(&b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(q.targets, c.want) {
			t.Errorf("%s: targets %v, want %v", c.name, q.targets, c.want)
		}
		// Predictions are 4 for action 0 and 3 for action 1.
		var loss float64
		for i, y := range c.want {
			p := 3.0
			if i == 0 {
				p = 4
			}
			loss += (p - float64(y)) * (p - float64(y)) / 5
		}
		if math.Abs(metric(m, "train/loss")-loss) > 1e-5 || math.Abs(metric(m, "train/q_value")-16./5) > 1e-6 {
			t.Errorf("%s: loss %v, value %v; want %v, 3.2", c.name, metric(m, "train/loss"), metric(m, "train/q_value"), loss)
		}
	}
}

func TestTargetNetworkFollows(t *testing.T) {
	b := batch(rand.New(rand.NewPCG(1, 1)), 8, 1)
	hard := tiny(Config{TargetEvery: 3}, [2]float32{1, 2}, [2]float32{0, 0})
	for i := 1; i <= 6; i++ {
		if _, err := hard.Learn(b); err != nil {
			t.Fatal(err)
		}
		if got := slices.Equal(hard.Online.Weights(), hard.Target.Weights()); got != (i%3 == 0) {
			t.Errorf("after update %d the networks are equal: %v", i, got)
		}
	}
	soft := tiny(Config{Tau: 0.25}, [2]float32{1, 2}, [2]float32{0, 0})
	if _, err := soft.Learn(b); err != nil {
		t.Fatal(err)
	}
	if got, want := soft.Target.Weights()[0], soft.Online.Weights()[0]/4; math.Abs(float64(got-want)) > 1e-6 {
		t.Errorf("soft: target %v, want a quarter of the way, %v", got, want)
	}
}

func batch(rng *rand.Rand, n, obs int) *policies.Batch {
	var b policies.Batch
	b.Init(policies.TransitionColumns(obs, 1)...)
	vec := func() []float32 {
		v := make([]float32, obs)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	for range n {
		b.Append(policies.Transition{
			Obs: vec(), NextObs: vec(), Action: []float32{float32(rng.IntN(2))}, Reward: float32(rng.NormFloat64()),
			Terminated: rng.IntN(5) == 0, Steps: 1 + rng.IntN(3),
		})
	}
	return &b
}

var full = Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{32, 17}, Double: true, Dueling: true, NStep: 3, TargetEvery: 7}

func TestP4ResumeIsExact(t *testing.T) {
	feed := func(q *DQN, rng *rand.Rand, n int) {
		for range n {
			if _, err := q.Learn(batch(rng, 32, 4)); err != nil {
				t.Fatal(err)
			}
		}
	}
	straight := New(full)
	feed(straight, rand.New(rand.NewPCG(1, 1)), 40)

	rng := rand.New(rand.NewPCG(1, 1))
	first := New(full)
	feed(first, rng, 20)
	var a, read nn.Archive
	if err := first.Save(&a); err != nil {
		t.Fatal(err)
	}
	file, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.UnmarshalBinary(file); err != nil {
		t.Fatal(err)
	}
	cfg := full
	cfg.Seed = 99
	second := New(cfg)
	if err := second.Restore(&read); err != nil {
		t.Fatal(err)
	}
	feed(second, rng, 20)
	if second.Version() != 40 || !slices.Equal(straight.Online.Weights(), second.Online.Weights()) ||
		!slices.Equal(straight.Target.Weights(), second.Target.Weights()) {
		t.Error("40 updates and 20 + 20 updates differ")
	}
	cfg.Hidden = []int{8}
	if err := New(cfg).Restore(&read); err == nil || !strings.Contains(err.Error(),
		"restore dqn: load weights: tensor dense0.weight is [4 32]") {
		t.Errorf("another shape: %v", err)
	}
	if err := New(cfg).Restore(&nn.Archive{}); err == nil {
		t.Error("an empty archive passes")
	}
}

func TestP7NonFiniteIsNamed(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name, tensor string
		spoil        func(*DQN, *policies.Batch)
	}{
		{"observation", "obs", func(_ *DQN, b *policies.Batch) { b.Floats("obs")[5] = nan }},
		{"next observation", "next_obs", func(_ *DQN, b *policies.Batch) { b.Floats("next_obs")[5] = inf }},
		{"reward", "reward", func(_ *DQN, b *policies.Batch) { b.Floats("reward")[5] = nan }},
		{"weight", "dense2.weight", func(q *DQN, _ *policies.Batch) { q.Online.Params()[2].Value[5] = nan }},
		{"bias", "dense4.bias", func(q *DQN, _ *policies.Batch) { q.Online.Params()[5].Value[0] = inf }},
		{"target weight", "target.dense0.weight", func(q *DQN, _ *policies.Batch) { q.Target.Params()[0].Value[5] = nan }},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := New(full)
			rng := rand.New(rand.NewPCG(1, 1))
			if _, err := q.Learn(batch(rng, 32, 4)); err != nil {
				t.Fatal(err)
			}
			b := batch(rng, 32, 4)
			c.spoil(q, b)
			before := q.Weights()
			_, err := q.Learn(b)
			var e *policies.UpdateError
			var where *nn.NonFiniteError
			if !errors.As(err, &e) || !errors.As(err, &where) || e.Update != 1 || where.Tensor != c.tensor {
				t.Fatalf("error %v, want update 1 and tensor %s", err, c.tensor)
			}
			if q.Version() != 1 || fmt.Sprint(q.Weights()) != fmt.Sprint(before) {
				t.Error("the refused update changed the weights")
			}
		})
	}
	q := New(full)
	if err := greedy(q, make([]int, 1),
		[]float32{0, nan, 0, 0}); err == nil || err.Error() != "dqn: tensor obs is not finite: value 1 is NaN" {
		t.Errorf("greedy of NaN: %v", err)
	}
	q.Online.Params()[0].Value[0] = nan
	if err := q.Save(new(nn.Archive)); err == nil {
		t.Error("NaN weights are saved")
	}
	if err := greedy(q, make([]int, 1), make([]float32, 4)); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("greedy with a NaN weight: %v", err)
	}
}

// one returns a batch of transitions that terminate, each of one observed value and a reward.
func one(pairs ...[2]float32) *policies.Batch {
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for _, p := range pairs {
		b.Append(policies.Transition{Obs: p[:1], NextObs: []float32{0}, Action: []float32{0}, Reward: p[1], Steps: 1, Terminated: true})
	}
	return &b
}

// Beyond an error of 1 the Huber loss is linear and the squared one is not.
func TestLossIsTheOneOfTheConfig(t *testing.T) {
	for loss, want := range map[Loss]float64{Huber: 9.5, MSE: 100} {
		q := tiny(Config{Loss: loss}, [2]float32{}, [2]float32{})
		if m, err := q.Learn(one([2]float32{1, 10})); err != nil || math.Abs(metric(m, "train/loss")-want) > 1e-5 {
			t.Errorf("loss %v: %v, want %v: %v", loss, metric(m, "train/loss"), want, err)
		}
	}
}

// A gradient may be infinite, or no number, where the loss is finite.
func TestP7NonFiniteGradientIsNamed(t *testing.T) {
	const large = 3e38
	for name, b := range map[string]*policies.Batch{
		"infinite":  one([2]float32{large, 10}),
		"no number": one([2]float32{large, 10}, [2]float32{large, -10}),
	} {
		q := tiny(Config{Loss: MSE}, [2]float32{}, [2]float32{})
		_, err := q.Learn(b)
		var e *policies.UpdateError
		var where *nn.NonFiniteError
		if !errors.As(err, &e) || !errors.As(err, &where) || !strings.HasSuffix(where.Tensor, ".grad") {
			t.Errorf("%s: %v", name, err)
		}
		if w := q.Online.Params()[0].Value; w[0] != 0 || w[1] != 0 || q.Version() != 0 {
			t.Errorf("%s: the refused update changed the weights: %v", name, w)
		}
	}
}

func TestUpdateRefuses(t *testing.T) {
	q := New(full)
	rng := rand.New(rand.NewPCG(1, 1))
	action := batch(rng, 3, 4)
	action.Floats("action")[1] = 2
	half := batch(rng, 3, 4)
	half.Floats("action")[2] = 0.5
	for _, c := range []struct {
		b    *policies.Batch
		text string
	}{
		{&policies.Batch{}, "dqn update 0: an empty batch"},
		{batch(rng, 3, 5), "dqn update 0: the batch has no column obs float32 [4] of 3 rows"},
		{action, "dqn update 0: transition 1 has action 2, which is not in Discrete(2)"},
		{half, "dqn update 0: transition 2 has action 0.5, which is not in Discrete(2)"},
	} {
		if _, err := q.Learn(c.b); err == nil || err.Error() != c.text {
			t.Errorf("error %v, want %q", err, c.text)
		}
	}
	if err := greedy(q, make([]int, 2),
		make([]float32, 4)); err == nil || err.Error() != "dqn: 4 observed and 2 action values, want 4 and 1 for each row" {
		t.Errorf("too few observations: %v", err)
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{Hidden: []int{8, 0}, NStep: 300, Gamma: 2, Loss: 7, Adam: nn.AdamConfig{Rate: -1}, Tau: 2, TargetEvery: -1}.Validate()
	for _, word := range []string{"Obs", "Action", "Hidden[1]", "NStep", "Gamma", "Loss", "Adam.Rate", "Tau is 2, want",
		"TargetEvery is -1, want"} {
		if err == nil || !strings.Contains(err.Error(), "dqn config: "+word) {
			t.Errorf("%s is not in %v", word, err)
		}
	}
	if err := (Config{Obs: box(4), Action: two}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("New takes a wrong config")
		}
	}()
	New(Config{})
}

func TestWeightsTravel(t *testing.T) {
	a, b := New(full), New(Config{Obs: box(4), Action: two, Seed: 8, Hidden: []int{32, 17}, Dueling: true})
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		_, _ = a.Learn(batch(rng, 32, 4))
	}
	if err := b.Load(a.Weights()); err != nil {
		t.Fatal(err)
	}
	obs := batch(rng, 100, 4).Floats("obs")
	x, y := make([]int, 100), make([]int, 100)
	if err := errors.Join(greedy(a, x, obs), greedy(b, y, obs)); err != nil || !slices.Equal(x, y) || b.Version() != 5 {
		t.Errorf("%v, version %d, equal actions %v", err, b.Version(), slices.Equal(x, y))
	}
}

func TestUpdateAllocatesNothing(t *testing.T) {
	q := New(full)
	b := batch(rand.New(rand.NewPCG(1, 1)), 64, 4)
	a := policies.Act{Obs: b.Floats("obs")[:32], Action: make([]float32, 8), Rand: rand.New(rand.NewPCG(1, 1))}
	if n := testing.AllocsPerRun(50, func() {
		_, _ = q.Learn(b)
		a.Metrics = a.Metrics[:0]
		_ = q.Act(&a)
	}); n != 0 {
		t.Errorf("update and greedy allocate %v times", n)
	}
}

// Updates of a batch of 64 with 128-128, plain and with all extensions, and the
// same arithmetic of a plain update by loops, as a baseline.
func BenchmarkUpdate(b *testing.B) {
	data := batch(rand.New(rand.NewPCG(1, 1)), 64, 4)
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"plain", Config{Obs: box(4), Action: two}},
		{"double+dueling", Config{Obs: box(4), Action: two, Double: true, Dueling: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			q := New(c.cfg)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.Learn(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		})
	}
	b.Run("loops", func(b *testing.B) {
		widths := []int{4, 128, 128, 2}
		b.ReportAllocs()
		for b.Loop() {
			for range 2 { // online and target forward
				loops(widths, false)
			}
			loops(widths, true)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
	})
}

// loops runs the products of one pass over a batch of 64, as three loops each;
// backward has two products a layer.
func loops(widths []int, backward bool) {
	for l := 1; l < len(widths); l++ {
		in, out := widths[l-1], widths[l]
		x, w, y := make([]float32, 64*in), make([]float32, in*out), make([]float32, 64*out)
		passes := 1
		if backward {
			passes = 2
		}
		for range passes {
			for i := range 64 {
				for j := range out {
					var sum float32
					for p := range in {
						sum += x[i*in+p] * w[p*out+j]
					}
					y[i*out+j] = sum
				}
			}
		}
	}
}

// FuzzRestore reads a checkpoint that somebody else has written: it is refused, or
// the policy works.
func FuzzRestore(f *testing.F) {
	cfg := Config{Obs: box(2), Action: two, Hidden: []int{3}, Dueling: true}
	q := New(cfg)
	var a nn.Archive
	if err := q.Save(&a); err != nil {
		f.Fatal(err)
	}
	file, err := a.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(bytes.Replace(file, []byte("dqn/"), []byte("dqm/"), 1))
	f.Add(bytes.ReplaceAll(file, []byte("[2,3]"), []byte("[3,2]")))
	f.Add(bytes.ReplaceAll(file, []byte(`"0"`), []byte(`"9"`)))
	f.Fuzz(func(t *testing.T, file []byte) {
		var a nn.Archive
		if a.UnmarshalBinary(file) != nil {
			return
		}
		q := New(cfg)
		if q.Restore(&a) != nil {
			return
		}
		if err := q.Weights().CheckFinite(); err != nil {
			t.Fatalf("restored: %v", err)
		}
		_, _ = q.Learn(batch(rand.New(rand.NewPCG(1, 1)), 4, 2))
	})
}

// TestSetRateReachesTheOptimiser: the rate that is set is the one that weights move by,
// and that Update reports.
func TestSetRateReachesTheOptimiser(t *testing.T) {
	b := batch(rand.New(rand.NewPCG(1, 1)), 8, 1)
	update := func(configured, set float64) (*DQN, []policies.Metric) {
		q := tiny(Config{Adam: nn.AdamConfig{Rate: configured}}, [2]float32{1, 2}, [2]float32{0, 0})
		if set != configured {
			q.SetRate(set)
		}
		m, err := q.Learn(b)
		if err != nil {
			t.Fatal(err)
		}
		return q, m
	}
	want, _ := update(0.25, 0.25)
	got, m := update(1e-3, 0.25)
	if !slices.Equal(got.Online.Weights(), want.Online.Weights()) || metric(m,
		"train/learning_rate") != 0.25 || got.Config().Adam.Rate != 0.25 {
		t.Errorf("weights %v and rate %v, want %v and 0.25", got.Online.Weights(), metric(m, "train/learning_rate"), want.Online.Weights())
	}
	if still, _ := update(1e-3, 0); !slices.Equal(still.Online.Weights()[:2], []float32{1, 2}) {
		t.Errorf("at a rate of 0 the weights are %v", still.Online.Weights())
	}
}

// TestDoubleTakesTheOnlineNetworksBest, whichever action that is.
func TestDoubleTakesTheOnlineNetworksBest(t *testing.T) {
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	b.Append(policies.Transition{Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{0}, Reward: 1, Steps: 1})
	// At 2 the online network has 6, 8; the target network 20, 10.
	for double, want := range map[bool]float32{true: 1 + 0.5*10, false: 1 + 0.5*20} {
		q := tiny(Config{Gamma: 0.5, Double: double}, [2]float32{3, 4}, [2]float32{10, 5})
		if _, err := q.Learn(&b); err != nil || q.targets[0] != want {
			t.Errorf("double %v: target %v, want %v: %v", double, q.targets[0], want, err)
		}
	}
}

func TestOfEqualValuesTheFirstWins(t *testing.T) {
	q := tiny(Config{}, [2]float32{2, 2}, [2]float32{0, 0})
	actions := []int{7, 7}
	if err := greedy(q, actions, []float32{1, 3}); err != nil || !slices.Equal(actions, []int{0, 0}) {
		t.Errorf("actions %v, %v", actions, err)
	}
}

// TestGradientsAreClippedOnRequest: a negative limit does not clip, and does not turn
// the gradients round.
func TestGradientsAreClippedOnRequest(t *testing.T) {
	b := batch(rand.New(rand.NewPCG(1, 1)), 8, 1)
	after := func(limit float64) []float32 {
		q := tiny(Config{MaxGradNorm: limit, Adam: nn.AdamConfig{Epsilon: 1}}, [2]float32{1, 2}, [2]float32{0, 0})
		if _, err := q.Learn(b); err != nil {
			t.Fatal(err)
		}
		return q.Online.Weights()
	}
	if free, wide := after(-1), after(1e9); !slices.Equal(free, wide) {
		t.Errorf("without a limit %v, with one that is far %v", free, wide)
	}
	if narrow, wide := after(1e-3), after(1e9); slices.Equal(narrow, wide) {
		t.Error("a narrow limit changes nothing")
	}
}

func TestConfigBoundsAndDefaults(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		ok     bool
	}{
		{func(c *Config) { c.NStep = 255 }, true},
		{func(c *Config) { c.NStep = 256 }, false},
		{func(c *Config) { c.NStep = -1 }, false},
		{func(c *Config) { c.Gamma = 1 }, true},
		{func(c *Config) { c.Gamma = 1.01 }, false},
		{func(c *Config) { c.Gamma = -0.1 }, false},
		{func(c *Config) { c.Action.N = 1 }, false},
		{func(c *Config) { c.Tau = 1 }, true},
		{func(c *Config) { c.Tau = 1.01 }, false},
		{func(c *Config) { c.Tau, c.TargetEvery = 0.5, 3 }, false},
		{func(c *Config) { c.Hidden = []int{3, 0} }, false},
		{func(c *Config) { c.Loss = MSE + 1 }, false},
	} {
		cfg := Config{Obs: box(1), Action: two}
		c.change(&cfg)
		if err := cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	got := New(Config{Obs: box(1), Action: two}).Config()
	want := Config{Obs: box(1), Action: two, Hidden: []int{128, 128}, NStep: 1, Gamma: 0.99, Adam: nn.AdamConfig{Rate: 1e-3},
		MaxGradNorm: 10, TargetEvery: 500}
	if got.Epsilon(0) != 1 || got.Epsilon(250_000) != 0.05 {
		t.Errorf("epsilon from %v to %v", got.Epsilon(0), got.Epsilon(250_000))
	}
	if got.Epsilon, got.Init = nil, nil; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
}

// TestExplorationGoesByTheEnvStepsOfTheJob: the actions are random as often as the schedule says,
// and never if they are to be greedy.
func TestExplorationGoesByTheEnvStepsOfTheJob(t *testing.T) {
	q := tiny(Config{Epsilon: policies.Linear(1, 0, 100)}, [2]float32{1, 2}, [2]float32{0, 0})
	for steps, want := range map[int][2]int{0: {400, 600}, 50: {200, 300}, 100: {0, 0}} {
		a := policies.Act{Obs: make([]float32, 1000), Action: make([]float32, 1000), Rand: rand.New(rand.NewPCG(1, 1)), EnvSteps: steps}
		for i := range a.Obs {
			a.Obs[i] = 1
		}
		if err := q.Act(&a); err != nil {
			t.Fatal(err)
		}
		others := 0
		for _, v := range a.Action {
			if v == 0 {
				others++
			}
		}
		if others < want[0] || others > want[1] || len(a.Metrics) != 1 || a.Metrics[0] != (policies.Metric{Name: "rollout/exploration_rate",
			Value: 1 - float64(steps)/100}) {
			t.Errorf("after %d env steps %d of 1000 actions are not the best: %v", steps, others, a.Metrics)
		}
		a.Greedy, a.Metrics = true, nil
		if err := q.Act(&a); err != nil || slices.Contains(a.Action, 0) || a.Metrics != nil {
			t.Errorf("greedy: %v, %v", a.Metrics, err)
		}
	}
}

// TestNoiseExplores: noisy weights act differently each time, and alike when the action is to be
// greedy; the noise of the updates continues where it was saved.
func TestNoiseExplores(t *testing.T) {
	cfg := Config{Obs: box(4), Action: two, Noisy: true, Hidden: []int{8}, Seed: 1}
	q := New(cfg)
	values := func(greedy bool, rng *rand.Rand) []float32 {
		a := policies.Act{Obs: []float32{1, -1, 2, 0.5}, Action: make([]float32, 1), Greedy: greedy, Rand: rng}
		if err := q.Act(&a); err != nil || a.Metrics != nil {
			t.Fatal(a.Metrics, err)
		}
		return slices.Clone(q.Values(a.Obs).Data)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	mean := values(true, nil)
	first, second := values(false, rng), values(false, rng)
	if slices.Equal(first, second) || slices.Equal(first, mean) || !slices.Equal(values(true, nil), mean) {
		t.Errorf("values %v and %v, greedy %v", first, second, mean)
	}
	var a nn.Archive
	other := New(cfg)
	data := batch(rng, 16, 4)
	_, err := q.Learn(data)
	if err := errors.Join(err, q.Save(&a), other.Restore(&a)); err != nil {
		t.Fatal(err)
	}
	_, err1 := q.Learn(data)
	_, err2 := other.Learn(data)
	if err := errors.Join(err1, err2); err != nil || !slices.Equal(q.Online.Weights(), other.Online.Weights()) {
		t.Errorf("after a restore the noise differs: %v", err)
	}
}

// TestRowsCountByTheirWeight: with a weight column the loss is the weighted mean, and the differences
// to the targets are written for the priorities.
func TestRowsCountByTheirWeight(t *testing.T) {
	q := tiny(Config{Loss: MSE}, [2]float32{}, [2]float32{})
	rows := one([2]float32{1, 3}, [2]float32{1, -2})
	var b policies.Batch
	b.Init(append(rows.Schema(), policies.Column{Name: policies.Weight, Kind: policies.Float32},
		policies.Column{Name: policies.TDError, Kind: policies.Float32})...)
	b.Resize(2)
	b.CopyRows(0, rows, 0, 1)
	copy(b.Floats(policies.Weight), []float32{0.5, 1})
	m, err := q.Learn(&b)
	if err != nil || math.Abs(metric(m, "train/loss")-(0.5*9+4)/2) > 1e-5 || !slices.Equal(b.Floats(policies.TDError), []float32{3, 2}) {
		t.Errorf("loss %v, differences %v: %v", m, b.Floats(policies.TDError), err)
	}
	b.Floats(policies.Weight)[1] = float32(math.NaN())
	if _, err := q.Learn(&b); err == nil || !strings.Contains(err.Error(), "tensor weight is not finite") {
		t.Error(err)
	}
}

// TestActionsNeedNotBeginAtZero: the numbers are those of the space.
func TestActionsNeedNotBeginAtZero(t *testing.T) {
	from := func(start int) (*DQN, []float32) {
		q := New(Config{Obs: box(1), Action: envs.Discrete{N: 2, Start: start}, Hidden: []int{4}, Seed: 1})
		b := one([2]float32{1, 3}, [2]float32{2, -2})
		for i := range b.Floats(policies.Action) {
			b.Floats(policies.Action)[i] = float32(start + i)
		}
		if _, err := q.Learn(b); err != nil {
			t.Fatal(err)
		}
		a := policies.Act{Obs: []float32{1, -1, 0.3}, Action: make([]float32, 3), Greedy: true}
		if err := q.Act(&a); err != nil {
			t.Fatal(err)
		}
		return q, a.Action
	}
	zero, x := from(0)
	five, y := from(5)
	for i := range x {
		x[i] += 5
	}
	if !slices.Equal(x, y) || !slices.Equal(zero.Online.Weights(), five.Online.Weights()) {
		t.Errorf("actions %v, want %v", y, x)
	}
}
