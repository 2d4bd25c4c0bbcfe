package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// TestTasksAndNodesOfASpec is the table of the nodes that a spec asks for.
func TestTasksAndNodesOfASpec(t *testing.T) {
	two := []v1alpha1.Task{{Name: "a", Type: v1alpha1.Learner, Replicas: 2}, {Name: "b", Type: v1alpha1.None, Replicas: 1}}
	for _, tt := range []struct {
		name string
		spec v1alpha1.DIJobSpec
		want []string
	}{
		{"nothing", v1alpha1.DIJobSpec{Replicas: new(int32(3))}, nil},
		{"tasks", v1alpha1.DIJobSpec{Tasks: two}, []string{"j-a-0 (learner, rank 0)", "j-a-1 (learner, rank 1)", "j-b-0 (b, rank 2)"}},
		{"tasks, the last one of another size", v1alpha1.DIJobSpec{Tasks: two, Replicas: new(int32(0))},
			[]string{"j-a-0 (learner, rank 0)", "j-a-1 (learner, rank 1)"}},
		{"a template", v1alpha1.DIJobSpec{Template: &v1alpha1.PodTemplate{}}, []string{"j-worker-0 (worker, rank 0)"}},
		{"a template, at least none", v1alpha1.DIJobSpec{Template: &v1alpha1.PodTemplate{}, MinReplicas: new(int32(0))},
			[]string{"j-worker-0 (worker, rank 0)"}},
		{"a template, at least 2", v1alpha1.DIJobSpec{Template: &v1alpha1.PodTemplate{}, MinReplicas: new(int32(2))},
			[]string{"j-worker-0 (worker, rank 0)", "j-worker-1 (worker, rank 1)"}},
		{
			"a template of a size", v1alpha1.DIJobSpec{Template: &v1alpha1.PodTemplate{}, MinReplicas: new(int32(1)),
				Replicas: new(int32(2))},
			[]string{"j-worker-0 (worker, rank 0)", "j-worker-1 (worker, rank 1)"},
		},
	} {
		job := &v1alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: tt.spec}
		var got []string
		index := map[string]int32{}
		for _, n := range nodesOf(job) {
			got = append(got, n.String())
			if n.Index != index[n.Task] || n.host(job) != n.Pod+".j" {
				t.Errorf("%s: node %+v is %s", tt.name, n, n.host(job))
			}
			index[n.Task]++
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if two[1].Replicas != 1 {
		t.Error("the spec was changed")
	}
}

func TestJobIDIsMadeOfNameAndUID(t *testing.T) {
	for want, job := range map[string]metav1.ObjectMeta{
		"dqn-01234567": {Name: "dqn", UID: "01234-567-89"},
		"dqn-0123":     {Name: "dqn", UID: "01-23"},
		"abcdefghijklmnopqrstuvwxyz01234-01234567": {Name: "abcdefghijklmnopqrstuvwxyz0123456789", UID: "0123456789"},
		"abcdefghijklmnopqrstuvwxyz0123-01234567":  {Name: "abcdefghijklmnopqrstuvwxyz0123-456789", UID: "0123456789"},
	} {
		if got := jobID(&v1alpha1.DIJob{ObjectMeta: job}); got != want {
			t.Errorf("%s: %s, want %s", job.Name, got, want)
		}
	}
}

// belongs checks that the job owns an object, and the object's labels.
func belongs(t *testing.T, job *v1alpha1.DIJob, o metav1.Object) {
	t.Helper()
	want := map[string]string{"ditask.dev/job": "dqn", "ditask.dev/job-id": "dqn-01234567",
		"app.kubernetes.io/managed-by": "ditask-operator"}
	got := maps.Clone(o.GetLabels())
	maps.DeleteFunc(got, func(key, _ string) bool { return want[key] == "" })
	if diff := cmp.Diff(want, got); diff != "" || !metav1.IsControlledBy(o, job) {
		t.Errorf("%s: owners %v, labels (-want +got):\n%s", o.GetName(), o.GetOwnerReferences(), diff)
	}
}

func TestServicePolicyAndSecretOfAJob(t *testing.T) {
	job := dqnJob()
	pods := map[string]string{"ditask.dev/job-id": "dqn-01234567"}

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "dqn", Labels: map[string]string{"mine": "stays", labelJobID: "goes"}}}
	setService(job, service)
	belongs(t, job, service)
	want := corev1.ServiceSpec{ClusterIP: "None", PublishNotReadyAddresses: true, Selector: pods}
	if diff := cmp.Diff(want, service.Spec); diff != "" || service.Labels["mine"] != "stays" {
		t.Errorf("service with labels %v (-want +got):\n%s", service.Labels, diff)
	}

	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "dqn"}}
	setPolicy(job, policy)
	belongs(t, job, policy)
	nodes := metav1.LabelSelector{MatchLabels: pods}
	if diff := cmp.Diff(networkingv1.NetworkPolicySpec{
		PodSelector: nodes, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &nodes}}}},
	}, policy.Spec); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}

	secret := newSecret(job)
	belongs(t, job, secret)
	if token := string(secret.Data["token"]); secret.Name != "dqn-01234567-token" || secret.Namespace != "here" || len(token) != 64 ||
		token == strings.Repeat("0", 64) || !*secret.Immutable || token == string(newSecret(job).Data["token"]) {
		t.Errorf("secret: %+v", secret)
	}
}

