package k8s

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/cli/quote"
	"github.com/ditask/ditask/parallel/placement"
)

// groupK8s is the group of flags for objects of Kubernetes.
const groupK8s = "Kubernetes"

// The kinds of objects that run a job.
const (
	kindJob    = "job"
	kindJobSet = "jobset"
	kindDIJob  = "dijob"
)

// manifestFlags returns the flags of a manifest, and those of its job.
func manifestFlags() []urfave.Flag {
	return append([]urfave.Flag{
		flags.Text(groupK8s, "kind", kindJob,
			"kind of object that runs the job: job (an Indexed Job and a Service, which need nothing installed), "+
				"jobset or dijob (which must be installed)"),
		flags.Text(groupK8s, "name", "", "`NAME` of the job and of its objects"),
		flags.Text(groupK8s, "image", "", "`IMAGE` that contains the program and has ditask as its entry point"),
		&urfave.IntFlag{Category: groupK8s, Name: "pods", Value: 1, Usage: "number of pods, each of which runs a launcher"},
		&urfave.StringSliceFlag{Category: groupK8s, Name: "task",
			Usage: "`NAME:TYPE:PODS` or NAME:TYPE:PODS:GPUS, a group of pods in place of --pods, for jobset and dijob. " +
				"TYPE is learner, evaluator, collector or none, and becomes a label of the nodes. " +
				"Ranks continue from group to group; may be given several times"},
		&urfave.IntFlag{Category: groupK8s, Name: "min-replicas", Usage: "least number of pods of the last group that a dijob can be scaled to",
			DefaultText: "none"},
		&urfave.IntFlag{Category: groupK8s, Name: "max-replicas",
			Usage: "largest number of pods of the last group that a dijob can be scaled to", DefaultText: "none"},
		flags.Text(groupK8s, "cpu", "", "`PROCESSORS` that each pod requests, such as 2 or 500m"),
		flags.Text(groupK8s, "memory", "", "`MEMORY` of each pod, such as 4Gi: its request and its limit"),
		&urfave.IntFlag{Category: groupK8s, Name: "gpus", Usage: "number of GPUs of each pod", DefaultText: "none"},
		flags.Text(groupK8s, "gpu-resource", "nvidia.com/gpu", "`RESOURCE` that stands for a GPU"),
		&urfave.StringSliceFlag{Category: groupK8s, Name: "node-selector",
			Usage: "`LABEL=VALUE` of the machines to run on; may be given several times"},
		&urfave.StringSliceFlag{Category: groupK8s, Name: "tolerate",
			Usage: "`KEY[=VALUE][:EFFECT]` of a taint that the pods tolerate; may be given several times"},
		flags.Text(groupK8s, "volume", "", "`CLAIM`, a PersistentVolumeClaim, for the files of the job, "+
			"which then resumes after a restart (default: the files are deleted with the pod)"),
		flags.Text(groupK8s, "token-secret", "", "`SECRET` with the job's token under the key token (default: NAME-token)"),
		&urfave.IntFlag{Category: groupK8s, Name: "backoff-limit",
			Usage:       "failures of pods before the job fails; exit code 75 and evictions do not count",
			DefaultText: "0, with --auto-recover --max-retries"},
		flags.Text(groupK8s, "env-secret", "", "`SECRET` whose keys are variables of the pods, such as DITASK_REDIS_URL or DITASK_TLS_KEY"),
		flags.Text(groupK8s, "bus", "", "server between the nodes, in a separate pod: nats or redis (default: none, nodes connect directly). "+
			"The Secret NAME-bus holds its password under the key password"),
		flags.Text(groupK8s, "bus-image", "", "`IMAGE` of that server (default: one of nats:2.15 or redis:7, named by its digest)"),
	}, flags.Job()...)
}

// manifest is the data of a manifest.
type manifest struct {
	Kind, Name, Namespace, Image string
	Groups                       []group
	Min, Max                     string // empty: none
	Backoff, Grace               int
	CPU, Memory                  string
	GPUResource                  string
	Volume                       string
	Secret                       string // with the token; empty: the operator makes one
	EnvSecret                    string // whose keys are variables of the pods; empty: none
	Nodes                        string // DI_NODES; empty: the operator sets it
	Bus                          *busServer
	NodeSelector, Tolerations    []pair
	Install                      string // a comment on what the cluster needs
	Chart                        bool   // some texts contain expressions of a chart
}

// group is a number of identical pods.
type group struct {
	*manifest

	Task, Type     string // empty: all pods are in one group
	Replicas       string
	GPUs           int
	Args           []string
	ResourcesValue string // replaces the resources, unless it is empty
	First          bool
}

// pair is a label with its value, or a taint.
type pair struct{ Key, Value, Effect string }

