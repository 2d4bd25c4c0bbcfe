package job

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/redisbus"
)

// placementOf returns the placement settings of the flags. runDir is the folder of
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
	if u := flags.NATSServer(ctx); u != "" {
		if err := natsbus.CheckURL(u); err != nil {
			faults = append(faults, fmt.Errorf("--nats-url: %w", err))
		}
		f.NATSURL = natsbus.Public(u)
	}
	redisURL, redisFaults := redisOf(ctx)
	f.RedisURL = redisURL
	faults = append(faults, redisFaults...)
	faults = append(faults, flags.Idle(ctx)...)
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
		faults = append(faults, overridden(ctx, f.Spec)...)
	}
	if name, err := os.Hostname(); err == nil {
		f.Hostname = name
	}
	return f, errors.Join(faults...)
}

// redisOf returns the URL of the Redis server that the flags name, without its secrets.
func redisOf(ctx *urfave.Context) (shown string, faults []error) {
	port, host := ctx.Int("redis-port"), ctx.String("redis-host")
	if port < 1 || port > 65535 {
		faults = append(faults, fmt.Errorf("--redis-port %d: want a number from 1 to 65535", port))
	}
	if host == "" {
		faults = append(faults, errors.New("--redis-host is empty: give the name or the address of a host"))
	} else if err := placement.CheckHost(host, "--redis-host %s --redis-port %d"); err != nil {
		faults = append(faults, fmt.Errorf("--redis-host %q: %w", host, err))
	}
	u := flags.RedisServer(ctx)
	if u == "" {
		return "", faults
	}
	if err := redisbus.CheckURL(u); err != nil && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("--redis-url: %w", err))
	}
	return redisbus.Public(u), faults
}

// sameHost returns the site of launchers that another program starts on one host. Their
// number is not known, but the launchers with lower ranks are.
func sameHost(rank int) placement.Site {
	site := placement.Site{Rank: rank, Open: true}
	for slot := range rank + 1 {
		site.Launchers = append(site.Launchers, placement.Launcher{Slot: slot})
	}
	return site
}

// readSpec reads a platform spec given as text or as the name of a file.
func readSpec(s string) (*placement.Spec, error) {
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		return placement.ParseSpec([]byte(s))
	}
	b, err := os.ReadFile(s)
	if err != nil {
		return nil, fmt.Errorf("--platform-spec: %w: want JSON, or the name of a JSON file", err)
	}
	return placement.ParseSpec(b)
}

// planOf computes the plan.
func planOf(ctx *urfave.Context, site placement.Site, job, runDir string) (placement.Plan, error) {
	f, err := placementOf(ctx, job, runDir)
	if err != nil {
		return placement.Plan{}, call.UsageError{Err: err}
	}
	plan, err := placement.New(f, site)
	if err != nil {
		return placement.Plan{}, call.UsageError{Err: err}
	}
	return plan, nil
}

// configOf returns the launch settings of the flags, without the plan and the command.
// The error joins all faults.
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
			Bus: cmp.Or(flags.NATSServer(ctx), flags.RedisServer(ctx)), BusCreds: ctx.Path("nats-creds"), BusNKey: ctx.Path("nats-nkey"),
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
		faults = append(faults, fmt.Errorf("--max-retries %d: want at least 1", cfg.MaxRetries))
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
	if cfg.Env.PeerTimeout = ctx.Duration("peer-timeout"); cfg.Env.PeerTimeout < leastPeerTimeout {
		faults = append(faults, fmt.Errorf("--peer-timeout %v: want at least %v", cfg.Env.PeerTimeout, leastPeerTimeout))
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
	cfg.Replaced = at.pod != nil
	cfg.Env.Continue = at.again() && !ctx.IsSet("resume")
	if at.step != nil {
		cfg.Processors = at.step.CPUs
	}
	faults = append(faults, secrets(ctx, at, &cfg.Env)...)
	if err := errors.Join(faults...); err != nil {
		return cfg, call.UsageError{Err: err}
	}
	return cfg, nil
}

// podsJoin is how long nodes in pods wait for each other: a pod starts when it is
// scheduled and its image is pulled.
const podsJoin = 10 * time.Minute

// leastPeerTimeout is enough for a busy node: it sends its launcher a sign of life every
// 2 s, and the launcher waits for 2 s more.
const leastPeerTimeout = time.Second

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
