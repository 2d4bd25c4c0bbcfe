package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// dqnJob returns a job of one learner, one evaluator and two collectors, without an API server.
func dqnJob() *v1alpha1.DIJob {
	return &v1alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "dqn", Namespace: "here", UID: "01234567-89ab", Generation: 7},
		Spec: v1alpha1.DIJobSpec{Tasks: []v1alpha1.Task{
			{Name: "learner", Type: v1alpha1.Learner, Replicas: 1, Template: template()},
			{Name: "evaluator", Type: v1alpha1.Evaluator, Replicas: 1, Template: template()},
			{Name: "collector", Type: v1alpha1.Collector, Replicas: 2, Template: template()},
		}},
	}
}

// changed returns the pods of dqnJob, all running, after a change of some of them: by task
// and index, as in "collector-1".
func changed(job *v1alpha1.DIJob, changes map[string]func(*corev1.Pod)) []*corev1.Pod {
	pods := podsOf(job)
	used := 0
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		change := changes[strings.TrimPrefix(pod.Name, job.Name+"-")]
		if change == nil {
			return false
		}
		used++
		change(pod)
		return pod.Name == ""
	})
	if used != len(changes) {
		panic(fmt.Sprintf("controller: %d of the changes %v are of no pod", len(changes)-used, changes))
	}
	return pods
}

type changes = map[string]func(*corev1.Pod)

// The changes of pods in tests.
func gone(pod *corev1.Pod)      { pod.Name = "" }
func succeeded(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
func pending(pod *corev1.Pod)   { pod.Status.Phase = corev1.PodPending }
func deleted(pod *corev1.Pod)   { pod.DeletionTimestamp = &metav1.Time{Time: clock} }
func failed(pod *corev1.Pod)    { fail(pod, 3, time.Minute, clock) }
func preempted(pod *corev1.Pod) { fail(pod, exitPreempted, time.Minute, clock) }
func failedWhileDeleted(pod *corev1.Pod) {
	failed(pod)
	deleted(pod)
}

func evicted(pod *corev1.Pod) {
	pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "low on memory"
}

// plan describes a decision in words: the removed and the created pods, in this order.
func plan(d decision) (removed, made string) {
	var remove, create []string
	for _, pod := range d.remove {
		remove = append(remove, strings.TrimPrefix(pod.Name, "dqn-"))
	}
	for _, n := range d.create {
		create = append(create, strings.TrimPrefix(n.Pod, "dqn-"))
	}
	return strings.Join(remove, " "), strings.Join(create, " ")
}

// TestPodsToRemoveAndToMake is the table of the changes for each state of a job that is not over.
func TestPodsToRemoveAndToMake(t *testing.T) {
	const all = "learner-0 evaluator-0 collector-0 collector-1"
	for _, tt := range []struct {
		name         string
		spec         func(*v1alpha1.DIJobSpec)
		pods         changes
		none         bool // no pod exists
		seen         bool // the failures were counted before, and their delays are over
		remove, make string
		after        time.Duration
	}{
		{name: "nothing exists", none: true, make: all},
		{name: "all run"},
		{name: "all but one exist", pods: changes{"collector-0": gone}, make: "collector-0"},
		{name: "several are missing", pods: changes{"collector-1": gone, "learner-0": gone}, make: "learner-0 collector-1"},
		{name: "a pod starts", pods: changes{"collector-0": pending}},
		{name: "a pod is being deleted", pods: changes{"collector-0": deleted}},
		{name: "a collector has succeeded", pods: changes{"collector-0": succeeded}},
		{name: "a pod has failed just now", pods: changes{"collector-0": failed}, after: time.Second},
		{name: "a pod has failed and its delay is over", pods: changes{"collector-0": failed}, seen: true, remove: "collector-0"},
		{name: "a pod that failed is being deleted", pods: changes{"collector-0": failedWhileDeleted}},
		{name: "a pod was preempted and its delay is over", pods: changes{"learner-0": preempted}, seen: true, remove: "learner-0"},
		{name: "one has failed and one is missing", pods: changes{"learner-0": failed, "collector-1": gone}, make: "collector-1",
			after: time.Second},
		{
			name: "the last task has shrunk", spec: func(s *v1alpha1.DIJobSpec) { s.Replicas = new(int32(0)) },
			remove: "collector-1 collector-0",
		},
		{
			name: "the last task has shrunk and its pods are being deleted", spec: func(s *v1alpha1.DIJobSpec) { s.Replicas = new(int32(0)) },
			pods: changes{"collector-0": deleted}, remove: "collector-1",
		},
		{
			name: "the last task has grown", spec: func(s *v1alpha1.DIJobSpec) { s.Replicas = new(int32(4)) },
			make: "collector-2 collector-3",
		},
		{name: "suspended while all run", spec: suspend, remove: "collector-1 collector-0 evaluator-0 learner-0"},
		{
			name: "suspended with some that have ended", spec: suspend,
			pods:   changes{"evaluator-0": succeeded, "collector-0": failed, "collector-1": deleted},
			remove: "collector-0 learner-0",
		},
		{name: "suspended without pods", spec: suspend, none: true},
		{name: "not suspended", spec: func(s *v1alpha1.DIJobSpec) { s.Suspend = new(false) }, none: true, make: all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := dqnJob()
			pods := changed(job, tt.pods)
			if tt.none {
				pods = nil
			}
			if tt.spec != nil {
				tt.spec(&job.Spec)
			}
			now := clock
			if tt.seen {
				job.Status = decide(job, pods, now).status
				now = now.Add(time.Second)
			}
			d := decide(job, pods, now)
			if removed, made := plan(d); removed != tt.remove || made != tt.make || d.after != tt.after {
				t.Errorf("removed %q, made %q, again after %v; want %q, %q, %v", removed, made, d.after, tt.remove, tt.make, tt.after)
			}
		})
	}
}

