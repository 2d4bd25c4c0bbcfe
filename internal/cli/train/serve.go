package train

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/serve"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/train"
)

// The groups of flags of "ditask serve" in the help.
const (
	groupListen = "Where to listen"
	groupTrust  = "Access"
	groupLimits = "Limits"
)

// shortToken is the least number of bytes of a token that cannot be guessed.
const shortToken = 16

// reloadEvery is how often --reload looks at the weights' file.
const reloadEvery = time.Second

func serveFlags() []urfave.Flag {
	return slices.Concat([]urfave.Flag{
		flags.Text(groupListen, "listen", "", "`ADDRESS:PORT` to serve HTTP on; a port alone is one of 127.0.0.1, and 0 a free one, "+
			"which is printed (default: 127.0.0.1:8080, or none with --socket)"),
		&urfave.PathFlag{Category: groupListen, Name: "socket", Usage: "`FILE` of a unix socket, of mode 0600, to serve HTTP on"},
		&urfave.StringFlag{Category: groupTrust, Name: "token", Usage: "secret that clients must send; other users can read it in " +
			"the output of ps: prefer its variable, or --token-file", EnvVars: []string{control.VarToken}},
		&urfave.StringFlag{Category: groupTrust, Name: "token-file", Usage: "`FILE` that holds the secret, of mode " +
			"0600", EnvVars: []string{control.VarTokenFile}},
		&urfave.BoolFlag{Category: groupTrust, Name: "insecure", Usage: "listen beyond loopback without a token"},
		&urfave.StringFlag{Category: groupTrust, Name: "tls-cert", Usage: "PEM `FILE` with the certificate of the server; enables " +
			"TLS", EnvVars: []string{control.VarTLSCert}},
		&urfave.StringFlag{Category: groupTrust, Name: "tls-key", Usage: "PEM `FILE` with its key", EnvVars: []string{control.VarTLSKey}},
		&urfave.StringFlag{Category: groupTrust, Name: "tls-ca", Usage: "PEM `FILE` with the authority that must have signed the " +
			"certificates of clients (default: clients need none)", EnvVars: []string{control.VarTLSCA}},
		&urfave.StringFlag{Name: "weights", Aliases: []string{"checkpoint"}, Value: string(train.Best), Usage: "best, last, or the " +
			"updates of a kept checkpoint: see ditask eval --help"},
		&urfave.BoolFlag{Name: "reload", Usage: "follow the weights of a running training: use new weights as soon as their file exists"},
		flags.Text("", "log-format", "text", "format of the log: text or json"),
	}, limitFlags())
}

func limitFlags() []urfave.Flag {
	var def serve.Config
	def.EnsureDefaults()
	number := func(name string, value int, use string) urfave.Flag {
		return &urfave.IntFlag{Category: groupLimits, Name: name, Value: value, Usage: use}
	}
	duration := func(name string, value time.Duration, use string) urfave.Flag {
		return &urfave.DurationFlag{Category: groupLimits, Name: name, Value: value, Usage: use}
	}
	return []urfave.Flag{
		number("max-body", def.MaxBody, "most bytes in the body of a request"),
		number("max-batch", def.MaxBatch, "most observations in a request"),
		number("max-in-flight", def.MaxInFlight, "most requests that act or wait for the policy"),
		number("max-connections", def.MaxConns, "most connections"),
		number("max-sessions", def.MaxSessions, "most sessions of a policy with memory"),
		duration("session-idle", def.SessionIdle, "time without a request after which a session ends"),
		duration("timeout", def.Timeout, "time to read a request, and to wait for the policy"),
		duration("grace", def.Grace, "time for requests under way after SIGTERM or SIGINT"),
	}
}

// ServeCommand returns the command "ditask serve".
func ServeCommand(of *call.Call) *urfave.Command {
	c := command{of, "", train.Algorithms()}
	return &urfave.Command{
		Name: "serve", Usage: "answer observations with the actions of a run's policy, over HTTP", ArgsUsage: "RUN",
		Description: "RUN is the folder of a training. The actions are greedy, or sampled if a request asks for it. After SIGTERM or\n" +
			"SIGINT the server answers the requests in progress and ends with exit code 0.\n\n" +
			"curl -d '{\"observation\": [0.01, 0.02, 0.03, 0.04]}' http://127.0.0.1:8080/v1/act",
		Flags:  serveFlags(),
		Action: c.serve,
	}
}

