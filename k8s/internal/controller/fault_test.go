package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// untilMade waits until a node has had that many pods, and the last one runs.
func untilMade(w *kubetest.World, pod string, times int) {
	w.Helper()
	w.Until(fmt.Sprintf("pod %s runs for the %dth time", pod, times), func() (bool, any) {
		p := w.Pods()[pod]
		return w.Made(pod) == times && p != nil && p.Status.Phase == corev1.PodRunning, w.Made(pod)
	})
}

func TestFailedNodeComesBackWithItsRankUntilTheBudgetIsSpent(t *testing.T) {
	w := world(t)
	job := newJob(w, 2)
	job.Spec.BackoffLimit = new(int32(1))
	start(w, job)
	first := w.Pods()["dqn-collector-1"]
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-1", 3, "panic: no environment"))
	untilMade(w, "dqn-collector-1", 2)
	again := w.Pods()["dqn-collector-1"]
	if again.UID == first.UID || again.Spec.Containers[0].Env[1].Value != "3" {
		t.Errorf("%s with %v", again.UID, again.Spec.Containers[0].Env[1])
	}
	job = w.UntilState("dqn", v1alpha1.Running)
	if job.Status.Restarts != 1 || job.Status.FirstFailure != nil {
		t.Errorf("%+v", job.Status)
	}
	w.UntilEvent("dqn", "PodFailed")

	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-1", 3, "panic: no environment"))
	job = w.UntilState("dqn", v1alpha1.Failed)
	c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.Failed)
	want := "2 failures are more than backoffLimit 1; first: dqn-collector-1 (collector, rank 3): Error, exit code 3: panic: no environment"
	if c.Reason != "BackoffLimitExceeded" || c.Message != want {
		t.Errorf("%s: %s\nwant %s", c.Reason, c.Message, want)
	}
	// The failed pod stays, for its log; those that ran are deleted.
	w.Until("only the failed pod is left", func() (bool, any) {
		return slices.Equal(names(w), []string{"dqn-collector-1"}) && len(w.Pods()) == 1, names(w)
	})
	w.UntilEvent("dqn", "Failed")
}

func TestFirstFailureEndsAJobWithoutBudget(t *testing.T) {
	w := world(t)
	job := newJob(w, 1)
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.CleanPodPolicy = v1alpha1.CleanAll
	start(w, job)
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 1, "loss is NaN"))
	job = w.UntilState("dqn", v1alpha1.Failed)
	c := meta.FindStatusCondition(job.Status.Conditions, v1alpha1.Failed)
	if c.Reason != "PodFailed" || !strings.Contains(c.Message, "first: dqn-learner-0 (learner, rank 0): Error, exit code 1: loss is NaN") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if f := job.Status.FirstFailure; f == nil || f.Pod != "dqn-learner-0" || f.ExitCode != 1 || f.Type != v1alpha1.Learner {
		t.Errorf("%+v", f)
	}
	w.Until("no pod is left", func() (bool, any) { return len(w.Pods()) == 0, names(w) })
}

func TestKilledLearnerComesBack(t *testing.T) {
	w := world(t)
	start(w, newJob(w, 1))
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 137, ""))
	untilMade(w, "dqn-learner-0", 2)
	if job := w.UntilState("dqn", v1alpha1.Running); job.Status.Restarts != 1 {
		t.Errorf("%+v", job.Status)
	}
	if w.Made("dqn-collector-0") != 1 || w.Made("dqn-evaluator-0") != 1 {
		t.Error("other nodes were started again")
	}
}

