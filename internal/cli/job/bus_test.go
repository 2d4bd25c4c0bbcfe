package job

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/router/natsbus"
)

// soon returns a context for calls that must not block.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// served starts the server of a job of one launcher.
func served(t *testing.T, env control.Env, log *logtest.Buffer) (*bus, launch.Config) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	plan, err := placement.New(placement.Flags{Job: "j", MQType: "nats"}, placement.Site{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := launch.Config{Plan: plan, Env: env, Stderr: log}
	b, err := serveBus(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b, cfg
}

// connect connects with the server as a node does, and returns the error.
func connect(t *testing.T, cfg natsbus.Config) (*natsbus.Transport, error) {
	t.Helper()
	cfg.Job, cfg.Logger = "j", slog.New(slog.DiscardHandler)
	c, err := natsbus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Listen(soon(t), "bus://node.0")
	return c, err
}

// closing closes the server, and returns a channel that is closed after that.
func closing(b *bus, r launch.Result, grace time.Duration, signals chan os.Signal) <-chan struct{} {
	done := make(chan struct{})
	go func() { b.close(r, grace, signals); close(done) }()
	return done
}

func await(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-soon(t).Done():
		t.Fatal("timeout: " + what)
	}
}

func TestBusIsForTheNodesOfItsJob(t *testing.T) {
	var log logtest.Buffer
	b, cfg := served(t, control.Env{Token: "secret"}, &log)
	if cfg.Plan.Bus != b.server.URL() || strings.HasSuffix(cfg.Plan.Bus, ":0") || strings.HasSuffix(cfg.Plan.BusListen, ":0") {
		t.Errorf("the plan has %s at %s, the server is at %s", cfg.Plan.Bus, cfg.Plan.BusListen, b.server.URL())
	}
	c, err := connect(t, natsbus.Config{URL: cfg.Plan.Bus, Key: natsbus.JobKey("secret")})
	if err != nil {
		t.Error(err)
	}
	for _, key := range []string{"", "secret", natsbus.JobKey("guess")} {
		if _, err := connect(t, natsbus.Config{URL: cfg.Plan.Bus, Key: key, Token: natsbus.JobKey("secret"),
			ConnectTimeout: 100 * time.Millisecond}); err == nil {
			t.Errorf("key %q is accepted", key)
		}
	}
	_ = c.Close()
	await(t, closing(b, launch.Result{}, time.Hour, nil), "close")
	if !strings.Contains(log.String(), "ditask: NATS server: refused a connection from 127.0.0.1:") ||
		!strings.Contains(log.String(), "connections were refused: ") {
		t.Errorf("unauthenticated clients are not logged: %q", log.String())
	}
}

func TestBusWantsTheCertificatesOfItsJob(t *testing.T) {
	f, other := certtest.New(t), certtest.New(t)
	b, cfg := served(t, control.Env{Token: "secret", TLSCert: f.Cert, TLSKey: f.Key, TLSCA: f.CA}, &logtest.Buffer{})
	defer b.close(launch.Result{}, 0, nil)
	for files, want := range map[certtest.Files]bool{f: true, other: false} {
		tlsConfig, err := certs.Mutual(files.Cert, files.Key, files.CA)
		if err != nil {
			t.Fatal(err)
		}
		c, err := connect(t, natsbus.Config{URL: cfg.Plan.Bus, Key: natsbus.JobKey("secret"), TLS: tlsConfig})
		if (err == nil) != want {
			t.Errorf("want %v: %v", want, err)
		}
		_ = c.Close()
	}
	if c, err := connect(t, natsbus.Config{URL: cfg.Plan.Bus, Key: natsbus.JobKey("secret")}); err == nil {
		t.Error("no certificate, and it is served")
	} else {
		_ = c.Close()
	}
}

func TestBusWaitsForOtherNodes(t *testing.T) {
	late := launch.Result{Kind: control.Failure, Deadline: time.Now().Add(time.Hour)}
	for name, end := range map[string]func(c *natsbus.Transport, signals chan os.Signal){
		"until they have gone": func(c *natsbus.Transport, _ chan os.Signal) { _ = c.Close() },
		"until a signal":       func(_ *natsbus.Transport, signals chan os.Signal) { signals <- os.Interrupt },
	} {
		t.Run(name, func(t *testing.T) {
			var log logtest.Buffer
			b, cfg := served(t, control.Env{Token: "secret"}, &log)
			c, err := connect(t, natsbus.Config{URL: cfg.Plan.Bus, Key: natsbus.JobKey("secret")})
			if err != nil {
				t.Fatal(err)
			}
			signals := make(chan os.Signal, 1)
			done := closing(b, late, time.Hour, signals)
			ctx := soon(t)
			for !strings.Contains(log.String(), "waiting for the nodes of other launchers: 1 still connected") {
				select {
				case <-done:
					t.Fatal("it did not wait")
				case <-ctx.Done():
					t.Fatal("it does not log the wait")
				case <-time.After(time.Millisecond):
				}
			}
			end(c, signals)
			await(t, done, name)
		})
	}
}

func TestWaitOfTheBus(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		r    launch.Result
		want time.Duration
	}{
		{launch.Result{}, 0},
		{launch.Result{Kind: control.Success}, 20 * time.Second},
		{launch.Result{Kind: control.Success, Deadline: now.Add(time.Second)}, 20 * time.Second},
		{launch.Result{Kind: control.Failure, Deadline: now.Add(time.Second)}, time.Second},
		{launch.Result{Kind: control.Preempted, Deadline: now.Add(-time.Second)}, 0},
		{launch.Result{Kind: control.Preempted}, 0},
	} {
		if got := patience(c.r, 10*time.Second, now); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
}

func TestBusRunsOnlyWhereThePlanPutsIt(t *testing.T) {
	site := placement.Site{Rank: 1, Launchers: []placement.Launcher{{Host: "a"}, {Host: "b"}}}
	plan, err := placement.New(placement.Flags{Job: "j", MQType: "nats"}, site)
	if err != nil {
		t.Fatal(err)
	}
	cfg := launch.Config{Plan: plan}
	b, err := serveBus(&cfg)
	if b != nil || err != nil || cfg.Plan.Bus != plan.Bus {
		t.Errorf("%v, %v, %s", b, err, cfg.Plan.Bus)
	}
	b.close(launch.Result{Kind: control.Success}, time.Hour, nil)
}

func TestBusFaultsNameTheAddressAndTheRemedy(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := "tcp://" + l.Addr().String()
	for _, c := range []struct {
		listen string
		env    control.Env
		want   string
	}{
		{busy, control.Env{}, "NATS server: listen on " + busy +
			": address already in use: choose other --ports, or end the process that has it"},
		{"nowhere", control.Env{}, "NATS server: listen on nowhere: want tcp://host:port or unix:///path"},
		{"tcp://127.0.0.1:0", control.Env{TokenFile: "/no/such"}, "token file: open /no/such: no such file or directory"},
		{"tcp://127.0.0.1:0", control.Env{TLSCA: "/no/such"}, "tls: a certificate, its key and an authority go together"},
	} {
		cfg := launch.Config{Plan: placement.Plan{BusListen: c.listen}, Env: c.env, Stderr: &bytes.Buffer{}}
		b, err := serveBus(&cfg)
		if b != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// stuck is a terminal that is paused until the test releases it.
type stuck struct {
	logtest.Buffer
	reached, let chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	select {
	case s.reached <- struct{}{}:
	default:
	}
	<-s.let
	return s.Buffer.Write(b)
}

func TestLinesDoNotWaitForATerminal(t *testing.T) {
	w := &stuck{reached: make(chan struct{}, 1), let: make(chan struct{})}
	l := newLines(w, "text")
	l.log("WARN", "first")
	await(t, w.reached, "the first line")
	log := slog.New(l)
	log.Info("of no interest")
	said := make(chan struct{})
	go func() {
		for range queuedLines + 7 {
			log.Warn("more\n")
		}
		close(said)
	}()
	await(t, said, "a line for a terminal that is paused")
	l.close()
	close(w.let)
	await(t, l.ended, "the writer")
	got := w.String()
	if !strings.HasPrefix(got, "ditask: first\nditask: more\n") || strings.Count(got, "more") != queuedLines || strings.Contains(got,
		"interest") ||
		!strings.HasSuffix(got, "ditask: NATS server: 7 lines of its log could not be written in time and were dropped\n") {
		t.Errorf("written:\n%s", got)
	}
}
