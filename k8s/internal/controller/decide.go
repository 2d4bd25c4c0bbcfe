package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// Delays before a node is started again.
const (
	firstDelay   = time.Second
	longestDelay = 5 * time.Minute
	// A node that ran at least this long begins with the first delay again.
	goodRun = 10 * time.Minute
)

// exitPreempted is the exit code of a node that has saved its work and asks to be started again;
// ditask ends with it after SIGTERM.
const exitPreempted = 75

// decision lists the changes for a job: the status first, then the objects.
type decision struct {
	status v1alpha1.DIJobStatus
	remove []*corev1.Pod // in this order
	create []node
	after  time.Duration // when to call decide again without a change; 0: never
	events []event
}

// event is one that users see in kubectl describe.
type event struct {
	warning bool
	reason  string
	note    string
}

// state is the input of decide.
type state struct {
	job   *v1alpha1.DIJob
	now   time.Time
	nodes []node
	pods  map[string]*corev1.Pod // by name
	extra []*corev1.Pod          // pods of no node of the job, highest rank first
	decision
}

// decide determines the changes for a job with these pods. It modifies neither.
func decide(job *v1alpha1.DIJob, pods []*corev1.Pod, now time.Time) decision {
	s := &state{job: job, now: now, nodes: nodesOf(job), pods: map[string]*corev1.Pod{}}
	job.Status.DeepCopyInto(&s.status)
	s.status.JobID = jobID(job)
	s.sort(pods)

	over := isTrue(job.Status.Conditions, v1alpha1.Succeeded) || isTrue(job.Status.Conditions, v1alpha1.Failed)
	if !over {
		s.countFailures()
		over = s.judge()
	}
	switch {
	case over:
		s.clean()
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		s.suspend()
	default:
		s.run()
	}
	s.count()
	if !over {
		s.conditions()
	}
	for i := range s.status.Conditions {
		s.status.Conditions[i].ObservedGeneration = job.Generation
	}
	s.status.State = stateWord(&s.status)
	return s.decision
}

// sort separates the pods of nodes from those that belong to no node any more.
func (s *state) sort(pods []*corev1.Pod) {
	wanted := map[string]bool{}
	for _, n := range s.nodes {
		wanted[n.Pod] = true
	}
	for _, pod := range pods {
		if wanted[pod.Name] {
			s.pods[pod.Name] = pod
		} else {
			s.extra = append(s.extra, pod)
		}
	}
	slices.SortFunc(s.extra, func(a, b *corev1.Pod) int { return cmp.Compare(rankOf(b), rankOf(a)) })
	s.status.Replaced = slices.DeleteFunc(s.status.Replaced, func(r v1alpha1.Replacement) bool { return !wanted[r.Pod] })
}

// countFailures records each pod that has failed or was preempted since the last call, the first
// failure first.
func (s *state) countFailures() {
	var ended []ending
	for _, n := range s.nodes {
		pod := s.pods[n.Pod]
		if pod == nil || s.replaced(n.Pod).UID == string(pod.UID) {
			continue
		}
		if e, ok := endingOf(n, pod); ok {
			e.preempted = e.preempted && (s.job.Spec.Preemptible == nil || *s.job.Spec.Preemptible)
			ended = append(ended, e)
		}
	}
	slices.SortStableFunc(ended, func(a, b ending) int { return a.failure.Time.Compare(b.failure.Time.Time) })
	for _, e := range ended {
		f := e.failure
		s.noteReplacement(e)
		if e.preempted {
			s.status.Preemptions++
			s.events = append(s.events, event{false, "PodPreempted", fmt.Sprintf("%s was preempted: %s", e.node, describe(f))})
			continue
		}
		s.status.Restarts++
		if s.status.FirstFailure == nil {
			s.status.FirstFailure = &f
		}
		s.events = append(s.events, event{true, "PodFailed", fmt.Sprintf("%s failed: %s", e.node, describe(f))})
	}
}

