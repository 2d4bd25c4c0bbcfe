package td3

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/internal/offpolicy"
	"github.com/ditask/ditask/policies/nn"
)

func pendulum(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) }

// TestLearnsPendulum makes one update for each env step, after 1,000 random ones. An untrained policy
// has a mean return of some -1,200.
func TestLearnsPendulum(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	env := envs.NewSync(1, envs.SameStep, pendulum)
	rate := nn.AdamConfig{Rate: 1e-3}
	p := New(Config{
		Obs: env.ObservationSpace(), Action: env.ActionSpace().(envs.Box), Seed: 1, Hidden: []int{64, 64}, Gamma: 0.98, Actor: rate, Critic: rate,
	})
	r, err := offpolicy.New(p, env, offpolicy.Config{RandomSteps: 1000, Batch: 64, Seed: 1})
	if err := errors.Join(err, r.Run(8000)); err != nil {
		t.Fatal(err)
	}
	if score := r.Last(10); score < -250 {
		t.Errorf("the last ten episodes have a mean return of %v", score)
	}
}

// random returns a batch for p as a replay could have it.
func random(rng *rand.Rand, p *TD3, n int) *policies.Batch {
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	vector := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	obs, action := p.Spec().Obs.Dim(), make([]float32, p.Spec().Action.Dim())
	for range n {
		p.Spec().Action.Sample(action, rng)
		b.Append(policies.Transition{
			Obs: vector(obs), Action: action, Reward: vector(1)[0], NextObs: vector(obs), Terminated: rng.IntN(4) == 0, Steps: 1 + rng.IntN(2),
		})
	}
	return &b
}

func small(edit func(*Config)) *TD3 {
	cfg := Config{
		Obs: envs.NewBox(-1, 1, 3), Action: envs.Box{Low: []float32{-2, 0}, High: []float32{2, 10}}, Hidden: []int{8}, Seed: 3,
	}
	if edit != nil {
		edit(&cfg)
	}
	return New(cfg)
}

// linear returns a TD3 without hidden layers, whose observations and actions have one number: actor
// weights are (w, b), those of a critic (obs, action, b).
func linear(edit func(*Config)) *TD3 {
	return small(func(c *Config) {
		c.Obs, c.Action, c.Hidden = envs.NewBox(-1, 1, 1), envs.NewBox(-2, 2, 1), []int{}
		edit(c)
	})
}

// TestP1TargetsEqualHandComputedNumbers: a target actor that says 2 tanh(1), target critics that
// say a + 2 and 5 - 2a, and noise that is drawn from the same stream.
func TestP1TargetsEqualHandComputedNumbers(t *testing.T) {
	p := linear(func(c *Config) { c.Gamma, c.PolicyNoise, c.NoiseClip = 0.9, 0.4, 0.5 })
	copy(p.actorTarget.Weights(), []float32{0, 1})
	copy(p.criticTarget[0].Weights(), []float32{0, 1, 2})
	copy(p.criticTarget[1].Weights(), []float32{0, -2, 5})
	const n = 200
	b := random(rand.New(rand.NewPCG(1, 1)), p, n)
	noise := rand.New(rand.NewPCG(3, 0x746433))
	p.bootstrap(b)
	clipped, bounded, first := 0, 0, 0
	for i := range n {
		z := 0.4 * noise.NormFloat64()
		if math.Abs(z) > 0.5 {
			clipped++
		}
		a := 2*math.Tanh(1) + 2*min(max(z, -0.5), 0.5)
		if a > 2 {
			bounded++
		}
		a = min(a, 2)
		if a+2 < 5-2*a {
			first++
		}
		row := b.At(i)
		want := float64(row.Reward)
		if !row.Terminated {
			want += math.Pow(0.9, float64(row.Steps)) * min(a+2, 5-2*a)
		}
		if math.Abs(float64(p.wanted[i])-want) > 1e-5 {
			t.Errorf("row %d: target %v, want %v", i, p.wanted[i], want)
		}
	}
	if clipped < 10 || bounded < 10 || first < 10 || first > n-10 {
		t.Errorf("of %d actions %d have clipped noise, %d are at the bound, %d have the first critic's value", n, clipped, bounded, first)
	}
	p.cfg.PolicyNoise = -1
	p.bootstrap(b)
	for i := range n {
		row := b.At(i)
		a := 2 * math.Tanh(1)
		want := float64(row.Reward) + math.Pow(0.9, float64(row.Steps))*min(a+2, 5-2*a)
		if !row.Terminated && math.Abs(float64(p.wanted[i])-want) > 1e-5 {
			t.Errorf("without noise, row %d: target %v, want %v", i, p.wanted[i], want)
		}
	}
}

