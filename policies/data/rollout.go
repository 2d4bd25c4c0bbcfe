package data

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// RolloutConfig describes how on-policy data is learned from. Length must be set.
type RolloutConfig struct {
	Length      int     // steps of a sequence
	Gamma       float64 // discount of one step; 0 means 0.99
	Lambda      float64 // of the generalised advantage estimates; 0 means 0.95
	Epochs      int     // passes over the data; 0 means 4
	Minibatches int     // of one pass; 0 means 4
	Seed        uint64  // of the order of rows
	// Sequences keeps the rows of a sequence together and in their order, for policies with a state: a
	// minibatch is whole sequences, and their order is random.
	Sequences bool
}

func (c RolloutConfig) ensureDefaults() RolloutConfig {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Gamma, 0.99)
	def(&c.Lambda, 0.95)
	if c.Epochs == 0 {
		c.Epochs = 4
	}
	if c.Minibatches == 0 {
		c.Minibatches = 4
	}
	return c
}

// Validate reports every fault of the config at once.
func (c RolloutConfig) Validate() error {
	c = c.ensureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("rollout config: "+format, args...))
		}
	}
	check(c.Length >= 1, "Length is %d, want at least 1", c.Length)
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(c.Lambda > 0 && c.Lambda <= 1, "Lambda is %v, want more than 0 and at most 1", c.Lambda)
	check(c.Epochs >= 1, "Epochs is %d, want at least 1", c.Epochs)
	check(c.Minibatches >= 1, "Minibatches is %d, want at least 1", c.Minibatches)
	return errors.Join(faults...)
}

// Rollout turns data that was collected with one version of a policy into minibatches: Next computes
// advantages and returns, and hands out all rows in a random order, Epochs times.
//
//	err := r.Add(&batch)          // sequences of Length steps, with values and bootstraps
//	for r.Next(&mini) {
//		metrics, err = policy.Learn(&mini)
//	}
//
// A rollout is not safe for concurrent use.
type Rollout struct {
	cfg     RolloutConfig
	rows    policies.Batch // with advantages and returns
	columns []policies.Column
	source  *rand.PCG
	rng     *rand.Rand
	order   []int // of rows, or with Sequences of their first rows
	picked  []int // rows of a minibatch of sequences
	epoch   int
	mini    int                     // the next minibatch of the epoch
	scale   func(rewards []float32) // nil: none
	raw     bool                    // the rows have no advantages yet
}

// NewRollout returns an empty rollout. It panics with all faults of the config.
func NewRollout(cfg RolloutConfig) *Rollout {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	source := rand.NewPCG(cfg.Seed, 0x726f6c6c) // the stream of orders
	return &Rollout{cfg: cfg.ensureDefaults(), source: source, rng: rand.New(source)}
}

// ScaleRewards has scale change the rewards that advantages and returns are computed from, in place: see
// policies.RewardScaler. It is called once for the rows of an Add, by the first Next.
func (r *Rollout) ScaleRewards(scale func(rewards []float32)) { r.scale = scale }

// Add replaces the rows by those of src. They are whole sequences: step t of sequence k
// is row k*Length+t. Besides the columns that the policy needs, src must have reward, value,
// bootstrap, terminated and truncated.
func (r *Rollout) Add(src *policies.Batch) error {
	u, n := r.unroll(src), src.N
	if err := src.CheckLike(src); err != nil {
		return fmt.Errorf("add to rollout: %w", err)
	}
	if len(u.Rewards) != n || len(u.Values) != n || len(u.Bootstrap) != n || len(u.Terminated) != n || len(u.Truncated) != n {
		return fmt.Errorf("add to rollout: want the columns %s, %s, %s, %s and %s", policies.Reward, policies.Value, policies.Bootstrap,
			policies.Terminated, policies.Truncated)
	}
	if n == 0 || n%r.cfg.Length != 0 {
		return fmt.Errorf("add to rollout: %d rows, want whole sequences of %d steps", n, r.cfg.Length)
	}
	if sequences := n / r.cfg.Length; r.cfg.Sequences && sequences < r.cfg.Minibatches {
		return fmt.Errorf("add to rollout: %d sequences of %d steps are fewer than %d minibatches, which are of whole sequences: "+
			"want fewer minibatches or more environments", sequences, r.cfg.Length, r.cfg.Minibatches)
	}
	if n < r.cfg.Minibatches {
		return fmt.Errorf("add to rollout: %d rows are fewer than %d minibatches", n, r.cfg.Minibatches)
	}
	r.take(src)
	r.epoch, r.mini, r.raw = 0, 0, true
	r.shuffle()
	return nil
}

