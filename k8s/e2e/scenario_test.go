//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// TestKubernetes uses ditask as a user does, and disturbs it as a cluster does.
func TestKubernetes(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	out := filepath.Join(filepath.Dir(kubetest.Repository()), "runs", "e2e-kubernetes")
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		t.Fatal(err)
	}
	r := &report{}
	defer func() { r.write(t, out) }()
	var c *cluster
	r.step(t, "images built and packed", func() string { must(t, buildImages()); return "" })
	r.step(t, "control plane and 3 machines ready", func() string {
		var err error
		c, err = newCluster(out, 3)
		must(t, err)
		return ""
	})
	r.versions(t, c)
	for _, s := range []struct {
		name string
		test func(*world)
	}{
		{"operator", installOperator}, {"dqn", learn}, {"steady", disturb}, {"learner", killLearner},
		{"manifest", withoutOperator}, {"commands", commands}, {"jobset", jobSet}, {"lws", leaderWorkerSet}, {"twins", twoNamespaces}, {"image",
			noImage},
	} {
		done := t.Run(s.name, func(t *testing.T) {
			w := &world{T: t, cluster: c, report: r, ns: "ditask-system"}
			if s.name != "operator" {
				w.namespace(s.name)
			}
			s.test(w)
		})
		if s.name == "operator" && !done {
			return
		}
	}
}

// installOperator follows docs/kubernetes.md.
func installOperator(w *world) {
	config := withImage(w, filepath.Join(kubetest.Repository(), "config"), "kustomization.yaml", operatorImage)
	w.step("operator: kubectl apply -k, until both operators are ready", func() string {
		w.kube("apply", "-k", config)
		// kubectl wait --for=condition fails for a definition that has no conditions yet.
		w.wait("kubectl finds the kind DIJob", func() (bool, error) {
			out, err := w.kubectl("api-resources", "--api-group=ditask.dev", "--output=name")
			return strings.Contains(out, "dijobs.ditask.dev"), err
		})
		w.kube("rollout", "status", "deployment/ditask-operator", "--timeout=5m")
		return ""
	})
}

// install applies the kustomization of another project's controller, and waits until it is ready.
func (w *world) install(kustomization, namespace, deployment string) {
	w.Helper()
	other := &world{T: w.T, cluster: w.cluster, ns: namespace}
	other.kube("apply", "--server-side", "-k", kustomization)
	other.kube("rollout", "status", "deployment/"+deployment, "--timeout=5m")
}

// answers waits until the webhooks of a controller accept an object, in a dry run. A controller can
// be ready before its webhooks are.
func (w *world) answers(object string) {
	w.Helper()
	w.wait("webhooks answer", func() (bool, error) {
		_, err := w.kubectlWith(object, "apply", "--namespace", w.ns, "--dry-run=server", "-f", "-")
		if err != nil && strings.Contains(err.Error(), "failed calling webhook") {
			return false, nil
		}
		return true, err
	})
}

// withImage returns a copy of a folder of kustomizations, one of which names another image:
// kustomize edit set image would write into the repository.
func withImage(w *world, config, kustomization, image string) (folder string) {
	folder = w.TempDir()
	must(w, os.CopyFS(folder, os.DirFS(config)))
	file := filepath.Join(folder, kustomization)
	text, err := os.ReadFile(file)
	must(w, err)
	name, tag, _ := strings.Cut(image, ":")
	edited := regexp.MustCompile(`newName: .*\n( *)newTag: .*`).ReplaceAllString(string(text), "newName: "+name+"\n${1}newTag: \""+tag+"\"")
	must(w, os.WriteFile(file, []byte(edited), 0o600))
	return folder
}

