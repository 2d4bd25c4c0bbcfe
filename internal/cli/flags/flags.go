// Package flags declares the flags of a job, which several commands take, and tells
// which of them were given.
//
//	cmd := &urfave.Command{Name: "plan", Flags: append(flags.Job(), flags.JSON())}
//	args := flags.Given(ctx, "package") // as arguments for a launcher elsewhere
//
// What the flags mean for a job is in package job.
package flags

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/trace"
)

// TLSAuto is the value of --tls that makes certificates for one job.
const TLSAuto = "auto"

// The groups of flags in the help.
const (
	groupWhat  = "What to run"
	groupWhere = "Nodes and addresses"
	groupJob   = "Job and security"
	groupLife  = "Failures and ends"
	groupOut   = "Output"
)

// Text is a flag with a text, in a group of the help.
func Text(group, name, def, use string, aliases ...string) *urfave.StringFlag {
	return &urfave.StringFlag{Category: group, Name: name, Aliases: aliases, Value: def, Usage: use}
}

// Job are the flags of a job. They are made anew for each command, which
// keeps its values in them.
func Job() []urfave.Flag {
	return slices.Concat(Certs(), []urfave.Flag{
		Text(groupWhat, "package", "", "`PACKAGE` to run: a folder or import path, the word main, or a built program", "p"),
		Text(groupWhat, "main", "", "`FUNC` to run: one of those given to parallel.Main, or any of a library package", "m"),

		&urfave.IntFlag{Category: groupWhere, Name: "parallel-workers", Aliases: []string{"n"}, Value: 1, Usage: "number of nodes that this launcher starts"},
		Text(groupWhere, "topology", "mesh", "which nodes connect: mesh (all), star (each with the first node) or alone"),
		Text(groupWhere, "protocol", "", "tcp, or ipc for unix sockets (default: ipc on one machine)"),
		Text(groupWhere, "ports", "", "`PORTS` to listen on: the first, or a list with one for each node (default: free ones)"),
		Text(groupWhere, "address", "", "`ADDRESS` of this host to listen on, without a port (default: 127.0.0.1; with several launchers all of the host)"),
		Text(groupWhere, "attach-to", "", "`LIST` of further addresses that each node dials: tcp://host:port, unix:///path or $node.N"),
		Text(groupWhere, "node-ids", "", "`IDS` of the nodes: the first, or a list with one for each (default: from 0)"),
		Text(groupWhere, "labels", "", "`LIST` of labels for each node"),
		Text(groupWhere, "platform", "", "where the launchers run: local; slurm, one in each task of a step; or kubernetes (k8s means the same), one in each pod (default: slurm in a task that srun has started, kubernetes with DI_NODES or the like, else local)"),
		Text(groupWhere, "platform-spec", "", "`JSON`, or a file of it, that says for each task its labels, node_ids, ports, address, attach_to and parallel_workers"),
		Text(groupWhere, "mq-type", "mesh", "what carries messages: mesh (nng means the same), nats (a server, in the launcher of the first node or at --nats-url) or redis"),
	}, Servers(), []urfave.Flag{
		Text(groupWhere, "redis-host", "127.0.0.1", "`HOST` of the Redis server, in place of --redis-url"),
		&urfave.IntFlag{Category: groupWhere, Name: "redis-port", Value: 6379, Usage: "port of the Redis server"},
		&urfave.IntFlag{Category: groupWhere, Name: "local_rank", Aliases: []string{"local-rank"}, Value: -1, DefaultText: "none", Usage: "number of this launcher on the host, when something starts several"},

		Text(groupJob, "job-id", "", "`ID` of the job (default: a random one)"),
		&urfave.StringFlag{Category: groupJob, Name: "token", Usage: "secret of the job; other users see it here, in ps: prefer its variable, or --token-file (default: a random one)", EnvVars: []string{control.VarToken}},
		&urfave.StringFlag{Category: groupJob, Name: "token-file", Usage: "`FILE` that holds the secret, of mode 0600", EnvVars: []string{control.VarTokenFile}},
		Text(groupJob, "tls", "", "auto: TLS between the nodes of one launcher, with certificates that end with the job"),
		&urfave.Int64Flag{Category: groupJob, Name: "seed", Usage: "seed of the job", EnvVars: []string{control.VarSeed}},

		&urfave.BoolFlag{Category: groupLife, Name: "auto-recover", Usage: "start a node that failed again"},
		&urfave.BoolFlag{Category: groupLife, Name: "resume", Usage: "go on from the checkpoint in --dir, or in that of the program's newest run", EnvVars: []string{control.VarResume}},
		&urfave.BoolFlag{Category: groupLife, Name: "overwrite", Usage: "replace the run that --dir holds: its checkpoints are removed", EnvVars: []string{control.VarOverwrite}},
		&urfave.IntFlag{Category: groupLife, Name: "max-retries", Value: 3, Usage: "restarts of one node before the job fails"},
		&urfave.DurationFlag{Category: groupLife, Name: "grace", Value: 10 * time.Second, Usage: "time that nodes have to end after a signal, before they are killed"},
		&urfave.DurationFlag{Category: groupLife, Name: "join-timeout", DefaultText: "1m, in pods 10m", Usage: "how long nodes wait for each other at the start, before the job fails"},
		&urfave.DurationFlag{Category: groupLife, Name: "peer-timeout", Value: 8 * time.Second, Usage: "how long a node may be silent or out of reach before the others go on without it; its launcher kills it 2s later"},
		Text(groupLife, "startup-interval", "0", "`TIME` between the starts of two nodes: seconds, or a duration such as 500ms"),

		&urfave.PathFlag{Category: groupOut, Name: "dir", Usage: "`FOLDER` for what the run writes, such as checkpoints (default: a new one, runs/PROGRAM/TIME-JOB)"},
		&urfave.PathFlag{Category: groupOut, Name: "log-dir", Usage: "`FOLDER` for one log file a node (default: logs in --dir, if that is given)"},
		Text(groupOut, "run-name", "", "`NAME` of the program in the folders of its runs (default: that of --package)"),
		Text(groupOut, "log-format", "text", "format of the log: text or json"),
		&urfave.PathFlag{Category: groupOut, Name: "trace", Usage: "`FOLDER` to record in what events each node sends and receives: see ditask trace"},
		&urfave.IntFlag{Category: groupOut, Name: "trace-limit", Value: trace.DefaultLimit >> 20, Usage: "size of each node's record in MiB, at most"},
		Text(groupOut, "metrics-port", "", "`PORT` of loopback, or ADDRESS:PORT, to serve /metrics for Prometheus and /healthz on; 0 is a free port, which is printed"),
		&urfave.BoolFlag{Category: groupOut, Name: "no-table", Usage: "no live table of the nodes, even on a terminal"},
	})
}

