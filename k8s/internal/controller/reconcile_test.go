package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// table has objects in memory, and a reconciler for them; no other controller runs.
type table struct {
	*testing.T
	client.Client

	r        *Reconciler
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	ctx      context.Context
}

// newTable makes a table; calls may change the calls of the reconciler's client.
func newTable(t *testing.T, calls interceptor.Funcs, objects ...client.Object) *table {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := fake.NewClientBuilder().WithScheme(kubetest.Scheme()).WithStatusSubresource(&v1alpha1.DIJob{}).
		WithIndex(&corev1.Pod{}, podsByJob, ownerOf).WithObjects(objects...).Build()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{Client: interceptor.NewClient(c, calls), Live: c, Events: recorder, Metrics: metrics,
		Now: func() time.Time { return clock }}
	return &table{t, c, r, recorder, registry, ctx}
}

func (w *table) reconcile() (ctrl.Result, error) {
	w.Helper()
	return w.r.Reconcile(w.ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "here", Name: "dqn"}})
}

func (w *table) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// job reads the job.
func (w *table) job() *v1alpha1.DIJob {
	w.Helper()
	job := &v1alpha1.DIJob{}
	w.must(w.Get(w.ctx, client.ObjectKey{Namespace: "here", Name: "dqn"}, job))
	return job
}

// names returns the names of the objects of a list.
func (w *table) names(list client.ObjectList) (names []string) {
	w.Helper()
	w.must(w.List(w.ctx, list))
	switch list := list.(type) {
	case *corev1.PodList:
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
	case *corev1.SecretList:
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
	}
	return names
}

// told returns the events so far.
func (w *table) told() (all []string) {
	for len(w.recorder.Events) > 0 {
		all = append(all, <-w.recorder.Events)
	}
	return all
}

var allPods = []string{"dqn-collector-0", "dqn-collector-1", "dqn-evaluator-0", "dqn-learner-0"}

func TestReconcileCreatesMissingObjectsOnce(t *testing.T) {
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "foreign"}}
	w := newTable(t, interceptor.Funcs{}, dqnJob(), foreign)
	for range 2 {
		if result, err := w.reconcile(); err != nil || result != (ctrl.Result{}) {
			t.Fatalf("%v, %v", result, err)
		}
	}
	if got := w.names(&corev1.PodList{}); !slices.Equal(got, append(slices.Clone(allPods), "foreign")) {
		t.Errorf("pods: %v", got)
	}
	if got := w.names(&corev1.SecretList{}); !slices.Equal(got, []string{"dqn-01234567-token"}) {
		t.Errorf("secrets: %v", got)
	}
	key := client.ObjectKey{Namespace: "here", Name: "dqn"}
	w.must(w.Get(w.ctx, key, &corev1.Service{}))
	w.must(w.Get(w.ctx, key, &networkingv1.NetworkPolicy{}))
	if s := w.job().Status; s.JobID != "dqn-01234567" || s.Desired != 4 || s.State != "Pending" {
		t.Errorf("status: %+v", s)
	}
}

func TestReconcileRestoresChangedObjects(t *testing.T) {
	w := newTable(t, interceptor.Funcs{}, dqnJob())
	_, err := w.reconcile()
	w.must(err)
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: "here", Name: "dqn"}
	w.must(w.Get(w.ctx, key, service))
	service.Spec.Selector, service.Spec.PublishNotReadyAddresses = map[string]string{"app": "another"}, false
	w.must(w.Update(w.ctx, service))
	_, err = w.reconcile()
	w.must(err)
	w.must(w.Get(w.ctx, key, service))
	if service.Spec.Selector[labelJobID] != "dqn-01234567" || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("service: %+v", service.Spec)
	}
	// An object that is correct is not written.
	before := service.ResourceVersion
	_, err = w.reconcile()
	w.must(err)
	if w.must(w.Get(w.ctx, key, service)); service.ResourceVersion != before {
		t.Error("the service was written though nothing has changed")
	}
}

func TestReconcileCountsEventsAndRunsAgainAfterTheDelay(t *testing.T) {
	job := dqnJob()
	pods := changed(job, changes{"collector-0": failed})
	w := newTable(t, interceptor.Funcs{}, job, pods[0], pods[1], pods[2], pods[3])
	result, err := w.reconcile()
	if err != nil || result.RequeueAfter != time.Second {
		t.Fatalf("%v, %v", result, err)
	}
	want := []string{"Warning PodFailed dqn-collector-0 (collector, rank 2) failed: Error, exit code 3"}
	if told := w.told(); !slices.Equal(told, want) {
		t.Errorf("events: %q, want %q", told, want)
	}
	families, err := w.registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 1 ||
		families[0].GetMetric()[0].GetLabel()[0].GetValue() != "PodFailed" {
		t.Errorf("metrics: %v, %v", families, err)
	}
	// At the next call the delay is over, and the pod is deleted.
	w.r.Now = func() time.Time { return clock.Add(time.Second) }
	_, err = w.reconcile()
	w.must(err)
	if got := w.names(&corev1.PodList{}); !slices.Equal(got, []string{"dqn-collector-1", "dqn-evaluator-0", "dqn-learner-0"}) {
		t.Errorf("pods: %v", got)
	}
	if told := w.told(); len(told) != 0 {
		t.Errorf("repeated events: %v", told)
	}
}

