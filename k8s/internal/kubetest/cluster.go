package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/ditask/ditask/k8s/api/v1alpha1"
)

// Cluster is a control plane that runs, or one that this machine does not have.
type Cluster struct {
	Config     *rest.Config
	Client     client.WithWatch // reads from the API server
	Kubeconfig string           // a file for kubectl

	env         *envtest.Environment
	folder      string
	controllers *exec.Cmd
	log         bytes.Buffer // of the controllers; read after they have ended

	absent  bool         // the programs are not there
	skipped atomic.Int32 // tests that wanted the programs
}

// Main runs the tests of a package with one cluster for all; set takes it. Where the programs
// are not there the tests that need them are skipped, and one line says how many; with CI set
// they fail.
func Main(m *testing.M, set func(*Cluster)) {
	code := func() int {
		if os.Getenv("KUBEBUILDER_ASSETS") == "" {
			c := &Cluster{absent: true}
			set(c)
			code := m.Run()
			if n := c.skipped.Load(); n > 0 {
				fmt.Fprintf(os.Stderr, "kubetest: %d tests were skipped: %s\n", n, noPrograms)
			}
			return code
		}
		err := os.Setenv("CONTROLPLANE_TIED", "1")
		var c *Cluster
		if err == nil {
			c, err = Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
			return 1
		}
		set(c)
		ctrl.SetLogger(logr.Discard())
		code := m.Run()
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
			return 1
		}
		return code
	}()
	os.Exit(code)
}

const noPrograms = "there is no control plane: run make control-plane, and set KUBEBUILDER_ASSETS as it says"

// Need skips a test that has no cluster, or fails it on CI.
func Need(t testing.TB, c *Cluster) *Cluster {
	t.Helper()
	if !c.absent {
		return c
	}
	if os.Getenv("CI") != "" {
		t.Fatal(noPrograms)
	}
	c.skipped.Add(1)
	t.Skip(noPrograms)
	return nil
}

// Scheme knows the types of Kubernetes and DIJob.
func Scheme() *kruntime.Scheme {
	s := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic("kubetest: " + err.Error())
	}
	return s
}

// Repository returns the folder of the module k8s.
func Repository() string {
	_, file, _, _ := runtime.Caller(0) //nolint:dogsled // the rest is not asked for
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Source returns the folder with the source of sigs.k8s.io/jobset or sigs.k8s.io/lws, at
// the version of k8s/internal/controllers.
func Source(t testing.TB, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", path)
	cmd.Dir = filepath.Join(Repository(), "internal", "controllers")
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		t.Fatalf("%v: %s", err, module.Error)
	}
	return module.Dir
}

// Start starts a control plane on loopback, with DIJob installed.
func Start() (*Cluster, error) {
	folder, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{folder: folder}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start() (err error) {
	c.env = &envtest.Environment{
		ControlPlaneStartTimeout: 3 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	// A separate folder, which outlives a restart of the API server.
	certs := filepath.Join(c.folder, "certs")
	if err := os.Mkdir(certs, 0o700); err != nil {
		return err
	}
	c.env.ControlPlane.GetAPIServer().CertDir = certs
	if c.Config, err = c.env.Start(); err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	c.Config.QPS, c.Config.Burst = 500, 1000
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	if c.Kubeconfig, err = c.WriteKubeconfig("admin", rest.ImpersonationConfig{}); err != nil {
		return err
	}
	if _, err := define(c.Config, filepath.Join(Repository(), "config", "crd")); err != nil {
		return err
	}
	return c.startControllers()
}

// WriteKubeconfig writes a file with which a program reaches the cluster, as
// another user if as names one.
func (c *Cluster) WriteKubeconfig(name string, as rest.ImpersonationConfig) (file string, err error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.Config.CertData, ClientKeyData: c.Config.KeyData,
		Impersonate: as.UserName, ImpersonateGroups: as.Groups,
	}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	file = filepath.Join(c.folder, name+".kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// startControllers runs the garbage collector, without which nothing goes with
// what owns it.
func (c *Cluster) startControllers() error {
	c.controllers = exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"), //nolint:noctx // Stop ends it
		"--kubeconfig", c.Kubeconfig, "--controllers=garbage-collector-controller,namespace-controller",
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false")
	c.controllers.Stdout, c.controllers.Stderr = &c.log, &c.log
	c.controllers.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c.controllers.Start()
}

// Stop stops what Start started.
func (c *Cluster) Stop() error {
	var err error
	if c.controllers != nil && c.controllers.Process != nil {
		err = c.controllers.Process.Kill()
		if waitErr := c.controllers.Wait(); err == nil && c.controllers.ProcessState.Exited() {
			err = fmt.Errorf("kube-controller-manager ended by itself: %w\n%s", waitErr, c.log.Bytes())
		}
	}
	if c.env != nil {
		err = errors.Join(err, c.env.Stop())
	}
	return errors.Join(err, os.RemoveAll(c.folder))
}

// KillAPIServer kills the API server and leaves etcd; StartAPIServer starts it
// again, on the same port.
func (c *Cluster) KillAPIServer() error {
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return err
	}
	killed := 0
	for _, file := range children {
		pids, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			command, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if err != nil || !strings.Contains(string(command), "kube-apiserver\x00") {
				continue
			}
			n, err := strconv.Atoi(pid)
			if err != nil {
				return err
			}
			if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill the API server: %w", err)
			}
			killed++
		}
	}
	if killed != 1 {
		return fmt.Errorf("%d API servers run, want 1", killed)
	}
	// It reports that there is no such process, or has seen that it ended.
	_ = c.env.ControlPlane.GetAPIServer().Stop()
	return nil
}

// StartAPIServer starts an API server that KillAPIServer has killed.
func (c *Cluster) StartAPIServer() error { return c.env.ControlPlane.GetAPIServer().Start() }

// Kubectl runs kubectl, and returns what it prints; the error has it too.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
		append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(c.folder, "cache"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
	}
	return string(out), err
}
