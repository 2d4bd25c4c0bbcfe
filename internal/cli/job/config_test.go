package job

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

func TestSeconds(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "1.5": 1500 * time.Millisecond, "500ms": 500 * time.Millisecond, "2s": 2 * time.Second,
		"86400": 24 * time.Hour, "24h": 24 * time.Hour,
	} {
		if got, err := seconds(in); got != want || err != nil {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-1", "-1s", "NaN", "Inf", "1e30", "25h", "86401", "24h1ns"} {
		if got, err := seconds(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

// config is configOf in the case of a fault-free launcher.
func config(t *testing.T, at place, line string) launch.Config {
	t.Helper()
	cfg, err := configOf(fields(t, line), &at)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return cfg
}

func TestConfigOfNoFlags(t *testing.T) {
	with(t)
	cfg := config(t, place{}, "")
	if len(cfg.Env.Token) != 32 || cfg.Env.Token == config(t, place{}, "").Env.Token {
		t.Errorf("token %q", cfg.Env.Token)
	}
	cfg.Env.Token = ""
	want := launch.Config{MaxRetries: 3}
	want.Env.Grace, want.Env.PeerTimeout, want.Env.LogFormat = 10*time.Second, 8*time.Second, "text"
	if d := cmp.Diff(want, cfg); d != "" {
		t.Error(d)
	}
}

func TestConfigOfAllFlags(t *testing.T) {
	with(t)
	cfg := config(t, place{}, "--max-retries 7 --auto-recover --log-dir L --token T --dir D --main M --resume --grace 3s "+
		"--log-format json --seed 4 --trace R --trace-limit 2 --nats-url nats://u:p@h:1 "+
		"--startup-interval 1.5 --join-timeout 2m --peer-timeout 1s")
	abs, err := filepath.Abs("R")
	if err != nil {
		t.Fatal(err)
	}
	want := launch.Config{MaxRetries: 7, LogDir: "L", StartupInterval: 1500 * time.Millisecond}
	e := &want.Env
	e.Token, e.Dir, e.Main, e.AutoRecover, e.Resume, e.Grace = "T", "D", "M", true, true, 3*time.Second
	e.LogFormat, e.Seed, e.Trace, e.TraceLimit, e.Bus = "json", 4, abs, 2, "nats://u:p@h:1"
	e.JoinTimeout, e.PeerTimeout = 2*time.Minute, time.Second
	if d := cmp.Diff(want, cfg); d != "" {
		t.Error(d)
	}
	if got := config(t, place{}, "--dir D").LogDir; got != filepath.Join("D", "logs") {
		t.Errorf("log folder %q", got)
	}
	if got := config(t, place{}, "--mq-type redis --redis-host r").Env.Bus; got != "redis://r:6379" {
		t.Errorf("bus %q", got)
	}
}

func TestConfigOfAPlatform(t *testing.T) {
	with(t)
	pod := &kube.Pod{Size: 2}
	cfg := config(t, place{pod: pod}, "")
	if cfg.Env.JoinTimeout != 10*time.Minute || !cfg.Replaced || cfg.Env.Resume || cfg.Processors != 0 {
		t.Errorf("a pod: %+v", cfg)
	}
	if cfg := config(t, place{pod: pod}, "--join-timeout 5s"); cfg.Env.JoinTimeout != 5*time.Second {
		t.Errorf("a pod with a join timeout: %v", cfg.Env.JoinTimeout)
	}
	cfg = config(t, place{step: &slurm.Step{Tasks: 1, CPUs: 3}, restarts: 1}, "")
	if cfg.Processors != 3 || !cfg.Env.Continue || cfg.Replaced || cfg.Env.JoinTimeout != 0 {
		t.Errorf("a requeued step: %+v", cfg)
	}
	if cfg := config(t, place{restarts: 1}, "--resume=false"); cfg.Env.Resume || cfg.Env.Continue {
		t.Error("--resume=false does not override the variable")
	}
}

func TestConfigFaults(t *testing.T) {
	with(t)
	for line, want := range map[string]string{
		"--startup-interval soon":        `--startup-interval "soon": want seconds, or a duration such as 500ms`,
		"--auto-recover --max-retries 0": "--max-retries 0: want at least 1",
		"--auto-recover --max-retries 1": "",
		"--grace 0s":                     "--grace 0s: want more than 0s",
		"--grace 1ns":                    "",
		"--join-timeout 0s":              "--join-timeout 0s: want more than 0s",
		"--join-timeout -1s":             "--join-timeout -1s: want more than 0s",
		"--peer-timeout 999ms":           "--peer-timeout 999ms: want at least 1s",
		"--peer-timeout 1s":              "",
		"--log-format xml":               `--log-format "xml": want text or json`,
		"--trace x --trace-limit 0":      "--trace-limit 0: want at least 1 MiB",
		"--trace x --trace-limit 1":      "",
		"--grace -1s --log-format y --tls maybe": "--grace -1s: want more than 0s\n" +
			"--log-format \"y\": want text or json\n--tls \"maybe\": want auto",
	} {
		_, err := configOf(fields(t, line), &place{})
		expect(t, err, want)
	}
}

func TestPlacementOf(t *testing.T) {
	with(t)
	line := "-n 3 --protocol tcp --ports 1,2,3 --attach-to a --address h --labels l --node-ids 4 --topology star"
	f, err := placementOf(fields(t, line), "j", "/r")
	want := placement.Flags{
		Job: "j", Workers: 3, Protocol: "tcp", Ports: "1,2,3", AttachTo: "a", Address: "h", Labels: "l", NodeIDs: "4", Topology: "star",
		RunDir: "/r", Hostname: f.Hostname,
	}
	if d := cmp.Diff(want, f); d != "" || err != nil || f.Hostname == "" {
		t.Error(d, err, f.Hostname)
	}
	f, err = placementOf(args(t, "--nats-url", "nats://u:p@h:1", "--platform-spec", ` {"tasks":[{"node_ids":3}]}`), "j", "")
	if err != nil || f.NATSURL != "nats://h:1" || f.MQType != "" || f.Topology != "mesh" || f.Workers != 1 ||
		f.Spec == nil || f.Spec.Tasks[0].NodeIDs != "3" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = placementOf(fields(t, "--mq-type redis --redis-url redis://u:p@h:1/2"), "j", "")
	if err != nil || f.RedisURL != "redis://h:1/2" || f.MQType != "redis" {
		t.Errorf("%+v, %v", f, err)
	}
}

// redisForm is the form of a URL of Redis in errors.
const redisForm = "want redis://user:password@host:port/database, or rediss:// for TLS"

func TestPlacementFaults(t *testing.T) {
	with(t)
	for line, want := range map[string]string{
		"--nats-url http://u:secret@h":  "--nats-url: http://h: want nats://host:port or tls://host:port",
		"--redis-url http://u:secret@h": "--redis-url: http://h: " + redisForm,
		"--redis-url foo":               "--redis-url: foo: " + redisForm,
		"--redis-url u:secret@h:6379":   "--redis-url: h:6379: " + redisForm,
		"--redis-url redis:foo":         "--redis-url: redis:foo: " + redisForm,
		"--redis-url redis://u:sec/ret@h:x": "--redis-url: redis://h:x: not a URL: " + redisForm +
			" (in a password, characters such as / @ : # % are written as %2F and so on)",
		"--redis-url redis://u:secret@h:65536":   "--redis-url: redis://h:65536: port 65536: want a number from 1 to 65535",
		"--redis-url redis://h:0":                "--redis-url: redis://h:0: port 0: want a number from 1 to 65535",
		"--redis-url redis://h:65535/2":          "",
		"--redis-url redis://h/a":                `--redis-url: redis://h/a: database "a": want a number`,
		"--redis-url redis://h?foo=1":            "--redis-url: redis://h?foo=1: unexpected option: foo",
		"--nats-url foo":                         "--nats-url: foo: want nats://host:port or tls://host:port",
		"--nats-url nats://a:1,nats://u:p@h:x":   "--nats-url: nats://h:x: not a URL: want nats://host:port or tls://host:port",
		"--nats-url nats://u:p@h:65536":          "--nats-url: nats://h:65536: port 65536: want a number from 1 to 65535",
		"--nats-url nats://h:65535":              "",
		"--mq-type redis --redis-port 0":         "--redis-port 0: want a number from 1 to 65535",
		"--mq-type redis --redis-port 65536":     "--redis-port 65536: want a number from 1 to 65535",
		"--mq-type redis --redis-port 65535":     "",
		"--mq-type redis --redis-host a/b@c":     `--redis-host "a/b@c": want the name or the address of a host, without a port`,
		"--mq-type redis --redis-host a:1":       `--redis-host "a:1": want a host without a port: --redis-host a --redis-port 1`,
		"--mq-type redis --redis-host redis://a": `--redis-host "redis://a": want the name or the address of a host, without a port`,
		"--mq-type redis --redis-host [::1]":     "",
		"--mq-type redis --redis-host=":          "--redis-host is empty: give the name or the address of a host",
		"-n 0":                                   "--parallel-workers 0: want at least 1",
		"--platform moon":                        `--platform "moon": want local, slurm or kubernetes`,
		"--platform-spec nofile": "" +
			"--platform-spec: open nofile: no such file or directory: want JSON, or the name of a JSON file",
		"--platform-spec []": "platform spec: (top): want an object, got an array",
		"--max-retries 1 -n 0 --platform-spec x": "--max-retries: has no effect without --auto-recover: give both, or leave --max-retries out\n" +
			"--parallel-workers 0: want at least 1\n--platform-spec: open x: no such file or directory: want JSON, or the name of a JSON file",
	} {
		_, err := planOf(fields(t, line), placement.Site{}, "j", "/r")
		expect(t, err, want)
	}
}

func TestOverriddenFlagsAreFaults(t *testing.T) {
	with(t)
	all := `{"tasks":[{"parallel_workers":2,"address":"a"},{"parallel_workers":1,"address":"b"}]}`
	some := `{"tasks":[{"parallel_workers":2,"address":"a"},{}]}`
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"--platform-spec", all, "-n", "1"},
			"--parallel-workers: has no effect, as every task of the platform spec has parallel_workers: leave it out"},
		{[]string{"--platform-spec", all, "--address", "h"},
			"--address: has no effect, as every task of the platform spec has address: leave it out"},
		{[]string{"--platform-spec", all}, ""},
		{[]string{"--platform-spec", some, "-n", "1", "--address", "h"}, ""},
		{[]string{"-n", "1", "--address", "h"}, ""},
	} {
		_, err := planOf(args(t, c.words...), placement.Site{}, "j", "/r")
		expect(t, err, c.want)
	}
}

