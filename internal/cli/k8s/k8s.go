// Package k8s is the command "ditask k8s", for what surrounds a job in Kubernetes: it
// writes manifests, kustomizations and charts, submits a job and follows it to its end,
// and shows, scales and deletes the jobs that there are.
//
//	app.Commands = append(app.Commands, k8s.Command(c))
//
// It talks to the cluster by the user's kubectl alone. What the launcher in each pod makes
// of its variables is in packages job and parallel/kube; the operator of DIJob is a
// module of its own, in the folder k8s at the top.
package k8s

import (
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
)

// groupKubectl is the group of flags that say how the cluster is reached.
const groupKubectl = "Cluster"

// command has the actions of one call.
type command struct{ *call.Call }

// Command is the command for what surrounds a job in Kubernetes.
func Command(of *call.Call) *urfave.Command {
	c := command{of}
	return &urfave.Command{
		Name: "k8s", Usage: "run jobs in Kubernetes: write manifests, submit, watch, scale and delete",
		Action: func(*urfave.Context) error {
			return call.Usage("ditask k8s: want manifest, submit, status, logs, scale or delete: see ditask k8s --help")
		},
		Subcommands: append(c.manifestCommands(), c.jobCommands()...),
	}
}

// manifestCommands make jobs.
func (c command) manifestCommands() []*urfave.Command {
	return []*urfave.Command{
		{
			Name: "manifest", Usage: "print the objects that run the job, a launcher in each pod; or write them as a kustomization or a chart",
			Description: `   ditask k8s manifest --name dqn --image REGISTRY/dqn:1 --pods 4 | kubectl apply -f -
   ditask k8s manifest --kind dijob --name dqn --image REGISTRY/dqn:1 --task learner:learner:1:1 --task collector:collector:8 --max-replicas 16
   ditask k8s manifest --name dqn --image REGISTRY/dqn:1 --pods 4 --helm ./chart && helm install dqn ./chart
   ditask k8s manifest --name dqn --image REGISTRY/dqn:1 --pods 4 --kustomize ./dqn && kubectl apply -k ./dqn`,
			Flags: append([]urfave.Flag{
				namespaceFlag(),
				&urfave.PathFlag{Category: groupK8s, Name: "kustomize", Usage: "new `FOLDER` to write a kustomization into, in place of printing"},
				&urfave.PathFlag{Category: groupK8s, Name: "helm", Usage: "new `FOLDER` to write a chart of Helm into, whose values are name, image, number of pods and resources"},
			}, manifestFlags()...),
			Action: c.manifest,
		},
		{
			Name: "submit", Usage: "create the objects of a manifest, and the token, and follow the job to its end; the exit code is the job's",
			Description: `   ditask k8s submit --name dqn --image REGISTRY/dqn:1 --pods 4 --volume runs -- --lr 1e-3
   ditask k8s submit --kind dijob --name dqn --image REGISTRY/dqn:1 --task learner:learner:1 --task collector:collector:2 --no-follow`,
			Flags: append(append(manifestFlags(),
				&urfave.BoolFlag{Category: groupK8s, Name: "no-follow", Usage: "print the job's name and do not wait for it"}), kubectlFlags()...),
			Action: c.submit,
		},
	}
}

// jobCommands are about the jobs that there are.
func (c command) jobCommands() []*urfave.Command {
	one := func(more ...urfave.Flag) []urfave.Flag {
		return append(append([]urfave.Flag{
			flags.Text(groupK8s, "kind", "", "job, jobset or dijob, where jobs of several kinds have the name"),
		}, more...), kubectlFlags()...)
	}
	return []*urfave.Command{
		{
			Name: "status", Usage: "print how a job and its pods are, or without a NAME all jobs", ArgsUsage: "[NAME]",
			Description: `   ditask k8s status
   ditask k8s status dqn --namespace rl
   ditask k8s status dqn --json`,
			Flags: one(flags.JSON()), Action: c.status,
		},
		{
			Name: "logs", Usage: "print the logs of a job's pods", ArgsUsage: "NAME",
			Description: `   ditask k8s logs dqn --follow
   ditask k8s logs dqn --rank 2 --tail 100
   ditask k8s logs dqn --rank 2 --previous     # of the pod before, which failed`,
			Flags: one(
				&urfave.IntFlag{Category: groupK8s, Name: "rank", Value: -1, DefaultText: "all", Usage: "the pod of this `RANK` alone"},
				&urfave.BoolFlag{Category: groupK8s, Name: "follow", Aliases: []string{"f"}, Usage: "go on until the job has ended; its exit code is this one's"},
				&urfave.BoolFlag{Category: groupK8s, Name: "previous", Usage: "of the pods that were there before those of now"},
				&urfave.IntFlag{Category: groupK8s, Name: "tail", Value: -1, DefaultText: "all", Usage: "this many `LINES` of each pod, the last"},
			),
			Action: c.logs,
		},
		{
			Name: "scale", Usage: "change the number of pods of a DIJob's last task while it runs", ArgsUsage: "NAME PODS",
			Description: `   ditask k8s scale dqn 8`,
			Flags:       one(), Action: c.scale,
		},
		{
			Name: "delete", Usage: "delete a job and what was made for it: Services, the server between its nodes, the token", ArgsUsage: "NAME",
			Description: `   ditask k8s delete dqn`,
			Flags:       kubectlFlags(), Action: c.delete,
		},
	}
}

func namespaceFlag() urfave.Flag {
	return &urfave.StringFlag{Category: groupKubectl, Name: "namespace", Usage: "`NAMESPACE` (default: that of kubectl)"}
}

// kubectlFlags say how kubectl is called.
func kubectlFlags() []urfave.Flag {
	return []urfave.Flag{
		namespaceFlag(),
		flags.Text(groupKubectl, "context", "", "`CONTEXT` of the kubeconfig (default: its current one)"),
		&urfave.PathFlag{Category: groupKubectl, Name: "kubeconfig", Usage: "`FILE` that says how to reach the cluster (default: that of kubectl)"},
		&urfave.PathFlag{Category: groupKubectl, Name: "kubectl", Value: "kubectl", Usage: "`PROGRAM` to call, found in PATH"},
		&urfave.DurationFlag{Category: groupKubectl, Name: "timeout", Value: 30 * time.Second, Usage: "how long one call of kubectl may take"},
	}
}