// Servers are the flags of servers elsewhere that carry messages, for a job and for doctor.
func Servers() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Category: groupWhere, Name: "nats-url", Usage: "`URL` of the NATS server that carries messages, or several of one cluster with commas; with a password or token prefer its variable", EnvVars: []string{VarNATSURL}},
		&urfave.PathFlag{Category: groupWhere, Name: "nats-creds", Usage: "`FILE` with the credentials of a NATS user"},
		&urfave.PathFlag{Category: groupWhere, Name: "nats-nkey", Usage: "`FILE` with the seed of a NATS user's nkey"},
		&urfave.StringFlag{Category: groupWhere, Name: "redis-url", Usage: "`URL` of the Redis server that carries messages, redis://user:password@host:port/db or rediss://; with a password prefer its variable", EnvVars: []string{VarRedisURL}},
	}
}

// RedisServer is the URL of the Redis server that the flags name; empty: none. The URL
// of its variable does not count where the command line names another carrier.
func RedisServer(ctx *urfave.Context) string {
	carrier := ctx.String("mq-type")
	other := NATSServer(ctx) != "" || ctx.IsSet("mq-type") && carrier != placement.CarrierRedis
	if u := URL(ctx, "redis-url"); u != "" && (!other || FromCommandLine(ctx, "redis-url")) {
		return u
	}
	if carrier != placement.CarrierRedis {
		return ""
	}
	return "redis://" + net.JoinHostPort(strings.Trim(ctx.String("redis-host"), "[]"), strconv.Itoa(ctx.Int("redis-port")))
}

