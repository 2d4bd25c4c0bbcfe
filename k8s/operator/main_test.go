package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/charttest"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

var cluster *kubetest.Cluster

// asOperator makes the test binary run as the operator.
const asOperator = "DITASK_TEST_AS_OPERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(asOperator) != "" {
		main()
		return
	}
	kubetest.Main(m, func(c *kubetest.Cluster) { cluster = c })
}

// process is an operator that runs as it does in a pod: with the rights of its
// service account, and nothing else.
type process struct {
	cmd     *exec.Cmd
	health  string
	metrics string
	ended   chan error

	mu  sync.Mutex
	log bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// install applies the manifests that an administrator applies.
func install(w *kubetest.World) {
	w.Helper()
	if _, err := w.Kubectl(w.Ctx, "apply", "-k", filepath.Join(kubetest.Repository(), "config")); err != nil {
		w.Fatal(err)
	}
	// An operator of the previous test may have been killed while it held the lease.
	if _, err := w.Kubectl(w.Ctx, "delete", "lease", "operator.ditask.dev", "--namespace", "ditask-system", "--ignore-not-found"); err != nil {
		w.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startProcess(w *kubetest.World) *process { return startIn(w, "ditask-system") }

// startIn starts an operator that is installed in a namespace.
func startIn(w *kubetest.World, namespace string, args ...string) *process {
	w.Helper()
	config, err := w.WriteKubeconfig("operator", rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":ditask-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	})
	w.Must(err)
	self, err := os.Executable()
	w.Must(err)
	p := &process{health: freeAddress(w.T), metrics: freeAddress(w.T), ended: make(chan error, 1)}
	p.cmd = exec.Command(self, append(args, "--leader-elect", "--leader-election-namespace", namespace,
		"--health-address", p.health, "--metrics-address", p.metrics, "--kubeconfig", config)...)
	p.cmd.Env = append(os.Environ(), asOperator+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.Must(p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait(); close(p.ended) }()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		for range p.ended {      // it is closed when the process has ended
			continue
		}
		if w.Failed() {
			w.Logf("log of operator %d:\n%s", p.cmd.Process.Pid, p.text())
		}
	})
	return p
}

// get requests a page from an operator, again until it answers.
func get(w *kubetest.World, url string) string {
	w.Helper()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		req, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, url, nil)
		w.Must(err)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return string(body)
			}
		}
		select {
		case <-retry.C:
		case <-w.Ctx.Done():
			w.Fatalf("GET %s: %v", url, err)
		}
	}
}

// leader waits until an operator other than not holds the lease, and returns its name.
func leader(w *kubetest.World, not string) string {
	w.Helper()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		lease := &coordinationv1.Lease{}
		err := w.Client.Get(w.Ctx, client.ObjectKey{Namespace: "ditask-system", Name: "operator.ditask.dev"}, lease)
		if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != not {
			return *lease.Spec.HolderIdentity
		}
		select {
		case <-retry.C:
		case <-w.Ctx.Done():
			w.Fatalf("no operator leads: %v", err)
		}
	}
}

func TestOneOfTwoOperatorsLeadsAndTheOtherTakesOver(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	install(w)
	first := startProcess(w)
	one := leader(w, "")
	second := startProcess(w)
	for _, p := range []*process{first, second} {
		if body := get(w, "http://"+p.health+"/healthz"); body != "ok" {
			t.Errorf("healthz: %q", body)
		}
		get(w, "http://"+p.health+"/readyz")
	}
	apply(w, filepath.Join(kubetest.Repository(), "config", "samples", "dqn.yaml"))
	w.UntilState("dqn", v1alpha1.Running)
	w.UntilEvent("dqn", "Running")
	if body := get(w, "http://"+first.metrics+"/metrics"); !strings.Contains(body, `ditask_dijob_events_total{reason="Running"}`) ||
		!strings.Contains(body, `controller_runtime_reconcile_total{controller="dijob",result="success"}`) {
		t.Error("the metrics of the leader do not count the job")
	}
	if body := get(w, "http://"+second.metrics+"/metrics"); strings.Contains(body, `ditask_dijob_events_total{reason="Running"}`) {
		t.Error("both operators worked")
	}

	// SIGTERM: it releases the lease, and ends with code 0.
	w.Must(first.cmd.Process.Signal(syscall.SIGTERM))
	if err := <-first.ended; err != nil {
		t.Errorf("after SIGTERM it ended with %v", err)
	}
	two := leader(w, one)
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-1", 1, "panic"))
	w.Until("the second operator replaces the pod", func() (bool, any) {
		return w.Made("dqn-collector-1") == 2, w.Made("dqn-collector-1")
	})

	// SIGKILL: the third has to wait until the lease has expired.
	startProcess(w)
	w.Must(second.cmd.Process.Kill())
	leader(w, two)
	w.UntilState("dqn", v1alpha1.Running)
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 0, ""))
	job := w.UntilState("dqn", v1alpha1.Succeeded)
	if job.Status.Restarts != 1 || w.Made("dqn-learner-0") != 1 {
		t.Errorf("%+v", job.Status)
	}
}

