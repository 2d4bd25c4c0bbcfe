package k8s

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// groupK8s is the group of flags that are Kubernetes'.
const groupK8s = "Kubernetes"

// The kinds of objects that run a job.
const (
	kindJob    = "job"
	kindJobSet = "jobset"
	kindDIJob  = "dijob"
)

// manifestFlags are the flags of a manifest, and those of the job in it.
func manifestFlags() []urfave.Flag {
	return append([]urfave.Flag{
		flags.Text(groupK8s, "kind", kindJob, "what runs the job: job (an Indexed Job and a Service, which every cluster has), jobset or dijob (which must be installed)"),
		flags.Text(groupK8s, "name", "", "`NAME` of the job and of what belongs to it"),
		flags.Text(groupK8s, "image", "", "`IMAGE` with ditask as its entry point, and the program"),
		&urfave.IntFlag{Category: groupK8s, Name: "pods", Value: 1, Usage: "number of pods: each runs a launcher"},
		&urfave.StringSliceFlag{Category: groupK8s, Name: "task", Usage: "`NAME:TYPE:PODS` or NAME:TYPE:PODS:GPUS, a group of pods in place of --pods; TYPE is learner, evaluator, collector or none, and a label of the nodes. Ranks count through the groups in their order; for jobset and dijob"},
		&urfave.IntFlag{Category: groupK8s, Name: "min-replicas", Usage: "least number of pods of the last group that a dijob can be scaled to", DefaultText: "none"},
		&urfave.IntFlag{Category: groupK8s, Name: "max-replicas", Usage: "largest number of them", DefaultText: "none"},
		flags.Text(groupK8s, "cpu", "", "`PROCESSORS` that each pod asks for, such as 2 or 500m"),
		flags.Text(groupK8s, "memory", "", "`MEMORY` of each pod, such as 4Gi: what it asks for, and its limit"),
		&urfave.IntFlag{Category: groupK8s, Name: "gpus", Usage: "number of GPUs of each pod", DefaultText: "none"},
		flags.Text(groupK8s, "gpu-resource", "nvidia.com/gpu", "`RESOURCE` that is a GPU"),
		&urfave.StringSliceFlag{Category: groupK8s, Name: "node-selector", Usage: "`LABEL=VALUE` of the machines to run on; may be given several times"},
		&urfave.StringSliceFlag{Category: groupK8s, Name: "tolerate", Usage: "`KEY[=VALUE][:EFFECT]` of a taint of machines to run on all the same; may be given several times"},
		flags.Text(groupK8s, "volume", "", "`CLAIM`, a PersistentVolumeClaim, for what the job writes, which then resumes by itself (default: gone with the pod)"),
		flags.Text(groupK8s, "token-secret", "", "`SECRET` with the job's token under the key token (default: the name and -token)"),
		&urfave.IntFlag{Category: groupK8s, Name: "backoff-limit", Usage: "failures of pods before the job fails; exit code 75 and evictions are none", DefaultText: "0, with --auto-recover --max-retries"},
		flags.Text(groupK8s, "bus", "", "server between the nodes, in a pod of its own: nats or redis (default: none, nodes connect with each other)"),
	}, flags.Job()...)
}

// manifest is what a manifest is made of.
type manifest struct {
	Kind, Name, Namespace, Image string
	Groups                       []group
	Min, Max                     string // empty: none
	Backoff, Grace               int
	CPU, Memory                  string
	GPUResource                  string
	Volume                       string
	Secret                       string // with the token; empty: the operator makes one
	TokenVar                     string // the variable in which the pods have it
	Nodes                        string // DI_NODES; empty: the operator sets it
	Bus                          *busServer
	NodeSelector, Tolerations    []pair
	Install                      string // what the cluster must have
}

// group is a number of pods that are alike.
type group struct {
	*manifest

	Task, Type     string // empty: all pods are alike
	Replicas       string
	GPUs           int
	Args           []string
	ResourcesValue string // stands for the resources, if it is not empty
	First          bool
}

// pair is a label with its value, or a taint.
type pair struct{ Key, Value, Effect string }

// busServer is a server between the nodes.
type busServer struct {
	Image string
	Port  int
	Args  []string
}

// object is the name of one object of a manifest.
type object struct {
	*manifest

	Of string
}

// User is the user and group of the pods, who is nobody else.
func (*manifest) User() int { return 65532 }

