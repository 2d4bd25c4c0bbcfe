package k8s

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/placement"
)

// The longest names for which the names of pods, with their index, and of the other
// objects of the job are valid host names: without and with the names of groups.
const (
	maxName        = 57
	maxGroupedName = 40
)

// checkManifest joins all faults of the flags.
func checkManifest(ctx *urfave.Context) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	kind, longest := ctx.String("kind"), maxName
	switch kind {
	case kindJobSet, kindDIJob:
		longest = maxGroupedName
	case kindJob:
	default:
		fault("--kind %q: want job, jobset or dijob", kind)
	}
	if name := ctx.String("name"); !hostName.MatchString(name) || len(name) > longest {
		fault("--name %q: want at most %d lower-case letters, digits and hyphens, the first a letter", name, longest)
	}
	if ns := ctx.String("namespace"); ns != "" && (!regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(ns) || len(ns) > 63) {
		fault("--namespace %q: want at most 63 lower-case letters, digits and hyphens", ns)
	}
	if ctx.String("image") == "" {
		fault("--image is missing: give an image that contains the program and has ditask as its entry point")
	}
	faults = append(faults, checkNames(ctx)...)
	faults = append(faults, checkGroups(ctx)...)
	for _, name := range []string{"cpu", "memory"} {
		if v := ctx.String(name); v != "" && !regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?$`).MatchString(v) {
			fault("--%s %q: want a quantity such as 2, 500m or 4Gi", name, v)
		}
	}
	for _, name := range []string{"gpus", "backoff-limit"} {
		if n := ctx.Int(name); n < 0 {
			fault("--%s %d: want at least 0", name, n)
		}
	}
	if _, err := selectors(ctx); err != nil {
		faults = append(faults, err)
	}
	if _, err := tolerations(ctx); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(append(faults, checkPods(ctx)...)...)
}

// checkPods checks the flags of the job in the pods.
func checkPods(ctx *urfave.Context) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch bus := ctx.String("bus"); {
	case bus != "" && bus != placement.TransportNATS && bus != placement.TransportRedis:
		fault("--bus %q: want nats or redis", bus)
	case bus != "" && (ctx.IsSet("mq-type") || flags.FromCommandLine(ctx, "nats-url") || flags.FromCommandLine(ctx, "redis-url")):
		fault("--bus: names the server: leave out --mq-type, --nats-url and --redis-url")
	case bus == "" && ctx.IsSet("bus-image"):
		fault("--bus-image: has no effect without --bus: give both, or leave --bus-image out")
	case bus != "" && ctx.String("token-secret") == ctx.String("name")+"-bus":
		fault("--token-secret %s: is the Secret with the password of the server: give another name", ctx.String("token-secret"))
	}
	if ctx.String("kind") == kindDIJob && ctx.IsSet("token-secret") {
		fault("--token-secret: the operator makes a token for each dijob: leave it out")
	}
	if err := checkSecrets(ctx); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, flags.Idle(ctx)...)
	if ctx.IsSet("local_rank") {
		fault("--local_rank: the variables of a pod give its number: leave --local_rank out")
	}
	if p := flags.Platform(ctx); p != "" && p != "kubernetes" {
		fault("--platform %q: want kubernetes, or leave it out", p)
	}
	for _, name := range []string{"token", "token-file"} {
		if ctx.String(name) != "" && flags.FromCommandLine(ctx, name) {
			fault("--%s: a manifest must not contain a secret: store it in a Secret, and give its name with --token-secret", name)
		}
	}
	if ctx.String("tls") == flags.TLSAuto {
		fault("--tls auto is for the nodes of one launcher: make certificates with ditask tls, store them in a Secret, and mount it")
	}
	return faults
}

// checkGroups checks the number of pods, and their groups.
func checkGroups(ctx *urfave.Context) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	kind, words := ctx.String("kind"), ctx.StringSlice("task")
	last, most := ctx.Int("pods"), 4096
	if kind == kindDIJob {
		most = 1000
	}
	switch {
	case len(words) == 0 && (last < 1 || last > most):
		fault("--pods %d: want a number from 1 to %d", last, most)
	case len(words) > 0 && kind == kindJob:
		fault("--task: the pods of an Indexed Job are all alike: give --kind jobset or dijob, or --pods")
	case len(words) > 0 && ctx.IsSet("pods"):
		fault("--task and --pods: give one of them")
	case len(words) > 8:
		fault("--task: %d groups: want at most 8", len(words))
	}
	seen, total := map[string]bool{}, 0
	for _, word := range words {
		g, err := parseGroup(word)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if seen[g.Task] {
			fault("--task %q: another group is named %s", word, g.Task)
		}
		seen[g.Task] = true
		last, _ = strconv.Atoi(g.Replicas) // parseGroup has checked it
		total += last
	}
	if total > 4096 {
		fault("--task: %d pods: want at most 4096", total)
	}
	least, largest := ctx.Int("min-replicas"), ctx.Int("max-replicas")
	elastic := ctx.IsSet("min-replicas") || ctx.IsSet("max-replicas")
	switch {
	case elastic && kind != kindDIJob:
		fault("--min-replicas, --max-replicas: have no effect without --kind dijob: give it, or leave them out")
	case ctx.IsSet("min-replicas") && (least < 0 || least > last):
		fault("--min-replicas %d: want a number from 0 to the pods of the last group, %d", least, last)
	case ctx.IsSet("max-replicas") && (largest < last || largest > 1000):
		fault("--max-replicas %d: want a number from the pods of the last group, %d, to 1000", largest, last)
	}
	return faults
}

// parseGroup reads NAME:TYPE:PODS or NAME:TYPE:PODS:GPUS.
func parseGroup(word string) (group, error) {
	w := strings.Split(word, ":")
	if len(w) != 3 && len(w) != 4 {
		return group{}, fmt.Errorf("--task %q: want NAME:TYPE:PODS, such as learner:learner:1, or NAME:TYPE:PODS:GPUS", word)
	}
	g := group{Task: w[0], Type: w[1], Replicas: w[2], GPUs: -1}
	if !hostName.MatchString(g.Task) || len(g.Task) > 16 {
		return g, fmt.Errorf("--task %q: name %q: want at most 16 lower-case letters, digits and hyphens, the first a letter", word, g.Task)
	}
	if !slices.Contains([]string{"learner", "evaluator", "collector", "none"}, g.Type) {
		return g, fmt.Errorf("--task %q: type %q: want learner, evaluator, collector or none", word, g.Type)
	}
	if n, err := strconv.Atoi(g.Replicas); err != nil || n < 1 || n > 1000 || strconv.Itoa(n) != g.Replicas {
		return g, fmt.Errorf("--task %q: pods %q: want a number from 1 to 1000", word, g.Replicas)
	}
	if len(w) == 4 {
		n, err := strconv.Atoi(w[3])
		if err != nil || n < 0 {
			return g, fmt.Errorf("--task %q: GPUs %q: want a number, at least 0", word, w[3])
		}
		g.GPUs = n
	}
	return g, nil
}

// selectors returns the labels of --node-selector.
func selectors(ctx *urfave.Context) (pairs []pair, err error) {
	for _, word := range ctx.StringSlice("node-selector") {
		key, value, ok := strings.Cut(word, "=")
		if !ok || !isLabelKey(key) || !isLabelValue(value) {
			return nil, fmt.Errorf("--node-selector %q: want LABEL=VALUE, %s", word, labelRule)
		}
		pairs = append(pairs, pair{Key: key, Value: value})
	}
	return pairs, nil
}

// tolerations returns the taints of --tolerate.
func tolerations(ctx *urfave.Context) (pairs []pair, err error) {
	for _, word := range ctx.StringSlice("tolerate") {
		taint, effect, said := strings.Cut(word, ":")
		key, value, _ := strings.Cut(taint, "=")
		if !isLabelKey(key) || !isLabelValue(value) {
			return nil, fmt.Errorf("--tolerate %q: want KEY, KEY=VALUE or KEY=VALUE:EFFECT, %s", word, labelRule)
		}
		if said && !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) {
			return nil, fmt.Errorf("--tolerate %q: want KEY, KEY=VALUE or KEY=VALUE:EFFECT, the effect NoSchedule, PreferNoSchedule or NoExecute",
				word)
		}
		pairs = append(pairs, pair{Key: key, Value: value, Effect: effect})
	}
	return pairs, nil
}
