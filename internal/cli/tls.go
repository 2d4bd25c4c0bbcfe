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
	"github.com/ditask/ditask/internal/safefile"
)

// maxDays bounds --days.
const maxDays = 3650

// tlsFlags returns the flags of ditask tls.
func tlsFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: "hosts", Usage: "`LIST` of host names and addresses to put into the certificate; nodes do not check them"},
		&urfave.IntFlag{Name: "days", Value: 30, Usage: "days for which the certificate is valid"},
		&urfave.BoolFlag{Name: "force", Usage: "replace existing files"},
	}
}

// made is the output of ditask tls.
type made struct {
	CA      string    `json:"ca"`
	Cert    string    `json:"cert"`
	Key     string    `json:"key"`
	Expires time.Time `json:"expires"`
	Flags   []string  `json:"flags"`
}

// tls makes a job's certificates in a folder.
func (c command) tls(ctx *urfave.Context) error {
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
	m := made{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"),
		Expires: end.UTC().Truncate(time.Second)}
	m.Flags = []string{"--tls-cert", m.Cert, "--tls-key", m.Key, "--tls-ca", m.CA}
	if err := writeCerts(dir, map[string]string{m.CA: files.CA, m.Cert: files.Cert, m.Key: files.Key}, ctx.Bool("force")); err != nil {
		return err
	}
	if ctx.Bool("json") {
		return c.WriteJSON(m)
	}
	_, err = fmt.Fprintf(c.Stdout, `%s   the authority that all nodes trust; its private key is not stored
%s the certificate of all nodes, valid until %s
%s its key: anybody with this key can pretend to be a node in TLS

Give them to every launcher of the job, in addition to --job-id and --token-file:
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

// writeCerts writes files that only this user can read. It replaces existing files only
// with force.
func writeCerts(dir string, files map[string]string, force bool) error {
	if err := safefile.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: give a folder in which you can write", err)
	}
	for path := range files {
		if _, err := os.Lstat(path); err == nil && !force {
			return fmt.Errorf("%s already exists: choose another folder, or give --force to replace it", path)
		}
	}
	for path, text := range files {
		f, err := os.CreateTemp(dir, ".new-*") // with mode 0600
		if err != nil {
			return fmt.Errorf("%w: give a folder in which you can write", err)
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