func (c command) serve(ctx *urfave.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	cfg, secure, err := c.serveConfig(ctx)
	if err != nil {
		return call.UsageError{Err: err}
	}
	weights := train.Weights(ctx.String("weights"))
	stamp := ""
	if ctx.NArg() == 1 {
		stamp, _ = stampOf(filepath.Clean(ctx.Args().First()), weights) // before the weights are read; if it fails, they are read again
	}
	t, dir, err := c.load(ctx)
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil { // the spaces of the environment are known
		return err
	}
	describeRun(&cfg, t, dir, weights)
	server, err := serve.New(cfg, t.Policy)
	if err != nil {
		return err
	}
	listeners, err := c.listen(ctx, server, &cfg, secure)
	if err != nil {
		return err
	}
	var follow func(context.Context)
	if ctx.Bool("reload") {
		follow = func(ctx context.Context) {
			tick := time.NewTicker(reloadEvery)
			defer tick.Stop()
			server.Follow(ctx, serve.Source{
				Stamp: func() (string, error) { return stampOf(dir, weights) },
				Load:  func(context.Context) (policies.Policy, error) { return t.Again(weights) },
			}, stamp, tick.C)
		}
	}
	return c.untilSignal(ctx.Context, signals, server, listeners, follow, cfg.Log)
}

// untilSignal serves until a signal arrives. A second signal ends the process at once.
func (c command) untilSignal(
	parent context.Context, signals <-chan os.Signal, server *serve.Server, listeners []net.Listener,
	follow func(context.Context), log *slog.Logger,
) error {
	ctx, end := context.WithCancel(parent)
	defer end()
	done := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() {
		select {
		case s := <-signals:
			log.Info("the server ends", "signal", s.String(), "version", server.Version())
			end()
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(call.ExitInterrupted) // without waiting for requests in progress
		case <-done:
		}
	})
	if follow != nil {
		helpers.Go(func() { follow(ctx) })
	}
	cut, err := server.Run(ctx, listeners...)
	end()
	close(done)
	helpers.Wait()
	if cut > 0 {
		log.Warn("connections were closed at the end of --grace", "connections", cut)
	}
	return err
}

// serveConfig returns the config from the flags, and the TLS config, which may be nil.
func (c command) serveConfig(ctx *urfave.Context) (serve.Config, *tls.Config, error) {
	cfg := serve.Config{
		MaxBody: ctx.Int("max-body"), MaxBatch: ctx.Int("max-batch"), MaxInFlight: ctx.Int("max-in-flight"), MaxConns: ctx.Int("max-connections"),
		MaxSessions: ctx.Int("max-sessions"), SessionIdle: ctx.Duration("session-idle"),
		Timeout: ctx.Duration("timeout"), Grace: ctx.Duration("grace"),
	}
	var faults []error
	for _, f := range limitFlags() {
		name := f.Names()[0]
		if ctx.Int(name) < 1 && ctx.Duration(name) <= 0 {
			faults = append(faults, fmt.Errorf("--%s %v: want more than 0", name, ctx.Value(name)))
		}
	}
	switch ctx.String("log-format") {
	case "text":
		cfg.Log = slog.New(slog.NewTextHandler(printable.Writer(c.Stderr), nil))
	case "json":
		cfg.Log = slog.New(slog.NewJSONHandler(printable.JSONWriter(c.Stderr), nil))
	default:
		faults = append(faults, fmt.Errorf("--log-format %q: want text or json", ctx.String("log-format")))
	}
	env := control.Env{Token: ctx.String("token"), TokenFile: ctx.String("token-file")}
	if flags.FromCommandLine(ctx, "token") && flags.FromCommandLine(ctx, "token-file") {
		faults = append(faults, errors.New("--token and --token-file: give one of them"))
	}
	secret, err := env.Secret()
	if err != nil {
		faults = append(faults, fmt.Errorf("%w: correct --token-file or %s", err, control.VarTokenFile))
	}
	cfg.Token = secret
	var secure *tls.Config
	if cert, key, ca := ctx.String("tls-cert"), ctx.String("tls-key"), ctx.String("tls-ca"); cert+key+ca != "" {
		if secure, err = certs.Server(cert, key, ca); err != nil {
			faults = append(faults, fmt.Errorf("%w: correct --tls-cert, --tls-key and --tls-ca", err))
		}
	}
	return cfg, secure, errors.Join(faults...)
}

