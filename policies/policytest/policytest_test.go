package policytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// good returns the Config of a policy without faults.
func good() Config {
	return Config{
		New:    func(seed uint64) policies.Policy { return newToy(seed) },
		Losses: func(rng *rand.Rand) []Loss { return []Loss{toyLoss(newToy(1), rng)} },

		Sampled: true,
	}
}

// toyLoss returns the loss of p for a batch, with the same noise at each call.
func toyLoss(p *toy, rng *rand.Rand) Loss {
	b := RandomBatch(p.Spec(), rng, 8)
	return Loss{Name: "squares", Nets: []*nn.Net{p.net}, Eval: func() (float64, error) {
		p.source.Seed(1, 1)
		m, err := p.Learn(b)
		if err != nil {
			return 0, err
		}
		return m[0].Value, nil
	}}
}

func TestGoodPolicyPasses(t *testing.T) { Run(t, good()) }

// TestRunReportsAFault runs this test binary again, with a policy whose metrics have no names.
func TestRunReportsAFault(t *testing.T) {
	const key = "POLICYTEST_FAULT"
	if os.Getenv(key) != "" {
		Run(t, faultyConfig(func(p *faulty, _ uint64) {
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				m, err := p.toy.Learn(b)
				for i := range m {
					m[i].Name = ""
				}
				return m, err
			}
		}))
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunReportsAFault$")
	cmd.Env = append(os.Environ(), key+"=1")
	out, err := cmd.CombinedOutput()
	text := string(out)
	const failed, report = "--- FAIL: TestRunReportsAFault/", `metric "", want a name such as train/loss`
	if err == nil || strings.Count(text, failed) != 1 || !strings.Contains(text, failed+"metrics") || !strings.Contains(text, report) {
		t.Errorf("%v, want the failure of one subtest, metrics:\n%s", err, text)
	}
}

func TestRunPanicsWithoutNew(t *testing.T) {
	defer func() {
		if v := recover(); v != "policytest: Config.New is nil" {
			t.Errorf("panic %v", v)
		}
	}()
	Run(t, Config{})
}

// TestPanicOfThePolicyIsAFault, and ends no other check.
func TestPanicOfThePolicyIsAFault(t *testing.T) {
	cfg := Config{New: func(uint64) policies.Policy { panic("broken") }}
	for _, c := range checks() {
		if c.name == gradientCheck {
			continue
		}
		if err := c.test(cfg); err == nil || !strings.HasPrefix(err.Error(), "panic: broken\n") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestMethodThatFailsIsAFault of every check that needs it, and of no other.
func TestMethodThatFailsIsAFault(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		method string
		spoil  func(p *faulty)
		passes []string // the checks that do not need the method
	}{
		{"Learn", func(p *faulty) { p.learn = func(*policies.Batch) ([]policies.Metric, error) { return nil, cause } },
			[]string{"act lengths", "act not finite"}},
		{"Act", func(p *faulty) { p.act = func(*policies.Act) error { return cause } },
			[]string{"metrics", "batch columns", "act lengths", "several learners"}},
		{"Save", func(p *faulty) { p.save = func(*nn.Archive) error { return cause } },
			[]string{"spec", "weights", "version", "metrics", "batch is read", "act lengths", "act not finite", "actions in space", "allocations",
				"export"}},
	} {
		for _, check := range checks() {
			if check.name == gradientCheck {
				continue
			}
			err := check.test(faultyConfig(func(p *faulty, _ uint64) { c.spoil(p) }))
			switch passes := slices.Contains(c.passes, check.name); {
			case passes && err != nil:
				t.Errorf("%s fails: %s: %v", c.method, check.name, err)
			case !passes && (err == nil || !strings.Contains(err.Error(), "cause") || strings.Contains(err.Error(), "panic")):
				t.Errorf("%s fails: %s: report %q, want the cause", c.method, check.name, fmt.Sprint(err))
			}
		}
	}
}

// TestRandomBatchFitsTheSpec, whatever its columns are.
func TestRandomBatchFitsTheSpec(t *testing.T) {
	pixels := envs.NewPixels(1, 2, 2)
	spec := policies.Spec{Obs: pixels, Action: envs.NewBox(-1, 1, 2), Learns: append(policies.TransitionColumns(4, 2),
		policies.Column{Name: "pixels", Kind: policies.Uint8, Shape: []int{2}}, policies.Column{Name: policies.Index, Kind: policies.Int32},
		policies.Column{Name: policies.Weight, Kind: policies.Float32}, policies.Column{Name: policies.LogProb, Kind: policies.Float32},
		policies.Column{Name: "core", Kind: policies.Float32, Shape: []int{3}},
	)}
	spec.Learns[3].Kind = policies.Uint8
	const n = 200
	b := RandomBatch(spec, numbers(1), n)
	if err := b.Check(spec.Learns...); err != nil || b.N != n {
		t.Fatal(err)
	}
	var ends [4]int
	for i := range n {
		next := make([]float32, 4)
		for k, v := range b.Bytes(policies.NextObs)[4*i : 4*i+4] {
			next[k] = float32(v)
		}
		weight, prob := b.Floats(policies.Weight)[i], b.Floats(policies.LogProb)[i]
		obs, action := b.Floats(policies.Obs)[4*i:4*i+4], b.Floats(policies.Action)[2*i:2*i+2]
		if !pixels.Contains(obs) || !pixels.Contains(next) || !spec.Action.Contains(action) ||
			weight < 0.5 || weight >= 1 || prob > -1 || prob < -1.5 {
			t.Fatalf("row %d: %+v", i, b.Columns)
		}
		if steps := b.Bytes(policies.Steps)[i]; steps != 1 && steps != 2 {
			t.Fatalf("row %d has %d steps", i, steps)
		}
		ends[b.Bytes(policies.Terminated)[i]+2*b.Bytes(policies.Truncated)[i]]++
	}
	if ends[0] == 0 || ends[1] == 0 || ends[2] == 0 || ends[3] != 0 {
		t.Errorf("%d rows with no end, %d terminated, %d truncated and %d both", ends[0], ends[1], ends[2], ends[3])
	}
}

func ExampleRandomBatch() {
	spec := policies.Spec{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Learns: policies.TransitionColumns(3, 1)}
	b := RandomBatch(spec, rand.New(rand.NewPCG(1, 1)), 5)
	fmt.Println(b.N, b.Check(spec.Learns...), spec.Action.Contains(b.Floats(policies.Action)[:1]))
	// Output: 5 <nil> true
}
