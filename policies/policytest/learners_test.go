package policytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies"
)

// TestSampledIsHeld: learners with noise for each row are not one learner with all rows.
func TestSampledIsHeld(t *testing.T) {
	cfg := good()
	cfg.Sampled = false
	err := check{"several learners", (*suite).severalLearners}.test(cfg)
	if want := "is not what one learner with all rows is: "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("report %q, want %q", fmt.Sprint(err), want)
	}
}

func learnersFaults() []fault {
	const check = "several learners"
	return []fault{
		{check, "a call of some learners", "a learner makes fewer calls of its AllReduce than another", func(p *faulty, _ uint64) {
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				m, err := p.toy.Learn(b)
				if x := 1.0; err == nil && b.Bytes(policies.Terminated)[0] == 0 {
					err = p.trainer.Mean(&x)
				}
				return m, err
			}
		}},
		{check, "nothing is averaged", "after update 0, learners 0 and 1 differ: toy.net/", func(p *faulty, _ uint64) {
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				p.trainer.SetAllReduce(nil)
				return p.toy.Learn(b)
			}
		}},
		{check, "calls that depend on the batch", "a learner averages 1 values, and another one 28", func(p *faulty, _ uint64) {
			p.learn = func(b *policies.Batch) ([]policies.Metric, error) {
				if b.Bytes(policies.Terminated)[0] == 0 {
					x := 1.0
					if err := p.trainer.Mean(&x); err != nil {
						return nil, err
					}
				}
				return p.toy.Learn(b)
			}
		}},
	}
}
