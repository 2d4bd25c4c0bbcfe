package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// +kubebuilder:rbac:groups=ditask.dev,resources=dijobs,verbs=get;list;watch
// +kubebuilder:rbac:groups=ditask.dev,resources=dijobs/status,verbs=get;patch
// +kubebuilder:rbac:groups=ditask.dev,resources=dijobs/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler makes the objects of jobs match their specs. Its fields are set before Setup and not
// changed after.
type Reconciler struct {
	Client  client.Client // reads from a cache
	Live    client.Reader // reads from the API server
	Events  events.EventRecorder
	Metrics *Metrics         // may be nil
	Now     func() time.Time // nil: time.Now
}

// podsByJob is the name of the index of pods by the UID of their job.
const podsByJob = "job-uid"

// Setup registers the reconciler with a manager, which runs it.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podsByJob, ownerOf); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.DIJob{}).
		Owns(&corev1.Pod{}).
		Owns(&corev1.Service{}).
		Owns(&networkingv1.NetworkPolicy{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// ownerOf returns the UID of the object to which an object belongs, for the index podsByJob.
func ownerOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// CacheOptions returns options that keep objects of no job out of the operator's memory.
func CacheOptions() cache.Options {
	ours, err := labels.NewRequirement(labelJobID, selection.Exists, nil)
	if err != nil {
		panic("controller: " + err.Error())
	}
	only := cache.ByObject{Label: labels.NewSelector().Add(*ours)}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: only, &corev1.Service{}: only, &networkingv1.NetworkPolicy{}: only,
	}}
}

// Reconcile reads one job and executes the result of decide. It may be called at any time, any
// number of times.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	job := &v1alpha1.DIJob{}
	if err := r.Client.Get(ctx, req.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if job.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // Kubernetes deletes all objects that it owns
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingFields{podsByJob: string(job.UID)}); err != nil {
		return ctrl.Result{}, err
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	d := decide(job, pods, now())
	if fresh, err := r.writeStatus(ctx, job, d); err != nil || !fresh {
		return ctrl.Result{}, err
	}
	if err := r.act(ctx, job, d); err != nil {
		return ctrl.Result{}, r.refused(ctx, job, d.status, err)
	}
	return ctrl.Result{RequeueAfter: d.after}, nil
}

// writeStatus writes the status, if it has changed, and then emits its events. It reports false for
// a job that has changed meanwhile, for which another reconciliation is already due.
func (r *Reconciler) writeStatus(ctx context.Context, job *v1alpha1.DIJob, d decision) (fresh bool, err error) {
	if equality.Semantic.DeepEqual(job.Status, d.status) {
		return true, nil
	}
	next := job.DeepCopy()
	next.Status = d.status
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, next, patch); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("write status: %w", err)
	}
	for _, e := range d.events {
		r.tell(job, e)
	}
	return true, nil
}

// act creates the missing objects of the job, and deletes those in excess.
func (r *Reconciler) act(ctx context.Context, job *v1alpha1.DIJob, d decision) error {
	if d.status.CompletionTime == nil {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}}
		if err := r.ensure(ctx, job, service, func() { setService(job, service) }); err != nil {
			return err
		}
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}}
		if err := r.ensure(ctx, job, policy, func() { setPolicy(job, policy) }); err != nil {
			return err
		}
	}
	for _, pod := range d.remove {
		err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s: %w", pod.Name, err)
		}
	}
	if len(d.create) == 0 {
		return nil
	}
	if err := r.create(ctx, job, newSecret(job)); err != nil {
		return err
	}
	for _, n := range d.create {
		if err := r.create(ctx, job, newPod(job, n)); err != nil {
			return err
		}
	}
	return nil
}

// nameTakenError reports that an object of this name exists and does not belong to the job.
type nameTakenError struct{ kind, name string }

func (e *nameTakenError) Error() string {
	return fmt.Sprintf("%s %s exists and does not belong to this job: delete it, or give the job another name", e.kind, e.name)
}

// create creates an object of the job. It is no error if the job already has one that is not in the
// cache.
func (r *Reconciler) create(ctx context.Context, job *v1alpha1.DIJob, o client.Object) error {
	existing := o.DeepCopyObject().(client.Object)
	err := r.Client.Create(ctx, o)
	if !apierrors.IsAlreadyExists(err) {
		return wrap("create", r.kind(o), o.GetName(), err)
	}
	return r.mine(ctx, job, existing)
}

// mine reads an object from the API server, and reports whether it belongs to the job.
func (r *Reconciler) mine(ctx context.Context, job *v1alpha1.DIJob, o client.Object) error {
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return wrap("read", r.kind(o), o.GetName(), err)
	}
	if !metav1.IsControlledBy(o, job) {
		return &nameTakenError{r.kind(o), o.GetName()}
	}
	return nil
}

// ensure creates an object, or restores the fields that another client has changed; set sets the
// fields that the job determines.
func (r *Reconciler) ensure(ctx context.Context, job *v1alpha1.DIJob, o client.Object, set func()) error {
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		set()
		if err = r.Client.Create(ctx, o); !apierrors.IsAlreadyExists(err) {
			return wrap("create", r.kind(o), o.GetName(), err)
		}
		err = r.mine(ctx, job, o)
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(o, job) {
		return &nameTakenError{r.kind(o), o.GetName()}
	}
	before := o.DeepCopyObject().(client.Object)
	set()
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	return wrap("patch", r.kind(o), o.GetName(), r.Client.Patch(ctx, o, client.MergeFrom(before)))
}

func (r *Reconciler) kind(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, r.Client.Scheme())
	if err != nil {
		return "object"
	}
	return gvk.Kind
}

func wrap(verb, kind, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", verb, kind, name, err)
}

// refused writes an error that a user can correct into the condition Created, and returns the
// error, so that the call is repeated, at growing intervals.
func (r *Reconciler) refused(ctx context.Context, job *v1alpha1.DIJob, status v1alpha1.DIJobStatus, err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	reason := "Refused"
	if _, taken := errors.AsType[*nameTakenError](err); taken {
		reason = "NameTaken"
	} else if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return err
	}
	fresh := &v1alpha1.DIJob{}
	if readErr := r.Live.Get(ctx, client.ObjectKeyFromObject(job), fresh); readErr != nil {
		return errors.Join(err, client.IgnoreNotFound(readErr))
	}
	next := fresh.DeepCopy()
	changed := meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: v1alpha1.Created, Status: metav1.ConditionFalse, Reason: reason, Message: short(err.Error()),
		ObservedGeneration: fresh.Generation,
	})
	if !changed || fresh.UID != job.UID || status.CompletionTime != nil {
		return err
	}
	patch := client.MergeFromWithOptions(fresh, client.MergeFromWithOptimisticLock{})
	if patchErr := r.Client.Status().Patch(ctx, next, patch); patchErr != nil {
		return errors.Join(err, patchErr)
	}
	r.tell(job, event{true, reason, short(err.Error())})
	return err
}

// tell emits an event of a job, and counts it.
func (r *Reconciler) tell(job *v1alpha1.DIJob, e event) {
	kind := corev1.EventTypeNormal
	if e.warning {
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(job, nil, kind, e.reason, "Reconcile", "%s", e.note)
	r.Metrics.count(e.reason)
}
