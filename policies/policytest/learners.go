package policytest

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// learnersTolerance is the largest difference between several learners and one learner with all
// rows, relative to 1 plus the number: sums of float32 in another order, over a few updates.
const learnersTolerance = 1e-4

// learners are how many train together in the check, and learnersUpdates how often.
const (
	learners        = 3
	learnersUpdates = 4
)

// severalLearners checks that learners of a policies.Parallel stay equal, and that they make the updates
// of one learner with all rows.
func (s *suite) severalLearners() {
	one, ok := s.New(1).(policies.Parallel)
	if !ok {
		return
	}
	var all []policies.Parallel
	for range learners {
		p, _ := s.New(1).(policies.Parallel)
		all = append(all, p)
	}
	rng := numbers(7)
	for update := range learnersUpdates {
		batches := make([]*policies.Batch, learners)
		whole := new(policies.Batch)
		for i := range batches {
			batches[i] = s.batch(one, rng)
			if i == 0 {
				whole.InitLike(batches[i])
			}
			whole.AppendBatch(batches[i])
		}
		want, err := learn(one, whole)
		if !s.must(err) {
			return
		}
		metrics, err := learnTogether(all, batches)
		if err != nil {
			s.faultf("update %d of several learners: %w", update, err)
			return
		}
		for i, p := range all {
			if d := s.apart(all[0], p); d != "" {
				s.faultf("after update %d, learners 0 and %d differ: %s", update, i, d)
				return
			}
		}
		if s.Sampled {
			continue
		}
		for i, p := range all {
			d := far(float32s(one.Weights()), float32s(p.Weights()))
			if d == "" {
				d = far(values(want), metrics[i])
			}
			if d != "" {
				s.faultf("after update %d, learner %d is not what one learner with all rows is: %s", update, i, d)
				return
			}
		}
	}
}

// learnTogether has each learner make an update from its batch, and returns their metrics.
func learnTogether(all []policies.Parallel, batches []*policies.Batch) ([][]entry, error) {
	m := &meeting{n: len(all)}
	m.moved.L = &m.mu
	errs, metrics := make([]error, len(all)), make([][]entry, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			p.SetAllReduce(func(grads [][]float32, numbers []float64) error {
				return m.mean(i, float64(batches[i].N), grads, numbers)
			})
			found, err := learn(p, batches[i])
			errs[i], metrics[i] = err, values(found)
			m.leave()
		})
	}
	wg.Wait()
	return metrics, errors.Join(errs...)
}

// meeting is an all-reduce of goroutines.
type meeting struct {
	n     int
	mu    sync.Mutex
	moved sync.Cond
	came  int // to the present round
	left  int // are done
	round int
	parts []part
	means []float64
}

// part is the contribution of one learner.
type part struct {
	rows   float64
	values []float64
}

var errLeft = errors.New("a learner makes fewer calls of its AllReduce than another")

func (m *meeting) mean(i int, rows float64, grads [][]float32, numbers []float64) error {
	var all []float64
	for _, g := range grads {
		all = append(all, floats(g)...)
	}
	all = append(all, numbers...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.came == 0 {
		m.parts = make([]part, m.n)
	}
	m.parts[i] = part{rows, all}
	m.came++
	if round := m.round; m.came == m.n {
		m.finish()
	} else {
		for m.round == round && m.left == 0 {
			m.moved.Wait()
		}
		if m.round == round {
			return errLeft
		}
	}
	if len(m.means) != len(all) {
		return fmt.Errorf("a learner averages %d values, and another one %d", len(all), len(m.means))
	}
	at := 0
	for _, g := range grads {
		for k := range g {
			g[k] = float32(m.means[at])
			at++
		}
	}
	copy(numbers, m.means[at:])
	return nil
}

// finish computes the means of a round, and begins the next.
func (m *meeting) finish() {
	m.means = make([]float64, len(m.parts[0].values))
	total := 0.0
	for _, p := range m.parts {
		total += p.rows
	}
	for _, p := range m.parts {
		for k := range min(len(m.means), len(p.values)) {
			m.means[k] += p.values[k] * p.rows / total
		}
	}
	m.round++
	m.came = 0
	m.moved.Broadcast()
}

func (m *meeting) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left++
	m.moved.Broadcast()
}

// apart describes how the networks and optimisers of two policies differ, or is "".
func (s *suite) apart(a, b policies.Policy) string {
	var states [2][]entry
	for i, p := range []policies.Policy{a, b} {
		var archive nn.Archive
		if err := guard(func() error { return p.Save(&archive) }); err != nil {
			return fmt.Sprintf("Save: %v", err)
		}
		states[i] = float32s(nn.State{Tensors: archive.Tensors})
	}
	return difference(states[0], states[1])
}

// float32s returns the float32 values of a state.
func float32s(s nn.State) []entry {
	var out []entry
	for _, t := range s.Tensors {
		out = append(out, entry{t.Name, floats(t.Data)})
	}
	return out
}

// values are metrics as numbers.
func values(metrics []policies.Metric) []entry {
	var out []entry
	for _, m := range metrics {
		out = append(out, entry{m.Name, []float64{m.Value}})
	}
	return out
}

// far describes the first numbers that differ by more than learnersTolerance, or is "".
func far(want, got []entry) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d and %d results", len(want), len(got))
	}
	for i, x := range want {
		y := got[i]
		if x.what != y.what || len(x.values) != len(y.values) {
			return fmt.Sprintf("%s of %d values, and %s of %d", x.what, len(x.values), y.what, len(y.values))
		}
		for k, v := range x.values {
			if d := math.Abs(v - y.values[k]); !(d <= learnersTolerance*(1+math.Abs(v))) {
				return fmt.Sprintf("%s[%d] is %v and %v", x.what, k, v, y.values[k])
			}
		}
	}
	return ""
}
