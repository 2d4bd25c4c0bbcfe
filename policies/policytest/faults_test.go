package policytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// faultyConfig is good with a fault in each policy.
func faultyConfig(spoil func(p *faulty, seed uint64)) Config {
	return Config{Sampled: true, New: func(seed uint64) policies.Policy {
		p := &faulty{toy: newToy(seed)}
		spoil(p, seed)
		return p
	}}
}

// fault is one that a check must find.
type fault struct {
	check, name string
	want        string // of the report
	spoil       func(p *faulty, seed uint64)
}

// TestEveryCheckFindsItsFaults: each fault is found by its check, and each check finds one.
func TestEveryCheckFindsItsFaults(t *testing.T) {
	all := slices.Concat(specFaults(), seedFaults(), archiveFaults(), weightFaults(), learnFaults(), batchFaults(), actFaults(),
		learnersFaults(), exportFaults())
	for _, c := range checks() {
		found := 0
		for _, f := range all {
			if f.check != c.name {
				continue
			}
			found++
			err := c.test(faultyConfig(f.spoil))
			if err == nil || !strings.Contains(err.Error(), f.want) {
				t.Errorf("%s: %s: report %q, want %q", c.name, f.name, fmt.Sprint(err), f.want)
			}
		}
		if found == 0 && c.name != gradientCheck {
			t.Errorf("no fault shows that the check %q can fail", c.name)
		}
	}
	for _, f := range all {
		if !slices.ContainsFunc(checks(), func(c check) bool { return c.name == f.check }) {
			t.Errorf("%s: there is no check %q", f.name, f.check)
		}
	}
}

// respec changes what the policy says of itself.
func respec(edit func(s *policies.Spec)) func(p *faulty, seed uint64) {
	return func(p *faulty, _ uint64) {
		s := p.space
		s.Learns, s.Extra = slices.Clone(s.Learns), slices.Clone(s.Extra)
		edit(&s)
		p.spec = func() policies.Spec { return s }
	}
}

func specFaults() []fault {
	const check = "spec"
	with := func(name, want string, edit func(s *policies.Spec)) fault {
		return fault{check, name, want, respec(edit)}
	}
	return []fault{
		with("no space", "Spec.Action is <nil>", func(s *policies.Spec) { s.Action = nil }),
		with("an empty space", "Spec.Obs is Box([], [])", func(s *policies.Spec) { s.Obs = envs.Box{} }),
		with("no columns", "Spec.Learns is empty", func(s *policies.Spec) { s.Learns = nil }),
		with("a column twice", "Spec.Learns has the column reward float32, want a unique name",
			func(s *policies.Spec) { s.Learns = append(s.Learns, s.Learns[2]) }),
		with("no name", "want a unique name", func(s *policies.Spec) { s.Extra[0].Name = "" }),
		with("no kind", "a known kind", func(s *policies.Spec) { s.Extra[0].Kind = 0 }),
		with("no values", "at least one value", func(s *policies.Spec) { s.Learns[0].Shape = []int{0} }),
		with("wide observations", "obs float32 [3], want float32 and 2 values", func(s *policies.Spec) { s.Learns[0].Shape = []int{3} }),
		with("wide actions", "action float32 [2], want float32 and 1 values", func(s *policies.Spec) { s.Learns[1].Shape = []int{2} }),
		with("ends in numbers", "terminated float32, want bool and 1 values", func(s *policies.Spec) { s.Learns[3].Kind = policies.Float32 }),
		with("steps in numbers", "steps float32, want uint8", func(s *policies.Spec) {
			s.Learns = append(s.Learns, policies.Column{Name: policies.Steps, Kind: policies.Float32})
		}),
		with("a version in bytes", "version uint8, want uint64", func(s *policies.Spec) {
			s.Learns = append(s.Learns, policies.Column{Name: policies.Version, Kind: policies.Uint8})
		}),
		with("pixels of no image", "obs uint8 [2], want float32", func(s *policies.Spec) { s.Learns[0].Kind = policies.Uint8 }),
		with("an extra column in bytes", "value uint8, want float32", func(s *policies.Spec) { s.Extra[0].Kind = policies.Uint8 }),
		with("an unknown bootstrap", `Spec.Bootstrap is "q"`, func(s *policies.Spec) { s.Bootstrap = "q" }),
		with("a negative state", "Spec.StateSize is -1", func(s *policies.Spec) { s.StateSize = -1 }),
		{check, "a spec that changes", "Spec after it has learned", func(p *faulty, _ uint64) {
			p.spec = func() policies.Spec {
				s := p.toy.Spec()
				s.Bootstrap = strings.Repeat("value", int(min(p.updates, 1)))
				return s
			}
		}},
		{check, "a spec of its seed", "Spec of another seed", func(p *faulty, seed uint64) {
			p.space.Action = envs.Discrete{N: int(2 + seed)}
		}},
	}
}

