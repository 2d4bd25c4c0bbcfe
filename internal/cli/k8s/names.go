package k8s

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/flags"
)

// The names that Kubernetes accepts. They are checked here so that no manifest has others.
var (
	hostName   = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelPart  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	imageName  = regexp.MustCompile(`^[A-Za-z0-9\[][A-Za-z0-9._:/@\[\]-]{0,511}$`)
)

// labelRule describes labels, for errors.
const labelRule = "each of letters, digits, dots, underscores and hyphens; a LABEL may begin with a domain and /"

func isObjectName(s string) bool { return len(s) <= 253 && objectName.MatchString(s) }
func isLabelValue(s string) bool { return s == "" || labelPart.MatchString(s) }

func isLabelKey(s string) bool {
	domain, name, qualified := strings.Cut(s, "/")
	if !qualified {
		return labelPart.MatchString(s)
	}
	return isObjectName(domain) && labelPart.MatchString(name)
}

// checkNames checks the flags that name objects, resources and images.
func checkNames(ctx *urfave.Context) (faults []error) {
	for _, name := range []string{"token-secret", "env-secret", "volume"} {
		if v := ctx.String(name); v != "" && !isObjectName(v) {
			faults = append(faults, fmt.Errorf("--%s %q: want the name of an object: lower-case letters, digits, hyphens and dots", name, v))
		}
	}
	for _, name := range []string{"image", "bus-image"} {
		if v := ctx.String(name); v != "" && !imageName.MatchString(v) {
			faults = append(faults, fmt.Errorf("--%s %q: want the name of an image, such as REGISTRY/dqn:1", name, v))
		}
	}
	if v := ctx.String("gpu-resource"); !isLabelKey(v) {
		faults = append(faults, fmt.Errorf("--gpu-resource %q: want the name of a resource, such as nvidia.com/gpu", v))
	}
	return faults
}

// checkSecrets returns a fault that names all secrets which pods would need and a manifest
// must not contain, with the command that makes a Secret of them. Pods do not have the
// variables of this process either.
func checkSecrets(ctx *urfave.Context) error {
	var given []string
	files := ""
	for _, g := range flags.GuardedOf(ctx) {
		switch {
		case g.Name == "token" || g.Name == "token-file": // the pods have a Secret with it
		case !g.ByFlag && ctx.String("bus") != "" && strings.HasSuffix(g.Name, "-url"): // --bus wins
		case g.ByFlag && g.Secret, !g.ByFlag && ctx.String("env-secret") == "":
			given = append(given, g.String())
			files += " --from-file=" + g.Variable + "=FILE"
		}
	}
	if len(given) == 0 {
		return nil
	}
	secret := ctx.String("env-secret")
	if secret == "" {
		secret = ctx.String("name") + "-env"
	}
	if ns := ctx.String("namespace"); ns != "" {
		files = " --namespace " + ns + files
	}
	unset := ""
	if slices.ContainsFunc(given, func(s string) bool { return !strings.HasPrefix(s, "-") }) {
		unset = "; or unset the variables"
	}
	return fmt.Errorf("%s: a manifest must not contain a secret, and pods do not have the variables of this shell: write each value to a "+
		"file, "+
		"kubectl create secret generic %s%s, and give --env-secret %s instead%s",
		strings.Join(given, ", "), secret, files, secret, unset)
}