func TestPreemptedNodesComeBackOutsideTheBudget(t *testing.T) {
	for how, end := range map[string]func(*kubetest.World, string) error{
		"exit code 75": func(w *kubetest.World, pod string) error {
			return w.Exit(w.Ctx, w.Namespace, pod, 75, "")
		},
		"evicted": func(w *kubetest.World, pod string) error { return w.Evict(w.Ctx, w.Namespace, pod) },
	} {
		t.Run(how, func(t *testing.T) {
			w := world(t)
			job := newJob(w, 1)
			job.Spec.BackoffLimit = new(int32(0))
			start(w, job)
			w.Must(end(w, "dqn-learner-0"))
			untilMade(w, "dqn-learner-0", 2)
			w.Must(end(w, "dqn-collector-0"))
			untilMade(w, "dqn-collector-0", 2)
			job = w.UntilState("dqn", v1alpha1.Running)
			if job.Status.Restarts != 0 || job.Status.Preemptions != 2 {
				t.Errorf("%+v", job.Status)
			}
			if env := w.Pods()["dqn-collector-0"].Spec.Containers[0].Env; env[1].Value != "2" {
				t.Errorf("its rank is now %v", env[1])
			}
			w.UntilEvent("dqn", "PodPreempted")

			update(w, func(j *v1alpha1.DIJob) { j.Spec.Preemptible = new(false) })
			w.Must(end(w, "dqn-learner-0"))
			w.UntilState("dqn", v1alpha1.Failed)
		})
	}
}

func TestDeletedPodComesBack(t *testing.T) {
	w := world(t)
	job := newJob(w, 1)
	job.Spec.BackoffLimit = new(int32(0))
	start(w, job)
	w.Must(w.Client.Delete(w.Ctx, w.Pods()["dqn-evaluator-0"]))
	untilMade(w, "dqn-evaluator-0", 2)
	if job := w.UntilState("dqn", v1alpha1.Running); job.Status.Restarts != 0 {
		t.Errorf("%+v", job.Status)
	}
}

func TestConditionNamesAnImageThatCannotBePulled(t *testing.T) {
	w := world(t)
	w.Stick("dqn-collector-0", "ImagePullBackOff", "Back-off pulling image \"ditask:test\": not found")
	w.Must(w.Client.Create(w.Ctx, newJob(w, 1)))
	w.Until("the condition names the image", func() (bool, any) {
		c := meta.FindStatusCondition(w.Job("dqn").Status.Conditions, v1alpha1.Running)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "ImageNotPulled" &&
			strings.Contains(c.Message,
				"dqn-collector-0 (collector, rank 2): container node, image ditask:test: ImagePullBackOff: Back-off pulling image"), c
	})
	w.UntilEvent("dqn", "ImageNotPulled")
	w.Must(w.Unstick(w.Ctx, w.Namespace, "dqn-collector-0"))
	w.UntilState("dqn", v1alpha1.Running)
}

func TestForeignObjectOfTheSameNameIsNotChanged(t *testing.T) {
	for kind, other := range map[string]client.Object{
		"Service": &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		"Pod":     &corev1.Pod{Spec: template().Spec},
	} {
		t.Run(kind, func(t *testing.T) {
			w := world(t)
			name := map[string]string{"Service": "dqn", "Pod": "dqn-evaluator-0"}[kind]
			other.SetName(name)
			other.SetNamespace(w.Namespace)
			w.Must(w.Client.Create(w.Ctx, other))
			w.Must(w.Client.Create(w.Ctx, newJob(w, 1)))
			w.Until("the condition names it", func() (bool, any) {
				c := meta.FindStatusCondition(w.Job("dqn").Status.Conditions, v1alpha1.Created)
				return c != nil && c.Reason == "NameTaken" && strings.Contains(c.Message, kind+" "+name+" exists"), c
			})
			uid := other.GetUID()
			w.Must(w.Client.Get(w.Ctx, client.ObjectKeyFromObject(other), other))
			if other.GetUID() != uid || len(other.GetOwnerReferences()) != 0 {
				t.Error("the operator has changed the foreign object")
			}
			// When the object is deleted, the job continues.
			w.Must(w.Client.Delete(w.Ctx, other))
			w.UntilState("dqn", v1alpha1.Running)
		})
	}
}

func TestConditionHasTheRefusalOfAPodUntilARetrySucceeds(t *testing.T) {
	w := world(t)
	job := newJob(w, 1)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Value: 7}
	job.Spec.Tasks[2].Template.Spec.PriorityClassName = class.Name
	w.Must(w.Client.Create(w.Ctx, job))
	w.Until("the condition has the reason", func() (bool, any) {
		c := meta.FindStatusCondition(w.Job("dqn").Status.Conditions, v1alpha1.Created)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "Refused" && strings.Contains(c.Message,
			"no PriorityClass with name "+class.Name), c
	})
	w.Must(w.Client.Create(w.Ctx, class))
	w.Cleanup(func() { w.Must(w.Client.Delete(context.Background(), class)) })
	w.UntilState("dqn", v1alpha1.Running)
}

