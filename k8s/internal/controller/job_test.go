package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

func TestEnvironmentOfNodes(t *testing.T) {
	w := world(t)
	job := newJob(w, 2)
	job.Spec.Tasks[2].Template.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "MINE", Value: "rank $(DI_RANK)"}, {Name: "DI_RANK", Value: "99"},
	}
	job = start(w, job)

	id := "dqn-" + strings.ReplaceAll(string(job.UID), "-", "")[:8]
	if job.Status.JobID != id {
		t.Errorf("job id is %q, want %q", job.Status.JobID, id)
	}
	token := corev1.EnvVar{Name: "DITASK_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: id + "-token"}, Key: "token",
	}}}
	want := func(rank, task, kind string, more ...corev1.EnvVar) []corev1.EnvVar {
		return append([]corev1.EnvVar{
			{Name: "DI_JOB_ID", Value: id},
			{Name: "DI_RANK", Value: rank},
			{Name: "DI_NODES", Value: "dqn-learner-0.dqn,dqn-evaluator-0.dqn,dqn-collector-[0-1].dqn"},
			{Name: "DI_TASK_NAME", Value: task},
			{Name: "DI_TASK_TYPE", Value: kind},
			{Name: "DI_LEARNER_NODES", Value: "dqn-learner-0.dqn"},
			{Name: "DI_EVALUATOR_NODES", Value: "dqn-evaluator-0.dqn"},
			{Name: "DI_COLLECTOR_NODES", Value: "dqn-collector-[0-1].dqn"},
			token,
		}, more...)
	}
	mine := corev1.EnvVar{Name: "MINE", Value: "rank $(DI_RANK)"}
	pods := w.Pods()
	for name, env := range map[string][]corev1.EnvVar{
		"dqn-learner-0":   want("0", "learner", "learner"),
		"dqn-evaluator-0": want("1", "evaluator", "evaluator"),
		"dqn-collector-0": want("2", "collector", "collector", mine),
		"dqn-collector-1": want("3", "collector", "collector", mine),
	} {
		pod := pods[name]
		if pod == nil {
			t.Fatalf("no pod %s", name)
		}
		if diff := cmp.Diff(env, pod.Spec.Containers[0].Env); diff != "" {
			t.Errorf("environment of %s (-want +got):\n%s", name, diff)
		}
		if pod.Spec.Hostname != name || pod.Spec.Subdomain != "dqn" {
			t.Errorf("%s is %s.%s on the network", name, pod.Spec.Hostname, pod.Spec.Subdomain)
		}
		if !metav1.IsControlledBy(pod, job) || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s: owner %v, restart policy %s", name, pod.OwnerReferences, pod.Spec.RestartPolicy)
		}
	}
	if len(pods) != 4 {
		t.Errorf("%d pods, want 4", len(pods))
	}
	for _, kind := range []string{v1alpha1.Created, v1alpha1.Running} {
		if c := meta.FindStatusCondition(job.Status.Conditions,
			kind); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != job.Generation {
			t.Errorf("condition %s: %+v", kind, c)
		}
	}
	if s := job.Status; s.Desired != 4 || s.Ready != 4 || s.Restarts != 0 || s.Replicas != 2 {
		t.Errorf("status: %+v", s)
	}
	w.UntilEvent("dqn", "Running")
}

func TestPodsAreRestrictedUnlessTheTemplateIsNot(t *testing.T) {
	w := world(t)
	job := newJob(w, 1)
	own := &job.Spec.Tasks[2].Template.Spec
	own.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(false), FSGroup: new(int64(7))}
	own.Containers[0].SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}, ReadOnlyRootFilesystem: new(true),
	}
	start(w, job)

	pods := w.Pods()
	learner := pods["dqn-learner-0"].Spec
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, learner.SecurityContext); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, learner.Containers[0].SecurityContext); diff != "" {
		t.Error(diff)
	}
	if learner.AutomountServiceAccountToken == nil || *learner.AutomountServiceAccountToken {
		t.Error("a node has a token for the API server")
	}
	collector := pods["dqn-collector-0"].Spec
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		RunAsNonRoot: new(false), FSGroup: new(int64(7)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, collector.SecurityContext); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(own.Containers[0].SecurityContext, collector.Containers[0].SecurityContext); diff != "" {
		t.Error(diff)
	}
}

