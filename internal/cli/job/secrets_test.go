package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

// file writes a file that only its owner can read.
func file(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// relative makes the path of a file relative to a new working folder.
func relative(t *testing.T, path string) string {
	t.Helper()
	t.Chdir(filepath.Dir(path))
	return filepath.Base(path)
}

func TestSecretsOfNodes(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	with(t)
	path := file(t, "token", "word\n", 0o600)
	cfg := config(t, place{}, "--token-file "+relative(t, path))
	if cfg.Env.TokenFile != path || cfg.Env.Token != "" {
		t.Errorf("%+v", cfg.Env)
	}
	if cfg := config(t, place{step: &slurm.Step{JobID: 1, Tasks: 2}}, "--token own"); cfg.Env.Token != "own" {
		t.Errorf("token %q", cfg.Env.Token)
	}
	at := place{step: &slurm.Step{JobID: 1, Tasks: 2}}
	cfg, err := configOf(args(t), &at)
	if err != nil || len(cfg.Env.Token) != 32 || !at.keyed || at.hint != "" || cfg.Env.Token != config(t, place{step: at.step}, "").Env.Token {
		t.Errorf("tasks: %+v, %+v, %v", cfg.Env, at, err)
	}
	alone := place{step: &slurm.Step{JobID: 1, Tasks: 1}}
	if cfg, err := configOf(args(t), &alone); err != nil || alone.keyed || cfg.Env.Token == config(t, alone, "").Env.Token {
		t.Errorf("one task: %+v, %v", alone, err)
	}
	t.Setenv("HOME", path) // no folder for a key
	t.Setenv("XDG_CONFIG_HOME", path)
	at = place{step: &slurm.Step{JobID: 1, Tasks: 2}, hint: "before"}
	if cfg, err := configOf(args(t), &at); err != nil || len(cfg.Env.Token) != 32 || at.keyed || !strings.HasPrefix(at.hint,
		"no key for the job's token") {
		t.Errorf("without a home: %+v, %v", at, err)
	}
}

func TestSecretFaults(t *testing.T) {
	with(t)
	f := certtest.New(t)
	creds := file(t, "creds", "", 0o600)
	empty := file(t, "empty", "\n", 0o600)
	all := "--tls-cert " + f.Cert + " --tls-key " + f.Key + " --tls-ca " + f.CA
	const auto = "--tls auto --protocol tcp "
	for line, want := range map[string]string{
		"--token a --token-file " + creds: "--token and --token-file: give one of them",
		"--token-file " + empty:           "token file " + empty + " holds no token: correct --token-file or DITASK_TOKEN_FILE",
		"--nats-url nats://h:1 --nats-creds " + creds + " --nats-nkey " + creds: "--nats-creds and --nats-nkey: give one of them",
		"--nats-url nats://h:1 --nats-creds /none":                              "--nats-creds: stat /none: no such file or directory",
		"--nats-url nats://h:1 --nats-nkey /none":                               "--nats-nkey: stat /none: no such file or directory",
		"--nats-url nats://h:1 --nats-nkey " + creds:                            "",
		"--tls on":                `--tls "on": want auto`,
		auto:                      "",
		auto + "--tls-ca " + f.CA: "--tls auto makes its own certificates: leave out --tls-cert, --tls-key and --tls-ca",
		auto + "--nats-url nats://h:1": "--tls auto makes certificates that an external server does not trust: " +
			"with --nats-url or --redis-url give --tls-ca, and --tls-cert and --tls-key if the server requires them",
		all:                    "",
		"--tls-cert " + f.Cert: "--tls-cert, --tls-key and --tls-ca: give all of them, or none",
		"--tls-cert " + f.Cert + " --tls-key " + f.Key + " --tls-ca /none": "--tls-ca: stat /none: no such file or directory",
		"--nats-url nats://h:1 --tls-ca " + f.CA:                           "",
		"--nats-url nats://h:1 --tls-ca " + creds:                          "tls: the authority's file holds no certificate",
		"--redis-url rediss://h:1 --tls-ca " + f.CA:                        "",
		"--redis-url redis://h:1 --tls-ca " + f.CA: "" +
			"--tls-cert, --tls-key and --tls-ca: --redis-url asks for a connection without TLS: give --redis-url rediss://host:port",
		"--tls-cert " + creds + " --tls-key " + f.Key + " --tls-ca " + f.CA + " --protocol tcp -n 2": "*",
	} {
		_, err := configOf(fields(t, line), &place{})
		if want == "*" {
			if err == nil {
				t.Errorf("%s: no fault", line)
			}
			continue
		}
		expect(t, err, want)
	}
}

func TestTLSOfTheJob(t *testing.T) {
	with(t)
	cfg := config(t, place{}, "--tls auto")
	if e := cfg.Env; !certs.IsText(e.TLSCert) || !certs.IsText(e.TLSKey) || !certs.IsText(e.TLSCA) || e.TLSCert == config(t, place{},
		"--tls auto").Env.TLSCert {
		t.Error("no certificates of the job's own")
	}
	f := certtest.New(t)
	name := relative(t, f.Cert)
	cfg = config(t, place{}, "--tls-cert "+name+" --tls-key "+f.Key+" --tls-ca "+f.CA)
	if e := cfg.Env; e.TLSCert != f.Cert || e.TLSKey != f.Key || e.TLSCA != f.CA {
		t.Errorf("%+v", e)
	}
}

func TestJoined(t *testing.T) {
	f := certtest.New(t)
	const who = "nodes that join those of another launcher need --job-id and --token (or --token-file), the same for all"
	const rank = "--local_rank 0: the launchers of one host need the same --job-id and --token (or --token-file): " +
		"give both, or leave --local_rank out if this launcher is the only one"
	const auto = "--tls auto is for the nodes of one launcher: " +
		"make certificates for all of them with ditask tls, and give --tls-cert, --tls-key and --tls-ca"
	step := &slurm.Step{Tasks: 2}
	pods := &kube.Pod{Size: 2}
	for _, c := range []struct {
		line string
		at   place
		want string
	}{
		{"", place{}, ""},
		{"--tls auto", place{}, ""},
		{"--attach-to tcp://h:1", place{}, who},
		{"--attach-to tcp://h:1 --job-id j", place{}, who},
		{"--attach-to tcp://h:1 --token t", place{}, who},
		{"--attach-to tcp://h:1 --token t --job-id j", place{}, ""},
		{"--attach-to tcp://h:1 --token-file " + f.Key + " --job-id j", place{}, ""},
		{"--attach-to tcp://h:1 --token t --job-id j --tls auto", place{}, auto},
		{"--attach-to bus://node.7 --nats-url nats://h:1", place{}, ""},
		{"--local_rank 0", place{}, rank},
		{"--local_rank 0 --job-id j", place{}, rank},
		{"--local_rank 0 --token t", place{}, rank},
		{"--local_rank 0 --token t --job-id j", place{}, ""},
		{"--local_rank 0 --token t --job-id j --tls auto", place{}, auto},
		{"--local_rank 0 --token t", place{pod: pods}, ""},
		{"", place{step: step}, ""},
		{"--tls auto", place{step: step}, auto},
		{"--attach-to tcp://h:1", place{step: step}, who},
		{"", place{pod: pods}, "the pods of a job need one token: set DITASK_TOKEN in all of them from a Secret, or give --token-file"},
		{"--token t", place{pod: pods}, ""},
		{"--token-file " + f.Key, place{pod: pods}, ""},
		{"--token t --tls auto", place{pod: pods}, auto},
		{"", place{pod: &kube.Pod{Size: 1}}, ""},
	} {
		with(t)
		ctx := fields(t, c.line)
		plan, err := planOf(ctx, placement.Site{}, "j", "/r")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.line, func(t *testing.T) { expect(t, joined(ctx, c.at, plan), c.want) })
	}
}

