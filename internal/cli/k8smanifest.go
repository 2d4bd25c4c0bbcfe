package cli

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/parallel/placement"
)

// groupK8s is the group of flags that are Kubernetes'.
const groupK8s = "Kubernetes"

// k8sCommand is the command for what surrounds a job in Kubernetes.
func (c *command) k8sCommand() *urfave.Command {
	return &urfave.Command{
		Name: "k8s", Usage: "write manifests for Kubernetes",
		Action: func(*urfave.Context) error {
			return usage("ditask k8s: want manifest: see ditask k8s --help")
		},
		Subcommands: []*urfave.Command{
			{Name: "manifest", Usage: "print an Indexed Job and a headless Service that run the job, a launcher in each pod", Flags: manifestFlags(), Action: c.k8sManifest},
		},
	}
}

// manifestFlags are the flags of a manifest, and those of the job in it.
func manifestFlags() []urfave.Flag {
	return append([]urfave.Flag{
		text(groupK8s, "name", "", "`NAME` of the Job and its Service"),
		text(groupK8s, "namespace", "", "`NAMESPACE` (default: that of kubectl)"),
		text(groupK8s, "image", "", "`IMAGE` with ditask as its entry point, and the program"),
		&urfave.IntFlag{Category: groupK8s, Name: "pods", Value: 1, Usage: "number of pods: each runs a launcher"},
		text(groupK8s, "cpu", "", "`PROCESSORS` that each pod asks for, such as 2 or 500m"),
		text(groupK8s, "memory", "", "`MEMORY` of each pod, such as 4Gi: what it asks for, and its limit"),
		&urfave.IntFlag{Category: groupK8s, Name: "gpus", Usage: "number of GPUs of each pod", DefaultText: "none"},
		text(groupK8s, "gpu-resource", "nvidia.com/gpu", "`RESOURCE` that is a GPU"),
		text(groupK8s, "volume", "", "`CLAIM`, a PersistentVolumeClaim, for what the job writes, which then resumes by itself (default: gone with the pod)"),
		text(groupK8s, "token-secret", "", "`SECRET` with the job's token under the key token (default: the name and -token)"),
		&urfave.IntFlag{Category: groupK8s, Name: "backoff-limit", Usage: "failures of pods before the Job fails; exit code 75 and evictions are none", DefaultText: "0, with --auto-recover --max-retries"},
		text(groupK8s, "bus", "", "server between the nodes, in a pod of its own: nats or redis (default: none, nodes connect with each other)"),
	}, jobFlags()...)
}

// manifest is what a manifest is made of.
type manifest struct {
	Name, Namespace, Image string
	Pods, Backoff, Grace   int
	CPU, Memory            string
	GPUs                   int
	GPUResource            string
	Volume, Secret         string
	Nodes                  string // DI_NODES
	Args                   []string
	Bus                    *busServer
}

// busServer is a server between the nodes.
type busServer struct {
	Image string
	Port  int
	Args  []string
}

// User is the user and group of the pods, who is nobody else.
func (manifest) User() int { return 65532 }

//go:embed k8smanifest.yaml
var manifestText string

// manifestTemplate writes texts as JSON, which is YAML too, so that none is taken
// for anything else.
var manifestTemplate = template.Must(template.New("manifest").Funcs(template.FuncMap{
	"q": func(s string) (string, error) {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(s)
		return strings.TrimSpace(b.String()), err
	},
}).Parse(manifestText))

// k8sManifest prints a manifest.
func (c *command) k8sManifest(ctx *urfave.Context) error {
	if err := noArgs(ctx); err != nil {
		return err
	}
	if err := checkManifest(ctx); err != nil {
		return usageError{err}
	}
	m := manifestOf(ctx)
	if len(c.args) > 0 {
		m.Args = append(append(m.Args, "--"), literal(c.args)...)
	}
	var b bytes.Buffer
	if err := manifestTemplate.Execute(&b, m); err != nil {
		return err
	}
	_, err := c.stdout.Write(b.Bytes())
	return err
}

// maxName is how long a Job's name may be, so that those of pods with their index,
// and of what else belongs to it, are names of hosts.
const maxName = 57

