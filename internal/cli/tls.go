package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/control"
)

// autoTLS is how long the certificates of --tls auto hold. They end with the
// job: nobody keeps them.
const autoTLS = 5 * 365 * 24 * time.Hour

// maxDays bounds --days.
const maxDays = 3650

// tlsFlags are the flags of ditask tls.
func tlsFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "hosts", Usage: "`LIST` of host names and addresses to put into the certificate; nodes do not check them"},
		&urfave.IntFlag{Name: "days", Value: 30, Usage: "how long the certificate holds"},
		&urfave.BoolFlag{Name: "force", Usage: "replace what is there"},
	}
}

// made is what ditask tls has made.
type made struct {
	CA      string    `json:"ca"`
	Cert    string    `json:"cert"`
	Key     string    `json:"key"`
	Expires time.Time `json:"expires"`
	Flags   []string  `json:"flags"`
}

// tls makes a job's certificates in a folder.
func (c *command) tls(ctx *urfave.Context) error {
	if ctx.NArg() != 1 {
		return call.Usage("ditask tls: want one folder for the certificates: ditask tls DIR")
	}
	hosts, err := hostList(ctx.String("hosts"))
	days := ctx.Int("days")
	if days < 1 || days > maxDays {
		err = errors.Join(err, fmt.Errorf("--days %d: want a number from 1 to %d", days, maxDays))
	}
	if err != nil {
		return call.UsageError{Err: err}
	}
	now := time.Now()
	end := now.Add(time.Duration(days) * 24 * time.Hour)
	files, err := certs.Make(hosts, now, end)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(ctx.Args().First())
	if err != nil {
		return err
	}
	m := made{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"), Expires: end.UTC().Truncate(time.Second)}
	m.Flags = []string{"--tls-cert", m.Cert, "--tls-key", m.Key, "--tls-ca", m.CA}
	if err := writeCerts(dir, map[string]string{m.CA: files.CA, m.Cert: files.Cert, m.Key: files.Key}, ctx.Bool("force")); err != nil {
		return err
	}
	if ctx.Bool("json") {
		return c.WriteJSON(m)
	}
	_, err = fmt.Fprintf(c.Stdout, `%s   the authority that all nodes trust; its own key is not kept
%s the certificate of all nodes, until %s
%s its key: whoever has it can pretend to be a node's end of a connection

Give them to every launcher of the job, besides --job-id and --token-file:
   %s
`, m.CA, m.Cert, m.Expires.Format(time.RFC3339), m.Key, strings.Join(m.Flags, " "))
	return err
}

// hostList splits and checks a list of hosts.
func hostList(list string) ([]string, error) {
	var hosts []string
	name := regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)
	for h := range strings.SplitSeq(list, ",") {
		if h = strings.TrimSpace(h); h == "" {
			continue
		}
		if _, err := netip.ParseAddr(h); err != nil && !name.MatchString(h) {
			return nil, fmt.Errorf("--hosts %q: want names and addresses of hosts, with commas between them", h)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// writeCerts writes files that only this user can read, and replaces none unless
// it is forced to.
func writeCerts(dir string, files map[string]string, force bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for path := range files {
		if _, err := os.Lstat(path); err == nil && !force {
			return fmt.Errorf("%s is there already: choose another folder, or give --force to replace it", path)
		}
	}
	for path, text := range files {
		f, err := os.CreateTemp(dir, ".new-*") // with mode 0600
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
	}
	return nil
}

// checkTLS checks what the nodes are told of TLS, and makes it for --tls auto.
func checkTLS(ctx *urfave.Context, env *control.Env) []error {
	paths := map[string]*string{"tls-cert": &env.TLSCert, "tls-key": &env.TLSKey, "tls-ca": &env.TLSCA}
	given := 0
	for _, path := range paths {
		if *path != "" {
			given++
		}
	}
	switch mode := ctx.String("tls"); {
	case mode != "" && mode != flags.TLSAuto:
		return []error{fmt.Errorf("--tls %q: want auto", mode)}
	case mode == flags.TLSAuto && given > 0:
		return []error{errors.New("--tls auto makes certificates of its own: leave out --tls-cert, --tls-key and --tls-ca")}
	case mode == flags.TLSAuto && env.Bus != "":
		return []error{errors.New("--tls auto makes certificates that a server elsewhere does not know: with --nats-url or --redis-url give --tls-ca, and --tls-cert and --tls-key if it wants them")}
	case mode == flags.TLSAuto:
		now := time.Now()
		files, err := certs.Make(nil, now, now.Add(autoTLS))
		env.TLSCert, env.TLSKey, env.TLSCA = files.Cert, files.Key, files.CA
		return asList(err)
	case given == 0:
		return nil
	}
	var faults []error
	if given < len(paths) && env.Bus == "" {
		faults = append(faults, errors.New("--tls-cert, --tls-key and --tls-ca: give all of them, or none"))
	}
	faults = append(faults, absolute(paths)...)
	if len(faults) > 0 {
		return faults
	}
	if strings.HasPrefix(env.Bus, "redis://") {
		return []error{errors.New("--tls-cert, --tls-key and --tls-ca: the Redis server is to be reached without TLS: give --redis-url rediss://host:port")}
	}
	if env.Bus != "" {
		_, err := certs.Client(env.TLSCert, env.TLSKey, env.TLSCA)
		return asList(err)
	}
	_, _, err := certs.Load(env.TLSCert, env.TLSKey, env.TLSCA, time.Now())
	return asList(err)
}

// absolute makes the paths of files, by their flags, absolute. A file that is not
// there is a fault.
func absolute(paths map[string]*string) []error {
	var faults []error
	for name, path := range paths {
		if *path == "" || certs.IsText(*path) {
			continue
		}
		if _, err := os.Stat(*path); err != nil {
			faults = append(faults, fmt.Errorf("--%s: %w", name, err))
		}
		if abs, err := filepath.Abs(*path); err == nil {
			*path = abs
		}
	}
	return faults
}

func asList(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}