// podOf returns the pod of a node of dqnJob, of rank 3, after a change of its template.
func podOf(change func(*v1alpha1.PodTemplate)) (*v1alpha1.DIJob, *corev1.Pod) {
	job := dqnJob()
	change(&job.Spec.Tasks[2].Template)
	return job, newPod(job, nodesOf(job)[3])
}

func TestPodOfANode(t *testing.T) {
	job, pod := podOf(func(p *v1alpha1.PodTemplate) {
		p.Annotations = map[string]string{"note": "a"}
		p.Labels = map[string]string{"app": "b", labelRank: "99", labelJobID: "another"}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "beside", Image: "i",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile})
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "i"}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DI_RANK", Value: "99"}, {Name: "MINE", Value: "$(DI_RANK)"},
			{Name: "DITASK_TOKEN", Value: "x"}}
	})
	belongs(t, job, pod)
	if pod.Name != "dqn-collector-1" || pod.Namespace != "here" || pod.Spec.Hostname != "dqn-collector-1" ||
		pod.Spec.Subdomain != "dqn" || pod.Spec.RestartPolicy != "Never" {
		t.Errorf("pod: %+v", pod)
	}
	if pod.Annotations["note"] != "a" || pod.Labels["app"] != "b" || pod.Labels[labelTask] != "collector" ||
		pod.Labels[labelType] != "collector" || pod.Labels[labelRank] != "3" {
		t.Errorf("annotations %v, labels %v", pod.Annotations, pod.Labels)
	}
	all := "dqn-learner-0.dqn,dqn-evaluator-0.dqn,dqn-collector-[0-1].dqn"
	secret := corev1.LocalObjectReference{Name: "dqn-01234567-token"}
	token := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret, Key: "token"}}
	ours := []corev1.EnvVar{
		{Name: "DI_JOB_ID", Value: "dqn-01234567"}, {Name: "DI_RANK", Value: "3"}, {Name: "DI_NODES", Value: all},
		{Name: "DI_TASK_NAME", Value: "collector"}, {Name: "DI_TASK_TYPE", Value: "collector"}, {Name: "DI_LEARNER_NODES",
			Value: "dqn-learner-0.dqn"},
		{Name: "DI_EVALUATOR_NODES", Value: "dqn-evaluator-0.dqn"}, {Name: "DI_COLLECTOR_NODES",
			Value: "dqn-collector-[0-1].dqn"},
		{Name: "DITASK_TOKEN", ValueFrom: token},
	}
	node, beside := pod.Spec.Containers[0], pod.Spec.Containers[1]
	if diff := cmp.Diff(append(slices.Clone(ours), corev1.EnvVar{Name: "MINE", Value: "$(DI_RANK)"}), node.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ours[:len(ours)-1], beside.Env); diff != "" { // without the token
		t.Errorf("environment of the second container (-want +got):\n%s", diff)
	}
	if node.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError ||
		beside.TerminationMessagePolicy != corev1.TerminationMessageReadFile {
		t.Errorf("messages: %s, %s", node.TerminationMessagePolicy, beside.TerminationMessagePolicy)
	}
	if pod.Spec.InitContainers[0].SecurityContext == nil || beside.SecurityContext == nil {
		t.Error("an init container, or the second one, is not restricted")
	}
	if template := job.Spec.Tasks[2].Template; template.Spec.Containers[0].SecurityContext != nil || template.Labels[labelRank] != "99" ||
		len(template.Spec.Containers[0].Env) != 3 {
		t.Error("the job's template was changed")
	}
}

