package job

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/redisbus"
)

// serverWait is how long an external server may take to answer: it may be starting.
const serverWait = 10 * time.Second

// preflight checks once for all nodes the folders to write into, the addresses to listen
// on, and the external server. note prints that it waits for the server.
func preflight(ctx context.Context, cfg launch.Config, note func(string)) error {
	for _, f := range [][2]string{{"dir", cfg.Env.Dir}, {"log-dir", cfg.LogDir}, {"trace", cfg.Env.Trace}} {
		if f[1] == "" {
			continue
		}
		if err := writable(f[1]); err != nil {
			return fmt.Errorf("--%s %s: %w: give a folder in which you can write", f[0], f[1], err)
		}
	}
	if err := ownAddresses(ctx, cfg.Plan); err != nil {
		return err
	}
	if cfg.Env.Bus == "" {
		return nil
	}
	return reach(ctx, cfg.Plan.Job, cfg.Env, note)
}

// writable checks that a file can be created in dir, or else in the nearest existing folder
// above it. It leaves nothing behind: a node or launcher creates a folder when it first
// writes to it, so a program that writes nothing leaves no empty folder.
func writable(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".ditask-*")
	if err == nil {
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// ownAddresses checks that this machine has the addresses on which its nodes listen.
func ownAddresses(ctx context.Context, plan placement.Plan) error {
	checked := map[string]bool{}
	for _, n := range plan.Local() {
		a, err := placement.ParseAddress(n.Listen)
		if err != nil || a.Scheme != "tcp" || checked[a.Host] {
			continue
		}
		checked[a.Host] = true
		var cfg net.ListenConfig
		l, err := cfg.Listen(ctx, "tcp", net.JoinHostPort(a.Host, "0"))
		_, unknown := errors.AsType[*net.DNSError](err)
		switch {
		case err == nil:
			_ = l.Close()
		case unknown:
			return fmt.Errorf("--address %s: the name does not resolve: give an address of this machine", a.Host)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("--address %s: not an address of this machine: give an address of this machine", a.Host)
		}
	}
	return nil
}

// reach connects once to the external server of the job.
func reach(ctx context.Context, job string, env control.Env, note func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	var tlsConfig *tls.Config
	var err error
	if env.TLSCert+env.TLSKey+env.TLSCA != "" {
		if tlsConfig, err = certs.Client(env.TLSCert, env.TLSKey, env.TLSCA); err != nil {
			return err
		}
	}
	quiet := slog.New(slog.DiscardHandler) // the error is complete
	if strings.HasPrefix(env.Bus, "redis") {
		_, err = redisbus.Check(ctx, redisbus.Config{URL: env.Bus, Job: job, TLS: tlsConfig, Logger: quiet})
		return err
	}
	noted := make(chan struct{})
	waits := time.AfterFunc(time.Second, func() {
		defer close(noted)
		note("waiting for the NATS server at " + natsbus.Public(env.Bus))
	})
	_, err = natsbus.Check(ctx, natsbus.Config{
		URL: env.Bus, Job: job, Name: "ditask " + job, CredsFile: env.BusCreds, NKeyFile: env.BusNKey,
		TLS: tlsConfig, ConnectTimeout: serverWait, Logger: quiet,
	})
	if !waits.Stop() {
		<-noted
	}
	return err
}