func TestJobHasServicePolicyAndToken(t *testing.T) {
	w := world(t)
	job := start(w, newJob(w, 1))
	key := client.ObjectKey{Namespace: w.Namespace, Name: "dqn"}
	pods := map[string]string{"ditask.dev/job-id": job.Status.JobID}

	service := &corev1.Service{}
	w.Must(w.Client.Get(w.Ctx, key, service))
	if s := service.Spec; s.ClusterIP != "None" || !s.PublishNotReadyAddresses || !cmp.Equal(s.Selector, pods) {
		t.Errorf("service: %+v", s)
	}
	policy := &networkingv1.NetworkPolicy{}
	w.Must(w.Client.Get(w.Ctx, key, policy))
	nodes := metav1.LabelSelector{MatchLabels: pods}
	if diff := cmp.Diff(networkingv1.NetworkPolicySpec{
		PodSelector: nodes, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &nodes}}}},
	}, policy.Spec); diff != "" {
		t.Error(diff)
	}
	secret := &corev1.Secret{}
	w.Must(w.Client.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: job.Status.JobID + "-token"}, secret))
	if len(secret.Data["token"]) != 64 || secret.Immutable == nil || !*secret.Immutable || !metav1.IsControlledBy(secret, job) {
		t.Errorf("token of %d bytes, owner %v", len(secret.Data["token"]), secret.OwnerReferences)
	}
	for name, p := range w.Pods() {
		if p.Labels["ditask.dev/job-id"] != job.Status.JobID {
			t.Errorf("%s is not selected: %v", name, p.Labels)
		}
	}

	// The operator restores objects that were changed or deleted.
	before := service.DeepCopy()
	service.Spec.Selector = map[string]string{"app": "another"}
	w.Must(w.Client.Patch(w.Ctx, service, client.MergeFrom(before)))
	w.Until("the service selects the job's pods again", func() (bool, any) {
		w.Must(w.Client.Get(w.Ctx, key, service))
		return cmp.Equal(service.Spec.Selector, pods), service.Spec.Selector
	})
	w.Must(w.Client.Delete(w.Ctx, policy))
	w.Until("the policy is there again", func() (bool, any) {
		again := &networkingv1.NetworkPolicy{}
		err := w.Client.Get(w.Ctx, key, again)
		return err == nil && again.UID != policy.UID, err
	})
}

func TestTemplateMakesMinReplicasWorkers(t *testing.T) {
	w := world(t)
	pod := template()
	start(w, &v1alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Namespace: w.Namespace},
		Spec:       v1alpha1.DIJobSpec{MinReplicas: new(int32(2)), MaxReplicas: new(int32(5)), Template: &pod},
	})
	if got := names(w); !slices.Equal(got, []string{"hello-worker-0", "hello-worker-1"}) {
		t.Errorf("pods: %v", got)
	}
	w.Must(w.Exit(w.Ctx, w.Namespace, "hello-worker-0", 0, ""))
	w.Must(w.Exit(w.Ctx, w.Namespace, "hello-worker-1", 0, ""))
	job := w.UntilState("hello", v1alpha1.Succeeded)
	if c := meta.FindStatusCondition(job.Status.Conditions,
		v1alpha1.Succeeded); c.Reason != "AllSucceeded" || c.Message != "all 2 nodes succeeded" {
		t.Errorf("%+v", c)
	}
}

