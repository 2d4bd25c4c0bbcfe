package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/placement"
)

// idle refuses flags that have no effect in a job of this plan. It accepts values of
// variables: a profile may set them for all jobs.
func idle(ctx *urfave.Context, plan placement.Plan) error {
	var faults []error
	local := plan.Local()
	if ctx.IsSet("startup-interval") && len(local) == 1 {
		faults = append(faults, errors.New("--startup-interval: has no effect, as this launcher starts one node: leave it out"))
	}
	if ctx.IsSet("join-timeout") && len(local) == 1 && plan.Bus == "" && !plan.Shared() {
		faults = append(faults, errors.New("--join-timeout: has no effect, as the job has one node: leave it out"))
	}
	if flags.FromCommandLine(ctx, "shared-memory") && ctx.Int("shared-memory") > 0 && !neighbours(plan) {
		faults = append(faults, errors.New("--shared-memory: has no effect, "+
			"as no node of this launcher connects with another one of its host by sockets: leave it out"))
	}
	for _, name := range []string{"tls", "tls-cert", "tls-key", "tls-ca"} {
		if flags.FromCommandLine(ctx, name) && !overNetwork(plan) {
			faults = append(faults, fmt.Errorf("--%s: has no effect over unix sockets, which only you can open: "+
				"give --protocol tcp, or leave --%s out", name, name))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return call.UsageError{Err: err}
	}
	return nil
}

// overNetwork reports whether nodes of this launcher use sockets other than unix sockets.
func overNetwork(plan placement.Plan) bool {
	tcp := func(addr string) bool { return strings.HasPrefix(addr, "tcp://") }
	return plan.Bus != "" || slices.ContainsFunc(plan.Local(), func(n placement.Node) bool {
		return tcp(n.Listen) || slices.ContainsFunc(n.Attach, tcp)
	})
}

// overridden returns a fault for each flag that has no effect because every task of the
// platform spec sets the value.
func overridden(ctx *urfave.Context, spec *placement.Spec) []error {
	if spec == nil {
		return nil
	}
	var faults []error
	for _, rule := range []struct {
		flag, key string
		missing   func(placement.TaskSpec) bool
	}{
		{"parallel-workers", "parallel_workers", func(t placement.TaskSpec) bool { return t.Workers == 0 }},
		{"address", "address", func(t placement.TaskSpec) bool { return t.Address == "" }},
	} {
		if ctx.IsSet(rule.flag) && !slices.ContainsFunc(spec.Tasks, rule.missing) {
			faults = append(faults, fmt.Errorf("--%s: has no effect, as every task of the platform spec has %s: leave it out",
				rule.flag, rule.key))
		}
	}
	return faults
}