// Idle returns a fault for each flag that was given and has no effect, because the flag
// with which it acts is missing. A flag is idle at its default value too. Values of
// DITASK_ variables are never idle: a profile may set them for all jobs.
func Idle(ctx *urfave.Context) []error {
	var faults []error
	for _, rule := range []struct {
		active bool
		other  string
		names  []string
	}{
		{ctx.Bool("auto-recover"), "--auto-recover", []string{"max-retries"}},
		{ctx.Path("trace") != "", "--trace", []string{"trace-limit"}},
		{NATSServer(ctx) != "", "--nats-url", []string{"nats-creds", "nats-nkey"}},
		{ctx.String("mq-type") == placement.CarrierRedis || ctx.String("redis-url") != "", "--mq-type redis", []string{"redis-host", "redis-port"}},
	} {
		for _, name := range rule.names {
			if ctx.IsSet(name) && !rule.active {
				faults = append(faults, fmt.Errorf("--%s: has no effect without %s: give both, or leave --%s out", name, rule.other, name))
			}
		}
	}
	return append(faults, twoServers(ctx)...)
}

// twoServers returns a fault for each flag that names a part of the Redis server where
// its URL is given.
func twoServers(ctx *urfave.Context) []error {
	var faults []error
	for _, name := range []string{"redis-host", "redis-port"} {
		switch {
		case ctx.String("redis-url") == "" || !ctx.IsSet(name):
		case FromCommandLine(ctx, "redis-url"):
			faults = append(faults, fmt.Errorf("--%s: --redis-url names the server: leave one of the two out", name))
		default:
			faults = append(faults, fmt.Errorf("--%s: %s names the server: unset it, or leave --%s out", name, VarRedisURL, name))
		}
	}
	return faults
}

// Certs are the flags of certificates, for a job and for doctor.
func Certs() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Category: groupJob, Name: "tls-cert", Usage: "PEM `FILE` with the certificate of the nodes; TLS is on with it", EnvVars: []string{control.VarTLSCert}},
		&urfave.StringFlag{Category: groupJob, Name: "tls-key", Usage: "PEM `FILE` with its key", EnvVars: []string{control.VarTLSKey}},
		&urfave.StringFlag{Category: groupJob, Name: "tls-ca", Usage: "PEM `FILE` with the authority that the nodes trust", EnvVars: []string{control.VarTLSCA}},
	}
}

// Platform is the platform that --platform names; empty: none. The word k8s stands for
// kubernetes.
func Platform(ctx *urfave.Context) string {
	if p := ctx.String("platform"); p != "k8s" {
		return p
	}
	return "kubernetes"
}

// JSON is the flag of commands that print for people or for programs.
func JSON() urfave.Flag { return &urfave.BoolFlag{Name: "json", Usage: "print JSON"} }

// Given are the flags of the job that were given, as arguments, but for those
// to leave out. Values of variables that may be secrets are left out as well.
func Given(ctx *urfave.Context, leave ...string) []string {
	given := ctx.LocalFlagNames()
	var out []string
	for _, f := range Job() {
		name := f.Names()[0]
		if slices.Contains(leave, name) || !slices.ContainsFunc(f.Names(), func(n string) bool { return slices.Contains(given, n) }) {
			continue
		}
		if slices.Contains(guarded, name) && !FromCommandLine(ctx, name) {
			continue
		}
		value := fmt.Sprint(ctx.Value(name))
		if _, ok := f.(*urfave.BoolFlag); ok {
			out = append(out, fmt.Sprintf("--%s=%s", name, value))
			continue
		}
		out = append(out, "--"+name, value)
	}
	return out
}