func TestReconcileOfAJobThatIsOverMakesNothing(t *testing.T) {
	job := dqnJob()
	pods := changed(job, changes{"learner-0": succeeded})
	w := newTable(t, interceptor.Funcs{}, job, pods[0], pods[1], pods[2], pods[3])
	w.r.Metrics = nil // may be nil
	_, err := w.reconcile()
	w.must(err)
	if got := w.names(&corev1.PodList{}); !slices.Equal(got, []string{"dqn-learner-0"}) {
		t.Errorf("pods: %v", got)
	}
	if err := w.Get(w.ctx, client.ObjectKey{Namespace: "here", Name: "dqn"}, &corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("service: %v", err)
	}
	if told := w.told(); !slices.Equal(told, []string{"Normal Succeeded the learner succeeded"}) {
		t.Errorf("told: %q", told)
	}
}

func TestReconcileIgnoresADeletedJob(t *testing.T) {
	going := dqnJob()
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: clock}, []string{"example.com/wait"}
	for name, w := range map[string]*table{"gone": newTable(t, interceptor.Funcs{}), "going": newTable(t, interceptor.Funcs{}, going)} {
		if result, err := w.reconcile(); err != nil || result != (ctrl.Result{}) {
			t.Errorf("%s: %v, %v", name, result, err)
		}
		if pods := w.names(&corev1.PodList{}); len(pods) != 0 {
			t.Errorf("%s: made %v", name, pods)
		}
	}
}

// TestReconcileStopsAtAStaleStatus has a job that another client changes, or deletes, before its status is
// written.
func TestReconcileStopsAtAStaleStatus(t *testing.T) {
	resource := schema.GroupResource{Group: "ditask.dev", Resource: "dijobs"}
	for name, tt := range map[string]struct {
		err  error
		want bool // an error
	}{
		"conflict": {apierrors.NewConflict(resource, "dqn", errors.New("changed")), false},
		"deleted":  {apierrors.NewNotFound(resource, "dqn"), false},
		"broken":   {apierrors.NewInternalError(errors.New("no")), true},
	} {
		w := newTable(t, interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
				...client.SubResourcePatchOption) error {
				return tt.err
			},
		}, dqnJob())
		_, err := w.reconcile()
		if (err != nil) != tt.want || tt.want && !strings.HasPrefix(err.Error(), "write status: ") {
			t.Errorf("%s: %v", name, err)
		}
		if pods, told := w.names(&corev1.PodList{}), w.told(); len(pods) != 0 || len(told) != 0 {
			t.Errorf("%s: created %v, events %v", name, pods, told)
		}
	}
}

// TestStatusIsWrittenOnlyOverTheVersionRead has a cache with an older job.
func TestStatusIsWrittenOnlyOverTheVersionRead(t *testing.T) {
	w := newTable(t, interceptor.Funcs{}, dqnJob())
	stale := w.job()
	job := w.job()
	job.Status.Restarts = 2
	w.must(w.Status().Update(w.ctx, job))
	w.r.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if shown, ok := o.(*v1alpha1.DIJob); ok {
				stale.DeepCopyInto(shown)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	_, err := w.reconcile()
	w.must(err)
	if s := w.job().Status; s.Restarts != 2 || s.JobID != "" || len(w.names(&corev1.PodList{})) != 0 {
		t.Errorf("status: %+v", s)
	}
}

// TestForeignObjectsAreNotChanged has a foreign object of each kind with the name of one of the
// job.
func TestForeignObjectsAreNotChanged(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "here", Name: name} }
	for want, o := range map[string]client.Object{
		"Service dqn":               &corev1.Service{ObjectMeta: meta("dqn")},
		"NetworkPolicy dqn":         &networkingv1.NetworkPolicy{ObjectMeta: meta("dqn")},
		"Secret dqn-01234567-token": &corev1.Secret{ObjectMeta: meta("dqn-01234567-token")},
		"Pod dqn-evaluator-0":       &corev1.Pod{ObjectMeta: meta("dqn-evaluator-0")},
	} {
		w := newTable(t, interceptor.Funcs{}, dqnJob(), o)
		message := want + " exists and does not belong to this job: delete it, or give the job another name"
		for look := range 2 {
			if _, err := w.reconcile(); err == nil || err.Error() != message {
				t.Errorf("%s: %v", want, err)
			}
			c := condition(&w.job().Status, v1alpha1.Created)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "NameTaken" || c.Message != message ||
				c.ObservedGeneration != w.job().Generation {
				t.Errorf("%s: %+v", want, c)
			}
			// The event is emitted once.
			told := slices.DeleteFunc(w.told(), func(e string) bool { return e != "Warning NameTaken "+message })
			if len(told) != 1-look {
				t.Errorf("%s, call %d: events %q", want, look, told)
			}
		}
		w.must(w.Get(w.ctx, client.ObjectKeyFromObject(o), o))
		if len(o.GetOwnerReferences()) != 0 {
			t.Errorf("%s was changed", want)
		}
	}
}

