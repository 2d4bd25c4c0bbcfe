package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DIJob is a training job of several nodes, each a pod with a rank, a host name
// that others can resolve, and a role.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=dijobs,singular=dijob,shortName=dij,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: want at most 40 lower-case letters, digits and hyphens, the first a letter: host names are made of it"
type DIJob struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state of the job.
	// +required
	Spec DIJobSpec `json:"spec"`

	// Status is the latest state that the operator has observed.
	// +optional
	Status DIJobStatus `json:"status,omitzero"`
}

// DIJobList is a list of jobs.
//
// +kubebuilder:object:root=true
type DIJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DIJob `json:"items"`
}

// DIJobSpec describes the pods of a job, and when the job is over. It has either tasks, or a
// template for a job of identical pods.
//
// +kubebuilder:validation:XValidation:rule="has(self.tasks) != has(self.template)",message="give either tasks, or one template for all nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",message="must not exceed maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.minReplicas) || self.replicas >= self.minReplicas",fieldPath=".replicas",message="must be at least minReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas",fieldPath=".replicas",message="must be at most maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas > 0 || has(self.tasks) && self.tasks.size() > 1",fieldPath=".replicas",message="must be at least 1 where no other task has a node"
// +kubebuilder:validation:XValidation:rule="has(self.replicas) || !has(self.tasks) || !has(self.minReplicas) || self.tasks.size() == 0 || self.tasks[self.tasks.size()-1].replicas >= self.minReplicas",fieldPath=".tasks",message="replicas of the last task must be at least minReplicas"
// +kubebuilder:validation:XValidation:rule="has(self.replicas) || !has(self.tasks) || !has(self.maxReplicas) || self.tasks.size() == 0 || self.tasks[self.tasks.size()-1].replicas <= self.maxReplicas",fieldPath=".tasks",message="replicas of the last task must be at most maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.tasks) || self.tasks.size() == 0 || self.tasks.map(t, t.replicas).sum() + (has(self.replicas) ? self.replicas - self.tasks[self.tasks.size()-1].replicas : 0) <= 4096",fieldPath=".tasks",message="must have at most 4096 nodes together"
// +kubebuilder:validation:XValidation:rule="!has(self.successPolicy) || self.successPolicy != 'Learner' || has(self.tasks) && self.tasks.exists(t, t.type == 'learner')",fieldPath=".successPolicy",message="Learner needs a task of type learner"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.suspend) && oldSelf.suspend || has(self.tasks) == has(oldSelf.tasks) && (!has(self.tasks) || self.tasks == oldSelf.tasks && self.tasks.map(t, t.name) == oldSelf.tasks.map(t, t.name))",fieldPath=".tasks",message="can change only while the job is suspended; the number of nodes of the last task is changed by spec.replicas, or kubectl scale"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.suspend) && oldSelf.suspend || has(self.template) == has(oldSelf.template) && (!has(self.template) || self.template == oldSelf.template)",fieldPath=".template",message="can change only while the job is suspended"
type DIJobSpec struct {
	// Tasks are groups of identical nodes. Ranks count through them in this order, so the first
	// node of the first task has rank 0, and only the last task can change its size while the job
	// runs.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Tasks []Task `json:"tasks,omitempty"`

	// Template is the pod of every node of a job without tasks. The job then has one task named
	// worker, of type none.
	// +optional
	Template *PodTemplate `json:"template,omitempty"`

	// Replicas is the number of nodes of the last task. Without it, the task's own replicas apply,
	// or minReplicas for a template. kubectl scale sets it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// MinReplicas is the smallest number of nodes that the last task can be scaled to.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the largest number of nodes that the last task can be scaled to.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// SuccessPolicy determines when the job has succeeded: when all nodes of type learner have
	// (Learner), or when all nodes have (All). The default is Learner for a job with a learner, and
	// All for others.
	// +optional
	SuccessPolicy SuccessPolicy `json:"successPolicy,omitempty"`

	// CleanPodPolicy determines which pods are deleted when the job is over: those that still run,
	// all, or none.
	// +optional
	// +kubebuilder:default=Running
	CleanPodPolicy CleanPodPolicy `json:"cleanPodPolicy,omitempty"`

	// BackoffLimit is the number of failures of nodes, over the whole job, after which a node is
	// still started again. One more failure ends the job.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// Preemptible means that a node has not failed if it is evicted, preempted by the scheduler, or
	// ends with exit code 75. If false, these ends also count against backoffLimit.
	// +optional
	// +kubebuilder:default=true
	Preemptible *bool `json:"preemptible,omitempty"`

	// Suspend removes the pods of the job, after their grace period, until it is false again. Files
	// that nodes saved elsewhere stay.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`
}

// Task is a group of nodes that run the same pod.
type Task struct {
	// Name is a part of the pods' names and of the variable DI_<NAME>_NODES.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Type is the role of the nodes.
	// +optional
	// +kubebuilder:default=none
	Type TaskType `json:"type,omitempty"`

	// Replicas is the number of nodes.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas int32 `json:"replicas,omitempty"`

	// Template is the pod of each node.
	// +required
	Template PodTemplate `json:"template"`
}

