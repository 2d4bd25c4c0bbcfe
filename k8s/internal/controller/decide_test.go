package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// clock is the time of tests that do not depend on the time.
var clock = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// podsOf returns the pods of all nodes of a job, all running.
func podsOf(job *v1alpha1.DIJob) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, n := range nodesOf(job) {
		pod := newPod(job, n)
		pod.UID = types.UID("uid of " + pod.Name)
		pod.Status.Phase = corev1.PodRunning
		pods = append(pods, pod)
	}
	return pods
}

func fail(pod *corev1.Pod, code int32, ran time.Duration, at time.Time) {
	pod.Status.Phase = corev1.PodFailed
	pod.Status.StartTime = &metav1.Time{Time: at.Add(-ran)}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", StartedAt: metav1.NewTime(at.Add(-ran)), FinishedAt: metav1.NewTime(at),
	}}}}
}

func testJob(replicas int32) *v1alpha1.DIJob {
	return &v1alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "dqn", UID: "00000000-1111", Generation: 1},
		Spec: v1alpha1.DIJobSpec{
			BackoffLimit: new(int32(100)),
			Tasks:        []v1alpha1.Task{{Name: "learner", Type: v1alpha1.Learner, Replicas: replicas, Template: template()}},
		},
	}
}

func TestDelayDoublesWithEachQuickFailureAndBeginsAgainAfterAGoodRun(t *testing.T) {
	job := testJob(1)
	now := clock
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300} {
		want := time.Duration(seconds) * time.Second
		pods := podsOf(job)
		pods[0].UID = types.UID(rune('a' + i))
		fail(pods[0], 1, time.Second, now)
		d := decide(job, pods, now)
		if d.after != want || len(d.remove)+len(d.create) != 0 {
			t.Fatalf("failure %d: after %v, want %v", i+1, d.after, want)
		}
		job.Status = d.status
		now = now.Add(d.after)
		if d = decide(job, pods, now); len(d.remove) != 1 || d.status.Restarts != int32(i+1) {
			t.Fatalf("failure %d: when the delay is over, %d pods are removed", i+1, len(d.remove))
		}
		if d = decide(job, nil, now); len(d.create) != 1 {
			t.Fatalf("failure %d: when the pod has gone, %d are made", i+1, len(d.create))
		}
	}
	pods := podsOf(job)
	fail(pods[0], 1, time.Hour, now)
	if d := decide(job, pods, now); d.after != time.Second {
		t.Errorf("after a good run the delay is %v", d.after)
	}
}

func TestFirstFailureIsTheEarliestOfThoseSeenAtOnce(t *testing.T) {
	job := testJob(3)
	job.Spec.BackoffLimit = new(int32(0))
	pods := podsOf(job)
	fail(pods[0], 1, time.Minute, clock.Add(2*time.Second))
	fail(pods[1], 137, time.Minute, clock)
	fail(pods[2], 1, time.Minute, clock.Add(time.Second))
	d := decide(job, pods, clock.Add(time.Minute))
	if f := d.status.FirstFailure; f == nil || f.Pod != "dqn-learner-1" || f.ExitCode != 137 {
		t.Errorf("first is %+v", f)
	}
	if d.status.Restarts != 3 || d.status.State != v1alpha1.Failed {
		t.Errorf("%+v", d.status)
	}
}

func TestPodThatIsDeletedHasNotFailed(t *testing.T) {
	job := testJob(1)
	pods := podsOf(job)
	fail(pods[0], 143, time.Minute, clock)
	pods[0].DeletionTimestamp = &metav1.Time{Time: clock}
	d := decide(job, pods, clock)
	if d.status.Restarts != 0 || d.status.Preemptions != 0 || len(d.create)+len(d.remove) != 0 {
		t.Errorf("%+v", d)
	}
	pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "PreemptionByScheduler"}}
	d = decide(job, pods, clock)
	if d.status.Preemptions != 1 || d.status.Restarts != 0 {
		t.Errorf("%+v", d.status)
	}
	// Its machine may be unreachable: it is counted once, however long the pod exists.
	job.Status = d.status
	if d := decide(job, pods, clock.Add(time.Hour)); d.status.Preemptions != 1 || len(d.create)+len(d.remove) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestDecideAgainChangesNothing(t *testing.T) {
	job := testJob(2)
	pods := podsOf(job)
	fail(pods[1], 1, time.Minute, clock)
	d := decide(job, pods, clock)
	job.Status = d.status
	again := decide(job, pods, clock)
	if len(again.events) != 0 || again.status.Restarts != d.status.Restarts {
		t.Errorf("second call: %+v", again)
	}
}

func TestJobIDIsOneThatDitaskTakes(t *testing.T) {
	job := &v1alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "a-name-that-is-rather-long-for-a-job-2026", UID: "0123abcd-0000"}}
	if id := jobID(job); id != "a-name-that-is-rather-long-for-0123abcd" || len(id) > 40 {
		t.Errorf("job id %q", id)
	}
}
