package clitest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ditask/ditask/k8s/internal/charttest"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// podOf returns the name of the pod of a Job that runs with an index; a Job gives its
// pods random letters.
func (u *user) podOf(job, index string) (name string) {
	u.Helper()
	u.Until(fmt.Sprintf("pod %s of job %s runs", index, job), func() (bool, any) {
		var seen []string
		for _, p := range u.Pods() {
			seen = append(seen, p.Name+" "+string(p.Status.Phase))
			if p.Labels[batchv1.JobNameLabel] == job && p.Labels[batchv1.JobCompletionIndexAnnotation] == index &&
				p.Status.Phase == corev1.PodRunning {
				name = p.Name
				return true, nil
			}
		}
		return false, seen
	})
	return name
}

// secret returns a text that ditask, or a command which it prints, has put into a Secret.
func (u *user) secret(name, key string) string {
	u.Helper()
	var secret corev1.Secret
	u.Must(u.Client.Get(u.Ctx, client.ObjectKey{Namespace: u.Namespace, Name: name}, &secret))
	text := string(secret.Data[key])
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(text) {
		u.Errorf("secret %s has %d bytes under the key %s", name, len(text), key)
	}
	return text
}

// The commands in the comment of a manifest make the Secrets of its pods.
func TestCommandsOfAManifestMakeItsSecrets(t *testing.T) {
	u := newUser(t)
	text := u.expect(u.run("manifest", "--name", "dqn", "--image", "i", "--bus", "nats"), 0).stdout
	for line := range strings.Lines(text) {
		if command, found := strings.CutPrefix(line, "#   "); found {
			cmd := exec.CommandContext(u.Ctx, "sh", "-c", command)
			cmd.Env = u.command().Env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", command, err, out)
			}
		}
	}
	if u.secret("dqn-token", "token") == u.secret("dqn-bus", "password") {
		t.Error("the token is the password")
	}
}

