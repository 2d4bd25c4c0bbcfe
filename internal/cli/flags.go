package cli

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/trace"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/redisbus"
)

// The groups of flags in the help.
const (
	groupWhat  = "What to run"
	groupWhere = "Nodes and addresses"
	groupJob   = "Job and security"
	groupLife  = "Failures and ends"
	groupOut   = "Output"
)

func text(group, name, def, use string, aliases ...string) *urfave.StringFlag {
	return &urfave.StringFlag{Category: group, Name: name, Aliases: aliases, Value: def, Usage: use}
}

// jobFlags are the flags of a job. They are made anew for each command, which
// keeps its values in them.
func jobFlags() []urfave.Flag {
	return append(certFlags(), []urfave.Flag{
		text(groupWhat, "package", "", "`PACKAGE` to run: a folder or import path, the word main, or a built program", "p"),
		text(groupWhat, "main", "", "`FUNC` to run: one of those given to parallel.Main, or any of a library package", "m"),

		&urfave.IntFlag{Category: groupWhere, Name: "parallel-workers", Aliases: []string{"n"}, Value: 1, Usage: "number of nodes that this launcher starts"},
		text(groupWhere, "topology", "mesh", "who connects to whom: mesh, star (to the first node) or alone"),
		text(groupWhere, "protocol", "", "tcp, or ipc for unix sockets (default: ipc on one machine)"),
		text(groupWhere, "ports", "", "`PORTS` to listen on: the first, or a list with one for each node (default: free ones)"),
		text(groupWhere, "address", "", "`ADDRESS` to listen on, without a port (default: 127.0.0.1)"),
		text(groupWhere, "attach-to", "", "`LIST` of addresses that each node dials besides: tcp://host:port, unix:///path or $node.N"),
		text(groupWhere, "node-ids", "", "`IDS` of the nodes: the first, or a list with one for each (default: from 0)"),
		text(groupWhere, "labels", "", "`LIST` of labels for each node"),
		text(groupWhere, "platform", "", "where the launchers run: local; slurm, one in each task of a step; or kubernetes, one in each pod (default: slurm in a task that srun has started, kubernetes with DI_NODES or the like, else local)"),
		text(groupWhere, "platform-spec", "", "`JSON`, or a file of it, that says for each task its labels, node_ids, ports, address, attach_to and parallel_workers"),
		text(groupWhere, "mq-type", "mesh", "what carries messages: mesh (nng means the same), nats (a server, in the first node or at --nats-url) or redis"),
		natsURL(), natsCreds(), natsNKey(), redisURL(),
		text(groupWhere, "redis-host", "127.0.0.1", "`HOST` of the Redis server, in place of --redis-url"),
		&urfave.IntFlag{Category: groupWhere, Name: "redis-port", Value: 6379, Usage: "port of the Redis server"},
		&urfave.IntFlag{Category: groupWhere, Name: "local_rank", Aliases: []string{"local-rank"}, Value: -1, DefaultText: "none", Usage: "number of this launcher on the host, when something starts several"},

		text(groupJob, "job-id", "", "`ID` of the job (default: a random one)"),
		&urfave.StringFlag{Category: groupJob, Name: "token", Usage: "secret of the job; other users see it here, in ps: prefer its variable, or --token-file (default: a random one)", EnvVars: []string{control.VarToken}},
		&urfave.StringFlag{Category: groupJob, Name: "token-file", Usage: "`FILE` that holds the secret, of mode 0600", EnvVars: []string{control.VarTokenFile}},
		text(groupJob, "tls", "", "auto: TLS between the nodes of one launcher, with certificates that end with the job"),
		&urfave.Int64Flag{Category: groupJob, Name: "seed", Usage: "seed of the job", EnvVars: []string{control.VarSeed}},

		&urfave.BoolFlag{Category: groupLife, Name: "auto-recover", Usage: "start a node that failed again"},
		&urfave.BoolFlag{Category: groupLife, Name: "resume", Usage: "go on from the job's checkpoints", EnvVars: []string{control.VarResume}},
		&urfave.IntFlag{Category: groupLife, Name: "max-retries", Value: 3, Usage: "restarts of one node before the job fails"},
		&urfave.DurationFlag{Category: groupLife, Name: "grace", Value: 10 * time.Second, Usage: "time between telling nodes to end and killing them"},
		&urfave.DurationFlag{Category: groupLife, Name: "join-timeout", DefaultText: "1m, in pods 10m", Usage: "how long nodes wait for each other at the start, before the job fails"},
		text(groupLife, "startup-interval", "0", "`TIME` between the starts of two nodes: seconds, or a duration such as 500ms"),

		&urfave.PathFlag{Category: groupOut, Name: "dir", Usage: "`FOLDER` for what the job writes, such as checkpoints"},
		&urfave.PathFlag{Category: groupOut, Name: "log-dir", Usage: "`FOLDER` for one log file a node (default: logs in --dir, if that is given)"},
		text(groupOut, "log-format", "text", "format of the log: text or json"),
		&urfave.PathFlag{Category: groupOut, Name: "trace", Usage: "`FOLDER` to record in what events each node sends and receives: see ditask trace"},
		&urfave.IntFlag{Category: groupOut, Name: "trace-limit", Value: trace.DefaultLimit >> 20, Usage: "size of each node's record in MiB, at most"},
		text(groupOut, "metrics-port", "", "`PORT` of loopback, or ADDRESS:PORT, to serve /metrics for Prometheus and /healthz on; 0 is a free port, which is printed"),
		&urfave.BoolFlag{Category: groupOut, Name: "no-table", Usage: "no live table of the nodes, even on a terminal"},
	}...)
}