// TestP1LossesEqualHandComputedNumbers: critics that say 1 + a and 2, an actor whose action is 1.
func TestP1LossesEqualHandComputedNumbers(t *testing.T) {
	p := linear(func(c *Config) { c.Critic.Rate, c.Actor.Rate = 1e-30, 1e-30 })
	copy(p.actor.Weights(), []float32{0, float32(math.Atanh(0.5))})
	copy(p.critic[0].Weights(), []float32{0, 1, 1})
	copy(p.critic[1].Weights(), []float32{0, 0, 2})
	b := random(rand.New(rand.NewPCG(1, 1)), p, 2)
	copy(b.Floats(policies.Action), []float32{1, -1})
	copy(b.Floats(policies.Reward), []float32{4, 1})
	copy(b.Bytes(policies.Terminated), []uint8{1, 1})
	metrics, err := p.Learn(b)
	want := []policies.Metric{
		{Name: "train/critic_loss", Value: (2*2+1)/2. + (2*2+1)/2.}, {Name: "train/q_value", Value: 1}, {Name: "train/actor_loss", Value: -2},
	}
	for i, m := range want {
		if err != nil || metrics[i].Name != m.Name || math.Abs(metrics[i].Value-m.Value) > 1e-6 {
			t.Errorf("%v, want %v (%v)", metrics, m, err)
		}
	}
}

// TestActorAndTargetsAreDelayed, and follow by the fraction Tau.
func TestActorAndTargetsAreDelayed(t *testing.T) {
	p := small(func(c *Config) { c.ActorEvery, c.Tau = 3, 0.25 })
	b := random(rand.New(rand.NewPCG(2, 2)), p, 16)
	var loss float64
	for i := range 7 {
		actor, critic, target := slices.Clone(p.actor.Weights()), slices.Clone(p.critic[1].Weights()), slices.Clone(p.criticTarget[1].Weights())
		actorTarget := slices.Clone(p.actorTarget.Weights())
		metrics, err := p.Learn(b)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(critic, p.critic[1].Weights()) {
			t.Errorf("update %d does not change a critic", i)
		}
		due := i%3 == 0
		if slices.Equal(actor, p.actor.Weights()) == due || slices.Equal(target, p.criticTarget[1].Weights()) == due ||
			(loss == metrics[2].Value) == due {
			t.Errorf("update %d, of which each third changes actor and targets: loss %v", i, metrics[2].Value)
			continue
		} else if due {
			for k, v := range [][2]float32{{actorTarget[0], p.actor.Weights()[0]}, {target[0], p.critic[1].Weights()[0]}} {
				got := [2]float32{p.actorTarget.Weights()[0], p.criticTarget[1].Weights()[0]}[k]
				if want := 0.75*v[0] + 0.25*v[1]; math.Abs(float64(got-want)) > 1e-6 {
					t.Errorf("update %d: target %d is %v, want %v", i, k, got, want)
				}
			}
		}
		loss = metrics[2].Value
	}
}

// TestP2GradientsEqualCentralDifferences of the actor's loss through the critic, and of the critics'.
func TestP2GradientsEqualCentralDifferences(t *testing.T) {
	p := small(func(c *Config) { c.Actor.Rate, c.Critic.Rate, c.ActorEvery = 1e-30, 1e-30, 1 })
	p.cfg.Tau = 0 // the targets stay
	b := random(rand.New(rand.NewPCG(4, 4)), p, 8)
	for k, c := range []struct {
		net  *nn.Net
		loss int // its place in the metrics
	}{{p.actor, 2}, {p.critic[0], 0}, {p.critic[1], 0}} {
		loss := func() float64 {
			p.source.Seed(1, 1)
			m, err := p.Learn(b)
			if err != nil {
				t.Fatal(err)
			}
			return m[c.loss].Value
		}
		loss()
		grad := slices.Clone(c.net.Grad())
		for i, v := range c.net.Weights() {
			const h = 2e-3
			c.net.Weights()[i] = v + h
			up := loss()
			c.net.Weights()[i] = v - h
			down := loss()
			c.net.Weights()[i] = v
			if want := (up - down) / (2 * h); math.Abs(float64(grad[i])-want) > 5e-3*(1+math.Abs(want)) {
				t.Errorf("network %d, weight %d: gradient %v, differences give %v", k, i, grad[i], want)
			}
		}
	}
}