// apply is kubectl apply of a file, into the test's namespace.
func apply(w *kubetest.World, file string) {
	w.Helper()
	if out, err := w.Kubectl(w.Ctx, "apply", "--namespace", w.Namespace, "--validate=strict", "-f", file); err != nil {
		w.Fatalf("%v %s", err, out)
	}
}

func TestKubectlShowsScalesAndDescribesAJob(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	install(w)
	startProcess(w)
	apply(w, filepath.Join(kubetest.Repository(), "config", "samples", "dqn.yaml"))
	w.UntilState("dqn", v1alpha1.Running)

	kubectl := func(args ...string) string {
		t.Helper()
		out, err := w.Kubectl(w.Ctx, append(args, "--namespace", w.Namespace)...)
		w.Must(err)
		return out
	}
	if out := kubectl("get", "dijob",
		"dqn"); !regexp.MustCompile(`(?m)^NAME +STATE +READY +DESIRED +RESTARTS +AGE\ndqn +Running +4 +4 +0 +\S+$`).MatchString(out) {
		t.Errorf("kubectl get:\n%s", out)
	}
	kubectl("scale", "dijob/dqn", "--replicas=5")
	w.Until("7 pods", func() (bool, any) { return len(w.Pods()) == 7, len(w.Pods()) })
	w.UntilState("dqn", v1alpha1.Running)
	kubectl("wait", "dijob/dqn", "--for=condition=Running", "--timeout=60s")
	if out := kubectl("get", "dij", "dqn", "-o", "jsonpath={.status.desired}"); out != "7" {
		t.Errorf("desired: %s", out)
	}
	w.UntilEvent("dqn", "Scaled")
	if out := kubectl("describe", "dijob", "dqn"); !strings.Contains(out, "from 4 to 7 nodes") || !strings.Contains(out,
		"Reason:                all 7 nodes run") && !strings.Contains(out, "all 7 nodes run") {
		t.Errorf("kubectl describe:\n%s", out)
	}
	if out := kubectl("explain", "dijob.spec.backoffLimit"); !strings.Contains(out, "One more failure ends the job.") {
		t.Errorf("kubectl explain:\n%s", out)
	}
	kubectl("delete", "dijob", "dqn", "--wait")
	w.Until("all pods are gone", func() (bool, any) { return len(w.Pods()) == 0, len(w.Pods()) })
}

func TestViewersReadAndEditorsWriteJobs(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	install(w)
	for _, tt := range []struct{ role, verb, resource, subresource, want string }{
		{"ditask-view", "list", "dijobs.ditask.dev", "", "yes"},
		{"ditask-view", "create", "dijobs.ditask.dev", "", "no"},
		{"ditask-edit", "create", "dijobs.ditask.dev", "", "yes"},
		{"ditask-edit", "patch", "dijobs.ditask.dev", "scale", "yes"},
		{"ditask-edit", "patch", "dijobs.ditask.dev", "status", "no"},
		{"ditask-operator", "list", "secrets", "", "no"},
		{"ditask-operator", "delete", "dijobs.ditask.dev", "", "no"},
		{"ditask-operator", "update", "deployments.apps", "", "no"},
	} {
		user := "user-of-" + tt.role
		if _, err := w.Kubectl(w.Ctx, "create", "rolebinding", tt.role, "--clusterrole", tt.role, "--user", user, "--namespace",
			w.Namespace); err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
		// The binding takes effect a moment later.
		retry := time.NewTicker(100 * time.Millisecond)
		for limit := time.After(time.Minute); ; {
			out, err := w.Kubectl(w.Ctx, "auth", "can-i", tt.verb, tt.resource, "--subresource", tt.subresource, "--namespace", w.Namespace,
				"--as", user)
			if strings.TrimSpace(out) == tt.want {
				break
			}
			select {
			case <-retry.C:
				continue
			case <-limit:
				t.Errorf("may %s %s %s %s: %s %v, want %s", tt.role, tt.verb, tt.resource, tt.subresource, out, err, tt.want)
			}
			break
		}
		retry.Stop()
	}
}

var manifests = regexp.MustCompile("(?s)```yaml\n(apiVersion: ditask\\.dev.*?)```")

// TestManifestsInDocsAreAccepted applies every DIJob of docs/kubernetes.md and of the samples
// unchanged.
func TestManifestsInDocsAreAccepted(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	page, err := os.ReadFile(filepath.Join(kubetest.Repository(), "..", "docs", "kubernetes.md"))
	w.Must(err)
	var files []string
	for i, m := range manifests.FindAllSubmatch(page, -1) {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("docs-%d.yaml", i))
		w.Must(os.WriteFile(file, m[1], 0o600))
		files = append(files, file)
	}
	if len(files) < 3 {
		t.Errorf("%d manifests in docs/kubernetes.md", len(files))
	}
	samples, err := filepath.Glob(filepath.Join(kubetest.Repository(), "config", "samples", "*.yaml"))
	w.Must(err)
	for _, file := range slices.Concat(files, samples) {
		apply(w, file)
		// A second time changes nothing: it fits into the annotation of kubectl apply.
		if out, err := w.Kubectl(w.Ctx, "diff", "--namespace", w.Namespace, "-f", file); err != nil {
			t.Errorf("%s: %v %s", file, err, out)
		}
		if _, err := w.Kubectl(w.Ctx, "delete", "--namespace", w.Namespace, "-f", file); err != nil {
			t.Error(err)
		}
	}
}