// Named is the manifest, for the metadata of an object of this name.
func (m *manifest) Named(name string) object { return object{m, name} }

// Learners are the groups whose success is the job's.
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

// manifestTemplate has the parts of a manifest. Texts are written as JSON, which is
// YAML too, so that none is taken for anything else.
func manifestTemplate() *template.Template {
	t := template.New("manifest")
	t.Funcs(template.FuncMap{
		"q": func(s string) (string, error) {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			err := e.Encode(s)
			return strings.TrimSpace(b.String()), err
		},
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

// parts are the files of a manifest; the first is a comment.
func (m *manifest) parts() ([]part, error) {
	names := []string{"head"}
	if m.Kind == kindJob {
		names = append(names, "service")
	}
	if m.Bus != nil {
		names = append(names, "bus")
	}
	var parts []part
	t := manifestTemplate()
	for _, name := range append(names, m.Kind) {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, name, m); err != nil {
			return nil, err
		}
		parts = append(parts, part{name, b.String() + "\n"})
	}
	return parts, nil
}

// text is the manifest as one text.
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
	m, err := c.manifestOf(ctx, plain)
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

// How long names may be, so that those of pods with their index, and of what else
// belongs to the job, are names of hosts: without and with the names of groups.
const (
	maxName        = 57
	maxGroupedName = 40
)

// checkManifest joins all faults of the flags.
func checkManifest(ctx *urfave.Context) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	host := regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	kind, longest := ctx.String("kind"), maxName
	switch kind {
	case kindJobSet, kindDIJob:
		longest = maxGroupedName
	case kindJob:
	default:
		fault("--kind %q: want job, jobset or dijob", kind)
	}
	if name := ctx.String("name"); !host.MatchString(name) || len(name) > longest {
		fault("--name %q: want at most %d lower-case letters, digits and hyphens, the first a letter", name, longest)
	}
	if ns := ctx.String("namespace"); ns != "" && (!regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(ns) || len(ns) > 63) {
		fault("--namespace %q: want at most 63 lower-case letters, digits and hyphens", ns)
	}
	if ctx.String("image") == "" {
		fault("--image is missing: give one with ditask as its entry point, and the program")
	}
	faults = append(faults, checkGroups(ctx)...)
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
	if _, err := selectors(ctx); err != nil {
		faults = append(faults, err)
	}
	if _, err := tolerations(ctx); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(append(faults, checkPods(ctx)...)...)
}

// checkPods checks the flags of the job that goes into the pods.
func checkPods(ctx *urfave.Context) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch bus, kind := ctx.String("bus"), ctx.String("kind"); {
	case bus != "" && bus != placement.CarrierNATS && bus != placement.CarrierRedis:
		fault("--bus %q: want nats or redis", bus)
	case bus != "" && (ctx.IsSet("mq-type") || ctx.IsSet("nats-url") || flags.RedisServer(ctx) != ""):
		fault("--bus: is the server: leave out --mq-type, --nats-url and --redis-url")
	case bus == "" && kind == kindDIJob && ctx.IsSet("token-secret"):
		fault("--token-secret: the operator makes a token for each dijob: leave it out")
	}
	faults = append(faults, flags.Idle(ctx)...)
	if ctx.IsSet("local_rank") {
		fault("--local_rank: a pod's variables give it its number")
	}
	if p := flags.Platform(ctx); p != "" && p != "kubernetes" {
		fault("--platform %q: want kubernetes, or leave it out", p)
	}
	if t := ctx.String("token"); t != "" && flags.FromCommandLine(ctx, "token") {
		fault("--token: a manifest is no place for a secret: put it into a Secret, and give its name with --token-secret")
	}
	if ctx.String("tls") == flags.TLSAuto {
		fault("--tls auto is for the nodes of one launcher: make certificates with ditask tls, put them into a Secret, and mount that")
	}
	return faults
}

