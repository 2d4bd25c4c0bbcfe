// Package flags declares the flags of a job, which several commands have, and reports
// which of them were given.
//
//	cmd := &urfave.Command{Name: "plan", Flags: append(flags.Job(), flags.JSON())}
//	args := flags.Given(ctx, "package") // as arguments for a launcher on another host
//
// Package job interprets the flags.
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

// Text returns a flag with a text, in a group of the help.
func Text(group, name, def, use string, aliases ...string) *urfave.StringFlag {
	return &urfave.StringFlag{Category: group, Name: name, Aliases: aliases, Value: def, Usage: use}
}

// Job returns the flags of a job. They are new for each command, which keeps its values in
// them.
func Job() []urfave.Flag {
	return slices.Concat(Certs(), what(), where(), Servers(), []urfave.Flag{
		Text(groupWhere, "redis-host", "127.0.0.1", "`HOST` of the Redis server, instead of --redis-url"),
		number(groupWhere, "redis-port", 6379, "port of the Redis server"),
		&urfave.IntFlag{
			Category: groupWhere, Name: "local_rank", Aliases: []string{"local-rank"}, Value: -1, DefaultText: "none",
			Usage: "number of this launcher on the host, if another program starts several",
		},
	}, security(), life(), output())
}

// number returns a flag with a whole number.
func number(group, name string, def int, use string, aliases ...string) *urfave.IntFlag {
	return &urfave.IntFlag{Category: group, Name: name, Aliases: aliases, Value: def, Usage: use}
}

// toggle returns a flag that is on or off, with the variables that set it.
func toggle(group, name, use string, variables ...string) *urfave.BoolFlag {
	return &urfave.BoolFlag{Category: group, Name: name, Usage: use, EnvVars: variables}
}

// file returns a flag with a path.
func file(group, name, use string) *urfave.PathFlag {
	return &urfave.PathFlag{Category: group, Name: name, Usage: use}
}

// guardedText returns a text flag that an environment variable can also set.
func guardedText(group, name, use, variable string) *urfave.StringFlag {
	return &urfave.StringFlag{Category: group, Name: name, Usage: use, EnvVars: []string{variable}}
}

func what() []urfave.Flag {
	return []urfave.Flag{
		Text(groupWhat, "package", "", "`PACKAGE` to run: a folder or import path, the word main, or a built program", "p"),
		Text(groupWhat, "main", "", "`FUNC` to run: one of those given to parallel.Main, or any of a library package", "m"),
	}
}

func where() []urfave.Flag {
	return []urfave.Flag{
		number(groupWhere, "parallel-workers", 1, "number of nodes that this launcher starts", "n"),
		Text(groupWhere, "topology", "mesh", "which nodes connect: mesh (all), star (each with the first node) or alone"),
		Text(groupWhere, "protocol", "", "tcp, or ipc for unix sockets (default: ipc on one machine)"),
		Text(groupWhere, "ports", "", "`PORTS` to listen on: the first, or a list with one for each node (default: free ports)"),
		Text(groupWhere, "address", "", "`ADDRESS` of this host to listen on, without a port "+
			"(default: 127.0.0.1; with several launchers all addresses of the host)"),
		Text(groupWhere, "attach-to", "", "`LIST` of further addresses that each node dials: tcp://host:port, unix:///path or $node.N"),
		Text(groupWhere, "node-ids", "", "`IDS` of the nodes: the first, or a list with one for each (default: from 0)"),
		Text(groupWhere, "labels", "", "`LIST` of labels for each node"),
		Text(groupWhere, "platform", "", "where the launchers run: local; slurm, one in each task of a step; "+
			"or kubernetes (or k8s), one in each pod (default: slurm in a task of srun, kubernetes with DI_NODES or similar variables, else local)"),
		Text(groupWhere, "platform-spec", "", "`JSON`, or the name of a JSON file, with the labels, node_ids, ports, address, attach_to and "+
			"parallel_workers of each task"),
		&urfave.IntFlag{
			Category: groupWhere, Name: "shared-memory", EnvVars: []string{control.VarSharedMemory},
			DefaultText: "256; less where all nodes of the host would take more than 1/8 of its memory",
			Usage:       "largest memory in MiB that each node takes for payloads of 64 KiB or more, which nodes of one host read there; 0: none",
		},
		toggle(groupWhere, "no-shared-memory", "send all payloads through sockets"),
		Text(groupWhere, "mq-type", "mesh", "transport of messages: mesh (or nng), "+
			"nats (a server, in the launcher of the first node or at --nats-url) or redis"),
	}
}

func security() []urfave.Flag {
	return []urfave.Flag{
		Text(groupJob, "job-id", "", "`ID` of the job (default: a random one)"),
		guardedText(groupJob, "token", "secret of the job; other users can read it in the output of ps: prefer its variable, "+
			"or --token-file (default: a random one)", control.VarToken),
		guardedText(groupJob, "token-file", "`FILE` that holds the secret, of mode 0600", control.VarTokenFile),
		Text(groupJob, "tls", "", "auto: TLS between the nodes of one launcher, with certificates that only this job uses"),
		&urfave.Int64Flag{Category: groupJob, Name: "seed", Usage: "seed of the job", EnvVars: []string{control.VarSeed}},
	}
}

