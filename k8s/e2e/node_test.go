//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The networks: machines on a bridge, the control plane at its first address, pods
// of machine n in their own network, and Services.
const (
	hub        = "10.87.0.1"
	machineNet = "10.87.0.%d"
	podNet     = "10.88.%d.0/24"
	firstAddr  = 10 // of machine 0
)

// machine is one node of the cluster: namespaces for network, mounts and the host's
// name, with a kubelet, a containerd and a kube-proxy.
type machine struct {
	number int
	name   string
	addr   string
	dir    string // its disk
	holder *exec.Cmd
}

// newMachine makes the namespaces, with a link to the bridge and routes to the pods
// of the other machines.
func newMachine(number, of int) (*machine, error) {
	m := &machine{number: number, name: fmt.Sprintf("node-%d", number), addr: fmt.Sprintf(machineNet, firstAddr+number)}
	m.dir = filepath.Join(folder, m.name)
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	m.holder = exec.Command("sleep", "infinity")
	m.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS, Unshareflags: syscall.CLONE_NEWNS}
	if err := m.holder.Start(); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(m.holder.Process.Pid)
	err := errors.Join(
		run("ip", "link", "add", m.name, "type", "veth", "peer", "name", "eth0", "netns", pid),
		run("ip", "link", "set", m.name, "master", "hub", "up"),
		run("ip", "route", "add", fmt.Sprintf(podNet, number), "via", m.addr),
	)
	// The kubelet sets some switches of the whole machine's kernel, unless they are
	// set: it is shown files that report it.
	script := []string{
		"set -e", "hostname " + m.name, "mount -t tmpfs tmpfs /run", "mount -t tmpfs tmpfs /var/lib", "mount -t tmpfs tmpfs /var/log",
		"ip link set lo up", "ip addr add " + m.addr + "/24 dev eth0", "ip link set eth0 up", "ip route add default via " + hub,
		"echo 1 > /proc/sys/net/ipv4/ip_forward", "echo nameserver " + hub + " > /run/resolv.conf",
		"mount --bind /run/resolv.conf /etc/resolv.conf",
		"n=0; for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 " +
			"kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do" +
			" n=$((n+1)); echo ${s#*=} > /run/switch-$n; mount --bind /run/switch-$n /proc/sys/${s%=*}; done",
	}
	for other := range of {
		if other != number {
			script = append(script, fmt.Sprintf("ip route add "+podNet+" via "+machineNet, other, firstAddr+other))
		}
	}
	return m, errors.Join(err, run(m.inside("sh", "-c", strings.Join(script, "\n"))...))
}

// inside returns a command in the machine's namespaces.
func (m *machine) inside(args ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(m.holder.Process.Pid), "--mount", "--net", "--uts"}, args...)
}

// start starts the programs of the machine, except those that need images.
func (m *machine) start(c *cluster) error {
	files := map[string]string{
		"containerd.toml": m.containerdConfig(),
		"cni/net.conflist": fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": %q, "dataDir": "/run/cni"}},
  {"type": "loopback"}]}`, fmt.Sprintf(podNet, m.number)),
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [` + hub + `]
clusterDomain: cluster.local
nodeStatusUpdateFrequency: 2s
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi}
imageGCHighThresholdPercent: 100
`,
		"proxy.yaml": fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0}
`, m.name, c.kubeconfigOf("system:kube-proxy", "system:node-proxier")),
	}
	for file, text := range files {
		file = filepath.Join(m.dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	if err := c.daemon(m.name+"-containerd", m.inside("containerd", "--config", m.dir+"/containerd.toml")...); err != nil {
		return err
	}
	if err := c.until("containerd of "+m.name+" answers", func() (bool, error) { return run(m.ctr("version")...) == nil, nil }); err != nil {
		return err
	}
	if err := run(m.ctr("images", "import", filepath.Join(folder, archive))...); err != nil {
		return err
	}
	return errors.Join(
		c.daemon(m.name+"-kubelet", m.inside(c.program("node"), "kubelet", "--config", m.dir+"/kubelet.yaml", "--root-dir", m.dir+"/kubelet",
			"--kubeconfig", c.kubeconfigOf("system:node:"+m.name, "system:nodes"), "--hostname-override", m.name, "--node-ip", m.addr)...),
		c.daemon(m.name+"-proxy", m.inside(c.program("node"), "kube-proxy", "--config", m.dir+"/proxy.yaml")...),
	)
}

// ctr returns a command of containerd's own client.
func (m *machine) ctr(args ...string) []string {
	return m.inside(append([]string{"ctr", "--namespace", "k8s.io"}, args...)...)
}

// link cuts the machine off, or heals it: state is down or up.
func (m *machine) link(state string) error { return run("ip", "link", "set", m.name, state) }

func (m *machine) containerdConfig() string {
	return fmt.Sprintf(`version = 2
root = "%[1]s/containerd"
state = "/run/containerd"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[2]q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/cni"
`, m.dir, pauseImage)
}
