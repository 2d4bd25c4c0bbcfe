// Package policytest is the conformance suite of policies: it holds every implementation of
// [policies.Policy] to the promises of that interface.
//
//	func TestConformance(t *testing.T) {
//		policytest.Run(t, policytest.Config{New: func(seed uint64) policies.Policy {
//			return New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 4}, Hidden: []int{8}, Seed: seed})
//		}})
//	}
//
// Each subtest of [Run] is one promise: equal seeds give equal bits; an archive restores all that
// follows, also through a file; damaged archives, weights and batches are refused by name and
// change nothing; greedy actions use no random numbers; actions lie in their space; metrics keep
// their names and order; a steady Learn and a steady Act allocate nothing. With
// [Config.Losses] the gradients of losses are compared with central differences. Three learners of a
// [policies.Parallel] stay equal, and equal to one learner with all of their rows, within 1e-4. The ONNX file
// of a [policies.Exporter], run by its own reader, chooses the actions that the policy chooses greedily.
//
// The suite reports every fault that it finds as an error of its subtest, a panic of the policy
// included. It starts no goroutine except for learners, which have ended when it returns, and its random
// numbers are the same in each run. Subtests must not run in parallel with others, because allocations are
// counted in the whole process.
//
// Policies should be small: the suite makes a few hundred updates, and restores an archive
// several times for each of its tensors.
package policytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/ditask/ditask/policies"
)

// Config describes a policy to the suite. New must be set.
type Config struct {
	// New returns a fresh policy, another one at each call. Policies of one seed are equal. Its
	// other settings are always the same.
	New func(seed uint64) policies.Policy
	// Batch returns a batch that p can learn from, made of random numbers of rng; nil means
	// RandomBatch of 4 to 16 rows. Batches of one policy should differ in size, because memory
	// that a policy keeps must not show in its results.
	Batch func(p policies.Policy, rng *rand.Rand) *policies.Batch
	// Losses returns the losses of the policy, to compare gradients with central differences;
	// nil means that gradients are not compared.
	Losses func(rng *rand.Rand) []Loss
	// Seedless reports that the policy draws no random numbers except those of Act.Rand: its
	// policies must then be equal whatever their seed. A table that begins with zeros is such.
	Seedless bool
	// Sampled reports that Learn draws random numbers for each row. Several learners are then
	// compared with each other only, and not with one that has all rows.
	Sampled bool
}

// Run tests a policy in subtests of t. It panics if cfg.New is nil.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.New == nil {
		panic("policytest: Config.New is nil")
	}
	for _, c := range checks() {
		if c.name == gradientCheck && cfg.Losses == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if err := c.test(cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

// gradientCheck is the name of the check that needs Config.Losses.
const gradientCheck = "gradient"

// check is one subtest.
type check struct {
	name string
	run  func(s *suite)
}

// checks returns the subtests, in the order in which they run.
func checks() []check {
	return []check{
		{"spec", (*suite).spec},
		{"seed", (*suite).seed},
		{"resume", (*suite).resume},
		{"saved archive", (*suite).savedArchive},
		{"damaged archive", (*suite).damagedArchive},
		{"weights", (*suite).weights},
		{"damaged weights", (*suite).damagedWeights},
		{"version", (*suite).version},
		{"metrics", (*suite).metrics},
		{"batch is read", (*suite).batchIsRead},
		{"batch columns", (*suite).batchColumns},
		{"batch not finite", (*suite).batchNotFinite},
		{"batch refused", (*suite).batchRefused},
		{"act lengths", (*suite).actLengths},
		{"act not finite", (*suite).actNotFinite},
		{"greedy", (*suite).greedy},
		{"actions in space", (*suite).actionsInSpace},
		{"allocations", (*suite).allocations},
		{"several learners", (*suite).severalLearners},
		{"export", (*suite).exported},
		{gradientCheck, (*suite).gradient},
	}
}

// test runs the check, and returns all faults that it finds.
func (c check) test(cfg Config) error {
	s := &suite{Config: cfg}
	if err := guard(func() error { c.run(s); return nil }); err != nil {
		s.faults = append(s.faults, err)
	}
	return errors.Join(s.faults...)
}

// suite is the state of a check.
type suite struct {
	Config
	faults []error
}

// faultf reports a fault, and lets the check continue.
func (s *suite) faultf(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

// must reports err, if there is one, and whether the check can continue.
func (s *suite) must(err error) bool {
	if err != nil {
		s.faults = append(s.faults, err)
	}
	return err == nil
}

// panicError is a panic of the policy.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// guard calls f, and returns a panic as an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}

// refused reports an error that is missing or a panic. what is the subject of the report, such as
// "Act with half an observation".
func (s *suite) refused(what string, err error) bool {
	if e, ok := errors.AsType[*panicError](err); ok {
		s.faultf("%s panics: %v\n%s", what, e.value, e.stack)
		return false
	}
	if err == nil {
		s.faultf("%s is no error", what)
	}
	return err != nil
}