func TestP4ResumeIsExact(t *testing.T) {
	straight, first := small(nil), small(nil)
	rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
	var last []policies.Metric
	learn := func(p *TD3, rng *rand.Rand, n int) {
		for range n {
			m, err := p.Learn(random(rng, p, 16))
			if err != nil {
				t.Fatal(err)
			}
			last = slices.Clone(m)
		}
	}
	learn(straight, rng1, 11)
	learn(straight, rng1, 1) // the last one is without an update of the actor
	want := last
	learn(first, rng2, 11)
	var a, read nn.Archive
	if err := first.Save(&a); err != nil {
		t.Fatal(err)
	}
	file, err := a.AppendBinary(nil)
	second := small(func(c *Config) { c.Seed = 99 })
	if err := errors.Join(err, read.UnmarshalBinary(file), second.Restore(&read)); err != nil {
		t.Fatal(err)
	}
	learn(second, rng2, 1)
	if !slices.Equal(last, want) || second.Version() != 12 {
		t.Errorf("version %d with %v, want %v", second.Version(), last, want)
	}
	learn(straight, rng1, 9)
	learn(second, rng2, 9)
	x, y := straight.parts().State(0), second.parts().State(0)
	for i := range x.Tensors {
		if !slices.Equal(x.Tensors[i].Data, y.Tensors[i].Data) || !slices.Equal(x.Tensors[i].Bytes, y.Tensors[i].Bytes) {
			t.Errorf("%s differs between 21 updates and 11 + 10", x.Tensors[i].Name)
		}
	}
	for _, part := range second.parts() {
		var less nn.Archive
		for k, v := range read.Meta {
			if !strings.HasPrefix(k, part.Name+"/") {
				less.SetText(k, v)
			}
		}
		less.Tensors = read.Tensors
		if err := small(nil).Restore(&less); err == nil || !strings.Contains(err.Error(), "restore "+part.Name) {
			t.Errorf("without %s: %v", part.Name, err)
		}
	}
}

func TestWeightsTravel(t *testing.T) {
	a, b := small(nil), small(func(c *Config) { c.Seed = 9 })
	batch := random(rand.New(rand.NewPCG(7, 7)), a, 8)
	for range 3 {
		if _, err := a.Learn(batch); err != nil {
			t.Fatal(err)
		}
	}
	w := a.Weights()
	if err := b.Load(w); err != nil || b.Version() != 3 || !slices.Equal(a.actor.Weights(), b.actor.Weights()) {
		t.Errorf("version %d, %v", b.Version(), err)
	}
	c := small(nil)
	before := slices.Clone(c.actor.Weights())
	w.Tensors[len(w.Tensors)-1].Data[0] = float32(math.NaN())
	if err := c.Load(w); err == nil || c.Version() != 0 || !slices.Equal(c.actor.Weights(), before) {
		t.Errorf("weights that are not finite: %v, version %d", err, c.Version())
	}
}

func TestP7NonFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	for _, name := range []string{policies.Obs, policies.Action, policies.Reward, policies.NextObs} {
		p := small(nil)
		b := random(rand.New(rand.NewPCG(8, 8)), p, 4)
		b.Floats(name)[1] = nan
		_, err := p.Learn(b)
		e, ok := errors.AsType[*nn.NonFiniteError](err)
		if !ok || e.Tensor != name || !strings.HasPrefix(err.Error(), "td3 update 0: ") || p.Version() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, net := range map[string]func(p *TD3) *nn.Net{
		"critic": func(p *TD3) *nn.Net { return p.critic[1] }, "actor": func(p *TD3) *nn.Net { return p.actor },
	} {
		p := small(nil)
		net(p).Weights()[0] = nan
		_, err := p.Learn(random(rand.New(rand.NewPCG(8, 8)), p, 4))
		if _, ok := errors.AsType[*policies.UpdateError](err); !ok || !strings.Contains(err.Error(), "dense0.weight") || p.actorLoss[0] != 0 {
			t.Errorf("a weight of the %s: %v", name, err)
		}
	}
	p := small(nil)
	p.actor.Weights()[0] = nan
	act := policies.Act{Obs: []float32{1, 1, 1}, Action: make([]float32, 2), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := p.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("a weight of the actor: %v", err)
	}
	if act.Obs[0] = nan; p.Act(&act) == nil {
		t.Error("an observation that is not finite passes")
	}
}

