package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// ending is the end of a node's pod that did not succeed.
type ending struct {
	node      node
	uid       types.UID
	preempted bool // by others, or by its own exit code 75
	failure   v1alpha1.NodeFailure
	ran       time.Duration
}

// endingOf reads the end of a pod from its status. A pod that is being deleted
// has not failed, however its containers end; it counts if it was disrupted.
func endingOf(n node, pod *corev1.Pod) (ending, bool) {
	disrupted, why := disruption(pod)
	deleted := pod.DeletionTimestamp != nil
	if pod.Status.Phase == corev1.PodSucceeded || deleted && !disrupted || !deleted && pod.Status.Phase != corev1.PodFailed {
		return ending{}, false
	}
	e := ending{node: n, uid: pod.UID, preempted: disrupted, failure: v1alpha1.NodeFailure{
		Pod: pod.Name, Task: n.Task, Type: n.Type, Rank: n.Rank, ExitCode: -1,
		Reason: pod.Status.Reason, Message: short(pod.Status.Message), Time: pod.CreationTimestamp,
	}}
	if disrupted {
		e.failure.Reason, e.failure.Message = why.Reason, short(why.Message)
		e.failure.Time = why.LastTransitionTime
	}
	if t := failedContainer(pod); t != nil {
		e.failure.ExitCode = t.ExitCode
		if !disrupted {
			e.failure.Reason, e.failure.Message = t.Reason, short(t.Message)
		}
		e.failure.Time = t.FinishedAt
		e.preempted = e.preempted || t.ExitCode == exitPreempted
	}
	e.failure.Reason = short(e.failure.Reason)
	if start := pod.Status.StartTime; start != nil {
		e.ran = e.failure.Time.Sub(start.Time)
	}
	return e, true
}

// disruption reports whether a cause outside of the pod ended it: an eviction, a pod of higher
// priority, a Kubernetes node that is removed.
func disruption(pod *corev1.Pod) (bool, metav1.Condition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return true, metav1.Condition{Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime}
		}
	}
	if pod.Status.Phase == corev1.PodFailed && slices.Contains([]string{"Evicted", "Preempting", "Shutdown", "Terminated", "NodeShutdown"},
		pod.Status.Reason) {
		return true, metav1.Condition{Reason: pod.Status.Reason, Message: pod.Status.Message, LastTransitionTime: pod.CreationTimestamp}
	}
	return false, metav1.Condition{}
}

// failedContainer returns the end of the container that failed first, init containers included.
func failedContainer(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	var first *corev1.ContainerStateTerminated
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && (first == nil || t.FinishedAt.Before(&first.FinishedAt)) {
			first = t
		}
	}
	return first
}

// trouble returns the reason why a pod does not run, if Kubernetes reports a reason other than a
// start that is under way.
func trouble(pod *corev1.Pod) (reason, message string) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		reason = "ContainerNotStarted"
		if strings.Contains(w.Reason, "Image") {
			reason = "ImageNotPulled"
		}
		return reason, fmt.Sprintf("container %s, image %s: %s: %s", c.Name, c.Image, short(w.Reason), short(w.Message))
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "Unschedulable", short(c.Reason) + ": " + short(c.Message)
		}
	}
	return "", ""
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isReady reports whether a pod is ready and not being deleted.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func rankOf(pod *corev1.Pod) int {
	rank, err := strconv.Atoi(pod.Labels[labelRank])
	if err != nil {
		return -1
	}
	return rank
}

// describe reports how a node failed.
func describe(f v1alpha1.NodeFailure) string {
	text := f.Reason
	if f.ExitCode >= 0 {
		text = strings.TrimPrefix(fmt.Sprintf("%s, exit code %d", f.Reason, f.ExitCode), ", ")
	}
	if f.Message != "" {
		text += ": " + f.Message
	}
	if text == "" {
		return "no reason was given"
	}
	return text
}

// short cuts a text to its last 512 bytes, since the end of a log has the reason, and makes it safe
// to print: it may be the output of a program.
func short(text string) string {
	text = printable(strings.TrimSpace(text))
	if len(text) <= 512 {
		return text
	}
	return "..." + strings.ToValidUTF8(text[len(text)-509:], "")
}

// printable returns a text with newlines and characters that unicode.IsPrint accepts; it escapes
// others, as strconv.Quote does, so that they cannot control a terminal.
func printable(text string) string {
	var b strings.Builder
	for i, r := range text {
		_, n := utf8.DecodeRuneInString(text[i:])
		switch c := text[i : i+n]; {
		case r == '\n', unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			b.WriteString(c)
		default:
			q := strconv.Quote(c)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