// TestObjectMissingInTheCacheIsAccepted has objects of the job that only the API server returns.
func TestObjectMissingInTheCacheIsAccepted(t *testing.T) {
	w := newTable(t, interceptor.Funcs{}, dqnJob())
	_, err := w.reconcile()
	w.must(err)
	w.r.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.DIJob); ok {
				return c.Get(ctx, key, o, opts...)
			}
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	if _, err := w.reconcile(); err != nil {
		t.Error(err)
	}
}

// TestRefusalsOfTheAPIServer is the table of the errors that a user can correct.
func TestRefusalsOfTheAPIServer(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	ending := apierrors.NewForbidden(pods, "p", errors.New("it ends"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tt := range map[string]struct {
		err    error
		reason string // of the condition Created
		fails  bool
	}{
		"forbidden":                {apierrors.NewForbidden(pods, "p", errors.New("a quota")), "Refused", true},
		"invalid":                  {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), "Refused", true},
		"broken":                   {apierrors.NewInternalError(errors.New("no")), "PodsMissing", true},
		"the namespace is removed": {ending, "PodsMissing", false},
	} {
		w := newTable(t, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, ok := o.(*corev1.Pod); ok {
					return tt.err
				}
				return c.Create(ctx, o, opts...)
			},
		}, dqnJob())
		_, err := w.reconcile()
		if (err != nil) != tt.fails || tt.fails && (!errors.Is(err, tt.err) ||
			!strings.HasPrefix(err.Error(), "create Pod dqn-learner-0: ")) {
			t.Errorf("%s: %v", name, err)
		}
		if c := condition(&w.job().Status, v1alpha1.Created); c == nil || c.Reason != tt.reason {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestErrorsOfTheAPIServerAreReturned makes each call of the reconciler fail.
func TestErrorsOfTheAPIServerAreReturned(t *testing.T) {
	broken := errors.New("broken")
	job := dqnJob()
	pods := changed(job, changes{"learner-0": succeeded})
	for want, calls := range map[string]interceptor.Funcs{
		"broken": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		}},
		" broken": {List: func(context.Context, client.WithWatch, client.ObjectList,
			...client.ListOption) error {
			return broken
		}},
		"delete pod dqn-collector-1: broken": {Delete: func(context.Context, client.WithWatch, client.Object,
			...client.DeleteOption) error {
			return broken
		}},
	} {
		w := newTable(t, calls, job.DeepCopy(), pods[0].DeepCopy(), pods[1].DeepCopy(), pods[2].DeepCopy(), pods[3].DeepCopy())
		if _, err := w.reconcile(); !errors.Is(err, broken) || err.Error() != strings.TrimSpace(want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	// A pod that is already deleted, or was replaced, is no error.
	for name, err := range map[string]error{
		"gone": apierrors.NewNotFound(schema.GroupResource{}, "p"), "replaced": apierrors.NewConflict(schema.GroupResource{}, "p",
			errors.New("uid")),
	} {
		w := newTable(t, interceptor.Funcs{
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return err },
		}, job.DeepCopy(), pods[0].DeepCopy(), pods[1].DeepCopy(), pods[2].DeepCopy(), pods[3].DeepCopy())
		if _, err := w.reconcile(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorsAboutTheServiceAreReturned(t *testing.T) {
	broken := errors.New("broken")
	for want, calls := range map[string]interceptor.Funcs{
		"broken": {Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Service); ok {
				return broken
			}
			return c.Get(ctx, key, o, opts...)
		}},
		"create Service dqn: broken": {Create: func(context.Context, client.WithWatch, client.Object,
			...client.CreateOption) error {
			return broken
		}},
	} {
		w := newTable(t, calls, dqnJob())
		if _, err := w.reconcile(); !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if pods := w.names(&corev1.PodList{}); len(pods) != 0 {
			t.Errorf("%s: made %v", want, pods)
		}
	}
}

// TestRefusalIsNotWrittenIntoAnotherJob has a job that is deleted and created again, while its pod is
// refused.
func TestRefusalIsNotWrittenIntoAnotherJob(t *testing.T) {
	refuse := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.Pod); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("a quota"))
			}
			return c.Create(ctx, o, opts...)
		},
	}
	for uid, reason := range map[types.UID]string{"01234567-89ab": "Refused", "another": "PodsMissing"} {
		w := newTable(t, refuse, dqnJob())
		w.r.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, o, opts...)
				o.SetUID(uid)
				return err
			},
		})
		if _, err := w.reconcile(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", uid, err)
		}
		if c := condition(&w.job().Status, v1alpha1.Created); c == nil || c.Reason != reason {
			t.Errorf("%s: %+v", uid, c)
		}
	}
}
