// Command node is the kubelet and kube-proxy of a Kubernetes node in one program. The
// name by which it is called, or else its first argument, chooses one of them. The
// end-to-end test runs several.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	args := os.Args
	if filepath.Base(args[0]) == "node" && len(args) > 1 {
		args = args[1:]
	}
	args[0] = filepath.Base(args[0])
	os.Args = args
	switch args[0] {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kube-proxy":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	default:
		fmt.Fprintln(os.Stderr, "node: call it as kubelet or kube-proxy")
		os.Exit(2)
	}
}