// learn runs the example of docs/kubernetes.md.
func learn(w *world) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(kubetest.Repository()), "docs", "kubernetes.md"))
	must(w, err)
	manifest := regexp.MustCompile("(?s)```yaml\n(apiVersion: ditask.dev/.*?)```").FindStringSubmatch(string(text))[1]
	manifest = strings.ReplaceAll(manifest, "ghcr.io/ditask/dqn:latest", dqnImage)
	w.step("dqn of docs/kubernetes.md: apply, until all 4 run", func() string {
		w.apply(manifest)
		w.job("dqn", "runs", func(j *v1alpha1.DIJob) bool { return j.Status.Ready == 4 || succeeded(j) })
		return ""
	})
	w.step("dqn: until Succeeded, CartPole at 475", func() string {
		j := w.job("dqn", "succeeds", succeeded)
		log := w.kube("logs", "dqn-learner-0")
		if !strings.Contains(log, "eval") || j.Status.Restarts != 0 || j.Status.Preemptions != 0 {
			w.Errorf("%d restarts, %d preemptions; the learner's log:\n%s", j.Status.Restarts, j.Status.Preemptions, log)
		}
		return lastLine(log, "steps ")
	})
}

const steadyJob = `
apiVersion: ditask.dev/v1alpha1
kind: DIJob
metadata: {name: steady}
spec:
  minReplicas: 1
  maxReplicas: 4
  backoffLimit: 10
  tasks:
  - name: learner
    type: learner
    replicas: 1
    template: &node
      metadata: {labels: {app: steady}}
      spec:
        affinity: # collectors are not where the learner is
          podAntiAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: steady, ditask.dev/type: learner}}}
        topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: steady}}}
        containers:
        - name: node
          image: ` + steadyImage + `
          args: [--package, /program, --parallel-workers, "1", --auto-recover, --dir, /runs]
          resources: {requests: {cpu: 100m, memory: 64Mi}}
          volumeMounts: [{name: runs, mountPath: /runs}]
        volumes: [{name: runs, persistentVolumeClaim: {claimName: runs}}]
  - name: collector
    type: collector
    replicas: 2
    template: *node
`