func seedFaults() []fault {
	shared := 0 // by all policies, as state of a package is
	noise := func(p *faulty, _ uint64) {
		p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
			shared++
			p.net.Weights()[0] += float32(shared)
			return p.toy.Learn(b)
		}
	}
	return []fault{
		{"seed", "state of the package", "two policies of the same seed differ: round 0: train/loss[0] is", noise},
		{"seed", "something that is saved only", "two policies of the same seed save different archives: toy/shared is",
			func(p *faulty, _ uint64) {
				p.save = func(a *nn.Archive) error {
					shared++
					a.SetText("toy/shared", fmt.Sprint(shared))
					return p.toy.Save(a)
				}
			}},
		{"seed", "no seed", "another seed gives the same actions", func(p *faulty, _ uint64) { p.toy = newToy(1) }},
	}
}

// TestSeedlessIsHeld: a policy whose seed makes a difference is not without one.
func TestSeedlessIsHeld(t *testing.T) {
	seed := check{"seed", (*suite).seed}
	cfg := good()
	cfg.Seedless = true
	const want = "Config.Seedless is set, but another seed makes a difference: round 0: "
	if err := seed.test(cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("report %q, want %q", fmt.Sprint(err), want)
	}
	cfg.New = func(uint64) policies.Policy { return newToy(1) }
	if err := seed.test(cfg); err != nil {
		t.Error(err)
	}
}

func archiveFaults() []fault {
	random := func(a *nn.Archive) { a.SetText("toy/random", "7063673a00000000000000010000000000000001") }
	return []fault{
		{"resume", "the random state is not saved", "the restored policy differs from one that went straight on: round 3: train/loss",
			func(p *faulty, _ uint64) {
				p.save = func(a *nn.Archive) error {
					err := p.toy.Save(a)
					random(a)
					return err
				}
			}},
		{"resume", "the optimiser is not restored", "the restored policy differs", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				before := p.trainer.Optimizers()[0].State()
				return errors.Join(p.toy.Restore(a), p.trainer.Optimizers()[0].Load(before))
			}
		}},
		{"resume", "something that only the archive shows", "saves something else than one that went straight on: toy/restored",
			func(p *faulty, _ uint64) {
				restored := 0
				p.restore = func(a *nn.Archive) error {
					restored++
					return p.toy.Restore(a)
				}
				p.save = func(a *nn.Archive) error {
					a.SetText("toy/restored", fmt.Sprint(restored))
					return p.toy.Save(a)
				}
			}},
		{"resume", "the version is not restored", "version 0, want 3", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				err := p.toy.Restore(a)
				p.updates = 0
				return err
			}
		}},
		{"resume", "Save has an effect", "archive: the policy that was saved differs from one that went straight on",
			func(p *faulty, _ uint64) {
				p.save = func(a *nn.Archive) error {
					err := p.toy.Save(a)
					p.rng.Uint64()
					return err
				}
			}},
		{"resume", "Restore adds to what was there", "into a policy that has learned: the restored policy differs",
			func(p *faulty, _ uint64) {
				p.restore = func(a *nn.Archive) error {
					old := p.updates
					err := p.toy.Restore(a)
					if old > 0 {
						p.net.Weights()[0]++
					}
					return err
				}
			}},
		{"resume", "only an archive in memory is read", "file, with other parts before it, into a policy that has learned: Restore: no tensors",
			func(p *faulty, _ uint64) {
				p.restore = func(a *nn.Archive) error {
					if _, other := a.Meta["other/text"]; other {
						return errors.New("no tensors")
					}
					return p.toy.Restore(a)
				}
			}},
		{"saved archive", "Save shares its memory", "the archive changes when the saved policy learns: toy.net/all[",
			func(p *faulty, _ uint64) {
				p.save = func(a *nn.Archive) error {
					err := p.toy.Save(a)
					a.Tensors = append(a.Tensors, nn.Tensor{Name: "toy.net/all", Shape: []int{p.net.Size()}, Data: p.net.Weights()})
					return err
				}
			}},
		{"saved archive", "Restore keeps what it read", "the archive changes when the restored policy learns", func(p *faulty, _ uint64) {
			var kept []float32
			p.restore = func(a *nn.Archive) error {
				kept = a.Tensors[0].Data
				return p.toy.Restore(a)
			}
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				if kept != nil {
					kept[0]++
				}
				return p.toy.Learn(b)
			}
		}},
		{"damaged archive", "no tensors", "Save writes no tensor",
			func(p *faulty, _ uint64) { p.save = func(*nn.Archive) error { return nil } }},
		{"damaged archive", "what is missing is passed over", "whose tensor toy.adam/m is missing is no error", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				err := p.toy.Restore(a)
				if err != nil && strings.Contains(err.Error(), "is missing") {
					return nil
				}
				return err
			}
		}},
		{"damaged archive", "a NaN is taken for 0", "whose tensor toy.net/dense0.weight has a NaN is no error", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				for _, t := range a.Tensors {
					for i, v := range t.Data {
						if v != v {
							t.Data[i] = 0
						}
					}
				}
				return p.toy.Restore(a)
			}
		}},
		{"damaged archive", "a panic", "Restore of an archive without toy.net/version panics: archive: toy.net/version is missing",
			func(p *faulty, _ uint64) {
				p.restore = func(a *nn.Archive) error {
					if _, err := a.State("toy.net"); err != nil {
						panic(err.Error())
					}
					return p.toy.Restore(a)
				}
			}},
		{"damaged archive", "an error without a name", `error "bad file" does not name toy.net`, func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				if p.toy.Restore(a) != nil {
					return errors.New("bad file")
				}
				return nil
			}
		}},
		{"damaged archive", "any archive will do", "Restore of an empty archive is no error", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				if len(a.Tensors) == 0 {
					return nil
				}
				return p.toy.Restore(a)
			}
		}},
		{"damaged archive", "another's archive will do", "Restore of another algorithm's archive is no error", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				if a.Meta["another.toy/random"] != "" {
					return nil
				}
				return p.toy.Restore(a)
			}
		}},
		{"damaged archive", "nothing is said of another's archive", "names no part of the policy", func(p *faulty, _ uint64) {
			p.restore = func(a *nn.Archive) error {
				if len(a.Meta) == 0 {
					return errors.New("empty")
				}
				return p.toy.Restore(a)
			}
		}},
	}
}