// busServer is a server between the nodes. Its password is in a separate Secret, and never
// in an argument. The job's token is never sent to it.
type busServer struct {
	Kind, Image string
	Port        int
	Secret      string // with the password
	Variable    string // of the nodes, with the URL
	URL         string
}

// object is the name of one object of a manifest.
type object struct {
	*manifest

	Of string
}

// User returns the id of the user and group of the pods, which no other user has.
func (*manifest) User() int { return 65532 }

// Named returns the manifest, for the metadata of an object of this name.
func (m *manifest) Named(name string) object { return object{m, name} }

// Learners returns the groups whose success is the success of the job.
func (m *manifest) Learners() []string {
	var names []string
	for _, g := range m.Groups {
		if g.Type == "learner" {
			names = append(names, g.Task)
		}
	}
	return names
}

//go:embed manifest.yaml
var manifestText string

// manifestTemplate has the parts of a manifest, or of a chart. q writes a text, n a number.
func manifestTemplate(chart bool) *template.Template {
	t := template.New("manifest")
	t.Funcs(template.FuncMap{
		"q": func(s string) string { return scalar(s, chart) },
		"n": output,
		"part": func(indent int, name string, data any) (string, error) {
			var b strings.Builder
			err := t.ExecuteTemplate(&b, name, data)
			space := strings.Repeat(" ", indent)
			return space + strings.ReplaceAll(b.String(), "\n", "\n"+space), err
		},
	})
	return template.Must(t.Parse(manifestText))
}

// part is one file of a manifest.
type part struct{ name, text string }

// parts returns the files of a manifest; the first is a comment.
func (m *manifest) parts() ([]part, error) {
	names := []string{"head"}
	if m.Kind == kindJob {
		names = append(names, "service")
	}
	if m.Bus != nil {
		names = append(names, "bus")
	}
	var parts []part
	t := manifestTemplate(m.Chart)
	for _, name := range append(names, m.Kind) {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, name, m); err != nil {
			return nil, err
		}
		parts = append(parts, part{name, b.String() + "\n"})
	}
	return parts, nil
}

// text returns the manifest as one text.
func (m *manifest) text() (string, error) {
	parts, err := m.parts()
	if err != nil {
		return "", err
	}
	text := parts[0].text
	for i, p := range parts[1:] {
		if i > 0 {
			text += "---\n"
		}
		text += p.text
	}
	return text, nil
}

// manifest prints a manifest, or writes it into a folder.
func (c command) manifest(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	kustomize, helm := ctx.Path("kustomize"), ctx.Path("helm")
	if kustomize != "" && helm != "" {
		return call.Usage("--kustomize and --helm: give one of them")
	}
	if helm != "" {
		return c.writeChart(ctx, helm)
	}
	m, err := c.manifestOf(ctx, false)
	if err != nil {
		return err
	}
	if kustomize != "" {
		return c.writeKustomization(m, kustomize)
	}
	text, err := m.text()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.Stdout, text)
	return err
}

// manifestOf returns the manifest that the flags describe. In a chart, expressions replace
// the texts that its values set.
func (c command) manifestOf(ctx *urfave.Context, chart bool) (*manifest, error) {
	if err := checkManifest(ctx); err != nil {
		return nil, call.UsageError{Err: err}
	}
	value := func(e, said string) string {
		if chart {
			return expression(e)
		}
		return said
	}
	name := value(".Values.name", ctx.String("name"))
	m := &manifest{
		Chart: chart, Kind: ctx.String("kind"), Name: name, Image: value(".Values.image", ctx.String("image")),
		CPU: ctx.String("cpu"), Memory: ctx.String("memory"), GPUResource: ctx.String("gpu-resource"),
		Volume: ctx.String("volume"), EnvSecret: ctx.String("env-secret"),
		// The launcher kills the remaining nodes after --grace, and then needs time to report it.
		Grace: int((ctx.Duration("grace") + 10*time.Second + time.Second - 1) / time.Second),
	}
	if ns := ctx.String("namespace"); ns != "" {
		m.Namespace = value(".Values.namespace", ns)
	}
	m.NodeSelector, _ = selectors(ctx)  // checkManifest has checked them
	m.Tolerations, _ = tolerations(ctx) // the same
	if m.Kind != kindDIJob {
		m.Secret = cmp.Or(ctx.String("token-secret"), name+"-token")
	}
	m.limit(ctx, value)
	args := nodeArgs(ctx, m)
	m.Bus = busOf(ctx, m.Name)
	hosts := m.group(ctx, value)
	for i := range m.Groups {
		g := &m.Groups[i]
		g.Args = withLabel(args, g.Type)
		if len(c.Args) > 0 {
			g.Args = append(append(g.Args, "--"), quote.Arguments(c.Args)...)
		}
	}
	if m.Kind != kindDIJob {
		m.Nodes = strings.Join(hosts, ",")
	}
	return m, nil
}

