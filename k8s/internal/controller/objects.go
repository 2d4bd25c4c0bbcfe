package controller

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// tokenKey is the key of the token in the job's Secret.
const tokenKey = "token"

// secretName returns the name of the Secret with the job's token. It contains the job's id, so that
// a job never reads the token of an earlier job.
func secretName(job *v1alpha1.DIJob) string { return jobID(job) + "-token" }

// metadata returns the metadata of an object that belongs to the job and is deleted with it.
func metadata(job *v1alpha1.DIJob, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: job.Namespace,
		Labels: map[string]string{
			labelJob: job.Name, labelJobID: jobID(job), labelManagedBy: managedBy,
		},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, v1alpha1.GroupVersion.WithKind("DIJob"))},
	}
}

// selector selects the pods of this job only, not those of earlier jobs of the same name.
func selector(job *v1alpha1.DIJob) map[string]string {
	return map[string]string{labelJobID: jobID(job)}
}

// newSecret makes the Secret with the job's token, which never changes.
func newSecret(job *v1alpha1.DIJob) *corev1.Secret {
	token := make([]byte, 32)
	rand.Read(token)
	return &corev1.Secret{
		ObjectMeta: metadata(job, secretName(job)),
		Type:       corev1.SecretTypeOpaque,
		Immutable:  new(true),
		Data:       map[string][]byte{tokenKey: []byte(hex.EncodeToString(token))},
	}
}

// setService makes s the job's headless Service, by which nodes find each other
// before they are ready.
func setService(job *v1alpha1.DIJob, s *corev1.Service) {
	own(job, &s.ObjectMeta)
	s.Spec.ClusterIP = corev1.ClusterIPNone
	s.Spec.PublishNotReadyAddresses = true
	s.Spec.Selector = selector(job)
}

// setPolicy makes p the job's network policy: only nodes of the job reach its nodes. Another policy
// can allow other clients, because policies add up.
func setPolicy(job *v1alpha1.DIJob, p *networkingv1.NetworkPolicy) {
	own(job, &p.ObjectMeta)
	nodes := metav1.LabelSelector{MatchLabels: selector(job)}
	p.Spec = networkingv1.NetworkPolicySpec{
		PodSelector: nodes,
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{PodSelector: &nodes}},
		}},
	}
}

// own puts the job's labels and its ownership on an object that may have more labels.
func own(job *v1alpha1.DIJob, m *metav1.ObjectMeta) {
	ours := metadata(job, m.Name)
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	maps.Copy(m.Labels, ours.Labels)
	m.OwnerReferences = ours.OwnerReferences
}

// newPod makes the pod of node n.
func newPod(job *v1alpha1.DIJob, n node) *corev1.Pod {
	tasks := tasksOf(job)
	i := slices.IndexFunc(tasks, func(t v1alpha1.Task) bool { return t.Name == n.Task })
	template := tasks[i].Template.DeepCopy()

	pod := &corev1.Pod{ObjectMeta: metadata(job, n.Pod), Spec: template.Spec}
	pod.Annotations = template.Annotations
	labels := pod.Labels
	pod.Labels = map[string]string{}
	maps.Copy(pod.Labels, template.Labels)
	maps.Copy(pod.Labels, labels)
	pod.Labels[labelTask] = n.Task
	pod.Labels[labelType] = string(n.Type)
	pod.Labels[labelRank] = strconv.Itoa(int(n.Rank))

	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Hostname = n.Pod
	pod.Spec.Subdomain = job.Name
	if pod.Spec.AutomountServiceAccountToken == nil && pod.Spec.ServiceAccountName == "" {
		pod.Spec.AutomountServiceAccountToken = new(false)
	}
	securePod(&pod.Spec)
	env := environment(job, n)
	for i := range pod.Spec.InitContainers {
		secureContainer(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if i == 1 { // the first one is the node, and no other needs the token
			env = env[:len(env)-1]
		}
		secureContainer(c)
		// The last lines of the log become the message of a failure.
		if c.TerminationMessagePolicy == "" {
			c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}
		// The operator's variables come first, so that those of the template may refer to them.
		c.Env = append(slices.Clone(env), slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool {
			return slices.ContainsFunc(env, func(our corev1.EnvVar) bool { return our.Name == e.Name })
		})...)
	}
	return pod
}

// environment returns the variables of a node, the token last. Each node gets the hosts of
// all nodes, as ranges.
func environment(job *v1alpha1.DIJob, n node) []corev1.EnvVar {
	hosts := map[string]string{}
	var all []string
	for _, task := range tasksOf(job) {
		if hosts[task.Name] = hostsOf(job, task); task.Replicas > 0 {
			all = append(all, hosts[task.Name])
		}
	}
	env := []corev1.EnvVar{
		{Name: "DI_JOB_ID", Value: jobID(job)},
		{Name: "DI_RANK", Value: strconv.Itoa(int(n.Rank))},
		{Name: "DI_NODES", Value: strings.Join(all, ",")},
		{Name: "DI_TASK_NAME", Value: n.Task},
		{Name: "DI_TASK_TYPE", Value: string(n.Type)},
	}
	for _, task := range tasksOf(job) {
		name := strings.ToUpper(strings.ReplaceAll(task.Name, "-", "_"))
		env = append(env, corev1.EnvVar{Name: "DI_" + name + "_NODES", Value: hosts[task.Name]})
	}
	return append(env, corev1.EnvVar{Name: "DITASK_TOKEN", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secretName(job)}, Key: tokenKey,
		},
	}})
}

// securePod sets the fields that the restricted Pod Security Standard requires, unless the template
// sets them.
func securePod(spec *corev1.PodSpec) {
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	c := spec.SecurityContext
	if c.RunAsNonRoot == nil {
		c.RunAsNonRoot = new(true)
	}
	if c.SeccompProfile == nil {
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
}

// secureContainer is securePod for the fields that only a container has.
func secureContainer(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	c := container.SecurityContext
	// If a template asks for privileges or capabilities, these fields are not set: the API server
	// refuses some of them together with these.
	if c.Privileged != nil && *c.Privileged || c.Capabilities != nil {
		return
	}
	c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if c.AllowPrivilegeEscalation == nil {
		c.AllowPrivilegeEscalation = new(false)
	}
}