// describeRun sets the description of the run in the config.
func describeRun(cfg *serve.Config, t *train.Trained, dir string, weights train.Weights) {
	cfg.Algorithm, cfg.Env, cfg.Run, cfg.Weights = t.Config.Algorithm().Name, t.Config.Env(), dir, string(weights)
	cfg.Action, cfg.Clip = t.Action(), t.Clips()
	box, isBox := t.Policy.Spec().Obs.(envs.Box)
	for _, l := range t.Layout() {
		p := serve.Part{Name: l.Name, Kind: l.Kind, Shape: l.Shape, From: l.From, To: l.To, N: l.N, Start: l.Start}
		if len(l.Shape) == 0 {
			p.Shape = nil // a number
		}
		p.OneHot = l.N != nil && isBox
		if isBox && l.Kind == "Box" {
			p.Low, p.High = box.Low[l.From:l.To], box.High[l.From:l.To]
		}
		cfg.Parts = append(cfg.Parts, p)
	}
}

// stampOf returns a text that changes when the file of the weights changes.
func stampOf(dir string, weights train.Weights) (string, error) {
	path, err := weights.File(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size()), nil
}

// listen opens the listeners that the flags name, and prints their addresses.
func (c command) listen(ctx *urfave.Context, s *serve.Server, cfg *serve.Config, secure *tls.Config) (out []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range out {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	if addr := ctx.String("listen"); addr != "" || ctx.Path("socket") == "" {
		l, err := c.listenTCP(ctx, addr, cfg, secure != nil)
		if err != nil {
			return nil, err
		}
		url := "http://" + l.Addr().String()
		l = s.Bound(l)[0]
		if secure != nil {
			url, l = "https"+url[len("http"):], tls.NewListener(l, secure)
		}
		out = append(out, l)
		if _, err := fmt.Fprintf(c.Stdout, "%s\n", url); err != nil {
			return out, err
		}
	}
	if path := ctx.Path("socket"); path != "" {
		l, err := serve.ListenUnix(ctx.Context, path)
		if err != nil {
			return out, call.Usage("--socket: %w: %s", err, socketHint(err))
		}
		out = append(out, s.Bound(l)[0])
		if _, err := fmt.Fprintf(c.Stdout, "unix:%s\n", path); err != nil {
			return out, err
		}
	}
	cfg.Log.Info("serving", "run", cfg.Run, "weights", cfg.Weights, "version", s.Version(), "algorithm", cfg.Algorithm, "env", cfg.Env)
	return out, nil
}

// socketHint returns advice for a socket that cannot be created.
func socketHint(err error) string {
	if errors.Is(err, serve.ErrInUse) {
		return "end that server, or choose another file"
	}
	return "choose a file in a folder in which you can write, with a path of less than 90 bytes"
}

// listenTCP listens on an address; a port alone is one of loopback.
func (c command) listenTCP(ctx *urfave.Context, addr string, cfg *serve.Config, secure bool) (net.Listener, error) {
	if addr == "" {
		addr = "8080"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = "127.0.0.1", addr
	}
	if host == "" && addr[0] == ':' {
		host = "127.0.0.1"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, call.Usage("--listen %q: want a port, 0 for a free one, or ADDRESS:PORT", addr)
	}
	var listening net.ListenConfig
	l, err := listening.Listen(ctx.Context, "tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, call.Usage("--listen %s: another program listens there: choose another port, or 0 for a free one", addr)
	}
	if err != nil {
		return nil, call.Usage("--listen %s: %w: give an address of this machine, or a port alone", addr, err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		if cfg.Token == "" && !ctx.Bool("insecure") {
			return nil, errors.Join(call.Usage("--listen %s: other machines can reach this address, and there is no token: give "+
				"--token-file, or --insecure to serve all of them", addr),
				l.Close())
		}
		if n := len(cfg.Token); n > 0 && n < shortToken {
			cfg.Log.Warn(fmt.Sprintf("the token has %d bytes: anybody who can reach the server can guess it: "+
				"give at least %d random ones", n, shortToken),
				"listen", l.Addr().String())
		}
		if !secure {
			cfg.Log.Warn("there is no TLS: anybody on the network path can read and change requests and answers, and read the token: "+
				"give --tls-cert and --tls-key",
				"listen", l.Addr().String())
		}
	}
	return l, nil
}
