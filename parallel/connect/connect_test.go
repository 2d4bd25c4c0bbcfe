package connect

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/redisbus"
	"github.com/ditask/ditask/router/socket"
)

func TestTransportFollowsFromTheBus(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c, err := newConnector(control.Env{}, "", log)
	if _, ok := c.transport.(*socket.Transport); err != nil || !ok || c.listener != nil {
		t.Errorf("no bus: %T, %v", c.transport, err)
	}
	for _, bus := range []string{"nats://h:1", "tls://h:1,tls://i:2"} {
		c, err := newConnector(control.Env{Bus: bus, JobID: "j", Listen: "bus://node.0"}, "secret", log)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.transport.(*natsbus.Transport); !ok {
			t.Errorf("%s: %T", bus, c.transport)
		}
		c.close()
	}
	for _, bus := range []string{"redis://h:1", "rediss://h:1"} {
		c, err := newConnector(control.Env{Bus: bus, JobID: "j", Attach: []string{"bus://node.1"}}, "secret", log)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.transport.(*redisbus.Transport); !ok {
			t.Errorf("%s: %T", bus, c.transport)
		}
		c.close()
	}
}

func TestConnectorFaults(t *testing.T) {
	const local = "nats://127.0.0.1:1"
	for want, env := range map[string]control.Env{
		"DITASK_BUS: no transport for ftp://h: want nats://, tls://, redis:// or rediss://host:port": {Bus: "ftp://u:secret@h"},
		`DITASK_LISTEN: address "tcp://h:1": want bus://node.<id>, since`: {
			Bus: local, JobID: "j", Listen: "tcp://h:1",
		},
		`DITASK_LISTEN: address "tcp://h:2": want bus://node.<id>, since`: {
			Bus: "redis://127.0.0.1:1", JobID: "j", Listen: "tcp://h:2",
		},
		`DITASK_ATTACH: address "x": want bus://node.<id>, since`: {Bus: local, JobID: "j", Attach: []string{"x"}},
		`DITASK_ATTACH: address "y"`:                              {Attach: []string{"unix:///s", "y"}},
		"the job has no token, and other users can reach":         {Bus: "nats://u:secret@h:1", JobID: "j"},
		"no token, and other users can reach the server at nats": {
			Bus: local, JobID: "j", BusAuth: control.BusAuthJob,
		},
		"no token, and other users can reach the server at redis": {Bus: "redis://h:1", JobID: "j"},
		"open to other machines and the job has no token":         {Listen: "tcp://0.0.0.0:1"},
		"tcp://gpu1:1 is reached over the network and the job has no token: set DITASK_TOKEN": {Listen: "unix:///s",
			Attach: []string{"tcp://[::1]:1", "tcp://gpu1:1"}},
		"tls: a certificate, its key and an authority": {TLSCert: "c"},
		"open missing.key":           {Bus: local, JobID: "j", TLSCert: "missing.pem", TLSKey: "missing.key"},
		"tls: open missing.pem":      {Bus: "redis://127.0.0.1:1", JobID: "j", TLSCA: "missing.pem"},
		"DITASK_BUS: nats":           {Bus: local},
		"DITASK_BUS: redis":          {Bus: "redis://127.0.0.1:1/x", JobID: "j"},
		"open DITASK_LISTEN_FD=9999": {Listen: "unix:///s", ListenFD: 9999},
	} {
		_, err := newConnector(env, "", slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

// A server that only this machine reaches needs no token.
func TestLocalServerNeedsNoToken(t *testing.T) {
	for _, bus := range []string{"nats://localhost:1", "redis://[::1]:1"} {
		c, err := newConnector(control.Env{Bus: bus, JobID: "j"}, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", bus, err)
			continue
		}
		c.close()
	}
}

// A server of the job is waited for as long as its launcher may take, and has a key
// that follows from the job's.
func TestNATSServerOfTheJobIsWaitedForLonger(t *testing.T) {
	env := control.Env{Bus: "nats://h:1", JobID: "j", NodeID: 3, Nodes: 5, BusCreds: "creds", BusNKey: "nkey", JoinTimeout: time.Hour}
	c := natsConfig(env, "secret")
	if c.URL != "nats://h:1" || c.Job != "j" || c.Name != "ditask j node.3" || c.Nodes != 5 || c.CredsFile != "creds" || c.NKeyFile != "nkey" {
		t.Errorf("%+v", c)
	}
	if c.Key != "" || c.Token != "" || c.ConnectTimeout != 10*time.Second {
		t.Errorf("a server elsewhere: token %q, %v", c.Token, c.ConnectTimeout)
	}
	env.BusAuth = control.BusAuthJob
	for joinTimeout, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Minute, time.Hour: time.Hour} {
		env.JoinTimeout = joinTimeout
		if c := natsConfig(env, "secret"); c.Key != natsbus.JobKey("secret") || c.ConnectTimeout != want {
			t.Errorf("the job's server, join timeout %v: token %q, %v", joinTimeout, c.Token, c.ConnectTimeout)
		}
	}
}

// A server elsewhere must have the name of its host in its certificate. Nodes, and a
// server that a launcher runs, need only one of the job's authority.
func TestTLSFollowsFromTheEnvironment(t *testing.T) {
	f := certtest.New(t)
	all := control.Env{TLSCert: f.Cert, TLSKey: f.Key, TLSCA: f.CA}
	ofJob := all
	ofJob.BusAuth = control.BusAuthJob
	for _, c := range []struct {
		name  string
		env   control.Env
		none  bool
		named bool // the server's name counts
	}{
		{"none", control.Env{}, true, false},
		{"none of the job", control.Env{BusAuth: control.BusAuthJob}, true, false},
		{"elsewhere", all, false, true},
		{"elsewhere, an authority", control.Env{TLSCA: f.CA}, false, true},
		{"elsewhere, a certificate", control.Env{TLSCert: f.Cert, TLSKey: f.Key}, false, true},
		{"of the job", ofJob, false, false},
	} {
		cfg, err := busTLS(c.env)
		if err != nil || (cfg == nil) != c.none || cfg != nil && cfg.InsecureSkipVerify == c.named {
			t.Errorf("%s: %v, %v", c.name, cfg, err)
		}
	}
	if cfg, err := jobTLS(all); err != nil || cfg == nil || !cfg.InsecureSkipVerify {
		t.Errorf("between nodes: %v, %v", cfg, err)
	}
	for _, env := range []control.Env{{TLSCert: f.Cert}, {TLSKey: f.Key}, {TLSCA: f.CA}} {
		if _, err := jobTLS(env); err == nil {
			t.Errorf("between nodes, %+v: no error", env)
		}
	}
}

// A node that other machines can reach warns that there is no TLS, unless a launcher warns
// for it.
func TestANodeThatIsOpenWarnsOfNoTLS(t *testing.T) {
	f := certtest.New(t)
	for _, c := range []struct {
		env  control.Env
		want bool
	}{
		{control.Env{Listen: "tcp://0.0.0.0:0"}, true},
		{control.Env{Listen: "tcp://0.0.0.0:0", ControlFD: 3}, false},
		{control.Env{Listen: "tcp://0.0.0.0:0", TLSCert: f.Cert, TLSKey: f.Key, TLSCA: f.CA}, false},
		{control.Env{Listen: "tcp://127.0.0.1:0"}, false},
		{control.Env{Listen: "unix:///s"}, false},
		{control.Env{}, false},
		{control.Env{Attach: []string{"unix:///s", "tcp://127.0.0.1:1", "tcp://gpu1:1"}}, true},
		{control.Env{Attach: []string{"tcp://gpu1:1"}, ControlFD: 3}, false},
		{control.Env{Attach: []string{"tcp://gpu1:1"}, TLSCert: f.Cert, TLSKey: f.Key, TLSCA: f.CA}, false},
		{control.Env{Attach: []string{"tcp://localhost:1"}}, false},
	} {
		var log bytes.Buffer
		if _, err := newConnector(c.env, "secret", slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "there is no TLS") != c.want {
			t.Errorf("%+v: log %q", c.env, log.String())
		}
	}
}

// A node whose server is reached over the network without TLS warns of that once, unless a
// launcher warns for it. The password is not in the warning.
func TestANodeWithAnOpenServerWarnsOfNoTLS(t *testing.T) {
	f := certtest.New(t)
	for bus, want := range map[string]bool{
		"redis://h:1": true, "redis://u:password@h:1": true, "nats://h:1": true, "nats://u:password@h:1": true, "tls://h:1,nats://i:1": true,
		"redis://127.0.0.1:1": false, "nats://localhost:1": false, "rediss://h:1": false, "tls://h:1": false,
	} {
		for _, launched := range []bool{false, true} {
			env := control.Env{Bus: bus, JobID: "j"}
			if launched {
				env.ControlFD = 3
			}
			var log bytes.Buffer
			c, err := newConnector(env, "secret", slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			c.close()
			if n := strings.Count(log.String(), "without TLS"); (n == 1) != (want && !launched) || n > 1 ||
				strings.Contains(log.String(), "password@") {
				t.Errorf("%s, launched %v: log %q", bus, launched, log.String())
			}
		}
	}
	var log bytes.Buffer
	c, err := newConnector(control.Env{Bus: "nats://h:1", JobID: "j", TLSCA: f.CA}, "secret", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if c.close(); log.Len() > 0 {
		t.Errorf("with TLS: log %q", log.String())
	}
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	const path = "github.com/ditask/ditask"
	other := &debug.Module{Path: "example.com/other", Version: "v1"}
	for want, info := range map[string]*debug.BuildInfo{
		"v2": {Main: debug.Module{Path: path, Version: "v2"}, Deps: []*debug.Module{other}},
		"v3": {Main: *other, Deps: []*debug.Module{other, {Path: path, Version: "v3"}, other}},
		"":   {Main: *other, Deps: []*debug.Module{other}},
	} {
		if got := versionIn(info); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
}
