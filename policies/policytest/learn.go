package policytest

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// version: a fresh policy has version 0, and each update counts as one.
func (s *suite) version() {
	p := s.New(1)
	if p.Version() != 0 {
		s.faultf("a fresh policy has version %d, want 0", p.Version())
	}
	for n := range 4 {
		before := p.Version()
		if _, err := s.rounds(p, n, n+1); !s.must(err) {
			return
		}
		if p.Version() != before+1 {
			s.faultf("an update makes the version %d of %d, want %d", p.Version(), before, before+1)
		}
		if v := p.Weights().Version; v != p.Version() {
			s.faultf("Weights have version %d, want that of the policy, %d", v, p.Version())
		}
	}
}

var metricName = regexp.MustCompile(`^train/[a-z][a-z0-9_]*$`)

// metrics: each update returns the same names in the same order, with finite values.
func (s *suite) metrics() {
	p := s.New(1)
	var names []string
	for n := range 6 {
		metrics, err := learn(p, s.batch(p, numbers(n)))
		if !s.must(err) {
			return
		}
		var now []string
		for _, m := range metrics {
			now = append(now, m.Name)
			if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
				s.faultf("update %d: metric %s is %v", n, m.Name, m.Value)
			}
		}
		if n == 0 {
			names = now
			s.metricNames(names)
		}
		if !slices.Equal(names, now) {
			s.faultf("update %d has the metrics %v, update 0 has %v", n, now, names)
		}
	}
}

// metricNames reports names that are not unique or of another form than train/loss.
func (s *suite) metricNames(names []string) {
	if len(names) == 0 {
		s.faultf("Learn returns no metrics")
	}
	for i, name := range names {
		if !metricName.MatchString(name) {
			s.faultf("metric %q, want a name such as train/loss", name)
		}
		if slices.Contains(names[:i], name) {
			s.faultf("metric %s occurs twice", name)
		}
	}
}

// batchIsRead: Learn does not write to its batch, and Act not to its observations.
func (s *suite) batchIsRead() {
	p := s.New(1)
	for n := range 3 {
		b := s.batch(p, numbers(n))
		before := copyOf(b)
		if _, err := learn(p, b); !s.must(err) {
			return
		}
		for i := range before.Columns {
			if !equal(&before.Columns[i], &b.Columns[i]) {
				s.faultf("Learn changes the column %s of its batch", b.Columns[i].Name)
			}
		}
	}
	a := newAct(p.Spec(), 4, numbers(3))
	before := slices.Clone(a.Obs)
	if s.must(act(p, a)) && !slices.Equal(before, a.Obs) {
		s.faultf("Act changes its observations")
	}
}

// equal reports whether two blocks have the same content.
func equal(a, b *policies.Block) bool {
	same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	return slices.EqualFunc(a.Floats, b.Floats, same) && slices.Equal(a.Ints, b.Ints) &&
		slices.Equal(a.Bytes, b.Bytes) && slices.Equal(a.Words, b.Words)
}

func copyOf(b *policies.Batch) *policies.Batch {
	out := new(policies.Batch)
	out.InitLike(b)
	out.AppendBatch(b)
	return out
}

// batchColumns: the columns may stand in any order and among others.
func (s *suite) batchColumns() {
	p, q := s.New(1), s.New(1)
	for n := range 3 {
		b := s.batch(p, numbers(n))
		other := copyOf(b)
		slices.Reverse(other.Columns)
		extra := policies.Block{Column: policies.Column{Name: "policytest", Kind: policies.Float32}, Floats: unknown(b.N)}
		other.Columns = slices.Insert(other.Columns, 1, extra)
		want, err := learn(p, b)
		if !s.must(err) {
			return
		}
		want = slices.Clone(want)
		got, err := learn(q, other)
		if err != nil {
			s.faultf("Learn from the columns in another order and with one more: %w", err)
			return
		}
		if !slices.Equal(want, got) {
			s.faultf("the order of the columns, or a column that Spec.Learns does not list, changes the metrics from %v to %v", want, got)
			return
		}
	}
	file, err := snapshot(p)
	if s.must(err) {
		s.unchanged("the order of the columns", q, file)
	}
}

// batchNotFinite: a NaN or an infinity in a column is refused by the column's name.
func (s *suite) batchNotFinite() {
	p, before := s.savedPolicy()
	if before == nil {
		return
	}
	for _, c := range p.Spec().Learns {
		if c.Kind != policies.Float32 {
			continue
		}
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			b := s.batch(p, numbers(10))
			values := b.Floats(c.Name)
			values[len(values)-1] = float32(v)
			what := fmt.Sprintf("Learn from %v in the column %s", v, c.Name)
			s.refuses(p, before, what, b, func(err error) {
				if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != c.Name {
					s.faultf("%s: error %q, want a *nn.NonFiniteError of tensor %s", what, err, c.Name)
				}
			})
		}
	}
}