// PodTemplate is a pod template in which the operator sets restart policy, host name and subdomain.
// Its first container is the node; the exit code of a pod is that of the first container that
// failed.
//
// +kubebuilder:validation:XValidation:rule="has(self.spec) && self.spec.containers.size() > 0",message="spec.containers: want at least one"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || self.spec.containers.all(c, has(c.image))",message="spec.containers: every container needs an image"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy == 'Never'",message="spec.restartPolicy: must be Never: the operator starts nodes again"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.hostname) && !has(self.spec.subdomain)",message="spec.hostname, spec.subdomain: must be empty: they follow from the rank"
type PodTemplate corev1.PodTemplateSpec

// TaskType is the role of a task's nodes.
//
// +kubebuilder:validation:Enum=learner;evaluator;collector;none
type TaskType string

// The roles of tasks.
const (
	Learner   TaskType = "learner"
	Evaluator TaskType = "evaluator"
	Collector TaskType = "collector"
	None      TaskType = "none"
)

// SuccessPolicy determines when a job has succeeded.
//
// +kubebuilder:validation:Enum=Learner;All
type SuccessPolicy string

// The success policies.
const (
	SuccessLearner SuccessPolicy = "Learner"
	SuccessAll     SuccessPolicy = "All"
)

// CleanPodPolicy determines which pods are deleted when a job is over.
//
// +kubebuilder:validation:Enum=Running;All;None
type CleanPodPolicy string

// The policies for pods of a job that is over.
const (
	CleanRunning CleanPodPolicy = "Running"
	CleanAll     CleanPodPolicy = "All"
	CleanNone    CleanPodPolicy = "None"
)

// The types of a job's conditions. Programs should read these, and not the state.
const (
	Created   = "Created"   // all objects of the job exist
	Running   = "Running"   // every node runs
	Suspended = "Suspended" // suspended, and no pod is left
	Succeeded = "Succeeded" // over, by the success policy
	Failed    = "Failed"    // over, by more failures than backoffLimit
)

// DIJobStatus is the latest state that the operator has observed.
type DIJobStatus struct {
	// Conditions are Created, Running, Suspended, Succeeded and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// State is a summary in one word: Pending, Running, Restarting, Suspended, Succeeded or Failed.
	// +optional
	State string `json:"state,omitempty"`

	// JobID is the job's unique id, DI_JOB_ID of its nodes.
	// +optional
	JobID string `json:"jobID,omitempty"`

	// Desired is the number of nodes of all tasks.
	// +optional
	Desired int32 `json:"desired"`

	// Ready is the number of nodes whose pods are ready.
	// +optional
	Ready int32 `json:"ready"`

	// Restarts is the number of failures so far that count against backoffLimit.
	// +optional
	Restarts int32 `json:"restarts"`

	// Preemptions is the number of nodes so far that were preempted or evicted.
	// +optional
	Preemptions int32 `json:"preemptions"`

	// Replicas is the number of pods of the last task.
	// +optional
	Replicas int32 `json:"replicas"`

	// Selector selects the pods of the last task, for an autoscaler.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Tasks has the numbers of each task.
	// +optional
	// +listType=map
	// +listMapKey=name
	Tasks []TaskStatus `json:"tasks,omitempty"`

	// FirstFailure is the first node that failed since all nodes last ran.
	// +optional
	FirstFailure *NodeFailure `json:"firstFailure,omitempty"`

	// Replaced has the last end of each node that was, or will be, started again.
	// +optional
	// +listType=map
	// +listMapKey=pod
	Replaced []Replacement `json:"replaced,omitempty"`

	// CompletionTime is when the job was over.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// TaskStatus has the numbers of one task.
type TaskStatus struct {
	// Name of the task.
	Name string `json:"name"`
	// Desired is the number of nodes that the task should have.
	Desired int32 `json:"desired"`
	// Active is the number of pods that have not ended.
	Active int32 `json:"active"`
	// Ready is the number of pods that are ready.
	Ready int32 `json:"ready"`
	// Succeeded is the number of pods that succeeded.
	Succeeded int32 `json:"succeeded"`
	// Failed is the number of pods that failed and still exist.
	Failed int32 `json:"failed"`
}

// NodeFailure is the end of a node that failed.
type NodeFailure struct {
	// Pod is the name of the node's pod.
	Pod string `json:"pod"`
	// Task is the name of the node's task.
	Task string `json:"task"`
	// Type is the node's role.
	Type TaskType `json:"type"`
	// Rank of the node.
	Rank int32 `json:"rank"`
	// ExitCode of the container that failed; -1 if none did.
	ExitCode int32 `json:"exitCode"`
	// Reason is Kubernetes' reason in one word: Error, OOMKilled, Evicted.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message has the last lines of the container's log.
	// +optional
	Message string `json:"message,omitempty"`
	// Time is the time of the failure.
	Time metav1.Time `json:"time"`
}

// Replacement is the last end of a node that is started again.
type Replacement struct {
	// Pod is the name of the node's pod, and of the pod that replaces it.
	Pod string `json:"pod"`
	// UID of the pod that ended.
	UID string `json:"uid"`
	// Streak is the number of consecutive ends soon after a start; the delay doubles with each.
	Streak int32 `json:"streak"`
	// NotBefore is the earliest time at which the node may start again.
	NotBefore metav1.Time `json:"notBefore"`
	// Reason is PodFailed or PodPreempted.
	Reason string `json:"reason"`
}
