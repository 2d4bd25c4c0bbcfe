package job

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// shortToken is the least number of bytes of a token that cannot be guessed.
const shortToken = 16

// cautions returns a warning for each setting that is allowed but risky. They are
// written once, at the start of a job.
func cautions(env control.Env, plan placement.Plan) []string {
	var out []string
	open := ""
	var addrs []string
	for _, n := range plan.Local() {
		addrs = append(append(addrs, n.Listen), n.Extern...)
	}
	if plan.RunsBus() {
		addrs = append(addrs, plan.BusListen)
	}
	for _, addr := range addrs {
		a, err := placement.ParseAddress(addr)
		if err != nil {
			continue // a node that does not listen
		}
		if open == "" && a.Exposed() {
			open = addr
		}
	}
	if open != "" && env.TLSCert == "" {
		out = append(out, fmt.Sprintf("%s is on the network without TLS: "+
			"anybody on the network path can read and change what the nodes send: see ditask tls", open))
	}
	if server := env.OpenServer(); server != "" {
		out = append(out, fmt.Sprintf("%s is on the network without TLS: "+
			"anybody on the network path can read and change what the nodes send, and read a password of the server: give it TLS and a %s URL",
			server, secureScheme(server)))
	}
	if token, err := env.Secret(); err == nil && open != "" && len(token) < shortToken {
		out = append(out, fmt.Sprintf("the token has %d bytes: anybody who can reach a node can guess it: give at least %d random bytes",
			len(token), shortToken))
	}
	for _, f := range [][2]string{{"token-file", env.TokenFile}, {"tls-key", env.TLSKey}} {
		if loose(f[1]) {
			out = append(out, fmt.Sprintf("--%s %s: other users can read it: chmod 600", f[0], f[1]))
		}
	}
	return out
}

// secureScheme returns the scheme of the URL of such a server with TLS.
func secureScheme(server string) string {
	if strings.HasPrefix(server, "redis:") {
		return "rediss://"
	}
	return "tls://"
}

// loose reports whether users other than its owner may read a file.
func loose(path string) bool {
	if path == "" || certs.IsText(path) || runtime.GOOS == "windows" {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o077 != 0
}
