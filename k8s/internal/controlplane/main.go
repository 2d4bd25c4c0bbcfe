// Command controlplane is a Kubernetes control plane in one program: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kubectl. The name by
// which it is called, or else its first argument, chooses one of them. The tests of
// the operator run against it, because Go modules are available in places where the
// released files of these programs are not.
//
// With CONTROLPLANE_TIED set it ends with the process that started it, so that a
// killed test leaves no server behind.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if os.Getenv("CONTROLPLANE_TIED") != "" {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			fmt.Fprintln(os.Stderr, "controlplane: tie to the parent:", err)
			os.Exit(1)
		}
	}
	args := os.Args
	if filepath.Base(args[0]) == "controlplane" && len(args) > 1 {
		args = args[1:]
	}
	args[0] = filepath.Base(args[0])

	programs := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	os.Args = args
	if args[0] == "etcd" {
		etcdmain.Main(args)
		return
	}
	program, ok := programs[args[0]]
	if !ok {
		fmt.Fprintln(os.Stderr, "controlplane: call it as etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubectl")
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
