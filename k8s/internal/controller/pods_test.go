package controller

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// ended returns a container that ended with a code, some seconds after clock.
func ended(code int32, reason string, seconds int) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: " the log of " + reason + "\n",
		FinishedAt: metav1.NewTime(clock.Add(time.Duration(seconds) * time.Second)),
	}}}
}

// TestEndOfAPod is the table of how the end of a pod is read from its status.
func TestEndOfAPod(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(clock.Add(time.Duration(seconds) * time.Second)) }
	disrupted := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "Ready"},
			{Type: corev1.DisruptionTarget, Status: status, Reason: "EvictionByEvictionAPI", Message: "drained", LastTransitionTime: at(8)},
		}
	}
	failure := func(code int32, reason, message string, when metav1.Time) v1alpha1.NodeFailure {
		return v1alpha1.NodeFailure{Pod: "p", Task: "learner", Type: v1alpha1.Learner, Rank: 4, ExitCode: code, Reason: reason,
			Message: message, Time: when}
	}
	for _, tt := range []struct {
		name      string
		deleted   bool
		status    corev1.PodStatus
		ended     bool
		preempted bool
		failure   v1alpha1.NodeFailure
		ran       time.Duration
	}{
		{name: "running", status: corev1.PodStatus{Phase: corev1.PodRunning}},
		{name: "pending", status: corev1.PodStatus{Phase: corev1.PodPending}},
		{name: "succeeded", status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		{name: "succeeded while it was disrupted", deleted: true,
			status: corev1.PodStatus{Phase: corev1.PodSucceeded, Conditions: disrupted(corev1.ConditionTrue)}},
		{name: "running, and about to be disrupted", status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: disrupted(corev1.ConditionTrue)}},
		{name: "running, and deleted", deleted: true, status: corev1.PodStatus{Phase: corev1.PodRunning}},
		{name: "failed, and deleted", deleted: true, status: corev1.PodStatus{Phase: corev1.PodFailed,
			ContainerStatuses: []corev1.ContainerStatus{ended(143, "Error", 9)}}},
		{
			name: "failed without a container", status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError",
				Message: " no device\n"},
			ended: true, failure: failure(-1, "UnexpectedAdmissionError", "no device", at(-5)),
		},
		{
			name: "failed", status: corev1.PodStatus{Phase: corev1.PodFailed, StartTime: new(at(0)),
				ContainerStatuses: []corev1.ContainerStatus{ended(3, "Error", 9)}},
			ended: true, failure: failure(3, "Error", "the log of Error", at(9)), ran: 9 * time.Second,
		},
		{
			name: "the first container that failed counts", ended: true, failure: failure(137, "OOMKilled", "the log of OOMKilled", at(6)),
			status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
				{}, ended(3, "Error", 9), ended(0, "Completed", 1), ended(137, "OOMKilled", 6), ended(4, "Error", 6), ended(5, "Error", 7),
			}},
		},
		{
			name: "an init container failed", ended: true, failure: failure(2, "Init", "the log of Init", at(3)),
			status: corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: []corev1.ContainerStatus{ended(2, "Init", 3)}},
		},
		{
			name: "exit code 75", ended: true, preempted: true, failure: failure(75, "Error", "the log of Error", at(9)),
			status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{ended(75, "Error", 9)}},
		},
		{
			name: "disrupted", ended: true, preempted: true, failure: failure(143, "EvictionByEvictionAPI", "drained",
				at(9)), ran: 9 * time.Second,
			status: corev1.PodStatus{
				Phase: corev1.PodFailed, StartTime: new(at(0)), Conditions: disrupted(corev1.ConditionTrue),
				ContainerStatuses: []corev1.ContainerStatus{ended(143, "Error", 9)},
			},
		},
		{
			name: "disrupted, and deleted while it runs", deleted: true, ended: true, preempted: true,
			failure: failure(-1, "EvictionByEvictionAPI", "drained", at(8)), ran: 8 * time.Second,
			status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: new(at(0)), Conditions: disrupted(corev1.ConditionTrue)},
		},
		{
			name: "not disrupted after all", ended: true, failure: failure(1, "Error", "the log of Error", at(9)),
			status: corev1.PodStatus{Phase: corev1.PodFailed, Conditions: disrupted(corev1.ConditionFalse),
				ContainerStatuses: []corev1.ContainerStatus{ended(1, "Error", 9)}},
		},
		{
			name: "evicted by its kubelet", ended: true, preempted: true, failure: failure(-1, "Evicted", "low on memory", at(-5)),
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"},
		},
		{
			name: "its machine shut down", ended: true, preempted: true, failure: failure(-1, "NodeShutdown", "", at(-5)),
			status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeShutdown"},
		},
		{name: "running, with the reason of an eviction", deleted: true,
			status: corev1.PodStatus{Phase: corev1.PodRunning, Reason: "Evicted"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", CreationTimestamp: at(-5)}, Status: tt.status}
			if tt.deleted {
				deleted(pod)
			}
			n := node{Pod: "p", Task: "learner", Type: v1alpha1.Learner, Rank: 4}
			e, ok := endingOf(n, pod)
			if ok != tt.ended {
				t.Fatalf("has ended: %v", ok)
			}
			if !ok {
				return
			}
			if e.preempted != tt.preempted || e.ran != tt.ran || e.uid != "u" || e.node != n {
				t.Errorf("%+v", e)
			}
			if diff := cmp.Diff(tt.failure, e.failure); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTroubleOfInitContainersIsReportedFirst tests the order of the reasons why a pod does not run.
func TestTroubleOfInitContainersIsReportedFirst(t *testing.T) {
	pod := &corev1.Pod{}
	waiting("CrashLoopBackOff", "again and again")(pod)
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "runs"}, {Name: "load", Image: "data:1",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName"}}},
	}
	if reason, message := trouble(pod); reason != "ImageNotPulled" || message != "container load, image data:1: InvalidImageName: " {
		t.Errorf("%s: %s", reason, message)
	}
}

func TestFailureInWords(t *testing.T) {
	for want, f := range map[string]v1alpha1.NodeFailure{
		"Error, exit code 3: no GPU": {Reason: "Error", ExitCode: 3, Message: "no GPU"},
		"exit code 3":                {ExitCode: 3},
		"Completed, exit code 0":     {Reason: "Completed"},
		"Evicted: low on memory":     {Reason: "Evicted", ExitCode: -1, Message: "low on memory"},
		"Evicted":                    {Reason: "Evicted", ExitCode: -1},
		"no reason was given":        {ExitCode: -1},
	} {
		if got := describe(f); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

func TestLongTextIsCutAtItsBeginning(t *testing.T) {
	exact := strings.Repeat("a", 512)
	if got := short("\n " + exact + " "); got != exact {
		t.Errorf("512 bytes became %d", len(got))
	}
	if got := short("b" + exact); got != "..."+exact[:509] {
		t.Errorf("513 bytes became %q", got)
	}
	// A letter of two bytes is not cut into halves.
	if got := short(strings.Repeat("é", 400)); !utf8.ValidString(got) || got != "..."+strings.Repeat("é", 254) {
		t.Errorf("%d bytes: %q", len(got), got[:10])
	}
}

func TestRankOfAPodWithoutOneIsTheLowest(t *testing.T) {
	for label, want := range map[string]int{"12": 12, "": -1, "x": -1} {
		if got := rankOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelRank: label}}}); got != want {
			t.Errorf("%q is %d, want %d", label, got, want)
		}
	}
}

// kubectl and the operator's log show the last output of a program and other texts of a pod's status. Neither
// can control a terminal with them.
func TestTextOfPodsIsPrintable(t *testing.T) {
	const hostile = "\x1b[2Jjob finished OK\u009b2J\u202e\u2028\x7f\xff\r\nx"
	const want = `\x1b[2Jjob finished OK\u009b2J\u202e\u2028\x7f\xff\r` + "\nx"
	terminated := ended(1, hostile, 5)
	terminated.State.Terminated.Message = hostile
	e, ok := endingOf(node{}, &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed,
		ContainerStatuses: []corev1.ContainerStatus{terminated}}})
	if !ok || e.failure.Reason != want || e.failure.Message != want {
		t.Errorf("the end: %q, %q", e.failure.Reason, e.failure.Message)
	}
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: hostile, Message: hostile}}}
	for name, status := range map[string]corev1.PodStatus{
		"waiting": {ContainerStatuses: []corev1.ContainerStatus{waiting}},
		"condition": {Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: hostile,
			Message: hostile}}},
	} {
		if _, message := trouble(&corev1.Pod{Status: status}); strings.Count(message, want) != 2 {
			t.Errorf("%s: %q", name, message)
		}
	}
}