func suspend(s *v1alpha1.DIJobSpec) { s.Suspend = new(true) }

// TestDecideRunsAgainAtTheEarliestEndOfADelay has nodes with delays of 1 s and of 4 s.
func TestDecideRunsAgainAtTheEarliestEndOfADelay(t *testing.T) {
	for _, late := range []string{"learner-0", "collector-1"} {
		early := map[string]string{"learner-0": "collector-1", "collector-1": "learner-0"}[late]
		job := dqnJob()
		job.Status.Replaced = []v1alpha1.Replacement{{Pod: "dqn-" + late, UID: "an earlier one", Streak: 2}}
		d := decide(job, changed(job, changes{late: failed, early: failed}), clock)
		if d.after != time.Second {
			t.Errorf("%s has 4 s and %s has 1 s: the next call is after %v", late, early, d.after)
		}
		if r := d.status.Replaced; len(r) != 2 || r[0].Pod != "dqn-collector-1" || r[1].Pod != "dqn-learner-0" {
			t.Errorf("replaced, by name: %+v", r)
		}
	}
}

// TestDelayIsNotShortenedByWholeSeconds has a failure in the middle of a second.
func TestDelayIsNotShortenedByWholeSeconds(t *testing.T) {
	for fraction, want := range map[time.Duration]time.Duration{
		0: time.Second, 1: 2*time.Second - 1, time.Second / 2: time.Second * 3 / 2, time.Second - 1: time.Second + 1,
	} {
		job := dqnJob()
		if d := decide(job, changed(job, changes{"learner-0": failed}), clock.Add(fraction)); d.after != want {
			t.Errorf("%v into a second: again after %v, want %v", fraction, d.after, want)
		}
	}
}

// TestStreakBeginsAgainAfterAGoodRun tests both sides of the limit of a good run.
func TestStreakBeginsAgainAfterAGoodRun(t *testing.T) {
	for ran, want := range map[time.Duration]int32{goodRun - time.Second: 6, goodRun: 1, goodRun + time.Second: 1} {
		job := dqnJob()
		job.Status.Replaced = []v1alpha1.Replacement{{Pod: "dqn-learner-0", UID: "an earlier one", Streak: 5}}
		d := decide(job, changed(job, changes{"learner-0": func(pod *corev1.Pod) { fail(pod, 1, ran, clock) }}), clock)
		if got := d.status.Replaced[0].Streak; got != want {
			t.Errorf("after %v: a streak of %d, want %d", ran, got, want)
		}
	}
}