// A Job from its submission to its failure: the output of the commands meanwhile,
// and the exit code of the node that failed first.
func TestIndexedJobFromSubmitToDelete(t *testing.T) {
	u := newUser(t)
	u.controllers("job-controller,replicaset-controller,deployment-controller")
	l := u.startLogs()
	u.expect(u.run("status"), 0, "no job found: ditask k8s submit starts one")
	u.expect(u.run("status", "dqn"), 1, "ditask: status of dqn: not found: no Job, JobSet or DIJob has this name")

	follow := u.start(u.Changed, "submit", "--name", "dqn", "--image", "dqn:1", "--pods", "2", "--bus", "redis", "--backoff-limit", "1",
		"--", "--lr", "1e-3")
	u.says(follow, "job dqn: running, 2 of 2 pods ready")
	u.says(follow, "secret/dqn-token created, with a new token")
	u.says(follow, "secret/dqn-bus created, with a new password")
	u.says(follow, "job.batch/dqn created")
	token, password := u.secret("dqn-token", "token"), u.secret("dqn-bus", "password")
	if text, _ := follow.output(); strings.Contains(text, token) || strings.Contains(text, password) || token == password {
		t.Errorf("the token or the password is printed, or they are equal:\n%s", text)
	}
	u.expect(u.run("submit", "--name", "dqn", "--image", "dqn:1"), 1,
		"ditask: submit dqn: job/dqn already exists: see ditask k8s status dqn; ditask k8s delete dqn removes it; or give another --name")

	// The copy of a log breaks off, and continues where it was.
	l.breaks = 1
	first, second := u.podOf("dqn", "0"), u.podOf("dqn", "1")
	l.write(first, false, "zero one", "zero two")
	u.says(follow, "dqn-0: zero one\n")
	u.says(follow, "dqn-0: zero two\n")
	l.write(second, false, "one one")
	u.says(follow, "dqn-1: one one\n")

	u.expect(u.run("status", "dqn"), 0,
		"Job dqn in "+u.Namespace+": Running, 2 of 2 pods ready, 0 restarts, ", "RANK  POD",
		"\n0     "+first+"  -     Running  yes    0         test-node  ", "\n1     "+second)
	u.expect(u.run("status"), 0, "NAME  KIND  STATE    READY  RESTARTS  AGE\ndqn   Job   Running  2/2    0         ")
	u.expect(u.run("scale", "dqn", "4"), 1, "ditask: scale dqn: job/dqn has a fixed number of pods", "--kind dijob")
	u.expect(u.run("logs", "dqn", "--rank", "1"), 0, "one one")
	u.expect(u.run("logs", "dqn", "--tail", "1"), 0, "dqn-0: zero two", "dqn-1: one one")
	u.expect(u.run("logs", "dqn", "--rank", "7"), 1, "ditask: logs of dqn: no pod of rank 7 has started: ditask k8s status shows the reason")
	u.expect(u.run("logs", "dqn", "--previous"), 1, "ditask: logs of dqn: no pod preceded the current ones")

	// One failure is allowed: the pod is replaced, and its restart is counted.
	l.write(second, false, "panic: out of luck")
	u.Must(u.Exit(u.Ctx, u.Namespace, second, 3, "panic: out of luck"))
	third := u.podOf("dqn", "1")
	u.expect(u.run("status", "dqn"), 0, "1 restart", "failed first: "+second+" (rank 1): exit code 3 (Error): panic: out of luck",
		"\n1     "+third)
	u.expect(u.run("logs", "dqn", "--previous"), 0, "panic: out of luck")
	l.write(first, true)
	l.write(second, true)
	l.write(third, true, "last words")
	u.Must(u.Exit(u.Ctx, u.Namespace, third, 1, ""))
	u.says(follow, "job dqn: failed; failed first: "+second+" (rank 1): exit code 3 (Error): panic: out of luck")
	u.ends(follow, 3)
	text, _ := follow.output()
	for _, line := range []string{"dqn-0: zero one\n", "dqn-0: zero two\n", "dqn-1: one one\n", "dqn-1: panic: out of luck\n",
		"dqn-1: last words\n"} {
		if n := strings.Count(text, line); n != 1 {
			t.Errorf("%d times %q in:\n%s", n, line, text)
		}
	}
	u.expect(u.run("status", "dqn"), 0, "Failed", "why: Job has reached the specified backoff limit")

	u.expect(u.run("delete", "dqn"), 0, "deleted job.batch/dqn", "deleted service/dqn\n", "deleted service/dqn-bus",
		"deleted deployment.apps/dqn-bus", "deleted secret/dqn-token", "deleted secret/dqn-bus")
	u.expect(u.run("delete", "dqn"), 1, "ditask: delete dqn: not found: no job has this name")
	u.Until("the pods are gone", func() (bool, any) { return len(u.Pods()) == 0, u.Pods() })
	if left := u.names("jobs,services,deployments,replicasets,secrets"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A DIJob grows, and a refusal of the API server is printed unchanged.
func TestDIJobIsSubmittedScaledAndDeleted(t *testing.T) {
	u := newUser(t)
	u.operate()
	u.Stick("dqn-collector-1", "ImagePullBackOff", `Back-off pulling image "dqn:1"`)
	follow := u.start(u.Changed, "submit", "--kind", "dijob", "--name", "dqn", "--image", "dqn:1", "--task", "learner:learner:1", "--task",
		"collector:collector:2", "--max-replicas", "4")
	u.says(follow, `dqn-collector-1: ImagePullBackOff: Back-off pulling image "dqn:1"`)
	u.expect(u.run("status", "dqn"), 0, "DIJob dqn in "+u.Namespace+": Pending, 2 of 3 pods ready",
		"why: 2 of 3 nodes run; dqn-collector-1 (collector, rank 2)",
		"\n2     dqn-collector-1  collector  Pending  no     0         test-node", `ImagePullBackOff: Back-off pulling image "dqn:1"`)
	u.Must(u.Unstick(u.Ctx, u.Namespace, "dqn-collector-1"))
	u.says(follow, "job dqn: running, 3 of 3 pods ready")

	// An interrupt does not end the job; the message has the commands to continue.
	u.Must(follow.Process.Signal(syscall.SIGINT))
	u.ends(follow, 130)
	u.says(follow, "job dqn continues: ditask k8s logs dqn --follow, or status; ditask k8s delete dqn ends it")

	u.expect(u.run("scale", "dqn", "4"), 0, "dijob/dqn: the last task now has 4 pods")
	u.Until("five pods", func() (bool, any) { return len(u.Pods()) == 5, len(u.Pods()) })
	u.expect(u.run("scale", "dqn", "5"), 1, "ditask: scale dqn: kubectl: ", "must be at most maxReplicas")
	u.expect(u.run("scale", "nobody", "5"), 1, "ditask: scale nobody: not found")
	// There is no kubelet with logs: kubectl reports it.
	u.expect(u.run("logs", "dqn", "--rank", "0"), 1, "ditask: logs of dqn: kubectl: ")

	var status struct {
		Name, Kind, State string
		Pods              []struct {
			Rank  int
			Role  string
			Ready bool
		}
	}
	u.Until("all are ready", func() (bool, any) {
		r := u.run("status", "dqn", "--json")
		u.Must(json.Unmarshal([]byte(r.stdout), &status))
		return status.State == "Running" && len(status.Pods) == 5 && status.Pods[4].Ready, r.stdout
	})
	if status.Kind != "DIJob" || status.Pods[0].Role != "learner" || status.Pods[4].Rank != 4 || status.Pods[4].Role != "collector" {
		t.Errorf("%+v", status)
	}

	// A failure is printed with the last line of its log; success ends with code 0.
	u.Must(u.Exit(u.Ctx, u.Namespace, "dqn-collector-0", 7, "goroutine 1\npanic: no luck"))
	u.UntilState("dqn", "Failed")
	u.expect(u.run("status", "dqn"), 0, "failed first: dqn-collector-0 (collector, rank 1): exit code 7 (Error): panic: no luck",
		"\n1     dqn-collector-0  collector  Failed  no     0         test-node  ")

	// A Job of the same name that ditask did not create is distinguished, and stays.
	foreign := foreignJob(u.Namespace)
	u.Must(u.Client.Create(u.Ctx, foreign))
	u.expect(u.run("status", "dqn"), 2, "ditask: status of dqn: dijob/dqn and job/dqn have this name: give --kind")
	u.expect(u.run("status", "dqn", "--kind", "job"), 0, "Job dqn in ")
	u.expect(u.run("submit", "--name", "dqn", "--image", "i"), 1, "dijob/dqn already exists")
	u.expect(u.run("delete", "dqn"), 0, "deleted dijob.ditask.dev/dqn\n")
	if left := u.names("jobs"); left != "job.batch/dqn\n" {
		t.Errorf("there is: %s", left)
	}
	background := metav1.DeletePropagationBackground
	u.Must(u.Client.Delete(u.Ctx, foreign, &client.DeleteOptions{PropagationPolicy: &background}))
	u.Until("all is gone", func() (bool, any) {
		left := u.names("pods,services,secrets,networkpolicies")
		return left == "", left
	})
	again := u.start(u.Changed, "submit", "--kind", "dijob", "--name", "dqn", "--image", "dqn:1", "--task", "learner:learner:1")
	u.says(again, "job dqn: running, 1 of 1 pods ready")
	l := u.startLogs()
	l.write("dqn-learner-0", true, "it has learned")
	u.Must(u.Exit(u.Ctx, u.Namespace, "dqn-learner-0", 0, ""))
	u.ends(again, 0)
	u.says(again, "\nit has learned\n")
	u.expect(u.run("delete", "dqn"), 0, "deleted dijob.ditask.dev/dqn\n")
}

// foreignJob returns a Job, dqn, that ditask has not made.
func foreignJob(namespace string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dqn"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
}

// A JobSet is a clear error where the cluster has none. Where it has, each of its
// jobs is one that Kubernetes accepts, and the pods find their ranks.
func TestJobSet(t *testing.T) {
	u := newUser(t)
	args := []string{"--kind", "jobset", "--name", "dqn", "--image", "dqn:1", "--task", "learner:learner:1", "--task", "collector:collector:2"}
	submit := append([]string{"submit"}, args...)
	u.expect(u.run(submit...), 1, "ditask: submit dqn: the cluster has no JobSet, "+
		"which https://jobset.sigs.k8s.io/docs/installation/ installs; --kind job works on every cluster")
	if left := u.names("secrets,services"); left != "" {
		t.Errorf("created without a JobSet: %s", left)
	}

	crd := filepath.Join(kubetest.Source(t, "sigs.k8s.io/jobset"), "config", "components", "crd", "bases", "jobset.x-k8s.io_jobsets.yaml")
	u.Define(t, crd)
	u.expect(u.run(append(submit, "--no-follow")...), 0, "dqn\n", "jobset.jobset.x-k8s.io/dqn created", "secret/dqn-token created")

	// From here the test acts as JobSet's controller.
	set := &unstructured.Unstructured{}
	set.SetAPIVersion("jobset.x-k8s.io/v1alpha2")
	set.SetKind("JobSet")
	u.Must(u.Client.Get(u.Ctx, client.ObjectKey{Namespace: u.Namespace, Name: "dqn"}, set))
	jobs, _, err := unstructured.NestedSlice(set.Object, "spec", "replicatedJobs")
	u.Must(err)
	for _, j := range jobs {
		job := &batchv1.Job{}
		name := j.(map[string]any)["name"].(string)
		u.Must(kruntime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(j.(map[string]any)["template"].(map[string]any), job, true))
		job.ObjectMeta = metav1.ObjectMeta{Namespace: u.Namespace, Name: "dqn-" + name + "-0",
			Labels: map[string]string{"jobset.sigs.k8s.io/jobset-name": "dqn"}}
		job.Spec.Template.Labels["jobset.sigs.k8s.io/jobset-name"] = "dqn"
		job.Spec.Template.Labels["jobset.sigs.k8s.io/jobset-uid"] = string(set.GetUID())
		job.Spec.Template.Labels["jobset.sigs.k8s.io/replicatedjob-name"] = name
		job.Spec.Template.Labels["jobset.sigs.k8s.io/job-index"] = "0"
		u.Must(u.Client.Create(u.Ctx, job))
	}
	l := u.startLogs()
	u.controllers("job-controller")
	learner, last := u.podOf("dqn-learner-0", "0"), u.podOf("dqn-collector-0", "1")
	u.expect(u.run("status", "dqn"), 0, "JobSet dqn in "+u.Namespace+": ", " of 3 pods ready", "\n0     "+learner+"    learner  ",
		"\n2     "+last+"  collector  ")
	if r := u.run("status"); strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("want only the JobSet:\n%s", r.stdout)
	}
	u.expect(u.run("scale", "dqn", "3"), 1, "ditask: scale dqn: jobset/dqn has a fixed number of pods")

	follow := u.start(u.Changed, "logs", "dqn", "--follow")
	u.says(follow, "job dqn: running, 3 of 3 pods ready")
	for _, p := range u.Pods() {
		l.write(p.Name, true)
	}
	u.Must(u.Exit(u.Ctx, u.Namespace, last, 4, ""))
	failed := map[string]any{
		"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed due to one or more job failures",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	u.Must(unstructured.SetNestedSlice(set.Object, []any{failed}, "status", "conditions"))
	u.Must(u.Client.Status().Update(u.Ctx, set))
	u.says(follow, "job dqn: failed; failed first: "+last+" (collector, rank 2): exit code 4 (Error)")
	u.ends(follow, 4)
	u.expect(u.run("delete", "dqn"), 0, "deleted jobset.jobset.x-k8s.io/dqn", "deleted secret/dqn-token")
	u.expect(u.run("delete", "dqn"), 1, "not found")
}

// Faults are printed as kubectl prints them, with the operation of ditask.
func TestFaultsOfTheClusterArePrinted(t *testing.T) {
	u := newUser(t)
	u.controllers("resourcequota-controller,job-controller")
	job := []string{"--name", "dqn", "--image", "dqn:1", "--no-follow"}
	u.expect(u.run("status", "dqn", "--context", "nowhere"), 1, "ditask: status of dqn: kubectl: error: context \"nowhere\" does not exist")
	u.expect(u.run("status", "dqn", "--kubectl", "/nowhere/kubectl"), 2, "ditask: --kubectl: ", "install kubectl")
	nobody, err := u.WriteKubeconfig("nobody", unprivileged())
	u.Must(err)
	u.expect(u.run(append([]string{"submit", "--kubeconfig", nobody}, job...)...), 1,
		"ditask: submit dqn: kubectl: Error from server (Forbidden): ")
	gone := filepath.Join(t.TempDir(), "gone.kubeconfig")
	text, err := os.ReadFile(u.Kubeconfig)
	u.Must(err)
	u.Must(os.WriteFile(gone, []byte(strings.ReplaceAll(string(text), u.Config.Host, "https://127.0.0.1:1")), 0o600))
	u.expect(u.run("status", "dqn", "--kubeconfig", gone), 1,
		"ditask: status of dqn: kubectl: The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?\n")

	// A Job of another user is shown, and not deleted. A quota prevents its pod.
	if _, err := u.Kubectl(u.Ctx, "create", "quota", "none", "--hard=count/jobs.batch=1,pods=0", "--namespace", u.Namespace); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Kubectl(u.Ctx, "wait", "resourcequota/none", `--for=jsonpath={.status.hard.count/jobs\.batch}=1`, "--timeout=120s",
		"--namespace", u.Namespace); err != nil {
		t.Fatal(err)
	}
	foreign := foreignJob(u.Namespace)
	u.Must(u.Client.Create(u.Ctx, foreign))
	u.UntilEvent("dqn", "FailedCreate")
	u.expect(u.run("status", "dqn"), 0, "Job dqn in "+u.Namespace+": Pending, 0 of 1 pods ready", "\nwhy: Error creating: pods \"dqn-",
		"exceeded quota: none")
	u.expect(u.run("delete", "dqn"), 1,
		"ditask: delete dqn: job/dqn has no label app.kubernetes.io/part-of=ditask, so it may belong to another user: kubectl delete job/dqn")
	u.expect(u.run(append([]string{"submit"}, job...)...), 1, "job/dqn already exists")
	if left := u.names("jobs,secrets,services"); left != "job.batch/dqn\n" {
		t.Errorf("there is: %s", left)
	}
	u.expect(u.run("logs", "dqn"), 1, "ditask: logs of dqn: no pod has started: ditask k8s status shows the reason")

	waiting := u.start(u.Changed, "logs", "dqn", "--follow", "--kind", "job")
	u.says(waiting, "job dqn: Error creating: pods \"dqn-")
	// A job that another user deletes has not succeeded.
	background := metav1.DeletePropagationBackground
	u.Must(u.Client.Delete(u.Ctx, foreign, &client.DeleteOptions{PropagationPolicy: &background}))
	u.says(waiting, "ditask: logs of dqn: not found: job/dqn was deleted")
	u.ends(waiting, 1)
	if _, err := u.Kubectl(u.Ctx, "patch", "resourcequota/none", "--namespace", u.Namespace,
		`--patch={"spec":{"hard":{"count/jobs.batch":"0"}}}`); err != nil {
		t.Fatal(err)
	}

	// The command names the way to delete the objects that were created before the API server refused the Job.
	u.expect(u.run("submit", "--name", "more", "--image", "i", "--no-follow"), 1,
		"ditask: service/more created", "ditask: submit more: kubectl: Error from server (Forbidden): ", "exceeded quota: none",
		"\nditask: ditask k8s delete more removes the objects of the job")
	u.expect(u.run("delete", "more"), 0, "deleted service/more", "deleted secret/more-token")
	if left := u.names("jobs,secrets,services"); left != "" {
		t.Errorf("there is: %s", left)
	}
	u.expect(u.run("status", "dqn", "--kind", "dijob"), 1, "not found")
	u.expect(u.run("status", "dqn", "--kind", "pod"), 2, `--kind "pod": want job, jobset or dijob`)
}

// Each kind of manifest is the same objects as text, as a kustomization and as a
// chart, and a chart's values change the fields that they name.
func TestPackagesAreTheManifest(t *testing.T) {
	u := newUser(t)
	tasks := []string{"--task", "learner:learner:1:1", "--task", "collector:collector:3"}
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"job", []string{"--pods", "3", "--memory", "1Gi", "--gpus", "1", "--bus", "nats", "--volume", "runs"}},
		{"plain job", nil},
		{"jobset", append([]string{"--kind", "jobset", "--cpu", "2"}, tasks...)},
		{"jobset of pods", []string{"--kind", "jobset", "--pods", "2"}},
		{"dijob", append([]string{"--kind", "dijob", "--max-replicas", "8", "--min-replicas", "0", "--bus", "redis"}, tasks...)},
		{"dijob of pods", []string{"--kind", "dijob", "--pods", "2", "--tolerate", "spot"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"manifest", "--name", "dqn", "--image", "registry:5000/dqn:1"}, tt.args...)
			with := func(flag, folder string) []string {
				all := append([]string{}, args...)
				if flag != "" {
					all = append(all, flag, folder)
				}
				return append(all, "--", "--text", `{{ .Values }} "$(X)" {`)
			}
			plain, err := charttest.Objects(u.expect(u.run(with("", "")...), 0).stdout)
			u.Must(err)
			folder := filepath.Join(t.TempDir(), "k")
			u.expect(u.run(with("--kustomize", folder)...), 0)
			text, err := u.Kubectl(u.Ctx, "kustomize", folder)
			u.Must(err)
			kustomized, err := charttest.Objects(text)
			u.Must(err)
			if diff := cmp.Diff(plain, kustomized); diff != "" {
				t.Errorf("manifest -, kustomization +:\n%s", diff)
			}
			folder = filepath.Join(t.TempDir(), "h")
			u.expect(u.run(with("--helm", folder)...), 0)
			text, err = charttest.Render(folder, u.Namespace, nil)
			u.Must(err)
			rendered, err := charttest.Objects(text)
			u.Must(err)
			if diff := cmp.Diff(plain, rendered); diff != "" {
				t.Errorf("manifest -, chart +:\n%s", diff)
			}
			if strings.Contains(tt.name, "jobset") {
				return
			}
			text, err = charttest.Render(folder, u.Namespace, map[string]any{"image": "other:2", "name": "other"})
			u.Must(err)
			if strings.Contains(text, "dqn") || !strings.Contains(text, `image: "other:2"`) {
				t.Errorf("name and image are not the values:\n%s", text)
			}
			file := filepath.Join(t.TempDir(), "other.yaml")
			u.Must(os.WriteFile(file, []byte(text), 0o600))
			if out, err := u.Kubectl(u.Ctx, "apply", "--dry-run=server", "--validate=strict", "--namespace", u.Namespace, "--filename",
				file); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	folder := filepath.Join(t.TempDir(), "values")
	u.expect(u.run("manifest", "--name", "dqn", "--image", "i", "--kind", "dijob", "--task", "collect-all:collector:3", "--memory", "1Gi",
		"--helm", folder), 0)
	text, err := charttest.Render(folder, u.Namespace, map[string]any{"tasks": map[string]any{"collect-all": map[string]any{"replicas": 5,
		"resources": map[string]any{"limits": map[string]any{"cpu": "3"}}}}})
	u.Must(err)
	for _, want := range []string{"replicas: 5\n", `"limits":{"cpu":"3","memory":"1Gi"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