// Only the node's container, the first one, has the job's token: not those beside it, nor
// those that run before it.
func TestTokenIsInTheNodesContainerAlone(t *testing.T) {
	_, pod := podOf(func(p *v1alpha1.PodTemplate) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "i"}, {Name: "sidecar", Image: "i", RestartPolicy: &always}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "second", Image: "i"}, corev1.Container{Name: "third", Image: "i"})
	})
	for i, c := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
		has := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "DITASK_TOKEN" })
		if has != (i == 0) {
			t.Errorf("container %s has the token: %v", c.Name, has)
		}
	}
}

// The environment of a node names all nodes but does not grow with their number: Linux
// limits a variable to 128 KiB, and each pod has these variables.
func TestEnvironmentOfALargeJobIsSmall(t *testing.T) {
	job := dqnJob()
	job.Spec.Tasks[0].Replicas, job.Spec.Tasks[1].Replicas, job.Spec.Tasks[2].Replicas = 1000, 0, 1000
	size := 0
	env := environment(job, nodesOf(job)[1999])
	for _, e := range env {
		size += len(e.Name) + len(e.Value)
	}
	if size > 512 || env[2].Value != "dqn-learner-[0-999].dqn,dqn-collector-[0-999].dqn" || env[6].Value != "" {
		t.Errorf("%d bytes: %v", size, env)
	}
}

func TestNameOfATaskInAVariable(t *testing.T) {
	job := dqnJob()
	job.Spec.Tasks[0].Name = "deep-q"
	if env := environment(job, nodesOf(job)[0]); env[5].Name != "DI_DEEP_Q_NODES" || env[5].Value != "dqn-deep-q-0.dqn" {
		t.Errorf("%+v", env[5])
	}
}

// TestTokenOfTheAPIServerIsMountedOnlyOnRequest is the table of AutomountServiceAccountToken.
func TestTokenOfTheAPIServerIsMountedOnlyOnRequest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		set     *bool
		account string
		want    *bool
	}{
		{"nothing", nil, "", new(false)}, {"an account", nil, "mine", nil}, {"a request", new(true), "", new(true)}, {"both", new(false),
			"mine", new(false)},
	} {
		_, pod := podOf(func(p *v1alpha1.PodTemplate) {
			p.Spec.AutomountServiceAccountToken, p.Spec.ServiceAccountName = tt.set, tt.account
		})
		if diff := cmp.Diff(tt.want, pod.Spec.AutomountServiceAccountToken); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestSecurityOfPods is the table of the fields that a template sets or leaves unset.
func TestSecurityOfPods(t *testing.T) {
	runtime := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	none := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	for _, tt := range []struct {
		name         string
		pod, wantPod *corev1.PodSecurityContext
		own, wantOwn *corev1.SecurityContext
	}{
		{
			name: "nothing", wantPod: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: runtime},
			wantOwn: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: none},
		},
		{
			name: "root, and escalation", pod: &corev1.PodSecurityContext{RunAsNonRoot: new(false)},
			wantPod: &corev1.PodSecurityContext{RunAsNonRoot: new(false), SeccompProfile: runtime},
			own:     &corev1.SecurityContext{AllowPrivilegeEscalation: new(true)},
			wantOwn: &corev1.SecurityContext{AllowPrivilegeEscalation: new(true), Capabilities: none},
		},
		{
			name: "a profile, and not privileged", pod: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Unconfined"}},
			wantPod: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: "Unconfined"}},
			own:     &corev1.SecurityContext{Privileged: new(false)}, wantOwn: &corev1.SecurityContext{Privileged: new(false),
				AllowPrivilegeEscalation: new(false), Capabilities: none},
		},
		{
			name: "privileged", own: &corev1.SecurityContext{Privileged: new(true)}, wantOwn: &corev1.SecurityContext{Privileged: new(true)},
			wantPod: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: runtime},
		},
		{
			name: "capabilities", own: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}},
			wantOwn: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}},
			wantPod: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: runtime},
		},
	} {
		_, pod := podOf(func(p *v1alpha1.PodTemplate) {
			p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = tt.pod, tt.own
		})
		if diff := cmp.Diff(tt.wantPod, pod.Spec.SecurityContext); diff != "" {
			t.Errorf("%s: pod (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.wantOwn, pod.Spec.Containers[0].SecurityContext); diff != "" {
			t.Errorf("%s: container (-want +got):\n%s", tt.name, diff)
		}
	}
}