// TestFailuresAndPreemptionsAreCountedApart is the table of the ends that count against the limit.
func TestFailuresAndPreemptionsAreCountedApart(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		preemptible           *bool
		end                   func(*corev1.Pod)
		restarts, preemptions int32
		event                 event
	}{
		{"failed", nil, failed, 1, 0, event{true, "PodFailed", "dqn-collector-0 (collector, rank 2) failed: Error, exit code 3"}},
		{"exit code 75", nil, preempted, 0, 1, event{false, "PodPreempted",
			"dqn-collector-0 (collector, rank 2) was preempted: Error, exit code 75"}},
		{"evicted", nil, evicted, 0, 1, event{false, "PodPreempted",
			"dqn-collector-0 (collector, rank 2) was preempted: Evicted: low on memory"}},
		{"exit code 75, preemptible", new(true), preempted, 0, 1,
			event{false, "PodPreempted", "dqn-collector-0 (collector, rank 2) was preempted: Error, exit code 75"}},
		{"exit code 75, not preemptible", new(false), preempted, 1, 0,
			event{true, "PodFailed", "dqn-collector-0 (collector, rank 2) failed: Error, exit code 75"}},
		{"evicted, not preemptible", new(false), evicted, 1, 0,
			event{true, "PodFailed", "dqn-collector-0 (collector, rank 2) failed: Evicted: low on memory"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := dqnJob()
			job.Spec.Preemptible = tt.preemptible
			pods := changed(job, changes{"collector-0": tt.end})
			d := decide(job, pods, clock)
			if d.status.Restarts != tt.restarts || d.status.Preemptions != tt.preemptions {
				t.Errorf("%d restarts, %d preemptions", d.status.Restarts, d.status.Preemptions)
			}
			if !slices.Contains(d.events, tt.event) {
				t.Errorf("no event %v in %v", tt.event, d.events)
			}
			if first := d.status.FirstFailure; (first != nil) != (tt.restarts == 1) {
				t.Errorf("first failure: %+v", first)
			}
			want := []v1alpha1.Replacement{{
				Pod: "dqn-collector-0", UID: "uid of dqn-collector-0", Streak: 1,
				NotBefore: metav1.NewTime(clock.Add(time.Second)), Reason: tt.event.reason,
			}}
			if diff := cmp.Diff(want, d.status.Replaced); diff != "" {
				t.Errorf("replaced (-want +got):\n%s", diff)
			}
			// Each pod counts once, and its successor counts again.
			job.Status = d.status
			if d = decide(job, pods, clock.Add(time.Minute)); d.status.Restarts+d.status.Preemptions != 1 {
				t.Errorf("after the second call: %+v", d.status)
			}
			pods[2].UID = "another"
			if d = decide(job, pods, clock.Add(time.Minute)); d.status.Restarts != 2*tt.restarts ||
				d.status.Preemptions != 2*tt.preemptions {
				t.Errorf("after the second pod: %+v", d.status)
			}
		})
	}
}

// TestFirstFailureStaysUntilAllNodesRun: a later failure does not change the first one.
func TestFirstFailureStaysUntilAllNodesRun(t *testing.T) {
	job := dqnJob()
	pods := changed(job, changes{"collector-0": failed})
	job.Status = decide(job, pods, clock).status
	fail(pods[0], 9, time.Minute, clock.Add(time.Second))
	job.Status = decide(job, pods, clock.Add(time.Second)).status
	if f := job.Status.FirstFailure; f == nil || f.Pod != "dqn-collector-0" || f.ExitCode != 3 || f.Rank != 2 || f.Task != "collector" {
		t.Errorf("first failure: %+v", f)
	}
	job.Status = decide(job, podsOf(job), clock.Add(time.Minute)).status
	if job.Status.FirstFailure != nil {
		t.Errorf("all nodes run, and the first failure is %+v", job.Status.FirstFailure)
	}
}

