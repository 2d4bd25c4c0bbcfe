package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// waiting returns a change that keeps a pod's container from starting.
func waiting(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pending(pod)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "node", Image: "ditask:test", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason,
				Message: message}},
		}}
	}
}

// unschedulable is a change to a pod for which no machine has room.
func unschedulable(pod *corev1.Pod) {
	pending(pod)
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "NotYet"},
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"},
	}
}

func scheduled(pod *corev1.Pod) {
	pending(pod)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "Found"}}
}

// TestConditionsOfAJobThatIsNotOver is the table of Created, Running and Suspended, with the state in one word
// and the event of a job without earlier conditions.
func TestConditionsOfAJobThatIsNotOver(t *testing.T) {
	const (
		exist   = "True PodsCreated: all 4 pods exist"
		missing = "False PodsMissing: 3 of 4 pods exist"
		starts  = "False PodsStarting: 3 of 4 nodes run; waiting for pods to start"
		not     = "False NotSuspended: spec.suspend is false"
	)
	say := func(reason, note string) []event { return []event{{true, reason, note}} }
	for _, tt := range []struct {
		name                        string
		spec                        func(*v1alpha1.DIJobSpec)
		pods                        changes
		created, running, suspended string
		state                       string
		events                      []event
	}{
		{
			name: "all run", created: exist, running: "True NodesRunning: all 4 nodes run", suspended: not,
			state: "Running", events: []event{{false, "Running", "all 4 nodes run"}},
		},
		{
			name: "a collector has succeeded", pods: changes{"collector-0": succeeded}, created: exist,
			running: "True NodesRunning: all 4 nodes run", suspended: not, state: "Running", events: []event{{false, "Running", "all 4 nodes run"}},
		},
		{name: "a pod is missing", pods: changes{"collector-0": gone}, created: missing, running: starts, suspended: not, state: "Pending"},
		{name: "a pod starts", pods: changes{"collector-0": pending}, created: exist, running: starts, suspended: not, state: "Pending"},
		{name: "a pod has its machine", pods: changes{"collector-0": scheduled}, created: exist, running: starts, suspended: not,
			state: "Pending"},
		{name: "a pod is being deleted", pods: changes{"collector-0": deleted}, created: exist, running: starts, suspended: not,
			state: "Pending"},
		{name: "a container is being made", pods: changes{"collector-0": waiting("ContainerCreating", "")}, created: exist,
			running: starts, suspended: not, state: "Pending"},
		{name: "a pod is being initialized", pods: changes{"collector-0": waiting("PodInitializing", "")}, created: exist,
			running: starts, suspended: not, state: "Pending"},
		{name: "a container waits without a reason", pods: changes{"collector-0": waiting("", "")}, created: exist, running: starts,
			suspended: not, state: "Pending"},
		{
			name: "a pod has failed", pods: changes{"evaluator-0": failed, "collector-0": failed}, created: exist, suspended: not,
			running: "False Restarting: 2 of 4 nodes run; dqn-evaluator-0 (evaluator, rank 1) is started again: PodFailed", state: "Restarting",
			events: []event{
				{true, "PodFailed", "dqn-evaluator-0 (evaluator, rank 1) failed: Error, exit code 3"}, {true, "PodFailed",
					"dqn-collector-0 (collector, rank 2) failed: Error, exit code 3"},
			},
		},
		{
			name: "an image is not there", pods: changes{"collector-0": waiting("ErrImagePull", " not found\n"),
				"collector-1": waiting("ErrImagePull", "the second")},
			created: exist, suspended: not, state: "Pending",
			running: "False ImageNotPulled: 2 of 4 nodes run; " +
				"dqn-collector-0 (collector, rank 2): container node, image ditask:test: ErrImagePull: not found",
			events: say("ImageNotPulled",
				"dqn-collector-0 (collector, rank 2): container node, image ditask:test: ErrImagePull: not found"),
		},
		{
			name: "a container does not start", pods: changes{"collector-0": waiting("CreateContainerConfigError",
				"no secret")}, created: exist, suspended: not, state: "Pending",
			running: "False ContainerNotStarted: 3 of 4 nodes run; " +
				"dqn-collector-0 (collector, rank 2): container node, image ditask:test: CreateContainerConfigError: no secret",
			events: say("ContainerNotStarted",
				"dqn-collector-0 (collector, rank 2): container node, image ditask:test: CreateContainerConfigError: no secret"),
		},
		{
			name: "no machine has room", pods: changes{"collector-0": unschedulable}, created: exist, suspended: not, state: "Pending",
			running: "False Unschedulable: 3 of 4 nodes run; dqn-collector-0 (collector, rank 2): Unschedulable: 0/3 nodes are available",
			events:  say("Unschedulable", "dqn-collector-0 (collector, rank 2): Unschedulable: 0/3 nodes are available"),
		},
		{
			name: "the more serious reason, of a later node", pods: changes{"evaluator-0": failed,
				"collector-0": unschedulable}, created: exist, suspended: not, state: "Pending",
			running: "False Unschedulable: 2 of 4 nodes run; dqn-collector-0 (collector, rank 2): Unschedulable: 0/3 nodes are available",
			events: []event{
				{true, "PodFailed", "dqn-evaluator-0 (evaluator, rank 1) failed: Error, exit code 3"},
				{true, "Unschedulable", "dqn-collector-0 (collector, rank 2): Unschedulable: 0/3 nodes are available"},
			},
		},
		{
			name: "suspended, and pods are left", spec: suspend, pods: changes{"learner-0": gone, "evaluator-0": succeeded,
				"collector-1": deleted},
			created: "False Suspended: spec.suspend is true", running: "False Suspended: spec.suspend is true",
			suspended: "False Draining: spec.suspend is true; 2 pods are left", state: "Pending",
		},
		{
			name: "suspended, and the pods of a larger job are left", spec: func(s *v1alpha1.DIJobSpec) { suspend(s); s.Replicas = new(int32(0)) },
			pods:    changes{"learner-0": gone, "evaluator-0": gone},
			created: "False Suspended: spec.suspend is true", running: "False Suspended: spec.suspend is true",
			suspended: "False Draining: spec.suspend is true; 2 pods are left", state: "Pending",
			events: nil,
		},
		{
			name: "suspended", spec: suspend, pods: changes{"learner-0": gone, "evaluator-0": succeeded, "collector-0": gone,
				"collector-1": gone},
			created: "False Suspended: spec.suspend is true", running: "False Suspended: spec.suspend is true",
			suspended: "True Suspended: spec.suspend is true; no pod is left", state: "Suspended", events: []event{{false, "Suspended",
				"no pod is left"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := dqnJob()
			pods := changed(job, tt.pods)
			if tt.spec != nil {
				tt.spec(&job.Spec)
			}
			d := decide(job, pods, clock)
			over := "False NotFinished: the job is not over"
			want := map[string]string{
				v1alpha1.Created: tt.created, v1alpha1.Running: tt.running, v1alpha1.Suspended: tt.suspended,
				v1alpha1.Succeeded: over, v1alpha1.Failed: over,
			}
			if diff := cmp.Diff(want, inWords(d.status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if d.status.State != tt.state {
				t.Errorf("state %s, want %s", d.status.State, tt.state)
			}
			if diff := cmp.Diff(tt.events, d.events, cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			for _, c := range d.status.Conditions {
				if c.ObservedGeneration != 7 || !c.LastTransitionTime.Time.Equal(clock) {
					t.Errorf("%s is of generation %d and time %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			// An event is emitted once; the time of a condition is that of its status.
			job.Status, job.Generation = d.status, 8
			again := decide(job, pods, clock.Add(time.Second/2))
			if len(again.events) != 0 {
				t.Errorf("repeated events: %v", again.events)
			}
			for _, c := range again.status.Conditions {
				if c.ObservedGeneration != 8 || !c.LastTransitionTime.Time.Equal(clock) {
					t.Errorf("after the next call %s is of generation %d and time %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
		})
	}
}

// TestSuccessorThatStartsIsNotStartedAgain distinguishes the failed pod from the pod that replaces
// it.
func TestSuccessorThatStartsIsNotStartedAgain(t *testing.T) {
	job := dqnJob()
	pods := changed(job, changes{"collector-0": failed})
	job.Status = decide(job, pods, clock).status
	for _, tt := range []struct {
		name string
		pods changes
		want string
	}{
		{"the failed pod is deleted", changes{"collector-0": gone}, "Restarting"},
		{"its successor starts", changes{"collector-0": func(pod *corev1.Pod) { pending(pod); pod.UID = "its successor" }}, "PodsStarting"},
	} {
		if c := condition(new(decide(job, changed(job, tt.pods), clock).status), v1alpha1.Running); c.Reason != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, c.Reason, tt.want)
		}
	}
	// An entry without a pod does not count.
	job.Status.Replaced[0].UID = ""
	if c := condition(new(decide(job, changed(job, changes{"collector-0": gone}), clock).status),
		v1alpha1.Running); c.Reason != "PodsStarting" {
		t.Errorf("no pod has failed: %s", c.Reason)
	}
}

// TestRefusalStaysUntilAllPodsExist keeps what the reconciler writes into Created.
func TestRefusalStaysUntilAllPodsExist(t *testing.T) {
	for reason, stays := range map[string]bool{"NameTaken": true, "Refused": true, "PodsMissing": false} {
		job := dqnJob()
		job.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Created, Status: metav1.ConditionFalse, Reason: reason, Message: "why"}}
		c := condition(new(decide(job, changed(job, changes{"learner-0": gone}), clock).status), v1alpha1.Created)
		if (c.Message == "why") != stays {
			t.Errorf("%s: %+v", reason, c)
		}
		if c := condition(new(decide(job, podsOf(job), clock).status), v1alpha1.Created); c.Reason != "PodsCreated" {
			t.Errorf("%s, and all pods exist: %+v", reason, c)
		}
	}
}

// TestEventsOfAChange: an event is emitted only when a condition becomes true, not while it stays
// true.
func TestEventsOfAChange(t *testing.T) {
	was := func(kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: status, Reason: reason}}
	}
	for _, tt := range []struct {
		name   string
		before []metav1.Condition
		spec   func(*v1alpha1.DIJobSpec)
		pods   changes
		reason string
		want   bool
	}{
		{"it is resumed", was(v1alpha1.Suspended, metav1.ConditionTrue, "Suspended"), nil, nil, "Resumed", true},
		{"it is resumed before its pods are deleted", was(v1alpha1.Suspended, metav1.ConditionFalse, "Draining"), nil, nil, "Resumed",
			false},
		{"it runs again", was(v1alpha1.Running, metav1.ConditionFalse, "Restarting"), nil, nil, "Running", true},
		{"it runs as before", was(v1alpha1.Running, metav1.ConditionTrue, "NodesRunning"), nil, nil, "Running", false},
		{"another fault", was(v1alpha1.Running, metav1.ConditionFalse, "ImageNotPulled"), nil, changes{"learner-0": unschedulable},
			"Unschedulable", true},
		{"the same fault", was(v1alpha1.Running, metav1.ConditionFalse, "Unschedulable"), nil, changes{"learner-0": unschedulable},
			"Unschedulable", false},
		{"starting is not a fault", was(v1alpha1.Running, metav1.ConditionFalse, "Unschedulable"), nil, changes{"learner-0": pending},
			"PodsStarting", false},
	} {
		job := dqnJob()
		job.Status.Conditions = tt.before
		d := decide(job, changed(job, tt.pods), clock)
		if got := slices.ContainsFunc(d.events, func(e event) bool { return e.reason == tt.reason }); got != tt.want {
			t.Errorf("%s: events %v, want %s: %v", tt.name, d.events, tt.reason, tt.want)
		}
	}
}

// TestStateIsTheFirstOfTheConditionsThatHold tests the order of the conditions in the state.
func TestStateIsTheFirstOfTheConditionsThatHold(t *testing.T) {
	order := []string{v1alpha1.Succeeded, v1alpha1.Failed, v1alpha1.Suspended, v1alpha1.Running}
	for i, want := range order {
		var status v1alpha1.DIJobStatus
		for _, kind := range slices.Backward(order[i:]) {
			status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
		if got := stateWord(&status); got != want {
			t.Errorf("%v: %s, want %s", order[i:], got, want)
		}
	}
	if got := stateWord(&v1alpha1.DIJobStatus{}); got != "Pending" {
		t.Errorf("without conditions: %s", got)
	}
}
