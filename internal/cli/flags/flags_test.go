package flags_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/flags"
)

// parse returns the context of a command that has the flags of a job.
func parse(t *testing.T, args ...string) *urfave.Context {
	t.Helper()
	var got *urfave.Context
	app := &urfave.App{
		Flags: flags.Job(), Writer: io.Discard, ErrWriter: io.Discard,
		Action: func(ctx *urfave.Context) error { got = ctx; return nil },
	}
	if err := app.Run(append([]string{"ditask"}, args...)); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestIdleFlagsAreFaults(t *testing.T) {
	const noServer = "has no effect without --mq-type redis: give both, or leave "
	for _, c := range []struct{ args, env, want string }{
		{"", "", ""},
		{"--max-retries 3", "", "--max-retries: has no effect without --auto-recover: give both, or leave --max-retries out"},
		{"--max-retries -1", "", "--max-retries: has no effect without --auto-recover: give both, or leave --max-retries out"},
		{"--max-retries 5 --auto-recover=false", "",
			"--max-retries: has no effect without --auto-recover: give both, or leave --max-retries out"},
		{"--max-retries 5 --auto-recover", "", ""},
		{"--trace-limit 256", "", "--trace-limit: has no effect without --trace: give both, or leave --trace-limit out"},
		{"--trace-limit 1 --trace x", "", ""},
		{"--nats-creds f", "", "--nats-creds: has no effect without --nats-url: give both, or leave --nats-creds out"},
		{"--nats-nkey f --mq-type nats", "", "--nats-nkey: has no effect without --nats-url: give both, or leave --nats-nkey out"},
		{"--nats-nkey f --nats-url nats://h:1", "", ""},
		{"--redis-host 127.0.0.1", "", "--redis-host: " + noServer + "--redis-host out"},
		{"--redis-host h --redis-port 6379 --mq-type nats", "", "--redis-host: " + noServer + "--redis-host out\n--redis-port: " + noServer +
			"--redis-port out"},
		{"--redis-host h --redis-port 1 --mq-type redis", "", ""},
		{"--redis-host h --redis-url redis://r", "", "--redis-host: --redis-url names the server: leave one of the two out"},
		{"--redis-port 1", "redis://r", "--redis-port: DITASK_REDIS_URL names the server: unset it, or leave --redis-port out"},
		{"--mq-type nats", "redis://r", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Setenv(flags.VarRedisURL, c.env)
			got := ""
			if err := errors.Join(flags.Idle(parse(t, strings.Fields(c.args)...))...); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestRedisServer(t *testing.T) {
	for _, c := range []struct{ args, env, want string }{
		{"", "", ""},
		{"--redis-host h", "", ""},
		{"--mq-type redis", "", "redis://127.0.0.1:6379"},
		{"--mq-type redis --redis-host ::1 --redis-port 7", "", "redis://[::1]:7"},
		{"--redis-url redis://r", "", "redis://r"},
		{"--redis-url redis://r --mq-type redis", "redis://e", "redis://r"},
		{"", "redis://e", "redis://e"},
		{"--mq-type redis", "redis://e", "redis://e"},
		// The command line overrides the variable; giving both is not a fault.
		{"--mq-type nats", "redis://e", ""},
		{"--mq-type mesh", "redis://e", ""},
		{"--nats-url nats://h:1", "redis://e", ""},
		{"--redis-url redis://r --mq-type nats", "", "redis://r"},
	} {
		t.Setenv(flags.VarRedisURL, c.env)
		if got := flags.RedisServer(parse(t, strings.Fields(c.args)...)); got != c.want {
			t.Errorf("%s, variable %q: %q, want %q", c.args, c.env, got, c.want)
		}
	}
}

func TestNATSServer(t *testing.T) {
	for _, c := range []struct{ args, env, redis, want, wantRedis string }{
		{"--nats-url nats://f:1", "nats://e:1", "", "nats://f:1", ""},
		{"", "nats://e:1\n", "", "nats://e:1", ""},
		{"--mq-type nats", "nats://e:1", "redis://r", "nats://e:1", ""},
		{"", "nats://e:1", "redis://r", "nats://e:1", ""},
		// The command line overrides the variable.
		{"--mq-type mesh", "nats://e:1", "redis://r", "", ""},
		{"--mq-type redis", "nats://e:1", "", "", "redis://127.0.0.1:6379"},
		{"--redis-url redis://f", "nats://e:1", "redis://r", "", "redis://f"},
		{"--nats-url nats://f:1", "", "redis://r", "nats://f:1", ""},
	} {
		t.Setenv(flags.VarNATSURL, c.env)
		t.Setenv(flags.VarRedisURL, c.redis)
		ctx := parse(t, strings.Fields(c.args)...)
		if got, redis := flags.NATSServer(ctx), flags.RedisServer(ctx); got != c.want || redis != c.wantRedis {
			t.Errorf("%s, variable %q: %q and %q, want %q and %q", c.args, c.env, got, redis, c.want, c.wantRedis)
		}
	}
}

func TestValuesOfVariablesThatMayBeSecretsAreNotGiven(t *testing.T) {
	const pem = "Bag Attributes\n-----BEGIN PRIVATE KEY-----\n"
	for name, value := range map[string]string{
		"TOKEN": "w", "TOKEN_FILE": "f", "TLS_CERT": pem, "TLS_KEY": pem, "TLS_CA": "ca.pem", "REDIS_URL": "redis://u:p@r", "NATS_URL": "",
	} {
		t.Setenv("DITASK_"+name, value)
	}
	ctx := parse(t, "--tls-cert", "c.pem")
	if got := flags.Given(ctx); !slices.Equal(got, []string{"--tls-cert", "c.pem"}) {
		t.Errorf("given: %q", got)
	}
	var got []string
	for _, g := range flags.GuardedOf(ctx) {
		got = append(got, fmt.Sprint(g, " ", g.Secret))
	}
	want := []string{"DITASK_TOKEN true", "DITASK_TOKEN_FILE false", "--tls-cert false", "DITASK_TLS_KEY true", "DITASK_TLS_CA false",
		"DITASK_REDIS_URL true"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for args, want := range map[string]bool{
		"--nats-url nats://h:1": false, "--nats-url nats://h:1,nats://word@h:2": true,
		"--redis-url redis://:p@h": true, "--redis-url redis://h": false, "--tls-key k": false,
	} {
		name := strings.TrimPrefix(strings.Fields(args)[0], "--")
		for _, g := range flags.GuardedOf(parse(t, strings.Fields(args)...)) {
			if g.Name == name && (g.Secret != want || !g.ByFlag) {
				t.Errorf("%s: %+v", args, g)
			}
		}
	}
}

func TestGivenAreArgumentsForAnotherLauncher(t *testing.T) {
	t.Setenv("DITASK_SEED", "9")
	ctx := parse(t, "-n", "3", "--auto-recover", "--resume=false", "--labels", "a,b", "--grace", "20s", "--package", "x", "--local-rank", "2")
	got := flags.Given(ctx, "package")
	want := []string{"--parallel-workers", "3", "--labels", "a,b", "--local_rank", "2", "--seed", "9", "--auto-recover=true",
		"--resume=false", "--grace", "20s"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if again := flags.Given(parse(t, got...), "package"); !slices.Equal(again, got) {
		t.Errorf("read again: %q", again)
	}
}

func TestFromCommandLine(t *testing.T) {
	for _, c := range []struct {
		args, env string
		want      bool
	}{
		{"", "", false},
		{"", "word", false},
		{"--token other", "word", true},
		{"--token word", "", true},
	} {
		t.Setenv("DITASK_TOKEN", c.env)
		if got := flags.FromCommandLine(parse(t, strings.Fields(c.args)...), "token"); got != c.want {
			t.Errorf("%q, variable %q: %v", c.args, c.env, got)
		}
	}
	t.Setenv("DITASK_RESUME", "1")
	if flags.FromCommandLine(parse(t), "resume") {
		t.Error("DITASK_RESUME=1 counts as --resume")
	}
	if !flags.FromCommandLine(parse(t, "--resume=false"), "resume") {
		t.Error("--resume=false counts as its variable")
	}
}

func TestPlatformHasASecondName(t *testing.T) {
	for in, want := range map[string]string{"": "", "k8s": "kubernetes", "kubernetes": "kubernetes", "slurm": "slurm", "moon": "moon"} {
		if got := flags.Platform(parse(t, "--platform", in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// Each command keeps its values in its own flags.
func TestFlagsAreMadeAnew(t *testing.T) {
	parse(t, "--labels", "a", "-n", "4")
	if ctx := parse(t); ctx.String("labels") != "" || ctx.Int("parallel-workers") != 1 || ctx.IsSet("labels") {
		t.Errorf("labels %q, %d workers", ctx.String("labels"), ctx.Int("parallel-workers"))
	}
}

func TestDefaultsAndVariables(t *testing.T) {
	for _, name := range []string{"token", "token-file", "seed", "resume", "tls-cert", "tls-key", "tls-ca", "redis-url"} {
		t.Setenv("DITASK_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), "1")
	}
	ctx := parse(t)
	for name, want := range map[string]string{
		"token": "1", "token-file": "1", "seed": "1", "resume": "true", "tls-cert": "1", "tls-key": "1", "tls-ca": "1", "redis-url": "1",
		"platform": "", "topology": "mesh", "protocol": "", "mq-type": "mesh",
		"redis-host": "127.0.0.1", "redis-port": "6379", "local_rank": "-1",
		"max-retries": "3", "grace": "10s", "peer-timeout": "8s", "join-timeout": "0s", "startup-interval": "0", "log-format": "text",
		"parallel-workers": "1", "auto-recover": "false", "trace-limit": "256",
	} {
		if got := ctx.String(name); got != want {
			t.Errorf("--%s: %q, want %q", name, got, want)
		}
	}
}
