package control_test

import (
	"testing"

	"github.com/ditask/ditask/parallel/control"
)

// TestOpenServer is the table of servers, and of those that are reached without TLS.
func TestOpenServer(t *testing.T) {
	for _, c := range []struct {
		env  control.Env
		want string
	}{
		{control.Env{}, ""},
		{control.Env{Bus: "redis://h:1"}, "redis://h:1"},
		{control.Env{Bus: "redis://u:pass@h:1/2"}, "redis://h:1"},
		{control.Env{Bus: "redis://u:p@ss/w@10.0.0.1/2?x=y"}, "redis://10.0.0.1"},
		{control.Env{Bus: "redis://127.0.0.1:1"}, ""},
		{control.Env{Bus: "redis://localhost"}, ""},
		{control.Env{Bus: "redis://[::1]"}, ""},
		{control.Env{Bus: "redis://[::1]:6379/0"}, ""},
		{control.Env{Bus: "redis://[2001:db8::1]:6379"}, "redis://[2001:db8::1]:6379"},
		{control.Env{Bus: "rediss://h:1"}, ""},
		{control.Env{Bus: "nats://h:1"}, "nats://h:1"},
		{control.Env{Bus: "nats://u:pass@h:1"}, "nats://h:1"},
		{control.Env{Bus: "nats://word@h"}, "nats://h"},
		{control.Env{Bus: "nats://h:1", TLSCA: "ca.pem"}, ""},
		{control.Env{Bus: "nats://h:1", TLSCert: "c", TLSKey: "k", TLSCA: "ca"}, ""},
		{control.Env{Bus: "tls://h:1"}, ""},
		{control.Env{Bus: "tls://h:1, nats://i:2"}, "nats://i:2"},
		{control.Env{Bus: "nats://localhost:1,h:2"}, "nats://h:2"},
		{control.Env{Bus: "nats://localhost:1,127.0.0.1:2"}, ""},
	} {
		if got := c.env.OpenServer(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.env, got, c.want)
		}
	}
}

func TestBeyondLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost:1": false, "127.0.0.1:1": false, "127.9.9.9": false, "[::1]:1": false, "[::1]": false, "::1": false, "localhost": false,
		"0.0.0.0:1": true, "[::]:1": true, "10.0.0.1:1": true, "gpu1:1": true, "gpu1": true, ":1": true, "": true, "h:1,localhost:2": true,
	} {
		if got := control.BeyondLoopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