func TestOperatorThatIsRestartedMakesNoPodTwice(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	const collectors = 30
	w.Must(w.Client.Create(w.Ctx, newJob(w, collectors)))
	for {
		have := len(w.Pods())
		if have == collectors+2 {
			break
		}
		stop := operate(w)
		w.Until("the operator has made some pods", func() (bool, any) { return len(w.Pods()) > have, have })
		stop()
	}
	operate(w)
	w.UntilState("dqn", v1alpha1.Running)
	for name := range w.Pods() {
		if n := w.Made(name); n != 1 {
			t.Errorf("%s was made %d times", name, n)
		}
	}
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 0, ""))
	w.UntilState("dqn", v1alpha1.Succeeded)
}

// TestCacheThatLagsBehindDoesNoHarm calls the reconciler directly, with a client whose cache has an
// old job and old pods each time.
func TestCacheThatLagsBehindDoesNoHarm(t *testing.T) {
	w := kubetest.NewWorld(t, cluster)
	job := newJob(w, 1)
	w.Must(w.Client.Create(w.Ctx, job))
	var pods []corev1.Pod // the pods in the cache
	stale := interceptor.NewClient(w.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if shown, ok := o.(*v1alpha1.DIJob); ok {
				job.DeepCopyInto(shown)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*corev1.PodList).Items = slices.Clone(pods)
			return nil
		},
	})
	r := &Reconciler{Client: stale, Live: w.Client, Events: events.NewFakeRecorder(100)}
	reconcile := func() {
		t.Helper()
		_, err := r.Reconcile(w.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		w.Must(err)
	}
	reconcile() // writes the status
	job = w.Job("dqn")
	reconcile() // with that job, and without a pod in the cache, decide creates them again
	reconcile()
	for _, name := range []string{"dqn-learner-0", "dqn-evaluator-0", "dqn-collector-0"} {
		untilMade(w, name, 1)
	}

	runs := w.Pods()["dqn-collector-0"].Status
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-0", 1, ""))
	for _, pod := range w.Pods() {
		pods = append(pods, *pod)
	}
	for range 5 {
		reconcile() // the job in the cache does not have the failure
	}
	if n := w.Job("dqn").Status.Restarts; n != 1 {
		t.Errorf("one failure was counted %d times", n)
	}

	// Another node fails, while the cache has the first one's successor, and a job without both
	// failures: the counted failures are kept.
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-evaluator-0", 1, ""))
	pods = []corev1.Pod{*w.Pods()["dqn-learner-0"], *w.Pods()["dqn-evaluator-0"], *w.Pods()["dqn-collector-0"]}
	pods[2].UID, pods[2].Status = "its successor", runs
	reconcile()
	job = w.Job("dqn")
	reconcile()
	if s := w.Job("dqn").Status; s.Restarts != 2 || len(s.Replaced) != 2 {
		t.Errorf("two failures were counted: %+v", s)
	}
}

func TestAPIServerMayRestartWhileAJobRuns(t *testing.T) {
	w := world(t)
	start(w, newJob(w, 2))
	w.Must(w.KillAPIServer())
	w.Must(w.StartAPIServer())
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-collector-0", 1, ""))
	untilMade(w, "dqn-collector-0", 2)
	for _, name := range []string{"dqn-learner-0", "dqn-evaluator-0", "dqn-collector-1"} {
		if n := w.Made(name); n != 1 {
			t.Errorf("%s was made %d times", name, n)
		}
	}
	w.Must(w.Exit(w.Ctx, w.Namespace, "dqn-learner-0", 0, ""))
	if job := w.UntilState("dqn", v1alpha1.Succeeded); job.Status.Restarts != 1 {
		t.Errorf("%+v", job.Status)
	}
}
