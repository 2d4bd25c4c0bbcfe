package job

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/cli/token"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// autoTLS is how long the certificates of --tls auto are valid. They are not stored beyond
// the job.
const autoTLS = 5 * 365 * 24 * time.Hour

// secrets checks the token and the certificates of the nodes, and makes a token if none was
// given. It adds a warning about that token to the hint.
func secrets(ctx *urfave.Context, at *place, env *control.Env) []error {
	var faults []error
	if env.Token != "" && env.TokenFile != "" && ctx.IsSet("token") && ctx.IsSet("token-file") {
		faults = append(faults, errors.New("--token and --token-file: give one of them"))
	}
	if _, err := env.Secret(); err != nil {
		faults = append(faults, fmt.Errorf("%w: correct --token-file or %s", err, control.VarTokenFile))
	}
	faults = append(faults, checkTLS(ctx, env)...)
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
		token, warning, err := token.OfStep(*at.step)
		if err != nil {
			faults = append(faults, err)
		}
		env.Token, at.hint, at.keyed = token, cmp.Or(warning, at.hint), warning == ""
	default:
		env.Token = token.Random(16)
	}
	return faults
}

// joined checks that the launchers of a job share an id and a token: random ones would
// never match.
func joined(ctx *urfave.Context, at place, plan placement.Plan) error {
	hasToken := ctx.String("token") != "" || ctx.String("token-file") != ""
	if ctx.IsSet("local_rank") && at.pod == nil && (ctx.String("job-id") == "" || !hasToken) {
		return call.Usage("--local_rank %d: the launchers of one host need the same --job-id and --token (or --token-file): "+
			"give both, or leave --local_rank out if this launcher is the only one", ctx.Int("local_rank"))
	}
	several := ctx.IsSet("local_rank") && at.pod == nil
	for _, n := range plan.Local() {
		several = several || plan.Transport == placement.TransportMesh && len(n.Extern) > 0 && (at.step == nil || plan.Expected == 0)
	}
	if several && (ctx.String("job-id") == "" || !hasToken) {
		return call.Usage("nodes that join those of another launcher need --job-id and --token (or --token-file), the same for all")
	}
	if at.pod != nil && at.pod.Size > 1 && !hasToken {
		return call.Usage("the pods of a job need one token: set %s in all of them from a Secret, or give --token-file", control.VarToken)
	}
	if (several || at.launchers() > 1) && ctx.String("tls") == flags.TLSAuto {
		return call.Usage("--tls auto is for the nodes of one launcher: make certificates for all of them with ditask tls, and give " +
			"--tls-cert, --tls-key and --tls-ca")
	}
	return nil
}

// jobID returns the given id, or that of a Slurm step or of pods, or a random one.
func jobID(ctx *urfave.Context, at place) (string, error) {
	id := ctx.String("job-id")
	switch {
	case id == "" && at.step != nil:
		return at.step.Job(), nil
	case id == "" && at.pod != nil:
		return at.pod.Job(), nil
	case id == "":
		return token.Random(4), nil
	}
	if err := placement.CheckJob(id); err != nil {
		return "", call.Usage("--job-id: %w", err)
	}
	return id, nil
}

// checkTLS checks the TLS settings of the nodes, and makes certificates for --tls auto.
func checkTLS(ctx *urfave.Context, env *control.Env) []error {
	paths := map[string]*string{"tls-cert": &env.TLSCert, "tls-key": &env.TLSKey, "tls-ca": &env.TLSCA}
	given := 0
	for _, path := range paths {
		if *path != "" {
			given++
		}
	}
	switch mode := ctx.String("tls"); {
	case mode != "" && mode != flags.TLSAuto:
		return []error{fmt.Errorf("--tls %q: want auto", mode)}
	case mode == flags.TLSAuto && given > 0:
		return []error{errors.New("--tls auto makes its own certificates: leave out --tls-cert, --tls-key and --tls-ca")}
	case mode == flags.TLSAuto && env.Bus != "":
		return []error{errors.New("--tls auto makes certificates that an external server does not trust: with --nats-url or --redis-url give " +
			"--tls-ca, " +
			"and --tls-cert and --tls-key if the server requires them")}
	case mode == flags.TLSAuto:
		now := time.Now()
		files, err := certs.Make(nil, now, now.Add(autoTLS))
		env.TLSCert, env.TLSKey, env.TLSCA = files.Cert, files.Key, files.CA
		return asList(err)
	case given == 0:
		return nil
	}
	var faults []error
	if given < len(paths) && env.Bus == "" {
		faults = append(faults, errors.New("--tls-cert, --tls-key and --tls-ca: give all of them, or none"))
	}
	faults = append(faults, absolute(paths)...)
	if len(faults) > 0 {
		return faults
	}
	if strings.HasPrefix(env.Bus, "redis://") {
		return []error{errors.New("--tls-cert, --tls-key and --tls-ca: --redis-url asks for a connection without TLS: give --redis-url " +
			"rediss://host:port")}
	}
	if env.Bus != "" {
		_, err := certs.Client(env.TLSCert, env.TLSKey, env.TLSCA)
		return asList(err)
	}
	_, _, err := certs.Load(env.TLSCert, env.TLSKey, env.TLSCA, time.Now())
	return asList(err)
}

// absolute makes the paths of files absolute. paths has them by flag. A missing file is a
// fault.
func absolute(paths map[string]*string) []error {
	var faults []error
	for name, path := range paths {
		if *path == "" || certs.IsText(*path) {
			continue
		}
		if _, err := os.Stat(*path); err != nil {
			faults = append(faults, fmt.Errorf("--%s: %w", name, err))
		}
		if abs, err := filepath.Abs(*path); err == nil {
			*path = abs
		}
	}
	return faults
}

func asList(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}