func TestIdleFlagsOfAPlan(t *testing.T) {
	with(t)
	two := placement.Site{Rank: 0, Launchers: []placement.Launcher{{Host: "a"}, {Host: "b"}}}
	const noTLS = ": has no effect over unix sockets, which only you can open: give --protocol tcp, or leave --"
	for _, c := range []struct {
		line string
		site placement.Site
		want string
	}{
		{"", placement.Site{}, ""},
		{"--startup-interval 0", placement.Site{}, "--startup-interval: has no effect, as this launcher starts one node: leave it out"},
		{"--startup-interval 1", two, "--startup-interval: has no effect, as this launcher starts one node: leave it out"},
		{"--startup-interval 1 -n 2", placement.Site{}, ""},
		{"--join-timeout 1m", placement.Site{}, "--join-timeout: has no effect, as the job has one node: leave it out"},
		{"--join-timeout 1m", two, ""},
		{"--join-timeout 1m -n 2", placement.Site{}, ""},
		{"--join-timeout 1m --attach-to tcp://a:1", placement.Site{}, ""},
		{"--join-timeout 1m --mq-type nats", placement.Site{}, ""},
		{"--tls auto -n 2", placement.Site{}, "--tls" + noTLS + "tls out"},
		{"--tls-cert a --tls-ca b -n 2", placement.Site{}, "--tls-cert" + noTLS + "tls-cert out\n--tls-ca" + noTLS + "tls-ca out"},
		{"--tls-key a -n 2 --attach-to unix:///x", placement.Site{}, "--tls-key" + noTLS + "tls-key out"},
		{"--tls auto --protocol tcp", placement.Site{}, ""},
		{"--tls auto --attach-to tcp://a:1", placement.Site{}, ""},
		{"--tls auto --mq-type nats", placement.Site{}, ""},
		{"--tls auto", two, ""},
	} {
		ctx := fields(t, c.line)
		plan, err := planOf(ctx, c.site, "j", "/r")
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		expect(t, idle(ctx, plan), c.want)
	}
	// A profile may set certificates for all jobs.
	with(t, "DITASK_TLS_CERT=a", "DITASK_TLS_KEY=b", "DITASK_TLS_CA=c")
	plan, err := planOf(args(t), placement.Site{}, "j", "/r")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, idle(args(t), plan), "")
}
