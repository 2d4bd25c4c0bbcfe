package ppo

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/nn"
)

// rollout is the state of Config.KLCoef and Config.StopKL for the present rollout:
// all rows whose actions were chosen by one version of the policy.
type rollout struct {
	version float64 // of the policy that has collected it
	updates float64 // made from it; 0: there is none yet
	kl      float64 // sum of their divergences
	newest  float64 // approximate divergence of the newest of them
	coef    actorcritic.KLCoef
}

// watchesKL reports whether one of both is in use.
func (c Config) watchesKL() bool { return c.KLCoef > 0 || c.StopKL > 0 }

// add counts an update.
func (r *rollout) add(approxKL, kl float64) {
	r.updates++
	r.kl += kl
	r.newest = approxKL
}

// follow begins a new rollout where the batch is of another version, and adapts the coefficient of
// the penalty by the mean divergence of the updates from the one before, as RLlib does. All learners
// begin one when one of them does.
func (p *PPO) follow(b *policies.Batch) error {
	if !p.cfg.watchesKL() {
		return nil
	}
	r, version, begins := &p.rollout, float64(b.Words(policies.Version)[0]), 0.0
	if version != r.version {
		begins = 1
	}
	if err := p.Mean(&begins); err != nil || begins == 0 {
		return err
	}
	if r.updates > 0 && p.cfg.KLCoef > 0 {
		r.coef.Adapt(r.kl / r.updates)
	}
	r.version, r.updates, r.kl, r.newest = version, 0, 0, 0
	return nil
}

// stopped reports whether no more updates are made from this rollout.
func (p *PPO) stopped() bool { return p.cfg.StopKL > 0 && p.rollout.newest > p.cfg.StopKL }

// parts are all that a checkpoint holds.
func (p *PPO) parts() policies.Parts {
	parts := p.Parts()
	if p.cfg.watchesKL() {
		r := &p.rollout
		parts = append(parts, policies.NumbersPart("ppo.rollout", &r.version, &r.updates, &r.kl, &r.newest, &r.coef.Value))
	}
	return parts
}

// Save writes networks, optimiser and counters to a.
func (p *PPO) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore restores p to the state at Save. The networks must have the same shape; the rest of the config
// is p's own. An error may leave p half restored.
func (p *PPO) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