// checkGroups checks the number of pods, and their groups.
func checkGroups(ctx *urfave.Context) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	kind, words := ctx.String("kind"), ctx.StringSlice("task")
	last, most := ctx.Int("pods"), 4096
	if kind == kindDIJob {
		most = 1000
	}
	switch {
	case len(words) == 0 && (last < 1 || last > most):
		fault("--pods %d: want a number from 1 to %d", last, most)
	case len(words) > 0 && kind == kindJob:
		fault("--task: the pods of an Indexed Job are all alike: give --kind jobset or dijob, or --pods")
	case len(words) > 0 && ctx.IsSet("pods"):
		fault("--task and --pods: give one of them")
	case len(words) > 8:
		fault("--task: %d groups: want at most 8", len(words))
	}
	seen, total := map[string]bool{}, 0
	for _, word := range words {
		g, err := parseGroup(word)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if seen[g.Task] {
			fault("--task %q: there is another group %s", word, g.Task)
		}
		seen[g.Task] = true
		last, _ = strconv.Atoi(g.Replicas) // parseGroup has checked it
		total += last
	}
	if total > 4096 {
		fault("--task: %d pods: want at most 4096", total)
	}
	least, largest := ctx.Int("min-replicas"), ctx.Int("max-replicas")
	elastic := ctx.IsSet("min-replicas") || ctx.IsSet("max-replicas")
	switch {
	case elastic && kind != kindDIJob:
		fault("--min-replicas, --max-replicas: only a dijob changes its size")
	case ctx.IsSet("min-replicas") && (least < 0 || least > last):
		fault("--min-replicas %d: want a number from 0 to the pods of the last group, %d", least, last)
	case ctx.IsSet("max-replicas") && (largest < last || largest > 1000):
		fault("--max-replicas %d: want a number from the pods of the last group, %d, to 1000", largest, last)
	}
	return faults
}