// names returns the names of all pods that are not being deleted.
func names(w *kubetest.World) []string {
	w.Helper()
	var out []string
	for name, pod := range w.Pods() {
		if pod.DeletionTimestamp == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func scale(w *kubetest.World, name string, replicas int32) error {
	return w.Client.SubResource("scale").Update(w.Ctx, w.Job(name), client.WithSubResourceBody(
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace},
			Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))
}

func TestCollectorsScaleUpAndDownWhileTheJobRuns(t *testing.T) {
	w := world(t)
	job := newJob(w, 3)
	job.Spec.MaxReplicas = new(int32(5))
	start(w, job)
	uids := map[string]types.UID{}
	for name, pod := range w.Pods() {
		uids[name] = pod.UID
	}

	w.Must(scale(w, "dqn", 5))
	job = w.UntilState("dqn", v1alpha1.Running)
	if job.Status.Desired != 7 || job.Status.Replicas != 5 {
		t.Errorf("status: %+v", job.Status)
	}
	pods := w.Pods()
	for name, uid := range uids {
		if pods[name] == nil || pods[name].UID != uid {
			t.Errorf("%s was changed", name)
		}
	}
	env := pods["dqn-collector-4"].Spec.Containers[0].Env
	if env[1].Value != "6" || env[2].Value != "dqn-learner-0.dqn,dqn-evaluator-0.dqn,dqn-collector-[0-4].dqn" {
		t.Errorf("the new node has the variables: %v", env[:3])
	}
	if err := scale(w, "dqn", 6); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(),
		"spec.replicas: Invalid value: must be at most maxReplicas") {
		t.Errorf("beyond maxReplicas: %v", err)
	}

	w.Hold("dqn-collector-2", "dqn-collector-3", "dqn-collector-4")
	w.Must(scale(w, "dqn", 2))
	w.Until("three pods drain", func() (bool, any) { return len(w.Drained()) == 3, w.Drained() })
	job = w.UntilState("dqn", v1alpha1.Running)
	if job.Status.Desired != 4 || job.Status.Restarts != 0 {
		t.Errorf("status: %+v", job.Status)
	}
	for _, name := range []string{"dqn-collector-2", "dqn-collector-3", "dqn-collector-4"} {
		pod := w.Pods()[name]
		if pod == nil || *pod.DeletionGracePeriodSeconds == 0 {
			t.Fatalf("%s has no time to drain", name)
		}
		w.Must(w.Release(w.Ctx, w.Namespace, name))
	}
	w.Until("the drained pods are gone", func() (bool, any) { return len(w.Pods()) == 4, names(w) })
	for name, pod := range w.Pods() {
		if pod.UID != uids[name] {
			t.Errorf("%s was created again", name)
		}
	}
	w.UntilEvent("dqn", "Scaled")
}

func TestPodsAreRemovedHighestRankFirst(t *testing.T) {
	job := &v1alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "dqn", UID: "1234"}}
	job.Spec.Tasks = []v1alpha1.Task{{Name: "collector", Replicas: 12}}
	pods := podsOf(job)
	job.Spec.Tasks[0].Replicas = 9
	d := decide(job, pods, clock)
	var removed []string
	for _, pod := range d.remove {
		removed = append(removed, pod.Name)
	}
	if want := []string{"dqn-collector-11", "dqn-collector-10", "dqn-collector-9"}; !slices.Equal(removed, want) {
		t.Errorf("removed %v, want %v", removed, want)
	}
}

func TestSuspendTakesPodsAwayAndResumeBringsThemBack(t *testing.T) {
	w := world(t)
	start(w, newJob(w, 2))
	update(w, func(j *v1alpha1.DIJob) { j.Spec.Suspend = new(true) })
	job := w.UntilState("dqn", v1alpha1.Suspended)
	if len(w.Pods()) != 0 || job.Status.Restarts != 0 || job.Status.Preemptions != 0 {
		t.Errorf("suspended with %v; %+v", names(w), job.Status)
	}
	// While it is suspended, as for Kueue, templates can be changed.
	update(w, func(j *v1alpha1.DIJob) {
		j.Spec.Tasks[0].Template.Spec.NodeSelector = map[string]string{"pool": "gpu"}
	})
	update(w, func(j *v1alpha1.DIJob) { j.Spec.Suspend = new(false) })
	w.UntilState("dqn", v1alpha1.Running)
	pods := w.Pods()
	if len(pods) != 4 || pods["dqn-learner-0"].Spec.NodeSelector["pool"] != "gpu" {
		t.Errorf("resumed with %v", names(w))
	}
	w.UntilEvent("dqn", "Suspended")
	w.UntilEvent("dqn", "Resumed")
}

func TestJobThatBeginsSuspendedHasNoPods(t *testing.T) {
	w := world(t)
	job := newJob(w, 1)
	job.Spec.Suspend = new(true)
	w.Must(w.Client.Create(w.Ctx, job))
	w.UntilState("dqn", v1alpha1.Suspended)
	if w.Made("dqn-learner-0") != 0 {
		t.Error("a pod was made")
	}
}