// batchRefused: a batch without rows, with a column missing or of another form, or with an action
// that does not exist, is refused.
func (s *suite) batchRefused() {
	p, before := s.savedPolicy()
	if before == nil {
		return
	}
	s.refuses(p, before, "Learn from an empty batch", RandomBatch(p.Spec(), numbers(10), 0), nil)
	s.refuses(p, before, "Learn from a batch without rows and columns", &policies.Batch{}, nil)
	for _, c := range p.Spec().Learns {
		for _, d := range columnFaults() {
			b := s.batch(p, numbers(10))
			d.edit(b, b.Column(c.Name))
			what := fmt.Sprintf("Learn from a batch whose column %s %s", c.Name, d.what)
			s.refuses(p, before, what, b, func(err error) {
				if !strings.Contains(err.Error(), c.Name) {
					s.faultf("%s: error %q does not name %s", what, err, c.Name)
				}
			})
		}
	}
	s.invalidActions(p, before)
}

// columnFault is how a column can be of another form than Spec.Learns has it.
type columnFault struct {
	what string
	edit func(b *policies.Batch, c *policies.Block)
}

func columnFaults() []columnFault {
	return []columnFault{
		{"is missing", func(b *policies.Batch, c *policies.Block) {
			name := c.Name // c changes its place
			b.Columns = slices.DeleteFunc(b.Columns, func(o policies.Block) bool { return o.Name == name })
		}},
		{"has a row less", func(b *policies.Batch, c *policies.Block) { resize(c, (b.N-1)*c.Width()) }},
		{"has a value more in each row", func(b *policies.Batch, c *policies.Block) {
			c.Shape = []int{c.Width() + 1}
			resize(c, b.N*c.Width())
		}},
		{"is of another kind", func(b *policies.Batch, c *policies.Block) {
			size := b.N * c.Width()
			if c.Kind == policies.Int32 {
				*c = policies.Block{Column: policies.Column{Name: c.Name, Kind: policies.Uint64, Shape: c.Shape}, Words: make([]uint64, size)}
				return
			}
			*c = policies.Block{Column: policies.Column{Name: c.Name, Kind: policies.Int32, Shape: c.Shape}, Ints: make([]int32, size)}
		}},
	}
}

// resize gives a block n values, those that are new zeros.
func resize(c *policies.Block, n int) {
	switch c.Kind {
	case policies.Float32:
		c.Floats = sized(c.Floats, n)
	case policies.Int32:
		c.Ints = sized(c.Ints, n)
	case policies.Uint8, policies.Bool:
		c.Bytes = sized(c.Bytes, n)
	case policies.Uint64:
		c.Words = sized(c.Words, n)
	}
}

func sized[T any](v []T, n int) []T { return append(slices.Clone(v), make([]T, n)...)[:n] }

// invalidActions tries values that are no actions, where actions are whole numbers.
func (s *suite) invalidActions(p policies.Policy, before []byte) {
	if _, box := p.Spec().Action.(envs.Box); box {
		return
	}
	for _, v := range []float32{-1e9, 1e9, 0.5} {
		b := s.batch(p, numbers(10))
		actions := b.Floats(policies.Action)
		if actions == nil {
			return
		}
		actions[len(actions)-1] = v
		s.refuses(p, before, fmt.Sprintf("Learn from the action %v", v), b, nil)
	}
}

// savedPolicy returns a policy that has learned, and its saved state; nil if that fails.
func (s *suite) savedPolicy() (policies.Policy, []byte) {
	p, ok := s.learned(1, 2)
	if !ok {
		return p, nil
	}
	before, err := snapshot(p)
	s.must(err)
	return p, before
}

// refuses reports unless Learn refuses b with a *policies.UpdateError and changes nothing. also, if
// not nil, checks the error.
func (s *suite) refuses(p policies.Policy, before []byte, what string, b *policies.Batch, also func(err error)) {
	version := p.Version()
	_, err := learn(p, b)
	s.unchanged(what, p, before)
	if p.Version() != version {
		s.faultf("%s makes the version %d, want %d as before", what, p.Version(), version)
	}
	if !s.refused(what, err) {
		return
	}
	e, ok := errors.AsType[*policies.UpdateError](err)
	switch {
	case !ok:
		s.faultf("%s: error %q is a %T, want a *policies.UpdateError", what, err, err)
	case e.Algorithm == "" || e.Update != version:
		s.faultf("%s: error of algorithm %q and update %d, want a name and update %d", what, e.Algorithm, e.Update, version)
	}
	if also != nil {
		also(err)
	}
}