// The flags of a NATS server elsewhere, for a job and for doctor.
func natsURL() urfave.Flag {
	return &urfave.StringFlag{Category: groupWhere, Name: "nats-url", Usage: "`URL` of the NATS server that carries messages, or several of one cluster with commas"}
}

func natsCreds() urfave.Flag {
	return &urfave.PathFlag{Category: groupWhere, Name: "nats-creds", Usage: "`FILE` with the credentials of a NATS user"}
}

func natsNKey() urfave.Flag {
	return &urfave.PathFlag{Category: groupWhere, Name: "nats-nkey", Usage: "`FILE` with the seed of a NATS user's nkey"}
}

// redisURL is the flag of a Redis server, for a job and for doctor.
func redisURL() urfave.Flag {
	return &urfave.StringFlag{Category: groupWhere, Name: "redis-url", Usage: "`URL` of the Redis server that carries messages, redis://user:password@host:port/db or rediss://; with a password prefer its variable", EnvVars: []string{"DITASK_REDIS_URL"}}
}

// redisServer is the URL of the Redis server that the flags name; empty: none.
func redisServer(ctx *urfave.Context) string {
	if u := ctx.String("redis-url"); u != "" {
		return u
	}
	if ctx.String("mq-type") != placement.CarrierRedis {
		return ""
	}
	return "redis://" + net.JoinHostPort(ctx.String("redis-host"), strconv.Itoa(ctx.Int("redis-port")))
}

// certFlags are the flags of certificates, for a job and for doctor.
func certFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Category: groupJob, Name: "tls-cert", Usage: "PEM `FILE` with the certificate of the nodes; TLS is on with it", EnvVars: []string{control.VarTLSCert}},
		&urfave.StringFlag{Category: groupJob, Name: "tls-key", Usage: "PEM `FILE` with its key", EnvVars: []string{control.VarTLSKey}},
		&urfave.StringFlag{Category: groupJob, Name: "tls-ca", Usage: "PEM `FILE` with the authority that the nodes trust", EnvVars: []string{control.VarTLSCA}},
	}
}

// placementOf is what the flags say about placement. runDir is the folder of
// sockets.
func placementOf(ctx *urfave.Context, job, runDir string) (placement.Flags, error) {
	f := placement.Flags{
		Job: job, Workers: ctx.Int("parallel-workers"), Protocol: ctx.String("protocol"), Ports: ctx.String("ports"),
		AttachTo: ctx.String("attach-to"), Address: ctx.String("address"), Labels: ctx.String("labels"),
		NodeIDs: ctx.String("node-ids"), Topology: ctx.String("topology"),
		RunDir: runDir,
	}
	var faults []error
	if ctx.IsSet("mq-type") {
		f.MQType = ctx.String("mq-type")
	}
	if u := ctx.String("nats-url"); u != "" {
		if err := natsbus.CheckURL(u); err != nil {
			faults = append(faults, fmt.Errorf("--nats-url: %w", err))
		}
		f.NATSURL = natsbus.Public(u)
	}
	if u := redisServer(ctx); u != "" {
		if err := redisbus.CheckURL(u); err != nil {
			faults = append(faults, fmt.Errorf("--redis-url: %w", err))
		}
		f.RedisURL = redisbus.Public(u)
	}
	if p := ctx.Int("redis-port"); p < 1 || p > 65535 {
		faults = append(faults, fmt.Errorf("--redis-port %d: want a number from 1 to 65535", p))
	}
	if ctx.String("redis-url") != "" && (ctx.IsSet("redis-host") || ctx.IsSet("redis-port")) {
		faults = append(faults, errors.New("--redis-url and --redis-host, --redis-port: give the URL or the others"))
	}
	if f.Workers < 1 {
		faults = append(faults, fmt.Errorf("--parallel-workers %d: want at least 1", f.Workers))
		f.Workers = 1
	}
	if err := checkPlatform(ctx); err != nil {
		faults = append(faults, err)
	}
	if s := ctx.String("platform-spec"); s != "" {
		var err error
		if f.Spec, err = readSpec(s); err != nil {
			faults = append(faults, err)
		}
	}
	if name, err := os.Hostname(); err == nil {
		f.Hostname = name
	}
	return f, errors.Join(faults...)
}

