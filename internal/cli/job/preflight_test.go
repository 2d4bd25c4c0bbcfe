package job

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
)

// unnoted fails the test when a note is written.
func unnoted(t *testing.T) func(string) {
	return func(text string) { t.Errorf("noted %q", text) }
}

// planned returns the configuration of the nodes of some flags.
func planned(t *testing.T, line string) launch.Config {
	t.Helper()
	plan, err := planOf(fields(t, line), placement.Site{}, "j", "/r")
	if err != nil {
		t.Fatal(err)
	}
	return launch.Config{Plan: plan}
}

func TestPreflightChecksTheFoldersAndMakesNone(t *testing.T) {
	with(t)
	dir := t.TempDir()
	cfg := planned(t, "")
	cfg.Env.Dir, cfg.LogDir, cfg.Env.Trace = filepath.Join(dir, "a", "b"), filepath.Join(dir, "logs"), filepath.Join(dir, "trace")
	if err := preflight(t.Context(), cfg, unnoted(t)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	taken := filepath.Join(dir, "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, set := range map[string]func(*launch.Config){
		"dir":     func(c *launch.Config) { c.Env.Dir, c.LogDir = taken, filepath.Join(taken, "logs") },
		"log-dir": func(c *launch.Config) { c.LogDir = taken },
		"trace":   func(c *launch.Config) { c.Env.Trace = taken },
	} {
		cfg := planned(t, "")
		set(&cfg)
		err := preflight(t.Context(), cfg, unnoted(t))
		if want := "--" + flag + " " + taken + ": not a directory: give a folder in which you can write"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// An existing folder in which no file can be created.
	if err := writable("/proc"); err == nil {
		t.Error("/proc is writable")
	}
}

func TestPreflightChecksAddressesOnce(t *testing.T) {
	with(t)
	for line, want := range map[string]string{
		"-n 3 --protocol tcp":    "",
		"-n 3 --address 0.0.0.0": "",
		"-n 3":                   "", // unix sockets
		"-n 3 --address 203.0.113.1 --ports 7000":     "--address 203.0.113.1: not an address of this machine: give an address of this machine",
		"-n 3 --address nohost.invalid":               "--address nohost.invalid: the name does not resolve: give an address of this machine",
		"-n 2 --attach-to tcp://203.0.113.1:1":        "", // elsewhere
		"-n 2 --nats-url nats://a:1 --topology alone": "",
	} {
		got := ""
		if err := preflight(t.Context(), planned(t, line), unnoted(t)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestPreflightAsksTheServerOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	with(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nothing listens there
	cfg := planned(t, "-n 2")
	cfg.Env.Bus = "redis://" + l.Addr().String()
	want := "redis at " + l.Addr().String() + ": connect: connection refused: start a server there, or correct its address"
	if err := preflight(t.Context(), cfg, unnoted(t)); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	cfg.Env.TLSCA = "/none"
	if err := preflight(t.Context(), cfg, unnoted(t)); err == nil || !strings.Contains(err.Error(), "open /none") {
		t.Error(err)
	}
	cfg.Env.TLSCA, cfg.Env.Bus = "", "nats://"+l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := preflight(ctx, cfg, unnoted(t)); err == nil || !strings.HasPrefix(err.Error(), "no NATS server at nats://"+l.Addr().String()) {
		t.Error(err)
	}
}

// A wait for a NATS server is announced after a second, and bounded.
func TestPreflightAnnouncesAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var notes []string
		// Nothing listens on port 1: each dial fails at once.
		err := reach(t.Context(), "j", control.Env{Bus: "nats://127.0.0.1:1"}, func(text string) { notes = append(notes, text) })
		if err == nil || !strings.Contains(err.Error(), "start one there, or correct the URL") {
			t.Error(err)
		}
		if len(notes) != 1 || notes[0] != "waiting for the NATS server at nats://127.0.0.1:1" {
			t.Errorf("%q", notes)
		}
		if waited := time.Since(began); waited != serverWait {
			t.Errorf("waited %v", waited)
		}
	})
}