// replaced returns the entry of a pod, or an empty one.
func (s *state) replaced(pod string) v1alpha1.Replacement {
	for _, r := range s.status.Replaced {
		if r.Pod == pod {
			return r
		}
	}
	return v1alpha1.Replacement{Pod: pod}
}

// noteReplacement sets the time at which the node of an ended pod may start again.
func (s *state) noteReplacement(e ending) {
	r := s.replaced(e.node.Pod)
	if e.ran >= goodRun {
		r.Streak = 0
	}
	r.Streak++
	delay := longestDelay
	if r.Streak < 10 {
		delay = min(delay, firstDelay<<(r.Streak-1))
	}
	r.UID = string(e.uid)
	// A status has whole seconds; rounding must not shorten the delay.
	r.NotBefore = metav1.NewTime(s.now.Add(delay + time.Second - time.Nanosecond).Truncate(time.Second))
	r.Reason = "PodFailed"
	if e.preempted {
		r.Reason = "PodPreempted"
	}
	s.status.Replaced = slices.DeleteFunc(s.status.Replaced, func(old v1alpha1.Replacement) bool { return old.Pod == r.Pod })
	s.status.Replaced = append(s.status.Replaced, r)
	slices.SortFunc(s.status.Replaced, func(a, b v1alpha1.Replacement) int { return cmp.Compare(a.Pod, b.Pod) })
}

// judge ends the job if it is over. It checks for success first, because the last of several
// learners may succeed while a collector fails without it.
func (s *state) judge() (over bool) {
	if done, by := s.succeeded(); done {
		s.finish(v1alpha1.Succeeded, string(by)+"Succeeded", s.successMessage(by))
		return true
	}
	limit := int32(3)
	if s.job.Spec.BackoffLimit != nil {
		limit = *s.job.Spec.BackoffLimit
	}
	if s.status.Restarts <= limit {
		return false
	}
	reason, message := "BackoffLimitExceeded", fmt.Sprintf("%d failures are more than backoffLimit %d", s.status.Restarts, limit)
	if limit == 0 {
		reason, message = "PodFailed", "a node failed, and backoffLimit is 0"
	}
	if f := s.status.FirstFailure; f != nil {
		n := node{Pod: f.Pod, Task: f.Task, Type: f.Type, Rank: f.Rank}
		message += fmt.Sprintf("; first: %s: %s", n, describe(*f))
	}
	s.finish(v1alpha1.Failed, reason, message)
	return true
}

// succeeded reports whether the job's policy for success is met.
func (s *state) succeeded() (bool, v1alpha1.SuccessPolicy) {
	policy := s.job.Spec.SuccessPolicy
	isLearner := func(n node) bool { return n.Type == v1alpha1.Learner }
	if policy == "" {
		policy = v1alpha1.SuccessAll
		if slices.ContainsFunc(s.nodes, isLearner) {
			policy = v1alpha1.SuccessLearner
		}
	}
	for _, n := range s.nodes {
		pod := s.pods[n.Pod]
		if (policy == v1alpha1.SuccessAll || isLearner(n)) && (pod == nil || pod.Status.Phase != corev1.PodSucceeded) {
			return false, policy
		}
	}
	return len(s.nodes) > 0, policy
}

func (s *state) successMessage(policy v1alpha1.SuccessPolicy) string {
	if policy == v1alpha1.SuccessAll {
		return fmt.Sprintf("all %d nodes succeeded", len(s.nodes))
	}
	learners := 0
	for _, n := range s.nodes {
		if n.Type == v1alpha1.Learner {
			learners++
		}
	}
	if learners == 1 {
		return "the learner succeeded"
	}
	return fmt.Sprintf("all %d learners succeeded", learners)
}

// finish writes the conditions of a job that is over.
func (s *state) finish(kind, reason, message string) {
	s.set(kind, true, reason, message)
	s.set(v1alpha1.Running, false, "Finished", "the job is over")
	other := v1alpha1.Failed
	if kind == v1alpha1.Failed {
		other = v1alpha1.Succeeded
	}
	s.set(other, false, "Finished", "the job is over")
	now := metav1.NewTime(s.now)
	s.status.CompletionTime = &now
	s.events = append(s.events, event{kind == v1alpha1.Failed, kind, message})
}

