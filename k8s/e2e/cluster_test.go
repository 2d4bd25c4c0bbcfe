//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/ditask/ditask/k8s/internal/kubetest"
)

const (
	services   = "10.96.0.0/16"
	apiService = "10.96.0.1"
	// patience is the maximum time of each wait of the test. It is not a requirement, because a
	// busy machine is slow.
	patience = 6 * time.Minute
)

// cluster is a running Kubernetes. Its processes end with their namespaces.
type cluster struct {
	client   client.WithWatch
	machines []*machine

	env        *envtest.Environment
	kubeconfig string // of the administrator
	logs       string // a folder
}

// newCluster starts a control plane and some machines, and waits until they are ready.
func newCluster(logs string, machines int) (*cluster, error) {
	c := &cluster{logs: logs, kubeconfig: filepath.Join(folder, "admin")}
	certs := filepath.Join(folder, "certs")
	if err := errors.Join(os.MkdirAll(certs, 0o700), os.MkdirAll(filepath.Join(folder, "shared"), 0o700),
		os.Chmod(filepath.Join(folder, "shared"), 0o777),
		run("ip", "link", "add", "hub", "type", "bridge"), run("ip", "addr", "add", hub+"/24", "dev", "hub"), run("ip", "link", "set", "hub",
			"up"),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)); err != nil {
		return nil, err
	}
	for k := range machines {
		m, err := newMachine(k, machines)
		if err != nil {
			return nil, err
		}
		c.machines = append(c.machines, m)
	}
	if err := c.startControlPlane(certs); err != nil {
		return nil, err
	}
	for _, m := range c.machines {
		if err := m.start(c); err != nil {
			return nil, err
		}
	}
	return c, c.until("all machines are Ready", func() (bool, error) {
		var nodes corev1.NodeList
		err := c.client.List(context.Background(), &nodes)
		ready := 0
		for _, n := range nodes.Items {
			if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady &&
					c.Status == "True"
			}) {
				ready++
			}
		}
		return ready == machines, err
	})
}

// startControlPlane starts etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, and a name server for the pods.
func (c *cluster) startControlPlane(certs string) error {
	crt, key, err := cert.GenerateSelfSignedCertKey(hub, []net.IP{net.ParseIP(apiService)}, []string{"kubernetes.default.svc"})
	if err != nil {
		return err
	}
	signer, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(certs, name) }
	log, err := os.Create(filepath.Join(c.logs, "kube-apiserver.log"))
	if err := errors.Join(err, os.WriteFile(file("apiserver.crt"), crt, 0o600), os.WriteFile(file("apiserver.key"), key, 0o600),
		os.WriteFile(file("signer.key"), signer, 0o600)); err != nil {
		return err
	}
	c.env = &envtest.Environment{ControlPlaneStartTimeout: patience}
	server := c.env.ControlPlane.GetAPIServer()
	server.CertDir, server.CA, server.Out, server.Err = certs, crt, log, log
	server.Address, server.Port = hub, "6443"
	server.Configure().
		Disable("disable-admission-plugins").Set("enable-admission-plugins", "NodeRestriction").
		Set("authorization-mode", "Node,RBAC").
		Set("service-cluster-ip-range", services).
		Set("service-account-key-file", file("signer.key")).Set("service-account-signing-key-file", file("signer.key")).
		Set("service-account-issuer", "https://kubernetes.default.svc").
		Set("kubelet-preferred-address-types", "InternalIP").
		Set("enable-aggregator-routing", "true"). // webhooks are called at their pods: the API server does not route services here
		Set("default-not-ready-toleration-seconds", "5").Set("default-unreachable-toleration-seconds", "5")
	config, err := c.env.Start()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.kubeconfig, c.env.KubeConfig, 0o600); err != nil {
		return err
	}
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: kubetest.Scheme()}); err != nil {
		return err
	}
	zone := fmt.Sprintf(".:53 {\n bind %s\n errors\n kubernetes cluster.local {\n  kubeconfig %s\n }\n}\n", hub, c.kubeconfig)
	if err := os.WriteFile(filepath.Join(folder, "Corefile"), []byte(zone), 0o600); err != nil {
		return err
	}
	if err := errors.Join(
		c.daemon("kube-controller-manager", c.program("kube-controller-manager"), "--kubeconfig", c.kubeconfig, "--leader-elect=false",
			"--root-ca-file", file("apiserver.crt"), "--service-account-private-key-file", file("signer.key"),
			"--node-monitor-period=2s", "--node-monitor-grace-period=20s"),
		c.daemon("kube-scheduler", c.program("kube-scheduler"), "--kubeconfig", c.kubeconfig, "--leader-elect=false"),
		c.daemon("coredns", os.Getenv("COREDNS"), "-conf", filepath.Join(folder, "Corefile")),
	); err != nil {
		return err
	}
	names := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, hub+":53")
	}}
	return c.until("the name server answers", func() (bool, error) {
		found, err := names.LookupHost(context.Background(), "kubernetes.default.svc.cluster.local")
		return err == nil && len(found) == 1 && found[0] == apiService, nil
	})
}

// program returns the path of one of Kubernetes' programs.
func (c *cluster) program(name string) string {
	return filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name)
}

// kubeconfigOf writes the kubeconfig of a user, and returns its path.
func (c *cluster) kubeconfigOf(user, group string) string {
	file := filepath.Join(folder, strings.ReplaceAll(user, ":", "-"))
	u, err := c.env.AddUser(envtest.User{Name: user, Groups: []string{group}}, nil)
	if err != nil {
		panic(err) // the key is in memory, so signing does not fail
	}
	text, err := u.KubeConfig()
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		panic(err)
	}
	return file
}

// daemon starts a program that runs until the namespaces end.
func (c *cluster) daemon(name string, args ...string) error {
	log, err := os.Create(filepath.Join(c.logs, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, folder
	return errors.Join(cmd.Start(), log.Close())
}

// kubectl runs kubectl, as a user would, and returns what it prints.
func (c *cluster) kubectl(args ...string) (string, error) { return c.kubectlWith("", args...) }

// kubectlWith is kubectl with text on its standard input.
func (c *cluster) kubectlWith(input string, args ...string) (string, error) {
	cmd := exec.Command(c.program("kubectl"), args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "KUBECACHEDIR="+filepath.Join(folder, "cache"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), err
}

// until waits for a state, and checks it several times per second.
func (c *cluster) until(what string, is func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(context.Background(), 200*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return is() })
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}
