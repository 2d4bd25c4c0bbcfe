package controller

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

const goodTasks = `
tasks:
- {name: learner, type: learner, template: {spec: {containers: [{name: node, image: x}]}}}
- {name: collector, type: collector, replicas: 3, template: {spec: {containers: [{name: node, image: x}]}}}
`

const goodTemplate = `
template: {spec: {containers: [{name: node, image: x}]}}
`

// dryRun returns the API server's error for a job.
func dryRun(t *testing.T, w *kubetest.World, name, spec string) error {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("apiVersion: ditask.dev/v1alpha1\nkind: DIJob\nspec:\n  "+strings.ReplaceAll(strings.TrimSpace(spec),
		"\n", "\n  ")), o); err != nil {
		t.Fatal(err)
	}
	o.SetName(name)
	o.SetNamespace(w.Namespace)
	return w.Client.Create(w.Ctx, o, client.DryRunAll, client.FieldValidation("Strict"))
}

// largeTasks are four tasks of 819 nodes, and one of another number.
func largeTasks(last int) string {
	text := "tasks:\n"
	for i, n := range []int{819, 819, 819, 819, last} {
		text += fmt.Sprintf("- {name: t%d, replicas: %d, template: {spec: {containers: [{name: node, image: x}]}}}\n", i, n)
	}
	return text
}