func TestLearnersSuccessEndsTheJob(t *testing.T) {
	for policy, left := range map[v1alpha1.CleanPodPolicy][]string{
		v1alpha1.CleanRunning: {"dqn-collector-0", "dqn-learner-0"},
		v1alpha1.CleanAll:     nil,
		v1alpha1.CleanNone:    {"dqn-collector-0", "dqn-collector-1", "dqn-evaluator-0", "dqn-learner-0"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			w := world(t)
			job := newJob(w, 2)
			job.Spec.CleanPodPolicy = policy
			start(w, job)
			w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-0", 0, ""))
			w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 0, ""))
			job = w.UntilState("dqn", v1alpha1.Succeeded)
			if c := meta.FindStatusCondition(job.Status.Conditions,
				v1alpha1.Succeeded); c.Reason != "LearnerSucceeded" || job.Status.CompletionTime == nil {
				t.Errorf("%+v", job.Status)
			}
			w.Until(fmt.Sprintf("these pods are left: %v", left), func() (bool, any) {
				return len(w.Pods()) == len(left) && slices.Equal(names(w), left), names(w)
			})
			w.UntilEvent("dqn", "Succeeded")
		})
	}
}

func TestAllMustSucceedUnderPolicyAll(t *testing.T) {
	w := world(t)
	job := newJob(w, 1)
	job.Spec.SuccessPolicy = v1alpha1.SuccessAll
	start(w, job)
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 0, ""))
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-evaluator-0", 0, ""))
	w.Until("two nodes have succeeded", func() (bool, any) {
		tasks := w.Job("dqn").Status.Tasks
		return len(tasks) == 3 && tasks[0].Succeeded == 1 && tasks[1].Succeeded == 1, tasks
	})
	if state := w.Job("dqn").Status.State; state != v1alpha1.Running {
		t.Errorf("state is %s while a node runs", state)
	}
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-0", 0, ""))
	w.UntilState("dqn", v1alpha1.Succeeded)
}

func TestObjectsOfADeletedJobAreDeleted(t *testing.T) {
	w := world(t)
	job := start(w, newJob(w, 2))
	w.Must(w.Client.Delete(w.Ctx, job))
	w.Until("nothing is left", func() (bool, any) {
		var left []string
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}, &corev1.SecretList{},
			&networkingv1.NetworkPolicyList{}, &v1alpha1.DIJobList{}} {
			w.Must(w.Client.List(w.Ctx, list, client.InNamespace(w.Namespace)))
			w.Must(meta.EachListItem(list, func(o runtime.Object) error {
				left = append(left, fmt.Sprintf("%T %s", o, o.(client.Object).GetName()))
				return nil
			}))
		}
		return len(left) == 0, left
	})
	// The name is free for another job, with a token and its own id.
	again := start(w, newJob(w, 2))
	if again.Status.JobID == job.Status.JobID {
		t.Errorf("both jobs are %s", again.Status.JobID)
	}
}

func TestJobsOfOneNameInTwoNamespacesAreSeparate(t *testing.T) {
	a, b := kubetest.NewWorld(t, cluster), kubetest.NewWorld(t, cluster)
	operate(a, b)
	one, two := start(a, newJob(a, 1)), start(b, newJob(b, 1))
	if one.Status.JobID == two.Status.JobID {
		t.Errorf("both jobs are %s", one.Status.JobID)
	}
	token := func(w *kubetest.World, job *v1alpha1.DIJob) string {
		secret := &corev1.Secret{}
		w.Must(w.Client.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: job.Status.JobID + "-token"}, secret))
		return string(secret.Data["token"])
	}
	if token(a, one) == token(b, two) {
		t.Error("both jobs have one token")
	}
	a.Must(a.Client.Delete(a.Ctx, one))
	a.Until("the first job's pods are gone", func() (bool, any) { return len(a.Pods()) == 0, names(a) })
	a.Must(b.Exit(b.Ctx, b.Namespace, "dqn-learner-0", 0, ""))
	b.UntilState("dqn", v1alpha1.Succeeded)
}