// limit sets the bounds on the number of pods and on their failures, and names what the
// cluster needs for this kind of job.
func (m *manifest) limit(ctx *urfave.Context, value func(expression, said string) string) {
	if ctx.IsSet("min-replicas") {
		m.Min = value("int .Values.minReplicas", strconv.Itoa(ctx.Int("min-replicas")))
	}
	if ctx.IsSet("max-replicas") {
		m.Max = value("int .Values.maxReplicas", strconv.Itoa(ctx.Int("max-replicas")))
	}
	m.Backoff = ctx.Int("backoff-limit")
	if !ctx.IsSet("backoff-limit") && ctx.Bool("auto-recover") {
		m.Backoff = ctx.Int("max-retries")
	}
	switch m.Kind {
	case kindJobSet:
		m.Install = "The cluster must have JobSet: https://jobset.sigs.k8s.io/docs/installation/"
	case kindDIJob:
		m.Install = "The cluster must have the operator of DIJob, which makes the job's Service and token."
	}
}

// group makes the groups, and returns the names of their pods.
func (m *manifest) group(ctx *urfave.Context, value func(expression, said string) string) (hosts []string) {
	words := ctx.StringSlice("task")
	if len(words) == 0 {
		g := group{Replicas: strconv.Itoa(ctx.Int("pods")), GPUs: -1}
		if m.Kind == kindJobSet {
			g.Task, g.Type = "worker", "none"
		}
		m.Groups = append(m.Groups, g)
	}
	for _, word := range words {
		g, _ := parseGroup(word) // checkManifest has checked them
		m.Groups = append(m.Groups, g)
	}
	for i := range m.Groups {
		g := &m.Groups[i]
		g.manifest, g.First = m, i == 0
		if g.GPUs < 0 {
			g.GPUs = ctx.Int("gpus")
		}
		pods, resources := ".Values.pods", ".Values.resources"
		if len(words) > 0 {
			of := "(index .Values.tasks " + quote.HelmString(g.Task) + ")"
			pods, resources = of+".replicas", of+".resources"
		}
		n, _ := strconv.Atoi(g.Replicas) // it was checked
		host := m.Name
		if m.Kind == kindJobSet {
			host += "-" + g.Task + "-0"
		}
		hosts = append(hosts, fmt.Sprintf("%s-[0-%s].%s", host, value("sub (int "+pods+") 1", strconv.Itoa(n-1)), m.Name))
		g.Replicas = value("int "+pods, g.Replicas)
		if m.Chart {
			g.ResourcesValue = "{{- with " + resources + " }}\n    resources: {{ toJson . }}\n    {{- end }}"
		}
	}
	return hosts
}

// nodeArgs returns the arguments of the launcher in each pod.
func nodeArgs(ctx *urfave.Context, m *manifest) []string {
	args := []string{
		"--package", cmp.Or(ctx.String("package"), "/program"), "--platform", "kubernetes", "--dir", cmp.Or(ctx.Path("dir"), "/data/"+m.Name),
	}
	if m.Volume == "" && !flags.FromCommandLine(ctx, "resume") {
		args = append(args, "--resume=false") // with a volume, pods resume
	}
	return quote.Arguments(append(args, flags.Given(ctx, "package", "dir", "platform", "token")...))
}

// The images of servers, for all platforms, by digest, so that they do not change. Docker
// lists the digests of its official images in github.com/docker-library/repo-info.
const (
	natsImage  = "nats:2.15-alpine@sha256:004796a89b7ad925027a01d69d175734403f5b3b98d49f4ed2c861e6f9aafec4"
	redisImage = "redis:7-alpine@sha256:6ab0b6e7381779332f97b8ca76193e45b0756f38d4c0dcda72dbb3c32061ab99"
)

// busOf returns the server between the nodes of a job of that name, or nil.
func busOf(ctx *urfave.Context, job string) *busServer {
	b := &busServer{Kind: ctx.String("bus"), Secret: job + "-bus"}
	switch b.Kind {
	case placement.TransportNATS:
		b.Image, b.Port, b.Variable, b.URL = natsImage, 4222, flags.VarNATSURL, "nats://$(BUS_PASSWORD)@"+job+"-bus:4222"
	case placement.TransportRedis:
		b.Image, b.Port, b.Variable, b.URL = redisImage, 6379, flags.VarRedisURL, "redis://:$(BUS_PASSWORD)@"+job+"-bus:6379"
	default:
		return nil
	}
	b.Image = cmp.Or(ctx.String("bus-image"), b.Image)
	return b
}

// withLabel adds the role of a group to the labels of its nodes.
func withLabel(args []string, role string) []string {
	args = slices.Clone(args)
	if role == "" || role == "none" {
		return args
	}
	if at := slices.Index(args, "--labels"); at >= 0 {
		args[at+1] += "," + role
		return args
	}
	return append(args, "--labels", role)
}