// checkManifest joins all faults of the flags.
func checkManifest(ctx *urfave.Context) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	host := regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	if name := ctx.String("name"); !host.MatchString(name) || len(name) > maxName {
		fault("--name %q: want at most %d lower-case letters, digits and hyphens, the first a letter", name, maxName)
	}
	if ns := ctx.String("namespace"); ns != "" && (!regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(ns) || len(ns) > 63) {
		fault("--namespace %q: want at most 63 lower-case letters, digits and hyphens", ns)
	}
	if ctx.String("image") == "" {
		fault("--image is missing: give one with ditask as its entry point, and the program")
	}
	if n := ctx.Int("pods"); n < 1 || n > 4096 {
		fault("--pods %d: want a number from 1 to 4096", n)
	}
	for _, name := range []string{"cpu", "memory"} {
		if v := ctx.String(name); v != "" && !regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?$`).MatchString(v) {
			fault("--%s %q: want a quantity such as 2, 500m or 4Gi", name, v)
		}
	}
	for _, name := range []string{"gpus", "backoff-limit"} {
		if n := ctx.Int(name); n < 0 {
			fault("--%s %d: want at least 0", name, n)
		}
	}
	switch bus := ctx.String("bus"); {
	case bus != "" && bus != placement.CarrierNATS && bus != placement.CarrierRedis:
		fault("--bus %q: want nats or redis", bus)
	case bus != "" && (ctx.IsSet("mq-type") || ctx.IsSet("nats-url") || redisServer(ctx) != ""):
		fault("--bus: is the server: leave out --mq-type, --nats-url and --redis-url")
	}
	if ctx.IsSet("local_rank") {
		fault("--local_rank: a pod's variables give it its number")
	}
	if p := ctx.String("platform"); p != "" && p != "kubernetes" {
		fault("--platform %q: want kubernetes, or leave it out", p)
	}
	if t := ctx.String("token"); t != "" && fromCommandLine(ctx, "token") {
		fault("--token: a manifest is no place for a secret: put it into a Secret, and give its name with --token-secret")
	}
	if ctx.String("tls") == tlsAuto {
		fault("--tls auto is for the nodes of one launcher: make certificates with ditask tls, put them into a Secret, and mount that")
	}
	return errors.Join(faults...)
}

// literal are arguments in which Kubernetes replaces no variable.
func literal(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.ReplaceAll(a, "$(", "$$(")
	}
	return out
}

// manifestOf is what the flags ask for.
func manifestOf(ctx *urfave.Context) manifest {
	name, pods := ctx.String("name"), ctx.Int("pods")
	m := manifest{
		Name: name, Namespace: ctx.String("namespace"), Image: ctx.String("image"), Pods: pods,
		CPU: ctx.String("cpu"), Memory: ctx.String("memory"), GPUs: ctx.Int("gpus"), GPUResource: ctx.String("gpu-resource"),
		Volume: ctx.String("volume"), Secret: or(ctx.String("token-secret"), name+"-token"),
		Backoff: ctx.Int("backoff-limit"),
		Nodes:   fmt.Sprintf("%s-[0-%d].%s", name, pods-1, name),
		// The launcher kills what is left after --grace, and then has to say so.
		Grace: int((ctx.Duration("grace") + 10*time.Second + time.Second - 1) / time.Second),
	}
	if !ctx.IsSet("backoff-limit") && ctx.Bool("auto-recover") {
		m.Backoff = ctx.Int("max-retries")
	}
	m.Args = []string{
		"--package", or(ctx.String("package"), "/program"), "--platform", "kubernetes", "--dir", or(ctx.Path("dir"), "/data/"+name), "--resume=" + fmt.Sprint(m.Volume != ""),
	}
	if fromCommandLine(ctx, "resume") {
		m.Args = m.Args[:len(m.Args)-1]
	}
	leave := []string{"package", "dir", "platform", "token"}
	m.Args = literal(append(m.Args, givenFlags(ctx, leave...)...))
	switch ctx.String("bus") {
	case placement.CarrierNATS:
		m.Bus = &busServer{"nats:2-alpine", 4222, []string{"--auth", "$(DITASK_TOKEN)"}}
		m.Args = append(m.Args, "--nats-url", "nats://$(DITASK_TOKEN)@"+name+"-bus:4222")
	case placement.CarrierRedis:
		m.Bus = &busServer{"redis:7-alpine", 6379, []string{"--requirepass", "$(DITASK_TOKEN)", "--save", "", "--appendonly", "no"}}
		m.Args = append(m.Args, "--redis-url", "redis://:$(DITASK_TOKEN)@"+name+"-bus:6379")
	}
	return m
}