// disturb kills, scales and disconnects nodes of a running job.
func disturb(w *world) {
	shared := w.volume()
	w.apply(steadyJob)
	w.step("steady: 3 nodes exchange events", func() string { return w.exchange(3) })

	w.step("a collector's pod is deleted by force", func() string {
		before := w.pod("steady-collector-0")
		w.kube("delete", "pod", before.Name, "--grace-period=0", "--force")
		w.replaced(before)
		j := w.whole("steady", 3)
		if j.Status.Restarts != 0 {
			w.Errorf("a deleted pod counts as %d failures", j.Status.Restarts)
		}
		return w.exchange(3)
	})
	w.step("a collector's process is killed", func() string {
		before, failures := w.pod("steady-collector-0"), w.job("steady", "", nil).Status.Restarts
		w.killProcess(before)
		w.replaced(before)
		if j := w.whole("steady", 3); j.Status.Restarts != failures+1 {
			w.Errorf("%d failures, want %d", j.Status.Restarts, failures+1)
		}
		return w.exchange(3)
	})
	scaleUp := func(from, to int) string { // the learner and collectors
		before := w.lives()
		w.kube("scale", "dijob/steady", fmt.Sprint("--replicas=", to-1))
		w.whole("steady", int32(to))
		text := w.exchange(to)
		w.undisturbed(before, from)
		return text
	}
	w.step("kubectl scale up, from 2 to 4 collectors", func() string { return scaleUp(3, 5) })
	w.step("kubectl scale down, to 1 collector", func() string {
		before, failed := w.lives(), w.failures()
		w.kube("scale", "dijob/steady", "--replicas=1")
		w.wait("the excess pods are deleted", func() (bool, error) { return len(w.pods("steady")) == 2, nil })
		w.whole("steady", 2)
		text := w.exchange(2)
		w.undisturbed(before, 2)
		if after := w.failures(); after > failed {
			w.Errorf("%d emits have failed", after-failed)
		}
		return text
	})
	w.step("kubectl scale up again, to 2 collectors", func() string { return scaleUp(2, 3) })

	victim := *w.pod("steady-collector-1")
	cut := w.machineOf(&victim)
	w.Cleanup(func() {
		for _, m := range w.machines {
			must(w, m.link("up"))
		}
	})
	w.step("the link of a machine with a collector is cut for 3 s", func() string {
		before, failed := w.lives(), w.failures()
		must(w, cut.link("down"))
		pause(3)
		must(w, cut.link("up"))
		text := w.exchange(3)
		w.undisturbed(before, 3)
		if after := w.failures(); after != failed {
			w.Errorf("%d emits have failed", after-failed)
		}
		return text
	})
	w.step("the link is cut for long: until the machine is NotReady", func() string {
		must(w, cut.link("down"))
		w.kube("wait", "node/"+cut.name, "--for=condition=Ready=Unknown", "--timeout=5m")
		return ""
	})
	w.step("... until its pod is evicted, and stays, because its end is unknown", func() string {
		w.wait("the collector is evicted", func() (bool, error) { return w.pod(victim.Name).DeletionTimestamp != nil, nil })
		if p := w.pod(victim.Name); p.UID != victim.UID {
			w.Errorf("there is another pod %s while the first may still run", p.Name)
		}
		return ""
	})
	w.step("... the machine is marked as out of service: until its pod runs elsewhere", func() string {
		w.kube("taint", "node", cut.name, "node.kubernetes.io/out-of-service=gone:NoExecute")
		p := w.replaced(&victim)
		if p.Spec.NodeName == cut.name {
			w.Errorf("%s is on the machine that is cut off", p.Name)
		}
		w.whole("steady", 3)
		return w.exchange(3)
	})
	w.step("the link is restored: until the machine is Ready, and the old pod has ended there", func() string {
		before := w.lives()
		must(w, cut.link("up"))
		w.kube("wait", "node/"+cut.name, "--for=condition=Ready", "--timeout=5m")
		w.kube("taint", "node", cut.name, "node.kubernetes.io/out-of-service-")
		w.wait("the old container has ended", func() (bool, error) { return len(processesOf(&victim)) == 0, nil })
		text := w.exchange(3)
		w.undisturbed(before, 3)
		return text
	})
	w.step("the link is cut until the collector is evicted, and restored: until the pod is replaced", func() string {
		before, lives := w.pod(victim.Name), w.lives()
		cut := w.machineOf(before)
		for _, p := range w.pods("steady") {
			if p.Spec.NodeName == cut.name {
				delete(lives, p.Name)
			}
		}
		must(w, cut.link("down"))
		w.wait("the collector is evicted", func() (bool, error) { return w.pod(before.Name).DeletionTimestamp != nil, nil })
		must(w, cut.link("up"))
		w.replaced(before)
		w.whole("steady", 3)
		text := w.exchange(3)
		w.undisturbed(lives, 3)
		return text
	})
	w.step("steady: a request to stop, until Succeeded", func() string {
		must(w, os.WriteFile(filepath.Join(shared, "stop"), nil, 0o600))
		w.job("steady", "succeeds", succeeded)
		return ""
	})
}