// TestExplorationBelongsToAct: greedy actions are the actor's, others have noise, and all are in the box.
func TestExplorationBelongsToAct(t *testing.T) {
	p := small(nil)
	const rows = 2000
	act := policies.Act{Obs: make([]float32, 3*rows), Action: make([]float32, 2*rows), Greedy: true}
	clear(p.actor.Weights())
	copy(p.actor.Weights()[len(p.actor.Weights())-2:], []float32{0, 0.5}) // the last biases: actions 0 and 5 + 5 tanh(0.5)
	if err := p.Act(&act); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 5 + 5*math.Tanh(0.5), 0, 5 + 5*math.Tanh(0.5)} {
		if math.Abs(float64(act.Action[i])-want) > 1e-5 {
			t.Errorf("greedy action %v, want %v at %d", act.Action[:4], want, i)
		}
	}
	act.Greedy, act.Rand = false, rand.New(rand.NewPCG(1, 1))
	if err := p.Act(&act); err != nil {
		t.Fatal(err)
	}
	var squares [2]float64
	for i, a := range act.Action {
		if !p.cfg.Action.Contains(act.Action[i/2*2 : i/2*2+2]) {
			t.Fatalf("action %v", a)
		}
		d := float64(a) - [2]float64{0, 5 + 5*math.Tanh(0.5)}[i%2]
		squares[i%2] += d * d
	}
	for i, want := range []float64{0.1 * 2, 0.1 * 5} {
		if std := math.Sqrt(squares[i] / rows); math.Abs(std/want-1) > 0.06 {
			t.Errorf("value %d has noise of deviation %v, want %v", i, std, want)
		}
	}
	quiet := small(func(c *Config) { c.ExplorationNoise = -1 })
	if err := quiet.Act(&act); err != nil || act.Action[0] != act.Action[2] {
		t.Errorf("without noise: %v, %v", act.Action[:4], err)
	}
	if act.Action = act.Action[:3]; p.Act(&act) == nil {
		t.Error("half an action passes")
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	inf := math.Inf(1)
	err := Config{
		Action: envs.Box{Low: []float32{0, float32(-inf)}, High: []float32{0, 1}}, Hidden: []int{0}, Gamma: 2, Tau: -1, ActorEvery: -1,
		ExplorationNoise: inf, PolicyNoise: inf, NoiseClip: -1, Actor: nn.AdamConfig{Rate: -1}, Critic: nn.AdamConfig{Rate: -1},
	}.Validate()
	for _, want := range []string{
		"Obs is", "of value 0, want finite", "of value 1, want finite", "Hidden[0] is 0", "Gamma is 2", "Tau is -1", "ActorEvery is -1",
		"ExplorationNoise is", "PolicyNoise is", "NoiseClip is -1", "Actor.Rate is -1", "Critic.Rate is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (Config{Obs: envs.NewBox(0, 1, 1)}).Validate(); err == nil || !strings.Contains(err.Error(), "Action is") {
		t.Errorf("no action: %v", err)
	}
}

func TestLearnAndActAllocateNothing(t *testing.T) {
	p := small(nil)
	b := random(rand.New(rand.NewPCG(1, 1)), p, 32)
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 2), Rand: rand.New(rand.NewPCG(1, 1))}
	if n := testing.AllocsPerRun(20, func() {
		_, err := p.Learn(b)
		if err := errors.Join(err, p.Act(&act)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("an update and an action allocate %v times", n)
	}
}

// An update with networks of 3-256-256 and a batch of 256: critics always, the actor every second time.
func BenchmarkLearn(b *testing.B) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 1)})
	batch := random(rand.New(rand.NewPCG(1, 1)), p, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Learn(batch); err != nil {
			b.Fatal(err)
		}
	}
}