// TestReplacementsOfRemovedNodesAreForgotten scales a task down and up again.
func TestReplacementsOfRemovedNodesAreForgotten(t *testing.T) {
	job := dqnJob()
	job.Status.Replaced = []v1alpha1.Replacement{{Pod: "dqn-collector-0", UID: "a"}, {Pod: "dqn-collector-1", UID: "b"}}
	job.Spec.Replicas = new(int32(1))
	d := decide(job, nil, clock)
	if r := d.status.Replaced; len(r) != 1 || r[0].Pod != "dqn-collector-0" {
		t.Errorf("replaced: %+v", r)
	}
	if len(job.Status.Replaced) != 2 {
		t.Error("the job was changed")
	}
}

// TestJobIsOver is the table of the ends of a job.
func TestJobIsOver(t *testing.T) {
	limit := func(n int32) func(*v1alpha1.DIJobSpec) {
		return func(s *v1alpha1.DIJobSpec) { s.BackoffLimit = &n }
	}
	everyone := changes{"learner-0": succeeded, "evaluator-0": succeeded, "collector-0": succeeded, "collector-1": succeeded}
	const first = "; first: dqn-learner-0 (learner, rank 0): Error, exit code 3"
	for _, tt := range []struct {
		name            string
		spec            func(*v1alpha1.DIJobSpec)
		restarts        int32 // so far
		pods            changes
		kind            string // of the condition; none for a job that continues
		reason, message string
	}{
		{name: "all run"},
		{name: "a collector succeeds", pods: changes{"collector-0": succeeded}},
		{name: "the learner succeeds", pods: changes{"learner-0": succeeded}, kind: v1alpha1.Succeeded, reason: "LearnerSucceeded",
			message: "the learner succeeded"},
		{name: "the learner has gone", pods: changes{"learner-0": gone}},
		{
			name: "the learner succeeds and a collector fails for the last time", spec: limit(0), pods: changes{"learner-0": succeeded,
				"collector-0": failed},
			kind: v1alpha1.Succeeded, reason: "LearnerSucceeded", message: "the learner succeeded",
		},
		{name: "one of two learners succeeds", spec: twoLearners, pods: changes{"learner-0": succeeded}},
		{
			name: "two learners succeed", spec: twoLearners, pods: changes{"learner-0": succeeded, "learner-1": succeeded},
			kind: v1alpha1.Succeeded, reason: "LearnerSucceeded", message: "all 2 learners succeeded",
		},
		{name: "the learner succeeds where all must", spec: allMust, pods: changes{"learner-0": succeeded}},
		{name: "all but one succeed where all must", spec: allMust,
			pods: changes{"learner-0": succeeded, "evaluator-0": succeeded, "collector-0": succeeded}},
		{name: "all succeed where all must", spec: allMust, pods: everyone, kind: v1alpha1.Succeeded, reason: "AllSucceeded",
			message: "all 4 nodes succeeded"},
		{name: "the learner succeeds where no task is a learner's", spec: noLearner, pods: changes{"learner-0": succeeded}},
		{name: "all succeed where no task is a learner's", spec: noLearner, pods: everyone, kind: v1alpha1.Succeeded,
			reason: "AllSucceeded", message: "all 4 nodes succeeded"},
		{name: "a job without nodes", spec: func(s *v1alpha1.DIJobSpec) { s.Tasks = nil }, pods: nil},

		{name: "the third failure of 3", restarts: 2, pods: changes{"learner-0": failed}},
		{
			name: "the fourth failure, without a limit in the spec", restarts: 3, pods: changes{"learner-0": failed},
			kind: v1alpha1.Failed, reason: "BackoffLimitExceeded", message: "4 failures are more than backoffLimit 3" + first,
		},
		{name: "the first failure of 1", spec: limit(1), pods: changes{"learner-0": failed}},
		{
			name: "the second failure of 1", spec: limit(1), restarts: 1, pods: changes{"learner-0": failed},
			kind: v1alpha1.Failed, reason: "BackoffLimitExceeded", message: "2 failures are more than backoffLimit 1" + first,
		},
		{
			name: "a failure where the limit is 0", spec: limit(0), pods: changes{"learner-0": failed},
			kind: v1alpha1.Failed, reason: "PodFailed", message: "a node failed, and backoffLimit is 0" + first,
		},
		{name: "a preemption where the limit is 0", spec: limit(0), pods: changes{"learner-0": preempted}},
		{
			name: "a limit that was lowered", spec: limit(1), restarts: 2,
			kind: v1alpha1.Failed, reason: "BackoffLimitExceeded", message: "2 failures are more than backoffLimit 1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := dqnJob()
			if tt.spec != nil {
				tt.spec(&job.Spec)
			}
			job.Status.Restarts = tt.restarts
			d := decide(job, changed(job, tt.pods), clock)
			if tt.kind == "" {
				if d.status.CompletionTime != nil || isTrue(d.status.Conditions, v1alpha1.Succeeded) ||
					isTrue(d.status.Conditions, v1alpha1.Failed) {
					t.Fatalf("it is over: %+v", d.status)
				}
				return
			}
			other := map[string]string{v1alpha1.Failed: v1alpha1.Succeeded, v1alpha1.Succeeded: v1alpha1.Failed}[tt.kind]
			want := map[string]string{
				tt.kind: "True " + tt.reason + ": " + tt.message,
				other:   "False Finished: the job is over", v1alpha1.Running: "False Finished: the job is over",
			}
			if diff := cmp.Diff(want, inWords(d.status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if at := d.status.CompletionTime; at == nil || !at.Time.Equal(clock) || d.status.State != tt.kind {
				t.Errorf("state %s, completed at %v", d.status.State, at)
			}
			if last := d.events[len(d.events)-1]; last != (event{tt.kind == v1alpha1.Failed, tt.kind, tt.message}) {
				t.Errorf("last event: %v", last)
			}
			overStaysOver(t, job, d)
		})
	}
}

func twoLearners(s *v1alpha1.DIJobSpec) { s.Tasks[0].Replicas = 2 }
func allMust(s *v1alpha1.DIJobSpec)     { s.SuccessPolicy = v1alpha1.SuccessAll }
func noLearner(s *v1alpha1.DIJobSpec)   { s.Tasks[0].Type = v1alpha1.None }

// inWords returns conditions by type: status, reason and message.
func inWords(conditions []metav1.Condition) map[string]string {
	words := map[string]string{}
	for _, c := range conditions {
		words[c.Type] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	return words
}

// overStaysOver calls decide for a job that is over again, after all of its pods have failed.
func overStaysOver(t *testing.T, job *v1alpha1.DIJob, d decision) {
	t.Helper()
	job.Status = d.status
	pods := podsOf(job)
	for _, pod := range pods {
		fail(pod, 1, time.Minute, clock)
		pod.UID = types.UID("another " + pod.Name)
	}
	again := decide(job, pods, clock.Add(time.Hour))
	if len(again.events) != 0 || len(again.create) != 0 || again.after != 0 {
		t.Errorf("after the next call: %+v", again)
	}
	again.status.Tasks, job.Status.Tasks = nil, nil
	again.status.Replicas, job.Status.Replicas = 0, 0
	if diff := cmp.Diff(job.Status, again.status); diff != "" {
		t.Errorf("the status has changed (-before +after):\n%s", diff)
	}
}

// TestRemainingPodsOfAJob is the table of CleanPodPolicy.
func TestRemainingPodsOfAJob(t *testing.T) {
	ended := changes{"learner-0": succeeded, "collector-0": failed}
	for policy, want := range map[v1alpha1.CleanPodPolicy]string{
		"":                    "collector-2 collector-1 evaluator-0",
		v1alpha1.CleanRunning: "collector-2 collector-1 evaluator-0",
		v1alpha1.CleanAll:     "collector-2 collector-1 collector-0 evaluator-0 learner-0",
		v1alpha1.CleanNone:    "",
	} {
		job := dqnJob()
		job.Spec.CleanPodPolicy = policy
		job.Spec.Tasks[2].Replicas = 3
		pods := changed(job, ended)
		job.Spec.Tasks[2].Replicas = 2 // collector-2 is one too many
		d := decide(job, pods, clock)
		if removed, made := plan(d); removed != want || made != "" {
			t.Errorf("policy %q: removed %q, made %q; want %q", policy, removed, made, want)
		}
		// The same at every later call; a pod that is being deleted is not changed.
		job.Status = d.status
		for _, pod := range pods {
			deleted(pod)
		}
		if removed, made := plan(decide(job, pods, clock)); removed+made != "" {
			t.Errorf("policy %q, after the second call: removed %q, made %q", policy, removed, made)
		}
	}
}

func ready(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
}

func notReady(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
}

func readyButDeleted(pod *corev1.Pod) {
	ready(pod)
	deleted(pod)
}

// TestNumbersOfTheStatus counts pods in each state, and pods of no node.
func TestNumbersOfTheStatus(t *testing.T) {
	job := dqnJob()
	job.Spec.Tasks[2].Replicas = 8
	job.Status.Desired = 10
	pods := changed(job, changes{
		"learner-0": ready, "evaluator-0": pending, "collector-0": ready, "collector-1": notReady, "collector-2": readyButDeleted,
		"collector-3": failed, "collector-4": succeeded, "collector-5": gone,
	})
	foreign := pods[0].DeepCopy() // a learner in excess does not count for the collectors
	foreign.Name = "dqn-learner-7"
	pods = append(pods, foreign)
	job.Spec.Replicas = new(int32(7)) // collector-7 is one too many
	d := decide(job, pods, clock)
	want := v1alpha1.DIJobStatus{
		JobID: "dqn-01234567", Desired: 9, Ready: 2, Replicas: 7, Selector: "ditask.dev/job-id=dqn-01234567,ditask.dev/task=collector",
		Tasks: []v1alpha1.TaskStatus{
			{Name: "learner", Desired: 1, Active: 1, Ready: 1}, {Name: "evaluator", Desired: 1, Active: 1},
			{Name: "collector", Desired: 7, Active: 4, Ready: 1, Succeeded: 1, Failed: 1},
		},
	}
	got := d.status
	got.Conditions, got.State, got.Replaced, got.FirstFailure, got.Restarts = nil, "", nil, nil, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if scaled := (event{false, "Scaled", "from 10 to 9 nodes"}); !slices.Contains(d.events, scaled) {
		t.Errorf("no event %v in %v", scaled, d.events)
	}
	job.Status = d.status
	if again := decide(job, pods, clock); again.status.Replicas != 7 || again.status.Ready != 2 || len(again.events) != 0 {
		t.Errorf("after the second call: %+v", again)
	}
	job.Status = v1alpha1.DIJobStatus{}
	if first := decide(job, nil, clock); slices.ContainsFunc(first.events, func(e event) bool { return e.reason == "Scaled" }) {
		t.Errorf("after the first call: %v", first.events)
	}
}

// TestDecideChangesNeitherJobNorPods has a job with many changes.
func TestDecideChangesNeitherJobNorPods(t *testing.T) {
	job := dqnJob()
	pods := changed(job, changes{"learner-0": failed, "collector-0": evicted, "collector-1": gone})
	job.Status = decide(job, pods, clock).status
	pods[0].UID = "another"
	before, was := job.DeepCopy(), pods[0].DeepCopy()
	decide(job, pods, clock.Add(time.Hour))
	if diff := cmp.Diff(before, job); diff != "" {
		t.Errorf("the job was changed:\n%s", diff)
	}
	if diff := cmp.Diff(was, pods[0]); diff != "" {
		t.Errorf("a pod was changed:\n%s", diff)
	}
}
