package kubetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Kubelet takes the part of the scheduler and of a kubelet for the pods of one
// namespace: all of them start at once, and end when they are deleted.
type Kubelet struct {
	client client.Client
	live   client.Reader
	tell   func() // called after the results of the methods below change

	mu      sync.Mutex
	stuck   map[string]corev1.ContainerStateWaiting // pods that do not start, by name
	held    map[string]bool                         // pods that do not end when they are deleted
	drained []string                                // pods that were asked to end, in that order
	made    map[string][]types.UID                  // every pod that was seen, by name
}

// StartKubelet runs a kubelet until the test ends; it calls tell whenever it has
// seen something new.
func StartKubelet(t *testing.T, c *Cluster, namespace string, tell func()) *Kubelet {
	t.Helper()
	mgr, err := ctrl.NewManager(c.Config, ctrl.Options{
		Scheme:     Scheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	k := &Kubelet{client: mgr.GetClient(), live: mgr.GetAPIReader(), tell: tell, stuck: map[string]corev1.ContainerStateWaiting{},
		held: map[string]bool{}, made: map[string][]types.UID{}}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(k); err != nil {
		t.Fatal(err)
	}
	Run(t, mgr.Start)
	return k
}

// Run runs start until the test ends, or until stop is called.
func Run(t *testing.T, start func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("it ended with: %v", err)
			}
		case <-time.After(patience):
			t.Error("it does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// Reconcile acts as the kubelet for one pod.
func (k *Kubelet) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	k.mu.Lock()
	if !slices.Contains(k.made[pod.Name], pod.UID) {
		k.made[pod.Name] = append(k.made[pod.Name], pod.UID)
	}
	waiting, stuck := k.stuck[pod.Name]
	held := k.held[pod.Name]
	if pod.DeletionTimestamp != nil && !slices.Contains(k.drained, pod.Name) {
		k.drained = append(k.drained, pod.Name)
	}
	k.mu.Unlock()
	k.tell()

	err := k.serve(ctx, pod, held, stuck, waiting)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // the pod has changed: there will be another call
	}
	return ctrl.Result{}, err
}

func (k *Kubelet) serve(ctx context.Context, pod *corev1.Pod, held, stuck bool, waiting corev1.ContainerStateWaiting) error {
	switch {
	case pod.DeletionTimestamp != nil && !held:
		return k.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.DeletionTimestamp != nil:
		return nil
	case pod.Spec.NodeName == "":
		return k.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "test-node"}})
	case stuck:
		status := waitingStatus(pod, waiting)
		if s := pod.Status.ContainerStatuses; len(s) > 0 && s[0].State.Waiting != nil && *s[0].State.Waiting == waiting {
			return nil
		}
		return k.setStatus(ctx, pod, status)
	case pod.Status.Phase == corev1.PodPending:
		return k.setStatus(ctx, pod, runningStatus(pod))
	}
	return nil
}

func (k *Kubelet) setStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	pod = pod.DeepCopy()
	status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	pod.Status = status
	return k.client.Status().Update(ctx, pod)
}

func waitingStatus(pod *corev1.Pod, waiting corev1.ContainerStateWaiting) corev1.PodStatus {
	c := pod.Spec.Containers[0]
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: c.Name, Image: c.Image, State: corev1.ContainerState{Waiting: &waiting},
	}}}
}

func runningStatus(pod *corev1.Pod) corev1.PodStatus {
	c := pod.Spec.Containers[0]
	now := metav1.Now()
	return corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: c.Name, Image: c.Image, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	}
}

// Stick keeps a pod of this name from starting, with a reason.
func (k *Kubelet) Stick(name, reason, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stuck[name] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

// Unstick lets a pod start that Stick has kept from it.
func (k *Kubelet) Unstick(ctx context.Context, namespace, name string) error {
	k.mu.Lock()
	delete(k.stuck, name)
	k.mu.Unlock()
	return k.change(ctx, namespace, name, corev1.PodPending, func(pod *corev1.Pod) { pod.Status = runningStatus(pod) })
}

// Hold keeps pods of these names from ending when they are deleted.
func (k *Kubelet) Hold(names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		k.held[name] = true
	}
}

// Release lets a pod that was held, and is being deleted, end.
func (k *Kubelet) Release(ctx context.Context, namespace, name string) error {
	k.mu.Lock()
	delete(k.held, name)
	k.mu.Unlock()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return k.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

// Drained returns the running pods that were asked to end, in that order.
func (k *Kubelet) Drained() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.drained)
}

// Made reports how many pods of a name there have been.
func (k *Kubelet) Made(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.made[name])
}

// Exit ends the first container of a pod with a code and the last lines of its log.
func (k *Kubelet) Exit(ctx context.Context, namespace, name string, code int32, log string) error {
	reason := "Completed"
	phase := corev1.PodSucceeded
	if code != 0 {
		reason, phase = "Error", corev1.PodFailed
	}
	return k.change(ctx, namespace, name, corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Status.Phase = phase
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, Message: log, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
			}},
		}}
	})
}

// Evict ends a pod as a kubelet does that runs out of memory or disk.
func (k *Kubelet) Evict(ctx context.Context, namespace, name string) error {
	return k.change(ctx, namespace, name, corev1.PodRunning, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet",
			Message: "The node was low on resource: memory.", LastTransitionTime: metav1.Now(),
		})
	})
}

// change writes the status of a pod that is in a phase.
func (k *Kubelet) change(ctx context.Context, namespace, name string, phase corev1.PodPhase, set func(*corev1.Pod)) error {
	for {
		pod := &corev1.Pod{}
		if err := k.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != phase {
			return fmt.Errorf("pod %s is %s, not %s", name, pod.Status.Phase, phase)
		}
		set(pod)
		if err := k.client.Status().Update(ctx, pod); !apierrors.IsConflict(err) {
			return err
		}
	}
}