func weightFaults() []fault {
	return []fault{
		{"weights", "another version", "Weights have version 9, want that of the policy, 3", func(p *faulty, _ uint64) {
			p.weights = func() nn.State {
				w := p.toy.Weights()
				w.Version = 9
				return w
			}
		}},
		{"weights", "Load refuses its own", "Load of weights of the same kind of policy: no", func(p *faulty, _ uint64) {
			p.load = func(nn.State) error { return errors.New("no") }
		}},
		{"weights", "Load keeps its version", "Load leaves version 0, want that of the weights, 3", func(p *faulty, _ uint64) {
			p.load = func(s nn.State) error {
				err := p.toy.Load(s)
				p.updates = 0
				return err
			}
		}},
		{"weights", "Load does nothing", "Weights after Load are not those that were given", func(p *faulty, _ uint64) {
			p.load = func(nn.State) error { return nil }
		}},
		{"weights", "Weights are not all", "two policies with the same weights act differently", func(p *faulty, seed uint64) {
			p.act = func(a *policies.Act) error {
				err := p.toy.Act(a)
				for i := range a.Action {
					a.Action[i] = float32(int(a.Action[i]+float32(seed)) % 3)
				}
				return err
			}
		}},
		{"weights", "Weights are no copy", "weights share memory with the policy that gave them", func(p *faulty, _ uint64) {
			p.weights = func() nn.State {
				w := p.toy.Weights()
				for i := range w.Tensors {
					w.Tensors[i].Data = p.net.Params()[i].Value
				}
				return w
			}
		}},
		{"damaged weights", "NaN passes", "whose tensor toy.net/dense0.weight has a NaN is no error", func(p *faulty, _ uint64) {
			p.load = func(s nn.State) error {
				for _, t := range s.Tensors {
					for i, v := range t.Data {
						if v != v {
							t.Data[i] = 0
						}
					}
				}
				return p.toy.Load(s)
			}
		}},
		{"damaged weights", "the version is taken over first", "makes the version 77, want 1 as before", func(p *faulty, _ uint64) {
			p.load = func(s nn.State) error {
				p.updates = s.Version
				return p.toy.Load(s)
			}
		}},
		{"damaged weights", "tensors are taken over one by one", "changes the policy: before and after, toy.net/dense0.weight[0] is",
			func(p *faulty, _ uint64) {
				p.load = func(s nn.State) error {
					if len(s.Tensors) > 0 && len(s.Tensors[0].Data) == len(p.net.Params()[0].Value) {
						copy(p.net.Params()[0].Value, s.Tensors[0].Data)
					}
					return p.toy.Load(s)
				}
			}},
		{"damaged weights", "a panic", "panics: runtime error: index out of range", func(p *faulty, _ uint64) {
			p.load = func(s nn.State) error {
				_ = s.Tensors[3]
				return p.toy.Load(s)
			}
		}},
		{"damaged weights", "an error without a name", `error "bad" does not name dense2.bias`, func(p *faulty, _ uint64) {
			p.load = func(s nn.State) error {
				if p.toy.Load(s) != nil {
					return errors.New("bad")
				}
				return nil
			}
		}},
	}
}

// TestPixelsMayBeBytesOrNumbers, and nothing else.
func TestPixelsMayBeBytesOrNumbers(t *testing.T) {
	spec := policies.Spec{Obs: envs.NewPixels(1, 2), Action: envs.Discrete{N: 2}}
	for kind, want := range map[policies.Kind]string{
		policies.Float32: "", policies.Uint8: "", policies.Int32: "float32 and 2 values", policies.Bool: "float32 and 2 values",
	} {
		if got := form(policies.Column{Name: policies.NextObs, Kind: kind, Shape: []int{1, 2}}, spec); got != want {
			t.Errorf("%v: want %q, got %q", kind, want, got)
		}
	}
}