// parseGroup reads NAME:TYPE:PODS or NAME:TYPE:PODS:GPUS.
func parseGroup(word string) (group, error) {
	w := strings.Split(word, ":")
	if len(w) != 3 && len(w) != 4 {
		return group{}, fmt.Errorf("--task %q: want NAME:TYPE:PODS, such as learner:learner:1, or NAME:TYPE:PODS:GPUS", word)
	}
	g := group{Task: w[0], Type: w[1], Replicas: w[2], GPUs: -1}
	if !regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`).MatchString(g.Task) || len(g.Task) > 16 {
		return g, fmt.Errorf("--task %q: name %q: want at most 16 lower-case letters, digits and hyphens, the first a letter", word, g.Task)
	}
	if !slices.Contains([]string{"learner", "evaluator", "collector", "none"}, g.Type) {
		return g, fmt.Errorf("--task %q: type %q: want learner, evaluator, collector or none", word, g.Type)
	}
	if n, err := strconv.Atoi(g.Replicas); err != nil || n < 1 || n > 1000 || strconv.Itoa(n) != g.Replicas {
		return g, fmt.Errorf("--task %q: pods %q: want a number from 1 to 1000", word, g.Replicas)
	}
	if len(w) == 4 {
		n, err := strconv.Atoi(w[3])
		if err != nil || n < 0 {
			return g, fmt.Errorf("--task %q: GPUs %q: want a number, at least 0", word, w[3])
		}
		g.GPUs = n
	}
	return g, nil
}

// selectors are the labels of --node-selector.
func selectors(ctx *urfave.Context) (pairs []pair, err error) {
	for _, word := range ctx.StringSlice("node-selector") {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--node-selector %q: want LABEL=VALUE", word)
		}
		pairs = append(pairs, pair{Key: key, Value: value})
	}
	return pairs, nil
}

// tolerations are the taints of --tolerate.
func tolerations(ctx *urfave.Context) (pairs []pair, err error) {
	for _, word := range ctx.StringSlice("tolerate") {
		taint, effect, said := strings.Cut(word, ":")
		key, value, _ := strings.Cut(taint, "=")
		if key == "" || said && !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) {
			return nil, fmt.Errorf("--tolerate %q: want KEY, KEY=VALUE or KEY=VALUE:EFFECT, the effect NoSchedule, PreferNoSchedule or NoExecute", word)
		}
		pairs = append(pairs, pair{Key: key, Value: value, Effect: effect})
	}
	return pairs, nil
}

// literal are arguments in which Kubernetes replaces no variable.
func literal(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.ReplaceAll(a, "$(", "$$(")
	}
	return out
}

// plain puts values into a manifest as they are.
func plain(_, value string) string { return value }

// manifestOf is what the flags ask for. What a package can change is put in by
// value, which is given its expression in a chart, and what the flags say.
func (c command) manifestOf(ctx *urfave.Context, value func(expression, said string) string) (*manifest, error) {
	if err := checkManifest(ctx); err != nil {
		return nil, call.UsageError{Err: err}
	}
	name := value(".Values.name", ctx.String("name"))
	m := &manifest{
		Kind: ctx.String("kind"), Name: name, Image: value(".Values.image", ctx.String("image")),
		CPU: ctx.String("cpu"), Memory: ctx.String("memory"), GPUResource: ctx.String("gpu-resource"),
		Volume: ctx.String("volume"), TokenVar: control.VarToken,
		Backoff: ctx.Int("backoff-limit"),
		// The launcher kills what is left after --grace, and then has to say so.
		Grace: int((ctx.Duration("grace") + 10*time.Second + time.Second - 1) / time.Second),
	}
	if ns := ctx.String("namespace"); ns != "" {
		m.Namespace = value(".Values.namespace", ns)
	}
	if ctx.IsSet("min-replicas") {
		m.Min = value("int .Values.minReplicas", strconv.Itoa(ctx.Int("min-replicas")))
	}
	if ctx.IsSet("max-replicas") {
		m.Max = value("int .Values.maxReplicas", strconv.Itoa(ctx.Int("max-replicas")))
	}
	m.NodeSelector, _ = selectors(ctx)  // checkManifest has seen them
	m.Tolerations, _ = tolerations(ctx) // the same
	if m.Kind != kindDIJob || ctx.String("bus") != "" {
		m.Secret = cmp.Or(ctx.String("token-secret"), name+"-token")
	}
	if !ctx.IsSet("backoff-limit") && ctx.Bool("auto-recover") {
		m.Backoff = ctx.Int("max-retries")
	}
	switch m.Kind {
	case kindJobSet:
		m.Install = "The cluster must have JobSet: https://jobset.sigs.k8s.io/docs/installation/"
	case kindDIJob:
		m.Install, m.TokenVar = "The cluster must have the operator of DIJob, which makes the job's Service and token.", "BUS_TOKEN"
	}
	args := nodeArgs(ctx, m)
	hosts := m.group(ctx, value)
	for i := range m.Groups {
		g := &m.Groups[i]
		g.Args = withLabel(args, g.Type)
		if len(c.Args) > 0 {
			g.Args = append(append(g.Args, "--"), literal(c.Args)...)
		}
	}
	if m.Kind != kindDIJob {
		m.Nodes = strings.Join(hosts, ",")
	}
	return m, nil
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
		g, _ := parseGroup(word) // checkManifest has seen them
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
			of := "(index .Values.tasks `" + g.Task + "`)"
			pods, resources = of+".replicas", of+".resources"
		}
		n, _ := strconv.Atoi(g.Replicas) // it was checked
		host := m.Name
		if m.Kind == kindJobSet {
			host += "-" + g.Task + "-0"
		}
		hosts = append(hosts, fmt.Sprintf("%s-[0-%s].%s", host, value("sub (int "+pods+") 1", strconv.Itoa(n-1)), m.Name))
		g.Replicas = value("int "+pods, g.Replicas)
		if with := value("- with "+resources, ""); with != "" {
			g.ResourcesValue = with + "\n    resources: " + value("toJson .", "") + "\n    " + value("- end", "")
		}
	}
	return hosts
}

// nodeArgs are the arguments of the launcher in each pod, and the server between
// the nodes that they name.
func nodeArgs(ctx *urfave.Context, m *manifest) []string {
	args := []string{
		"--package", cmp.Or(ctx.String("package"), "/program"), "--platform", "kubernetes", "--dir", cmp.Or(ctx.Path("dir"), "/data/"+m.Name),
	}
	if m.Volume == "" && !flags.FromCommandLine(ctx, "resume") {
		args = append(args, "--resume=false") // with a volume, pods go on from what is there
	}
	args = literal(append(args, flags.Given(ctx, "package", "dir", "platform", "token")...))
	token := "$(" + m.TokenVar + ")"
	switch ctx.String("bus") {
	case placement.CarrierNATS:
		m.Bus = &busServer{"nats:2-alpine", 4222, []string{"--auth", "$(DITASK_TOKEN)"}}
		args = append(args, "--nats-url", "nats://"+token+"@"+m.Name+"-bus:4222")
	case placement.CarrierRedis:
		m.Bus = &busServer{"redis:7-alpine", 6379, []string{"--requirepass", "$(DITASK_TOKEN)", "--save", "", "--appendonly", "no"}}
		args = append(args, "--redis-url", "redis://:"+token+"@"+m.Name+"-bus:6379")
	}
	return args
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
