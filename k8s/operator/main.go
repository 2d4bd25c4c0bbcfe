// Command operator runs DIJobs on Kubernetes.
//
// It needs the CustomResourceDefinition in k8s/config/crd and the rights in k8s/config/rbac.
// Several operators may run; with --leader-elect one of them works and the others wait. SIGTERM
// ends it in order: it finishes the current work, releases its lease, and exits with code 0.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
	"github.com/ditask/ditask/k8s/internal/controller"
)

// config has the values of the flags.
type config struct {
	metrics, health      string // addresses; 0: none
	namespace            string // empty: all
	elect                bool
	electionNamespace    string
	logFormat            string
	queriesASecond, peak int
}

func main() {
	var c config
	flag.StringVar(&c.metrics, "metrics-address", ":8080", "`address` of /metrics; 0: none")
	flag.StringVar(&c.health, "health-address", ":8081", "`address` of /healthz and /readyz; 0: none")
	flag.StringVar(&c.namespace, "namespace", "", "`namespace` whose jobs are run; empty: all")
	flag.BoolVar(&c.elect, "leader-elect", false, "work only while holding the lease operator.ditask.dev")
	flag.StringVar(&c.electionNamespace, "leader-election-namespace", "", "`namespace` of the lease; empty: the pod's own")
	flag.StringVar(&c.logFormat, "log-format", "json", "`form` of log lines: json or text")
	flag.IntVar(&c.queriesASecond, "api-qps", 50, "`requests` a second to the API server")
	flag.IntVar(&c.peak, "api-burst", 100, "`requests` at once to the API server")
	flag.Parse()

	ctx := ctrl.SetupSignalHandler()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) error {
	handler := slog.Handler(slog.NewJSONHandler(os.Stderr, nil))
	if c.logFormat == "text" {
		handler = slog.NewTextHandler(os.Stderr, nil)
	}
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	cluster, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	mgr, err := manager(cluster, c)
	if err != nil {
		return err
	}
	counters, err := controller.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Events: mgr.GetEventRecorder("ditask-operator"), Metrics: counters,
	}
	if err := r.Setup(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func manager(cluster *rest.Config, c config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cluster.QPS, cluster.Burst = float32(c.queriesASecond), c.peak
	cached := controller.CacheOptions()
	if c.namespace != "" {
		cached.DefaultNamespaces = map[string]cache.Config{c.namespace: {}}
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cached,
		Metrics:                       metricsserver.Options{BindAddress: c.metrics},
		HealthProbeBindAddress:        c.health,
		LeaderElection:                c.elect,
		LeaderElectionID:              "operator.ditask.dev",
		LeaderElectionNamespace:       c.electionNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("ping", healthz.Ping)
}