func TestWrongFieldIsRefusedWithItsPath(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	for name, good := range map[string]string{"tasks": goodTasks, "template": goodTemplate, "DI-engine's own shape": `
minReplicas: 2
maxReplicas: 5
backoffLimit: 0
cleanPodPolicy: "Running"
preemptible: false
tasks:
- replicas: 1
  name: "learner"
  type: learner
  template:
    metadata:
      name: di
      labels: {app: di}
    spec:
      containers:
      - image: ditask:test
        imagePullPolicy: IfNotPresent
        name: pydi
        env: [{name: NCCL_DEBUG, value: "INFO"}]
        command: ["/bin/bash", "-c",]
        args: ["ditask --label learner xxx"]
        resources: {requests: {cpu: "1", nvidia.com/gpu: 1}}
      restartPolicy: Never
- replicas: 2
  name: "collector"
  type: collector
  template: {spec: {containers: [{name: pydi, image: x}]}}
`, "4096 nodes": largeTasks(820), "4096 nodes by replicas": largeTasks(1000) + "replicas: 820"} {
		if err := dryRun(t, w, "good", good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tt := range []struct{ name, spec, want string }{
		{"nothing", "{}", "spec: Invalid value: give either tasks, or one template for all nodes"},
		{"both", goodTasks + goodTemplate, "give either tasks, or one template for all nodes"},
		{"no tasks", "tasks: []", "spec.tasks: Invalid value: 0: spec.tasks in body should have at least 1 items"},
		{"unknown field", goodTasks + "backofLimit: 3", `unknown field "spec.backofLimit"`},
		{"unknown field of a container", strings.Replace(goodTemplate, "image: x", "image: x, imag: y", 1),
			`unknown field "spec.template.spec.containers[0].imag"`},
		{"type", strings.Replace(goodTasks, "type: learner", "type: teacher", 1),
			`spec.tasks[0].type: Unsupported value: "teacher": supported values: "learner", "evaluator", "collector", "none"`},
		{"task name", strings.Replace(goodTasks, "name: learner", "name: Learner", 1), `spec.tasks[0].name: Invalid value: "Learner"`},
		{"long task name", strings.Replace(goodTasks, "name: learner", "name: a-name-that-is-too-long", 1),
			"spec.tasks[0].name: Too long: may not be more than 16 bytes"},
		{"no task name", strings.Replace(goodTasks, "name: learner, ", "", 1), "spec.tasks[0].name: Required value"},
		{"one name twice", strings.Replace(goodTasks, "name: collector", "name: learner", 1),
			`spec.tasks[1]: Duplicate value: {"name":"learner"}`},
		{"no template", "tasks: [{name: learner}]", "spec.tasks[0].template: Required value"},
		{"no node", strings.Replace(goodTasks, "replicas: 3", "replicas: 0", 1),
			"spec.tasks[1].replicas: Invalid value: 0: spec.tasks[1].replicas in body should be greater than or equal to 1"},
		{"too many nodes", strings.Replace(goodTasks, "replicas: 3", "replicas: 1001", 1), "spec.tasks[1].replicas: Invalid value: 1001"},
		{"too many nodes of all tasks", largeTasks(821), "spec.tasks: Invalid value: must have at most 4096 nodes together"},
		{"too many nodes by replicas", largeTasks(1) + "replicas: 821", "spec.tasks: Invalid value: must have at most 4096 nodes together"},
		{"text for a number", goodTasks + "backoffLimit: many", `spec.backoffLimit: Invalid value: "string"`},
		{"negative budget", goodTasks + "backoffLimit: -1", "spec.backoffLimit: Invalid value: -1"},
		{"clean", goodTasks + "cleanPodPolicy: Some", `spec.cleanPodPolicy: Unsupported value: "Some"`},
		{"success", goodTasks + "successPolicy: Most", `spec.successPolicy: Unsupported value: "Most"`},
		{"success without a learner", goodTemplate + "successPolicy: Learner",
			"spec.successPolicy: Invalid value: Learner needs a task of type learner"},
		{"min over max", goodTasks + "minReplicas: 5\nmaxReplicas: 4\nreplicas: 5",
			"spec.minReplicas: Invalid value: must not exceed maxReplicas"},
		{"under min", goodTasks + "minReplicas: 2\nreplicas: 1", "spec.replicas: Invalid value: must be at least minReplicas"},
		{"over max", goodTasks + "maxReplicas: 2\nreplicas: 3", "spec.replicas: Invalid value: must be at most maxReplicas"},
		{"last task under min", goodTasks + "minReplicas: 4",
			"spec.tasks: Invalid value: replicas of the last task must be at least minReplicas"},
		{"last task over max", goodTasks + "maxReplicas: 2", "spec.tasks: Invalid value: replicas of the last task must be at most maxReplicas"},
		{"no node at all", goodTemplate + "replicas: 0", "spec.replicas: Invalid value: must be at least 1 where no other task has a node"},
		{"no containers", "template: {spec: {containers: []}}", "spec.template: Invalid value: spec.containers: want at least one"},
		{"no pod", "template: {metadata: {}}", "spec.template: Invalid value: spec.containers: want at least one"},
		{"no image", "tasks: [{name: learner, template: {spec: {containers: [{name: node}]}}}]",
			"spec.tasks[0].template: Invalid value: spec.containers: every container needs an image"},
		{"no container name", "template: {spec: {containers: [{image: x}]}}", "spec.template.spec.containers[0].name: Required value"},
		{"restart policy", "template: {spec: {restartPolicy: Always, containers: [{name: node, image: x}]}}",
			"spec.template: Invalid value: spec.restartPolicy: must be Never"},
		{"host name", "template: {spec: {hostname: me, containers: [{name: node, image: x}]}}",
			"spec.template: Invalid value: spec.hostname, spec.subdomain: must be empty"},
		{"wrong quantity", "template: {spec: {containers: [{name: node, image: x, resources: {limits: {cpu: lots}}}]}}",
			"spec.template.spec.containers[0].resources.limits.cpu: Invalid value"},
	} {
		if err := dryRun(t, w, "wrong", tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s:\n  got  %v\n  want %s", tt.name, err, tt.want)
		}
	}
	for _, name := range []string{"a-name-that-is-too-long-for-host-names-of-nodes", "1st", "a.b"} {
		if err := dryRun(t, w, name, goodTasks); err == nil || !strings.Contains(err.Error(), "metadata.name: want at most 40") {
			t.Errorf("job %s: %v", name, err)
		}
	}
}

func TestTemplatesOfARunningJobCannotChange(t *testing.T) {
	w := world(t)
	start(w, newJob(w, 2))
	for what, set := range map[string]func(*v1alpha1.DIJob){
		"image":    func(j *v1alpha1.DIJob) { j.Spec.Tasks[0].Template.Spec.Containers[0].Image = "another" },
		"replicas": func(j *v1alpha1.DIJob) { j.Spec.Tasks[2].Replicas = 4 },
		"order":    func(j *v1alpha1.DIJob) { j.Spec.Tasks[0], j.Spec.Tasks[1] = j.Spec.Tasks[1], j.Spec.Tasks[0] },
	} {
		job := w.Job("dqn")
		set(job)
		err := w.Client.Update(w.Ctx, job)
		const want = "spec.tasks: Invalid value: can change only while the job is suspended; " +
			"the number of nodes of the last task is changed by spec.replicas, or kubectl scale"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
