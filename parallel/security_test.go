package parallel_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/parallel"
)

// TestR7NodeOnTheNetworkNeedsAToken joins without a launcher, as a program of the user could start it.
func TestR7NodeOnTheNetworkNeedsAToken(t *testing.T) {
	f := certtest.New(t)
	tls := "DITASK_TLS_CERT=" + f.Cert + " DITASK_TLS_KEY=" + f.Key + " DITASK_TLS_CA=" + f.CA
	for _, c := range []struct{ listen, more, fails, warns string }{
		{"tcp://0.0.0.0:0", "", "tcp://0.0.0.0:0 is open to other machines and the job has no token: set DITASK_TOKEN", ""},
		{"tcp://[::]:0", tls, "the job has no token", ""},
		{"tcp://gpu1:0", "", "the job has no token", ""},
		{"tcp://0.0.0.0:0", "DITASK_TOKEN=secret", "", "there is no TLS"},
		{"tcp://0.0.0.0:0", "DITASK_TOKEN=secret " + tls, "", ""},
		{"tcp://0.0.0.0:0", "DITASK_TOKEN=secret DITASK_TLS_CERT=" + f.Cert, "a certificate, its key and an authority go together", ""},
		{"tcp://127.0.0.1:0", "DITASK_ATTACH=tcp://gpu1:1",
			"tcp://gpu1:1 is reached over the network and the job has no token: set DITASK_TOKEN", ""},
		{"tcp://127.0.0.1:0", "DITASK_TOKEN=secret DITASK_ATTACH=tcp://gpu1:1", "", "there is no TLS"},
		{"", "DITASK_BUS=nats://gpu1:1", "the job has no token", ""},
		{"", "DITASK_BUS=redis://u:secret@gpu1:1", "the job has no token", ""},
		{"", "DITASK_JOB_ID=j DITASK_TOKEN=secret DITASK_BUS=nats://gpu1:1", "", "without TLS"},
		{"", "DITASK_JOB_ID=j DITASK_TOKEN=secret DITASK_BUS=redis://u:secret@gpu1:1", "", "without TLS"},
		{"tcp://127.0.0.1:0", "", "", ""},
		{"tcp://[::1]:0", "", "", ""},
		{"tcp://localhost:0", "", "", ""},
		{"unix:///nowhere/s", "", "", ""},
	} {
		env := map[string]string{"DITASK_NODE_ID": "0", "DITASK_NODES": "2", "DITASK_LISTEN": c.listen}
		for kv := range strings.FieldsSeq(c.more) {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		var log bytes.Buffer
		_, err := parallel.Join(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, slog.New(slog.NewTextHandler(&log, nil)))
		if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s %s: want %q: %v", c.listen, c.more, c.fails, err)
		}
		if (c.warns == "") != (log.Len() == 0) || !strings.Contains(log.String(), c.warns) {
			t.Errorf("%s %s: log %q", c.listen, c.more, log.String())
		}
		if strings.Contains(log.String(), "secret") {
			t.Error("the token is in the log")
		}
	}
}
