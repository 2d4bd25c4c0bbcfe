//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// report lists the steps, and their durations.
type report struct{ head, rows []string }

// step does one thing, and records it with the text that do returns.
func (r *report) step(t *testing.T, what string, do func() string) {
	began, said := time.Now(), "failed"
	defer func() {
		said = strings.ReplaceAll(strings.Join(strings.Fields(said), " "), "|", "/")
		r.rows = append(r.rows, fmt.Sprintf("| %s | %.1f s | %s |", what, time.Since(began).Seconds(), said))
		t.Log(r.rows[len(r.rows)-1])
	}()
	said = do()
}

// versions records the versions of the cluster's parts.
func (r *report) versions(t *testing.T, c *cluster) {
	nodes, err := c.kubectl("get", "nodes", "-o", "wide", "--no-headers")
	must(t, err)
	for _, command := range [][]string{{"containerd", "--version"}, {"runc", "--version"}, {os.Getenv("COREDNS"), "-version"},
		{"uname", "-r"}} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		must(t, err)
		line, _, _ := strings.Cut(string(out), "\n")
		r.head = append(r.head, filepath.Base(command[0])+": "+line)
	}
	line, _, _ := strings.Cut(nodes, "\n")
	r.head = append(r.head, "first machine: "+strings.Join(strings.Fields(line), " "))
}

