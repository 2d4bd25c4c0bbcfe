package kubetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// patience is how long a test waits for what must come. It is no measure of
// anything: a busy machine is slow.
const patience = 4 * time.Minute

// World is a namespace of a cluster, as a test sees it.
type World struct {
	*testing.T
	*Cluster
	*Kubelet
	Namespace string
	Ctx       context.Context

	changed chan struct{} // something has changed since the last look; capacity 1
}

// NewWorld makes a namespace with a kubelet.
func NewWorld(t *testing.T, c *Cluster) *World {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := Need(t, c).Client.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	w := &World{T: t, Cluster: c, Namespace: ns.Name, Ctx: ctx, changed: make(chan struct{}, 1)}
	w.watch()
	w.Kubelet = StartKubelet(t, c, ns.Name, w.tell)
	return w
}

// watch makes changed tell of every change in the namespace.
func (w *World) watch() {
	w.Helper()
	all, err := cache.New(w.Config, cache.Options{
		Scheme: Scheme(), DefaultNamespaces: map[string]cache.Config{w.Namespace: {}},
	})
	if err != nil {
		w.Fatal(err)
	}
	for _, o := range []client.Object{
		&v1alpha1.DIJob{}, &corev1.Pod{}, &corev1.Service{}, &corev1.Secret{}, &networkingv1.NetworkPolicy{}, &eventsv1.Event{},
	} {
		informer, err := all.GetInformer(w.Ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			w.Fatal(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { w.tell() }, UpdateFunc: func(any, any) { w.tell() }, DeleteFunc: func(any) { w.tell() },
		}); err != nil {
			w.Fatal(err)
		}
	}
	Run(w.T, all.Start)
}

// tell lets Until look again.
func (w *World) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Until waits for a state of the namespace, looking again whenever something has
// changed; is says what it sees instead.
func (w *World) Until(what string, is func() (ok bool, sees any)) {
	w.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		ok, sees := is()
		if ok {
			return
		}
		select {
		case <-w.changed:
		case <-limit.C:
			w.Fatalf("waited in vain for: %s; there is: %v", what, sees)
		}
	}
}

// Must stops the test on an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Job reads a job.
func (w *World) Job(name string) *v1alpha1.DIJob {
	w.Helper()
	job := &v1alpha1.DIJob{}
	w.Must(w.Client.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, job))
	return job
}

// Pods reads all pods, by name.
func (w *World) Pods() map[string]*corev1.Pod {
	w.Helper()
	var list corev1.PodList
	w.Must(w.Client.List(w.Ctx, &list, client.InNamespace(w.Namespace)))
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

// UntilState waits until a job is in a state, and the operator has seen the latest of it.
func (w *World) UntilState(name, state string) *v1alpha1.DIJob {
	w.Helper()
	var job *v1alpha1.DIJob
	w.Until(fmt.Sprintf("job %s is %s", name, state), func() (bool, any) {
		job = w.Job(name)
		seen := len(job.Status.Conditions) > 0 && job.Status.Conditions[0].ObservedGeneration == job.Generation
		return seen && job.Status.State == state, fmt.Sprintf("%+v", job.Status)
	})
	return job
}

// UntilEvent waits for an event with a reason about an object of a name.
func (w *World) UntilEvent(name, reason string) {
	w.Helper()
	w.Until(fmt.Sprintf("event %s of %s", reason, name), func() (bool, any) {
		var list eventsv1.EventList
		w.Must(w.Client.List(w.Ctx, &list, client.InNamespace(w.Namespace)))
		var seen []string
		for _, e := range list.Items {
			seen = append(seen, e.Regarding.Name+" "+e.Reason+": "+e.Note)
			if e.Regarding.Name == name && e.Reason == reason {
				return true, nil
			}
		}
		return false, seen
	})
}

// Changed lets Until look again, for changes that are not those of objects.
func (w *World) Changed() { w.tell() }