func TestJobID(t *testing.T) {
	with(t)
	step := place{step: &slurm.Step{JobID: 5}}
	pod := place{pod: &kube.Pod{ID: "of-pods"}}
	for _, c := range []struct {
		line string
		at   place
		want string
	}{
		{"--job-id mine", place{}, "mine"}, {"--job-id mine", step, "mine"}, {"--job-id mine", pod, "mine"},
		{"", step, "slurm-5.0"}, {"", pod, "of-pods"},
	} {
		if got, err := jobID(fields(t, c.line), c.at); got != c.want || err != nil {
			t.Errorf("%s: %s, %v", c.line, got, err)
		}
	}
	a, _ := jobID(args(t), place{})
	b, err := jobID(args(t), place{})
	if len(a) != 8 || a == b || err != nil {
		t.Errorf("random: %s, %s, %v", a, b, err)
	}
	_, err = jobID(fields(t, "--job-id a/b"), place{})
	expect(t, err, `--job-id: job id "a/b": want 1 to 40 letters, digits, dots, underscores and hyphens, the first a letter or digit`)
}

func TestCautions(t *testing.T) {
	with(t)
	const open = " is on the network without TLS: anybody on the network path can read and change what the nodes send: see ditask tls"
	const short = "the token has 15 bytes: anybody who can reach a node can guess it: give at least 16 random bytes"
	const server = " is on the network without TLS: anybody on the network path can read and change what the nodes send, " +
		"and read a password of the server: give it TLS and a "
	long, brief := strings.Repeat("x", 16), strings.Repeat("x", 15)
	shared := file(t, "shared", long, 0o640)
	own := file(t, "own", long, 0o600)
	for _, c := range []struct {
		line string
		env  control.Env
		want []string
	}{
		{"", control.Env{Token: brief}, nil},
		{"--protocol tcp", control.Env{Token: brief}, nil},
		{"--address 10.0.0.1 --ports 7", control.Env{Token: long}, []string{"tcp://10.0.0.1:7" + open}},
		{"--address 10.0.0.1 --ports 7", control.Env{Token: long, TLSCert: "c"}, nil},
		{"--address 10.0.0.1 --ports 7 -n 2", control.Env{Token: brief}, []string{"tcp://10.0.0.1:7" + open, short}},
		{"--address 10.0.0.1 --ports 7", control.Env{Token: brief, TLSCert: "c"}, []string{short}},
		{"--protocol tcp --attach-to tcp://h:1", control.Env{Token: long}, []string{"tcp://h:1" + open}},
		{"--mq-type nats --address 10.0.0.1", control.Env{Token: long}, []string{"tcp://10.0.0.1:0" + open}},
		{"", control.Env{TokenFile: shared}, []string{"--token-file " + shared + ": other users can read it: chmod 600"}},
		{"", control.Env{TokenFile: own, TLSKey: shared}, []string{"--tls-key " + shared + ": other users can read it: chmod 600"}},
		{"", control.Env{Token: long, Bus: "redis://h:1"}, []string{"redis://h:1" + server + "rediss:// URL"}},
		{"", control.Env{Token: long, Bus: "redis://u:password@h:1/2"}, []string{"redis://h:1" + server + "rediss:// URL"}},
		{"", control.Env{Token: long, Bus: "nats://u:password@h:1"}, []string{"nats://h:1" + server + "tls:// URL"}},
		{"", control.Env{Token: long, Bus: "nats://h:1", TLSCA: "ca"}, nil},
		{"", control.Env{Token: long, Bus: "nats://localhost:1,127.0.0.1:2"}, nil},
		{"", control.Env{Token: long, Bus: "tls://h:1"}, nil},
		{"", control.Env{Token: long, Bus: "rediss://h:1"}, nil},
		{"", control.Env{TokenFile: "/none", TLSKey: "-----BEGIN "}, nil},
	} {
		plan, err := planOf(fields(t, c.line), placement.Site{}, "j", "/r")
		if err != nil {
			t.Fatal(err)
		}
		if got := cautions(c.env, plan); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: got %q, want %q", c.line, got, c.want)
		}
	}
}