func life() []urfave.Flag {
	return []urfave.Flag{
		toggle(groupLife, "auto-recover", "restart a node that failed"),
		toggle(groupLife, "resume", "continue from the checkpoint in --dir, or in the folder of the program's newest run", control.VarResume),
		toggle(groupLife, "overwrite", "replace the run in --dir: its checkpoints are removed", control.VarOverwrite),
		number(groupLife, "max-retries", 3, "restarts of one node before the job fails"),
		&urfave.DurationFlag{
			Category: groupLife, Name: "grace", Value: 10 * time.Second, Usage: "time for nodes to end after a signal, before they are killed",
		},
		&urfave.DurationFlag{
			Category: groupLife, Name: "join-timeout", DefaultText: "1m, in pods 10m",
			Usage: "how long nodes wait for each other at the start, before the job fails",
		},
		&urfave.DurationFlag{
			Category: groupLife, Name: "peer-timeout", Value: 8 * time.Second,
			Usage: "how long a node may be silent or unreachable before the others continue without it; its launcher kills it 2s later",
		},
		Text(groupLife, "startup-interval", "0", "`TIME` between the starts of two nodes: seconds, or a duration such as 500ms"),
	}
}

func output() []urfave.Flag {
	return []urfave.Flag{
		file(groupOut, "dir", "`FOLDER` for the files of the run, such as checkpoints (default: a new one, runs/PROGRAM/TIME-JOB)"),
		file(groupOut, "log-dir", "`FOLDER` for log files, one for each node (default: logs in --dir, if --dir is given)"),
		Text(groupOut, "run-name", "", "`NAME` of the program in the folders of its runs (default: that of --package)"),
		Text(groupOut, "log-format", "text", "format of the log: text or json"),
		file(groupOut, "trace", "`FOLDER` for records of the events that each node sends and receives: see ditask trace"),
		number(groupOut, "trace-limit", trace.DefaultLimit>>20, "largest size of the record of a node, in MiB"),
		Text(groupOut, "metrics-port", "", "`PORT` of loopback, or ADDRESS:PORT, to serve /metrics for Prometheus and /healthz on; "+
			"0 is a free port, which is printed"),
		toggle(groupOut, "no-table", "do not draw the live table of the nodes on a terminal"),
	}
}

// Servers returns the flags of external servers that carry messages, for a job and for doctor.
func Servers() []urfave.Flag {
	return []urfave.Flag{
		guardedText(groupWhere, "nats-url", "`URL` of the NATS server that carries messages, or several URLs of one cluster with commas "+
			"between them; with a password or token prefer its variable", VarNATSURL),
		file(groupWhere, "nats-creds", "`FILE` with the credentials of a NATS user"),
		file(groupWhere, "nats-nkey", "`FILE` with the seed of a NATS user's nkey"),
		guardedText(groupWhere, "redis-url", "`URL` of the Redis server that carries messages, redis://user:password@host:port/db or "+
			"rediss://; with a password prefer its variable", VarRedisURL),
	}
}

// RedisServer returns the URL of the Redis server that the flags name, or "". The URL in
// the variable is ignored if the command line names another transport.
func RedisServer(ctx *urfave.Context) string {
	transport := ctx.String("mq-type")
	other := NATSServer(ctx) != "" || ctx.IsSet("mq-type") && transport != placement.TransportRedis
	if u := URL(ctx, "redis-url"); u != "" && (!other || FromCommandLine(ctx, "redis-url")) {
		return u
	}
	if transport != placement.TransportRedis {
		return ""
	}
	return "redis://" + net.JoinHostPort(strings.Trim(ctx.String("redis-host"), "[]"), strconv.Itoa(ctx.Int("redis-port")))
}

// Idle returns a fault for each given flag that has no effect because another flag is
// missing, also if it was given its default value. DITASK_ variables cause no faults: a
// profile may set them for all jobs.
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
		{ctx.String("mq-type") == placement.TransportRedis || ctx.String("redis-url") != "", "--mq-type redis",
			[]string{"redis-host", "redis-port"}},
	} {
		for _, name := range rule.names {
			if ctx.IsSet(name) && !rule.active {
				faults = append(faults, fmt.Errorf("--%s: has no effect without %s: give both, or leave --%s out", name, rule.other, name))
			}
		}
	}
	return append(faults, twoServers(ctx)...)
}

// twoServers returns a fault for each flag that names a part of the Redis server although
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

// Certs returns the flags of certificates, for a job and for doctor.
func Certs() []urfave.Flag {
	return []urfave.Flag{
		guardedText(groupJob, "tls-cert", "PEM `FILE` with the certificate of the nodes; enables TLS", control.VarTLSCert),
		guardedText(groupJob, "tls-key", "PEM `FILE` with its key", control.VarTLSKey),
		guardedText(groupJob, "tls-ca", "PEM `FILE` with the authority that the nodes trust", control.VarTLSCA),
	}
}

// Platform returns the platform that --platform names, or "". The word k8s stands for
// kubernetes.
func Platform(ctx *urfave.Context) string {
	if p := ctx.String("platform"); p != "k8s" {
		return p
	}
	return "kubernetes"
}

// JSON returns the flag that makes a command print JSON.
func JSON() urfave.Flag { return &urfave.BoolFlag{Name: "json", Usage: "print JSON"} }

// Given returns the given flags of the job as arguments, without those in leave. It also
// leaves out values of variables that may be secrets.
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