func (r *report) write(t *testing.T, dir string) {
	text := strings.Join(r.head, "\n") + "\n\n| step | took | |\n|---|---:|---|\n" + strings.Join(r.rows, "\n") + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "report.md"), []byte(text), 0o644))
	t.Logf("\n%s", text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pause keeps a fault for a time: no condition ends it earlier.
func pause(seconds int) { <-time.After(time.Duration(seconds) * time.Second) }

// world is a namespace of the cluster in a test.
type world struct {
	*testing.T
	*cluster

	report *report
	ns     string
}

func (w *world) step(what string, do func() string) { w.Helper(); w.report.step(w.T, what, do) }

// namespace creates a namespace, which is deleted with its objects at the end of the test.
func (w *world) namespace(name string) {
	w.ns = name
	w.kube("create", "namespace", name)
	w.Cleanup(func() {
		if w.Failed() {
			for _, args := range [][]string{{"get", "dijobs,jobs,pods", "-o", "wide"}, {"get", "dijobs", "-o", "yaml"}, {"get", "events"}} {
				out, err := w.kubectl(append(args, "--namespace", name)...)
				w.Log(out, err)
			}
			for _, p := range w.pods("") {
				out, _ := w.kubectl("logs", "--namespace", name, p.Name, "--tail=40")
				w.Logf("%s %s on %s:\n%s", p.Name, p.Status.Phase, p.Spec.NodeName, out)
			}
		}
		w.kube("delete", "dijobs,jobs", "--all", "--cascade=foreground", "--timeout=5m")
		w.kube("delete", "namespace", name, "--wait=false")
	})
}

// kube runs kubectl in the namespace. An error ends the test.
func (w *world) kube(args ...string) string {
	w.Helper()
	out, err := w.kubectl(append([]string{"--namespace", w.ns}, args...)...)
	must(w, err)
	return out
}

func (w *world) apply(manifest string) {
	w.Helper()
	_, err := w.kubectlWith(manifest, "apply", "--namespace", w.ns, "-f", "-")
	must(w, err)
}

// ditask runs a command of ditask k8s outside of the cluster. An error ends the test.
func (w *world) ditask(args ...string) string {
	w.Helper()
	cmd := exec.Command(filepath.Join(folder, "build", "ditask"), append([]string{"k8s", args[0], "--namespace", w.ns}, args[1:]...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("ditask k8s %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// gone waits until no object of any job is left in the namespace.
func (w *world) gone() {
	w.Helper()
	w.wait("nothing is left", func() (bool, error) {
		left := w.kube("get", "dijobs,jobs,pods,services,secrets,networkpolicies", "--output=name")
		return left == "", nil
	})
}

func (w *world) wait(what string, is func() (bool, error)) { w.Helper(); must(w, w.until(what, is)) }

// volume makes a claim named runs, for a folder that all machines share, and
// returns the folder.
func (w *world) volume() string {
	w.Helper()
	path := filepath.Join(folder, "shared", w.ns)
	must(w, os.Mkdir(path, 0o755))
	must(w, os.Chmod(path, 0o777))
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  claimRef: {namespace: %[1]s, name: runs}
  hostPath: {path: %[2]s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: runs}
spec:
  storageClassName: ""
  volumeName: %[1]s
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
`, w.ns, path))
	w.Cleanup(func() { w.kube("delete", "pv", w.ns, "--wait=false") })
	return path
}

func succeeded(j *v1alpha1.DIJob) bool {
	return meta.IsStatusConditionTrue(j.Status.Conditions, v1alpha1.Succeeded)
}

// job waits until a job is in the state that the test wants, and returns it. A failed job is an
// error.
func (w *world) job(name, what string, is func(*v1alpha1.DIJob) bool) *v1alpha1.DIJob {
	w.Helper()
	j := &v1alpha1.DIJob{}
	w.wait("job "+name+" "+what, func() (bool, error) {
		if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.ns, Name: name}, j); err != nil {
			return false, err
		}
		if failed := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.Failed); failed != nil && failed.Status == "True" {
			return false, fmt.Errorf("the job has failed: %s", failed.Message)
		}
		return is == nil || is(j), nil
	})
	return j
}

// whole waits until all nodes of a job are ready.
func (w *world) whole(name string, nodes int32) *v1alpha1.DIJob {
	w.Helper()
	return w.job(name, fmt.Sprintf("has %d nodes ready", nodes), func(j *v1alpha1.DIJob) bool {
		return j.Status.Desired == nodes && j.Status.Ready == nodes
	})
}

// pods returns the pods of a job of this name.
func (w *world) pods(job string) []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	selector := client.MatchingLabels{}
	if job != "" {
		selector["ditask.dev/job"] = job
	}
	must(w, w.client.List(context.Background(), &list, client.InNamespace(w.ns), selector))
	return list.Items
}

func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{}
	must(w, w.client.Get(context.Background(), client.ObjectKey{Namespace: w.ns, Name: name}, p))
	return p
}

// machineOf returns the machine on which a pod runs.
func (w *world) machineOf(p *corev1.Pod) *machine {
	w.Helper()
	i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.name == p.Spec.NodeName })
	if i < 0 {
		w.Fatalf("%s is on no machine", p.Name)
	}
	return w.machines[i]
}

// replaced waits for the pod that replaces another: same name, same rank, and ready.
func (w *world) replaced(before *corev1.Pod) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{}
	w.wait(before.Name+" is replaced, and ready", func() (bool, error) {
		err := w.client.Get(context.Background(), client.ObjectKeyFromObject(before), p)
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady &&
				c.Status == "True"
		})
		return err == nil && p.UID != before.UID && (ready || p.Status.Phase == corev1.PodSucceeded), client.IgnoreNotFound(err)
	})
	if rank := "ditask.dev/rank"; p.Labels[rank] != before.Labels[rank] {
		w.Errorf("%s had rank %s and has %s", p.Name, before.Labels[rank], p.Labels[rank])
	}
	return p
}

// killProcess kills the first process of a pod's container.
func (w *world) killProcess(p *corev1.Pod) {
	w.Helper()
	pids := processesOf(p)
	if len(pids) == 0 {
		w.Fatalf("%s has no process", p.Name)
	}
	must(w, syscall.Kill(slices.Min(pids), syscall.SIGKILL))
}

// processesOf returns the processes of a pod's container, on any machine.
func processesOf(p *corev1.Pod) (pids []int) {
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, f := range files {
		if groups, err := os.ReadFile(f); err == nil && bytes.Contains(groups, []byte(id)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// line is a line of output of internal/faultlab/steady.
type line struct {
	Node               int
	Life, Sent, Failed uint64
	Heard              map[string]struct{ First, Last, Missing, Repeated uint64 }
}

// life identifies one run of the node that prints l, for the other nodes.
func (l line) life() string { return fmt.Sprintf("%d/%d", l.Node, l.Life) }

// lines returns the last line of each node of the job steady, by pod, without nodes that have not
// printed one yet.
func (w *world) lines() map[string]line {
	w.Helper()
	said := map[string]line{}
	for _, p := range w.pods("steady") {
		log, err := w.kubectl("--namespace", w.ns, "logs", p.Name, "--tail=20")
		if err != nil {
			continue // its container has not started, or its machine is cut off
		}
		_, text, found := strings.Cut(lastLine(log, "steady {"), "steady ")
		var l line
		if found && json.Unmarshal([]byte(text), &l) == nil {
			said[p.Name] = l
		}
	}
	return said
}

// lives returns the lives of the job's nodes, by pod.
func (w *world) lives() map[string]string {
	w.Helper()
	lives := map[string]string{}
	for pod, l := range w.lines() {
		lives[pod] = l.life()
	}
	return lives
}

// failures returns the number of failed emits of the job's nodes.
func (w *world) failures() (n uint64) {
	w.Helper()
	for _, l := range w.lines() {
		n += l.Failed
	}
	return n
}

// exchange waits until every node of the job has received an event of every other node that was
// emitted after the call, and checks that no event of the running nodes was lost or repeated.
func (w *world) exchange(nodes int) string {
	w.Helper()
	began := map[string]line{}
	var said map[string]line
	w.wait(fmt.Sprintf("the %d nodes all receive each other's events", nodes), func() (bool, error) {
		said = w.lines()
		for pod, l := range said {
			if b, ok := began[pod]; !ok || b.life() != l.life() {
				began[pod] = l
			}
		}
		for to, l := range said {
			for from, o := range said {
				if from != to && l.Heard[o.life()].Last <= began[from].Sent {
					return false, nil
				}
			}
		}
		return len(said) == nodes, nil
	})
	var heard uint64
	for to, l := range said {
		for from, o := range said {
			h := l.Heard[o.life()]
			heard += h.Last - h.First + 1 - h.Missing
			if from != to && h.Missing+h.Repeated > 0 {
				w.Errorf("%s misses %d events of %s, and has received %d twice", to, h.Missing, from, h.Repeated)
			}
		}
	}
	return fmt.Sprintf("%d events between the running nodes, none lost or repeated", heard)
}

// undisturbed checks that the nodes of the job in before, of those with ranks below
// nodes, have not been restarted.
func (w *world) undisturbed(before map[string]string, nodes int) {
	w.Helper()
	now := w.lives()
	if len(before) == 0 {
		w.Error("there were no nodes before")
	}
	for _, pod := range slices.Sorted(maps.Keys(before)) {
		if rank, _ := strconv.Atoi(strings.SplitN(before[pod], "/", 2)[0]); rank < nodes && now[pod] != before[pod] {
			w.Errorf("%s was disturbed: it was %s and is %s", pod, before[pod], now[pod])
		}
	}
}

// lastLine returns the last line of a log that has a text in it.
func lastLine(log, with string) (last string) {
	for l := range strings.Lines(log) {
		if strings.Contains(l, with) {
			last = strings.TrimSpace(l)
		}
	}
	return last
}