// TestChartIsAccepted renders the chart with Helm's engine, and sends the result to the API server.
func TestChartIsAccepted(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	folder := filepath.Join(kubetest.Repository(), "chart")
	text, err := charttest.Render(folder, w.Namespace, map[string]any{"watchNamespace": w.Namespace})
	w.Must(err)
	if !strings.Contains(text, `- "--namespace=`+w.Namespace+"\"\n") {
		t.Errorf("watchNamespace is not an argument of the operator:\n%s", text)
	}
	file := filepath.Join(t.TempDir(), "chart.yaml")
	w.Must(os.WriteFile(file, []byte(text), 0o600))
	if out, err := w.Kubectl(w.Ctx, "apply", "--dry-run=server", "--validate=strict", "-f", file, "-f",
		filepath.Join(folder, "crds")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// With watchNamespace, an operator has rights in that namespace only, and they are sufficient for
// its jobs.
func TestOperatorOfOneNamespaceHasRightsThere(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	folder := filepath.Join(kubetest.Repository(), "chart")
	everywhere, err := charttest.Render(folder, w.Namespace, nil)
	w.Must(err)
	all, err := charttest.Objects(everywhere)
	w.Must(err)
	text, err := charttest.Render(folder, w.Namespace, map[string]any{"watchNamespace": w.Namespace})
	w.Must(err)
	chart, err := charttest.Objects(text)
	w.Must(err)
	if chart["ClusterRole/ditask-operator"] != nil || chart["ClusterRoleBinding/ditask-operator"] != nil {
		t.Error("the operator of one namespace has rights in all of them")
	}
	role := chart["Role/ditask-operator"]
	if diff := cmp.Diff(all["ClusterRole/ditask-operator"]["rules"], role["rules"]); role == nil || diff != "" {
		t.Errorf("rules of all namespaces -, of one +:\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "chart.yaml")
	w.Must(os.WriteFile(file, []byte(text), 0o600))
	if out, err := w.Kubectl(w.Ctx, "apply", "-f", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	startIn(w, w.Namespace, "--namespace", w.Namespace)
	apply(w, filepath.Join(kubetest.Repository(), "config", "samples", "dqn.yaml"))
	w.UntilState("dqn", v1alpha1.Running)
	w.UntilEvent("dqn", "Running")
	for _, what := range []string{"secrets", "pods"} {
		out, err := w.Kubectl(w.Ctx, "auth", "can-i", "create", what, "--namespace", "default", "--as",
			"system:serviceaccount:"+w.Namespace+":ditask-operator")
		if err == nil || !strings.Contains(out, "no") {
			t.Errorf("it may create %s in another namespace: %s", what, out)
		}
	}
}

// TestChartIsTheKustomization compares the two ways to install the operator: they have the same
// rules, arguments and other fields, except for the objects that only one of them creates.
func TestChartIsTheKustomization(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	text, err := charttest.Render(filepath.Join(kubetest.Repository(), "chart"), "ditask-system", nil)
	w.Must(err)
	chart, err := charttest.Objects(text)
	w.Must(err)
	text, err = w.Kubectl(w.Ctx, "kustomize", filepath.Join(kubetest.Repository(), "config"))
	w.Must(err)
	kustomization, err := charttest.Objects(text)
	w.Must(err)
	// Helm installs the definitions from a separate folder, and creates the namespace.
	for _, name := range []string{"Namespace/ditask-system", "CustomResourceDefinition/dijobs.ditask.dev"} {
		if kustomization[name] == nil {
			t.Errorf("no %s in k8s/config", name)
		}
		delete(kustomization, name)
	}
	if len(chart) < 5 {
		t.Errorf("%d objects in the chart", len(chart))
	}
	if diff := cmp.Diff(kustomization, chart); diff != "" {
		t.Errorf("k8s/config -, k8s/chart +:\n%s", diff)
	}
}

// TestTableOfFieldsInDocsIsComplete searches for each field of a DIJob's spec.
func TestTableOfFieldsInDocsIsComplete(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(kubetest.Repository(), "..", "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []reflect.Type{reflect.TypeFor[v1alpha1.DIJobSpec](), reflect.TypeFor[v1alpha1.Task](),
		reflect.TypeFor[v1alpha1.DIJobStatus]()} {
		prefix := map[string]string{"Task": "tasks[].", "DIJobStatus": "status."}[kind.Name()]
		for field := range kind.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !strings.Contains(string(page), "| `"+prefix+name+"` |") {
				t.Errorf("docs/kubernetes.md has no row for %s%s", prefix, name)
			}
		}
	}
}
