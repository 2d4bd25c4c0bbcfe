package connect

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router/mesh"
	"github.com/ditask/ditask/router/natsbus"
)

func TestCarrierFollowsFromTheBus(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c, err := newConnector(control.Env{}, "", log)
	if _, ok := c.carrier.(*mesh.Carrier); err != nil || !ok {
		t.Errorf("no bus: %T, %v", c.carrier, err)
	}
	for _, bus := range []string{"nats://h:1", "tls://h:1,tls://i:2"} {
		c, err := newConnector(control.Env{Bus: bus, JobID: "j", Listen: "bus://node.0"}, "secret", log)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.carrier.(*natsbus.Carrier); !ok {
			t.Errorf("%s: %T", bus, c.carrier)
		}
		c.close()
	}
}

func TestConnectorFaults(t *testing.T) {
	for want, env := range map[string]control.Env{
		"DITASK_BUS: no carrier for ftp://h: want nats://, tls://, redis:// or rediss://host:port": {Bus: "ftp://u:secret@h"},
		`DITASK_LISTEN: address "tcp://h:1": want bus://node.<id>, since`:                          {Bus: "nats://127.0.0.1:1", JobID: "j", Listen: "tcp://h:1"},
		`DITASK_ATTACH: address "x": want bus://node.<id>, since`:                                  {Bus: "nats://127.0.0.1:1", JobID: "j", Attach: []string{"x"}},
		"the job has no token, and other users can reach the server":                               {Bus: "nats://u:secret@h:1", JobID: "j"},
		"open to other machines and the job has no token":                                          {Listen: "tcp://0.0.0.0:1"},
		"tls: a certificate, its key and an authority go together":                                 {TLSCert: "c"},
	} {
		if _, err := newConnector(env, "", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("want %s: %v", want, err)
		}
	}
}
