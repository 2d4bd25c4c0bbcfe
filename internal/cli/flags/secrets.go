package flags

import (
	"os"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/parallel/placement"
)

// The variables of the flags whose URLs may hold a password.
const (
	VarNATSURL  = "DITASK_NATS_URL"
	VarRedisURL = "DITASK_REDIS_URL"
)

// guarded lists the flags whose values may be secrets, or name a file that holds one. The
// values of their variables are never written into a script or a manifest.
var guarded = []string{"token", "token-file", "tls-cert", "tls-key", "tls-ca", "nats-url", "redis-url"}

// variableOf returns the name of the variable of a flag.
func variableOf(name string) string {
	return "DITASK_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// FromCommandLine reports whether a flag was given on the command line rather than by its
// variable. A flag with the same value as its variable counts as given by the variable.
func FromCommandLine(ctx *urfave.Context, name string) bool {
	variable := os.Getenv(variableOf(name))
	value := ctx.String(name)
	if on, err := strconv.ParseBool(variable); err == nil && (value == "true" || value == "false") {
		variable = strconv.FormatBool(on) // a switch
	}
	return slices.Contains(ctx.LocalFlagNames(), name) && variable != value
}

// Guarded is a flag in effect whose value may be a secret.
type Guarded struct {
	Name     string // without hyphens
	Variable string
	Secret   bool // the value is a secret, and not a path or an address
	ByFlag   bool // it was given on the command line, and not by the variable
}

// String returns the flag, or the variable, by which the value was given.
func (g Guarded) String() string {
	if g.ByFlag {
		return "--" + g.Name
	}
	return g.Variable
}

// GuardedOf returns the given flags whose values may be secrets. The URL of a server is
// ignored if the command line names another transport.
func GuardedOf(ctx *urfave.Context) []Guarded {
	var out []Guarded
	for _, name := range guarded {
		value := ctx.String(name)
		if name == "nats-url" {
			value = NATSServer(ctx)
		}
		if value == "" || name == "redis-url" && RedisServer(ctx) != URL(ctx, name) {
			continue
		}
		secret := name == "token" || strings.HasSuffix(name, "-url") && strings.Contains(value, "@") ||
			strings.HasPrefix(name, "tls-") && (strings.Contains(value, "-----BEGIN") || strings.ContainsAny(value, "\r\n"))
		out = append(out, Guarded{Name: name, Variable: variableOf(name), Secret: secret, ByFlag: FromCommandLine(ctx, name)})
	}
	return out
}

// URL returns the URL of a flag, without white space around it: the value of a variable may
// come from a file and end with a newline.
func URL(ctx *urfave.Context, name string) string { return strings.TrimSpace(ctx.String(name)) }

// NATSServer returns the URL of the NATS server that the flags name, or "". The URL in the
// variable is ignored if the command line names another transport.
func NATSServer(ctx *urfave.Context) string {
	other := FromCommandLine(ctx, "redis-url") || ctx.IsSet("mq-type") && ctx.String("mq-type") != placement.TransportNATS
	if other && !FromCommandLine(ctx, "nats-url") {
		return ""
	}
	return URL(ctx, "nats-url")
}
