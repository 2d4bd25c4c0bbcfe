package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// conditions sets Created, Running, Suspended, Succeeded and Failed of a job that is not over, and
// adds the events of the changes.
func (s *state) conditions() {
	s.set(v1alpha1.Succeeded, false, "NotFinished", "the job is not over")
	s.set(v1alpha1.Failed, false, "NotFinished", "the job is not over")
	if s.job.Spec.Suspend != nil && *s.job.Spec.Suspend {
		s.suspended()
		return
	}
	if isTrue(s.status.Conditions, v1alpha1.Suspended) {
		s.events = append(s.events, event{false, "Resumed", "spec.suspend is false"})
	}
	s.set(v1alpha1.Suspended, false, "NotSuspended", "spec.suspend is false")

	existing, running := 0, 0
	for _, n := range s.nodes {
		pod := s.pods[n.Pod]
		if pod == nil {
			continue
		}
		existing++
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			running++
		}
	}
	if existing == len(s.nodes) {
		s.set(v1alpha1.Created, true, "PodsCreated", fmt.Sprintf("all %d pods exist", existing))
	} else if c := condition(&s.job.Status, v1alpha1.Created); c == nil || !refusals[c.Reason] {
		s.set(v1alpha1.Created, false, "PodsMissing", fmt.Sprintf("%d of %d pods exist", existing, len(s.nodes)))
	}
	was := isTrue(s.status.Conditions, v1alpha1.Running)
	if running == len(s.nodes) {
		s.status.FirstFailure = nil
		message := fmt.Sprintf("all %d nodes run", running)
		s.set(v1alpha1.Running, true, "NodesRunning", message)
		if !was {
			s.events = append(s.events, event{false, "Running", message})
		}
		return
	}
	reason, why := s.waitsFor()
	message := fmt.Sprintf("%d of %d nodes run; %s", running, len(s.nodes), why)
	s.set(v1alpha1.Running, false, reason, message)
	if old := condition(&s.job.Status, v1alpha1.Running); isBad(reason) && (old == nil || old.Reason != reason) {
		s.events = append(s.events, event{true, reason, why})
	}
}

// refusals are the reasons of Created that stay until all pods exist.
var refusals = map[string]bool{"NameTaken": true, "Refused": true}

// suspended sets the conditions of a job that is suspended, or will be when its pods are deleted.
func (s *state) suspended() {
	left := len(s.extra)
	for _, pod := range s.pods {
		if pod.Status.Phase != corev1.PodSucceeded {
			left++
		}
	}
	s.set(v1alpha1.Running, false, "Suspended", "spec.suspend is true")
	s.set(v1alpha1.Created, false, "Suspended", "spec.suspend is true")
	if left > 0 {
		s.set(v1alpha1.Suspended, false, "Draining", fmt.Sprintf("spec.suspend is true; %d pods are left", left))
		return
	}
	if !isTrue(s.status.Conditions, v1alpha1.Suspended) {
		s.events = append(s.events, event{false, "Suspended", "no pod is left"})
	}
	s.set(v1alpha1.Suspended, true, "Suspended", "spec.suspend is true; no pod is left")
}

// waitsFor returns the reason why not every node runs: the most serious reason, and the first node that
// has it.
func (s *state) waitsFor() (reason, why string) {
	reason, why = "PodsStarting", "waiting for pods to start"
	for _, n := range s.nodes {
		pod := s.pods[n.Pod]
		if r := s.replaced(n.Pod); reason == "PodsStarting" && r.UID != "" && (pod == nil || string(pod.UID) == r.UID) {
			reason, why = "Restarting", fmt.Sprintf("%s is started again: %s", n, r.Reason)
		}
		if pod == nil {
			continue
		}
		if bad, message := trouble(pod); bad != "" {
			return bad, fmt.Sprintf("%s: %s", n, message)
		}
	}
	return reason, why
}

// isBad reports whether a reason for not running needs a user's attention.
func isBad(reason string) bool {
	return reason == "ImageNotPulled" || reason == "ContainerNotStarted" || reason == "Unschedulable"
}

// stateWord returns the job's state in one word.
func stateWord(status *v1alpha1.DIJobStatus) string {
	for _, kind := range []string{v1alpha1.Succeeded, v1alpha1.Failed, v1alpha1.Suspended, v1alpha1.Running} {
		if isTrue(status.Conditions, kind) {
			return kind
		}
	}
	if c := condition(status, v1alpha1.Running); c != nil && c.Reason == "Restarting" {
		return "Restarting"
	}
	return "Pending"
}