// sameHost is the site of launchers that something else starts on one host: how
// many there are is not known, but those before this one are.
func sameHost(rank int) placement.Site {
	site := placement.Site{Rank: rank, Open: true}
	for slot := range rank + 1 {
		site.Launchers = append(site.Launchers, placement.Launcher{Slot: slot})
	}
	return site
}

// readSpec reads a platform spec that is given as text or as a file.
func readSpec(s string) (*placement.Spec, error) {
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		return placement.ParseSpec([]byte(s))
	}
	b, err := os.ReadFile(s)
	if err != nil {
		return nil, fmt.Errorf("--platform-spec: %w: want JSON, or a file of it", err)
	}
	return placement.ParseSpec(b)
}

// planOf computes the plan.
func planOf(ctx *urfave.Context, site placement.Site, job, runDir string) (placement.Plan, error) {
	f, err := placementOf(ctx, job, runDir)
	if err != nil {
		return placement.Plan{}, usageError{err}
	}
	plan, err := placement.New(f, site)
	if err != nil {
		return placement.Plan{}, usageError{err}
	}
	return plan, nil
}

// configOf is what the flags say about launching; the plan and the command are
// left to the caller. The error joins all faults.
func configOf(ctx *urfave.Context, at *place) (launch.Config, error) {
	cfg := launch.Config{
		MaxRetries: ctx.Int("max-retries"),
		LogDir:     ctx.Path("log-dir"),
		Env: control.Env{
			Token: ctx.String("token"), TokenFile: ctx.String("token-file"), Dir: ctx.Path("dir"),
			Main: ctx.String("main"), AutoRecover: ctx.Bool("auto-recover"), Resume: ctx.Bool("resume"), Grace: ctx.Duration("grace"),
			LogFormat: ctx.String("log-format"), Seed: ctx.Int64("seed"),
			Trace:   ctx.Path("trace"),
			TLSCert: ctx.String("tls-cert"), TLSKey: ctx.String("tls-key"), TLSCA: ctx.String("tls-ca"),
			Bus: cmp.Or(ctx.String("nats-url"), redisServer(ctx)), BusCreds: ctx.Path("nats-creds"), BusNKey: ctx.Path("nats-nkey"),
		},
	}
	if cfg.LogDir == "" && cfg.Env.Dir != "" {
		cfg.LogDir = filepath.Join(cfg.Env.Dir, "logs")
	}
	var faults []error
	var err error
	if cfg.StartupInterval, err = seconds(ctx.String("startup-interval")); err != nil {
		faults = append(faults, fmt.Errorf("--startup-interval %w", err))
	}
	if cfg.MaxRetries < 1 && cfg.Env.AutoRecover {
		faults = append(faults, fmt.Errorf("--max-retries %d: want at least 1 with --auto-recover", cfg.MaxRetries))
	}
	if cfg.Env.Grace <= 0 {
		faults = append(faults, fmt.Errorf("--grace %v: want more than 0s", cfg.Env.Grace))
	}
	switch cfg.Env.JoinTimeout = ctx.Duration("join-timeout"); {
	case ctx.IsSet("join-timeout") && cfg.Env.JoinTimeout <= 0:
		faults = append(faults, fmt.Errorf("--join-timeout %v: want more than 0s", cfg.Env.JoinTimeout))
	case cfg.Env.JoinTimeout == 0 && at.pod != nil:
		cfg.Env.JoinTimeout = podsJoin
	}
	if f := cfg.Env.LogFormat; f != "text" && f != "json" {
		faults = append(faults, fmt.Errorf("--log-format %q: want text or json", f))
	}
	if cfg.Env.Trace != "" {
		if cfg.Env.TraceLimit = ctx.Int("trace-limit"); cfg.Env.TraceLimit < 1 {
			faults = append(faults, fmt.Errorf("--trace-limit %d: want at least 1 MiB", cfg.Env.TraceLimit))
		}
		if cfg.Env.Trace, err = filepath.Abs(cfg.Env.Trace); err != nil {
			faults = append(faults, fmt.Errorf("--trace: %w", err))
		}
	}
	if at.restarts > 0 && !ctx.IsSet("resume") {
		cfg.Env.Resume = true
	}
	if at.step != nil {
		cfg.Processors = at.step.CPUs
	}
	faults = append(faults, secrets(ctx, at, &cfg.Env)...)
	if err := errors.Join(faults...); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// podsJoin is how long nodes in pods wait for each other: a pod starts when there is
// room for it, and has its image.
const podsJoin = 10 * time.Minute

// secrets checks what the nodes need to trust each other, and makes a token if
// none was given. What there is to say of that token is added to the hint.
func secrets(ctx *urfave.Context, at *place, env *control.Env) []error {
	var faults []error
	if env.Token != "" && env.TokenFile != "" && ctx.IsSet("token") && ctx.IsSet("token-file") {
		faults = append(faults, errors.New("--token and --token-file: give one of them"))
	}
	if _, err := env.Secret(); err != nil {
		faults = append(faults, fmt.Errorf("--token-file: %w", err))
	}
	faults = append(faults, checkTLS(ctx, env)...)
	if ctx.String("nats-url") == "" && env.BusCreds+env.BusNKey != "" {
		faults = append(faults, errors.New("--nats-creds and --nats-nkey: belong to --nats-url"))
	}
	if env.BusCreds != "" && env.BusNKey != "" {
		faults = append(faults, errors.New("--nats-creds and --nats-nkey: give one of them"))
	}
	faults = append(faults, absolute(map[string]*string{"nats-creds": &env.BusCreds, "nats-nkey": &env.BusNKey})...)
	if env.TokenFile != "" {
		if abs, err := filepath.Abs(env.TokenFile); err == nil {
			env.TokenFile = abs
		}
	}
	switch {
	case env.Token != "" || env.TokenFile != "":
	case at.step != nil && at.step.Tasks > 1:
		token, warning, err := stepToken(*at.step)
		if err != nil {
			faults = append(faults, err)
		}
		env.Token, at.hint, at.keyed = token, or(warning, at.hint), warning == ""
	default:
		env.Token = random(16)
	}
	return faults
}

// joined checks that a job of several launchers has an identity that they can
// share: a random one would never match.
func joined(ctx *urfave.Context, at place, plan placement.Plan) error {
	several := ctx.IsSet("local_rank")
	for _, n := range plan.Local() {
		several = several || plan.Carrier == placement.CarrierMesh && len(n.Extern) > 0 && (at.step == nil || plan.Expected == 0)
	}
	if several && (ctx.String("job-id") == "" || ctx.String("token") == "" && ctx.String("token-file") == "") {
		return usage("nodes that join those of another launcher need --job-id and --token (or --token-file), the same for all")
	}
	if at.pod != nil && at.pod.Size > 1 && ctx.String("token") == "" && ctx.String("token-file") == "" {
		return usage("the pods of a job need one token: set %s in all of them from a Secret, or give --token-file", control.VarToken)
	}
	if (several || at.launchers() > 1) && ctx.String("tls") == tlsAuto {
		return usage("--tls auto is for the nodes of one launcher: make certificates for all of them with ditask tls, and give --tls-cert, --tls-key and --tls-ca")
	}
	return nil
}

// jobID is the id that was given, or that of a Slurm step or of pods, or a random
// one.
func jobID(ctx *urfave.Context, at place) (string, error) {
	id := ctx.String("job-id")
	switch {
	case id == "" && at.step != nil:
		return at.step.Job(), nil
	case id == "" && at.pod != nil:
		return at.pod.Job(), nil
	case id == "":
		return random(4), nil
	}
	if err := placement.CheckJob(id); err != nil {
		return "", usage("--job-id: %w", err)
	}
	return id, nil
}

// random is a text of that many random bytes in hexadecimal.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// seconds reads a number of seconds, or a duration with its unit.
func seconds(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if f, ferr := strconv.ParseFloat(s, 64); ferr == nil && f >= 0 && f <= 24*60*60 {
		d, err = time.Duration(f*float64(time.Second)), nil
	}
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("%q: want seconds, or a duration such as 500ms", s)
	}
	return d, nil
}
