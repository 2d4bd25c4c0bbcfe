package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// Labels of the pods, and of all else that belongs to a job.
const (
	labelJob       = "ditask.dev/job"    // name of the job
	labelJobID     = "ditask.dev/job-id" // id of the job; a later job of the same name has another one
	labelTask      = "ditask.dev/task"
	labelType      = "ditask.dev/type"
	labelRank      = "ditask.dev/rank"
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "ditask-operator"
)

// node is one member of a job, whether its pod exists or not.
type node struct {
	Pod   string // name of the pod, and its host name
	Task  string
	Type  v1alpha1.TaskType
	Index int32 // within the task
	Rank  int32 // within the job
}

// jobID returns a unique id of a job, over all namespaces and times: at most 40 letters, digits and
// hyphens, the limit of ditask.
func jobID(job *v1alpha1.DIJob) string {
	uid := strings.ReplaceAll(string(job.UID), "-", "")
	name := strings.TrimRight(job.Name[:min(len(job.Name), 31)], "-")
	return name + "-" + uid[:min(len(uid), 8)]
}

// tasksOf returns the tasks of a job; spec.replicas sets the size of the last one.
func tasksOf(job *v1alpha1.DIJob) []v1alpha1.Task {
	spec := &job.Spec
	tasks := slices.Clone(spec.Tasks)
	if spec.Template != nil {
		worker := v1alpha1.Task{Name: "worker", Type: v1alpha1.None, Replicas: 1, Template: *spec.Template}
		if spec.MinReplicas != nil {
			worker.Replicas = max(*spec.MinReplicas, 1)
		}
		tasks = []v1alpha1.Task{worker}
	}
	if len(tasks) > 0 && spec.Replicas != nil {
		tasks[len(tasks)-1].Replicas = *spec.Replicas
	}
	return tasks
}

// nodesOf returns the nodes that a job should have, by rank.
func nodesOf(job *v1alpha1.DIJob) []node {
	var nodes []node
	for _, task := range tasksOf(job) {
		for i := range task.Replicas {
			nodes = append(nodes, node{
				Pod:   fmt.Sprintf("%s-%s-%d", job.Name, task.Name, i),
				Task:  task.Name,
				Type:  task.Type,
				Index: i,
				Rank:  int32(len(nodes)), //nolint:gosec // 8 tasks of at most 1000 nodes
			})
		}
	}
	return nodes
}

// host returns the name by which the other nodes of the job find this one.
func (n node) host(job *v1alpha1.DIJob) string { return n.Pod + "." + job.Name }

// hostsOf returns the names by which the nodes of a task are found: one name, or a range.
func hostsOf(job *v1alpha1.DIJob, task v1alpha1.Task) string {
	switch task.Replicas {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s-%s-0.%s", job.Name, task.Name, job.Name)
	}
	return fmt.Sprintf("%s-%s-[0-%d].%s", job.Name, task.Name, task.Replicas-1, job.Name)
}

// String describes the node for users: its pod, role and rank.
func (n node) String() string {
	role := string(n.Type)
	if n.Type == v1alpha1.None {
		role = n.Task
	}
	return fmt.Sprintf("%s (%s, rank %d)", n.Pod, role, n.Rank)
}