// clean deletes pods of a finished job, according to its policy.
func (s *state) clean() {
	policy := s.job.Spec.CleanPodPolicy
	if policy == v1alpha1.CleanNone {
		return
	}
	s.removeIf(func(pod *corev1.Pod) bool { return policy == v1alpha1.CleanAll || !hasEnded(pod) })
}

// suspend removes all pods except those that have succeeded.
func (s *state) suspend() {
	s.removeIf(func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodSucceeded })
}

// removeIf removes the pods for which the function is true, the highest rank first.
func (s *state) removeIf(which func(*corev1.Pod) bool) {
	pods := slices.Clone(s.extra)
	for _, n := range slices.Backward(s.nodes) {
		if pod := s.pods[n.Pod]; pod != nil {
			pods = append(pods, pod)
		}
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && which(pod) {
			s.remove = append(s.remove, pod)
		}
	}
}

// run removes excess pods, and creates those that are missing or have failed, once their delay is
// over.
func (s *state) run() {
	for _, pod := range s.extra {
		if pod.DeletionTimestamp == nil {
			s.remove = append(s.remove, pod)
		}
	}
	for _, n := range s.nodes {
		pod := s.pods[n.Pod]
		if pod != nil && (pod.Status.Phase != corev1.PodFailed || pod.DeletionTimestamp != nil) {
			continue
		}
		if wait := s.replaced(n.Pod).NotBefore.Sub(s.now); wait > 0 {
			if s.after == 0 || wait < s.after {
				s.after = wait
			}
			continue
		}
		// The name is free only when the failed pod is deleted, which starts another
		// reconciliation.
		if pod != nil {
			s.remove = append(s.remove, pod)
		} else {
			s.create = append(s.create, n)
		}
	}
}

// count sets the numbers of the status.
func (s *state) count() {
	desired := int32(len(s.nodes)) //nolint:gosec // 8 tasks of at most 1000 nodes
	if s.status.Desired != 0 && s.status.Desired != desired {
		s.events = append(s.events, event{false, "Scaled", fmt.Sprintf("from %d to %d nodes", s.status.Desired, desired)})
	}
	s.status.Desired = desired
	s.status.Ready, s.status.Replicas, s.status.Selector, s.status.Tasks = 0, 0, "", nil
	tasks := tasksOf(s.job)
	for i, task := range tasks {
		t := v1alpha1.TaskStatus{Name: task.Name, Desired: task.Replicas}
		for _, n := range s.nodes {
			pod := s.pods[n.Pod]
			if n.Task != task.Name || pod == nil {
				continue
			}
			switch pod.Status.Phase {
			case corev1.PodSucceeded:
				t.Succeeded++
			case corev1.PodFailed:
				t.Failed++
			default:
				t.Active++
			}
			if isReady(pod) {
				t.Ready++
			}
		}
		s.status.Tasks = append(s.status.Tasks, t)
		s.status.Ready += t.Ready
		if i == len(tasks)-1 {
			s.status.Replicas = t.Active + t.Succeeded + t.Failed
			for _, pod := range s.extra {
				if pod.Labels[labelTask] == task.Name {
					s.status.Replicas++
				}
			}
			s.status.Selector = labelJobID + "=" + jobID(s.job) + "," + labelTask + "=" + task.Name
		}
	}
}

// set sets a condition; its time changes only with its status.
func (s *state) set(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	c := metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: s.job.Generation, LastTransitionTime: metav1.NewTime(s.now),
	}
	meta.SetStatusCondition(&s.status.Conditions, c)
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}

// condition returns a condition of a status, or nil.
func condition(status *v1alpha1.DIJobStatus, kind string) *metav1.Condition {
	return meta.FindStatusCondition(status.Conditions, kind)
}
