package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/kubetest"
)

// cluster is the cluster of all tests of this package.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) { cluster = c })
}

// world returns a namespace with a kubelet and an operator.
func world(t *testing.T) *kubetest.World {
	t.Helper()
	w := kubetest.NewWorld(t, cluster)
	operate(w)
	return w
}

// operate runs an operator for the namespaces of some worlds, until the test ends
// or stop is called.
func operate(w *kubetest.World, more ...*kubetest.World) (stop func()) {
	w.Helper()
	options := CacheOptions()
	options.DefaultNamespaces = map[string]cache.Config{w.Namespace: {}}
	for _, other := range more {
		options.DefaultNamespaces[other.Namespace] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(w.Config, ctrl.Options{
		Scheme:     kubetest.Scheme(),
		Cache:      options,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	w.Must(err)
	r := &Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("ditask-operator")}
	w.Must(r.Setup(context.Background(), mgr))
	return kubetest.Run(w.T, mgr.Start)
}

// template returns a pod that would run a node.
func template() v1alpha1.PodTemplate {
	return v1alpha1.PodTemplate{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "ditask:test"}}}}
}

// newJob returns a job, dqn, with one learner, one evaluator and some collectors.
func newJob(w *kubetest.World, collectors int32) *v1alpha1.DIJob {
	return &v1alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "dqn", Namespace: w.Namespace},
		Spec: v1alpha1.DIJobSpec{Tasks: []v1alpha1.Task{
			{Name: "learner", Type: v1alpha1.Learner, Replicas: 1, Template: template()},
			{Name: "evaluator", Type: v1alpha1.Evaluator, Replicas: 1, Template: template()},
			{Name: "collector", Type: v1alpha1.Collector, Replicas: collectors, Template: template()},
		}},
	}
}

// start makes a job and waits until all of its nodes run.
func start(w *kubetest.World, job *v1alpha1.DIJob) *v1alpha1.DIJob {
	w.Helper()
	w.Must(w.Client.Create(w.Ctx, job))
	return w.UntilState(job.Name, v1alpha1.Running)
}

// update changes the job of newJob.
func update(w *kubetest.World, set func(*v1alpha1.DIJob)) {
	w.Helper()
	job := w.Job("dqn")
	before := job.DeepCopy()
	set(job)
	w.Must(w.Client.Patch(w.Ctx, job, client.MergeFrom(before)))
}