// killLearner kills the learner of a job after its first checkpoint.
func killLearner(w *world) {
	shared := w.volume()
	w.apply(strings.ReplaceAll(strings.ReplaceAll(steadyJob, steadyImage, dqnImage), "steady", "dqn")) // the replaced pod resumes
	var learner *corev1.Pod
	w.step("learner: until it has a checkpoint, of 5,000 updates", func() string {
		w.whole("dqn", 3)
		learner = w.pod("dqn-learner-0")
		w.wait("there is a checkpoint", func() (bool, error) {
			_, err := os.Stat(filepath.Join(shared, "checkpoint.safetensors"))
			return err == nil, nil
		})
		w.killProcess(learner)
		return ""
	})
	w.step("learner: its process is killed, until a new one runs", func() string {
		w.replaced(learner)
		return ""
	})
	w.step("learner: resumes, until Succeeded", func() string {
		j := w.job("dqn", "succeeds", succeeded)
		if j.Status.Restarts < 1 {
			w.Error("no failure was counted")
		}
		log := w.kube("logs", "dqn-learner-0")
		first := regexp.MustCompile(`steps +(\d+)`).FindStringSubmatch(log)
		if steps, _ := strconv.Atoi(first[1]); steps < 5000 {
			w.Errorf("it began again at 0:\n%s", log)
		}
		return fmt.Sprintf("%d failures; first after the kill: %s; last: %s", j.Status.Restarts, first[0], lastLine(log, "steps "))
	})
}

// withoutOperator applies the output of ditask k8s manifest.
func withoutOperator(w *world) {
	w.kube("create", "secret", "generic", "dqn-token", "--from-literal=token=0123456789abcdef0123456789abcdef")
	w.step("an Indexed Job by ditask k8s manifest and kubectl apply: 4 pods, until Complete", func() string {
		w.apply(w.ditask("manifest", "--name", "dqn", "--image", dqnImage, "--pods", "4"))
		w.kube("wait", "job/dqn", "--for=condition=Complete", "--timeout=15m")
		return lastLine(w.kube("logs", "--selector=batch.kubernetes.io/job-completion-index=0", "--tail=-1"), "steps ")
	})
}

// commands uses the commands of ditask instead of kubectl; submit ends with the job's exit code.
func commands(w *world) {
	w.step("an Indexed Job by ditask k8s submit: 4 pods, until it ends", func() string {
		return lastLine(w.ditask("submit", "--name", "dqn", "--image", dqnImage, "--pods", "4"), "steps ")
	})
	w.step("a DIJob by ditask k8s submit: 4 pods, until it ends", func() string {
		return lastLine(w.ditask("submit", "--kind", "dijob", "--name", "roles", "--image", dqnImage,
			"--task", "learner:learner:1", "--task", "evaluator:evaluator:1", "--task", "collector:collector:2"), "steps ")
	})
	w.step("ditask k8s status, logs and delete of both, until all their objects are deleted", func() string {
		w.finished("dqn", "roles")
		return ""
	})
}

// jobSet runs a job under JobSet's own controller.
func jobSet(w *world) {
	config := withImage(w, filepath.Join(kubetest.Source(w, "sigs.k8s.io/jobset"), "config"),
		filepath.Join("components", "manager", "kustomization.yaml"), jobSetImage)
	w.step("JobSet: kubectl apply -k, until it is ready", func() string {
		w.install(filepath.Join(config, "default"), "jobset-system", "jobset-controller-manager")
		w.answers("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: none}, spec: {}}")
		return ""
	})
	w.step("a JobSet by ditask k8s submit: 4 pods, until it ends", func() string {
		return lastLine(w.ditask("submit", "--kind", "jobset", "--name", "dqn", "--image", dqnImage,
			"--task", "learner:learner:1", "--task", "evaluator:evaluator:1", "--task", "collector:collector:2"), "steps ")
	})
	w.step("ditask k8s status, logs and delete of it, until all its objects are deleted", func() string {
		w.finished("dqn")
		return ""
	})
}

const leaderWorkerSetJob = `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: steady}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 3
    restartPolicy: None
    workerTemplate:
      metadata: {labels: {ditask.dev/job: steady}}
      spec:
        containers:
        - name: node
          image: ` + steadyImage + `
          args: [--package, /program, --auto-recover]
          env:
          - {name: DITASK_TOKEN, valueFrom: {secretKeyRef: {name: steady-token, key: token}}}
`