// unroll returns the columns of b that advantages are computed from.
func (r *Rollout) unroll(b *policies.Batch) Unroll {
	return Unroll{
		Length: r.cfg.Length, Rewards: b.Floats(policies.Reward), Values: b.Floats(policies.Value),
		Bootstrap: b.Floats(policies.Bootstrap), Terminated: b.Bytes(policies.Terminated), Truncated: b.Bytes(policies.Truncated),
	}
}

// estimate computes the advantages and returns of the rows.
func (r *Rollout) estimate() {
	r.raw = false
	u := r.unroll(&r.rows)
	if r.scale != nil {
		r.scale(u.Rewards)
	}
	GAE(r.rows.Floats(policies.Advantage), r.rows.Floats(policies.Return), &u, r.cfg.Gamma, r.cfg.Lambda)
}

// take copies src and makes room for advantages and returns.
func (r *Rollout) take(src *policies.Batch) {
	if len(r.rows.Columns) != len(src.Columns)+2 || r.prefix().CheckLike(src) != nil {
		r.columns = append(src.Schema(), policies.Column{Name: policies.Advantage, Kind: policies.Float32},
			policies.Column{Name: policies.Return, Kind: policies.Float32})
	}
	r.rows.Init(r.columns...)
	r.rows.Resize(src.N)
	r.order = r.order[:0]
	for i := range src.N {
		r.order = append(r.order, i)
	}
	r.rows.CopyRows(0, src, r.order...)
	if r.cfg.Sequences {
		r.order = r.order[:0]
		for first := 0; first < src.N; first += r.cfg.Length {
			r.order = append(r.order, first)
		}
	}
}

// prefix returns the columns that came from outside.
func (r *Rollout) prefix() *policies.Batch {
	return &policies.Batch{N: r.rows.N, Columns: r.rows.Columns[:len(r.rows.Columns)-2]}
}

func (r *Rollout) shuffle() {
	r.rng.Shuffle(len(r.order), func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
}

// Next fills dst with the next minibatch, and reports false when there is none.
func (r *Rollout) Next(dst *policies.Batch) bool {
	if r.epoch >= r.cfg.Epochs || len(r.order) == 0 {
		return false
	}
	if r.raw {
		r.estimate()
	}
	n, k := len(r.order), r.cfg.Minibatches
	rows := r.order[r.mini*n/k : (r.mini+1)*n/k] // numbers that differ by one at most
	if r.cfg.Sequences {
		rows = r.steps(rows)
	}
	dst.InitLike(&r.rows)
	dst.Resize(len(rows))
	dst.CopyRows(0, &r.rows, rows...)
	if r.mini++; r.mini == k {
		r.mini = 0
		r.epoch++
		r.shuffle()
	}
	return true
}

// steps returns the rows of the sequences with these first rows.
func (r *Rollout) steps(firsts []int) []int {
	r.picked = r.picked[:0]
	for _, first := range firsts {
		for t := range r.cfg.Length {
			r.picked = append(r.picked, first+t)
		}
	}
	return r.picked
}

// Len returns the number of rows.
func (r *Rollout) Len() int { return r.rows.N }

// Save writes the random state: rows are learned from before anything is saved.
func (r *Rollout) Save(a *nn.Archive) error {
	random, err := r.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save rollout: %w", err)
	}
	a.SetText("rollout/random", hex.EncodeToString(random))
	return nil
}

// Restore reads the state that Save wrote. The rollout is then empty.
func (r *Rollout) Restore(a *nn.Archive) error {
	random, err := hex.DecodeString(a.Meta["rollout/random"])
	if err == nil {
		err = r.source.UnmarshalBinary(random)
	}
	if err != nil {
		return fmt.Errorf("restore rollout: %w", err)
	}
	r.rows.Resize(0)
	r.order, r.mini, r.epoch, r.raw = r.order[:0], 0, r.cfg.Epochs, false
	return nil
}