// leaderWorkerSet runs the example of docs/kubernetes.md under LeaderWorkerSet's own
// controller.
func leaderWorkerSet(w *world) {
	config := withImage(w, filepath.Join(kubetest.Source(w, "sigs.k8s.io/lws"), "config"),
		filepath.Join("manager", "kustomization.yaml"), lwsImage)
	w.step("LeaderWorkerSet: kubectl apply -k, until it is ready", func() string {
		w.install(filepath.Join(config, "default"), "lws-system", "lws-controller-manager")
		w.answers(leaderWorkerSetJob)
		return ""
	})
	w.kube("create", "secret", "generic", "steady-token", "--from-literal=token=0123456789abcdef0123456789abcdef")
	w.step("a LeaderWorkerSet: a leader and 2 workers exchange events", func() string {
		w.apply(leaderWorkerSetJob)
		return w.exchange(3)
	})
	w.step("the process of a worker is killed: until all three exchange events again", func() string {
		before, worker := w.lives(), "steady-0-2"
		w.killProcess(w.pod(worker))
		w.wait(worker+" runs again", func() (bool, error) {
			life, speaks := w.lives()[worker]
			return speaks && life != before[worker], nil
		})
		text := w.exchange(3)
		delete(before, worker)
		w.undisturbed(before, 3)
		return text
	})
	w.kube("delete", "leaderworkerset", "steady", "--cascade=foreground", "--timeout=5m")
	w.kube("delete", "secret", "steady-token")
	w.gone()
}

// finished checks a job that has succeeded, and deletes it.
func (w *world) finished(jobs ...string) {
	w.Helper()
	for _, job := range jobs {
		if out := w.ditask("status", job); !strings.Contains(out, "Succeeded") && !strings.Contains(out, "Complete") {
			w.Errorf("status of %s: %s", job, out)
		}
		if out := w.ditask("logs", job, "--rank", "0"); !strings.Contains(out, "steps ") {
			w.Errorf("logs of %s: %s", job, out)
		}
		w.ditask("delete", job)
	}
	w.gone()
}

// twoNamespaces runs two jobs of the same name at once.
func twoNamespaces(w *world) {
	other := &world{T: w.T, cluster: w.cluster, report: w.report, ns: w.ns + "-2"}
	other.namespace(other.ns)
	w.step("two jobs of one name in two namespaces", func() string {
		for _, x := range []*world{w, other} {
			x.volume()
			x.apply(steadyJob)
		}
		for _, x := range []*world{w, other} {
			x.whole("steady", 3)
			x.exchange(3)
		}
		known := other.lives()
		for pod, line := range w.lines() {
			if len(line.Heard) != 2 {
				w.Errorf("%s has received events of %v, want two other nodes", pod, line.Heard)
			}
			for _, foreign := range known {
				if _, met := line.Heard[foreign]; met {
					w.Errorf("%s has received events of %s in the other namespace", pod, foreign)
				}
			}
		}
		return ""
	})
	w.step("one of them is deleted: until all its objects are deleted; the other continues", func() string {
		before := w.lives()
		other.kube("delete", "dijob", "steady", "--cascade=foreground", "--timeout=5m")
		other.gone()
		text := w.exchange(3)
		w.undisturbed(before, 3)
		return text
	})
}

// noImage runs a job of an image that no registry has.
func noImage(w *world) {
	w.step("an image that cannot be pulled is named", func() string {
		w.apply(strings.Replace(strings.ReplaceAll(steadyJob, steadyImage, registry+"/absent:1"),
			"volumeMounts: [{name: runs, mountPath: /runs}]", "", 1))
		w.volume()
		j := w.job("steady", "has the reason ImageNotPulled", func(j *v1alpha1.DIJob) bool {
			running := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.Running)
			return running != nil && running.Reason == "ImageNotPulled" && strings.Contains(running.Message, registry+"/absent:1")
		})
		return meta.FindStatusCondition(j.Status.Conditions, v1alpha1.Running).Message
	})
}
