// Package k8s is the command "ditask k8s", which runs jobs in Kubernetes: it writes
// manifests, kustomizations and charts, submits a job and follows it to its end, and
// shows, scales and deletes jobs.
//
//	app.Commands = append(app.Commands, k8s.Command(c))
//
// It reaches the cluster only through the user's kubectl. Packages job and parallel/kube
// read the variables of the launcher in each pod. The operator of DIJob is a separate
// module, in the top-level folder k8s.
package k8s

import (
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
)

// groupKubectl is the group of flags for the access to the cluster.
const groupKubectl = "Cluster"

// command has the actions of one call.
type command struct{ *call.Call }

// Command returns the command "ditask k8s".
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

// manifestCommands returns the commands that create jobs.
func (c command) manifestCommands() []*urfave.Command {
	return []*urfave.Command{
		{
			Name: "manifest", Usage: "print the objects that run the job, with a launcher in each pod, or write them as a kustomization or a chart",
			Description: `   ditask k8s manifest --name dqn --image REGISTRY/dqn:1 --pods 4 | kubectl apply -f -
   ditask k8s manifest --kind dijob --name dqn --image REGISTRY/dqn:1 --task learner:learner:1:1 ` +
				`--task collector:collector:8 --max-replicas 16
   ditask k8s manifest --name dqn --image REGISTRY/dqn:1 --pods 4 --helm ./chart && helm install dqn ./chart
   ditask k8s manifest --name dqn --image REGISTRY/dqn:1 --pods 4 --kustomize ./dqn && kubectl apply -k ./dqn`,
			Flags: append([]urfave.Flag{
				namespaceFlag(),
				&urfave.PathFlag{Category: groupK8s, Name: "kustomize", Usage: "new `FOLDER` to write a kustomization to, instead of printing"},
				&urfave.PathFlag{Category: groupK8s, Name: "helm",
					Usage: "new `FOLDER` to write a Helm chart to, whose values are name, image, number of pods and resources"},
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

// jobCommands returns the commands for existing jobs.
func (c command) jobCommands() []*urfave.Command {
	one := func(more ...urfave.Flag) []urfave.Flag {
		return append(append([]urfave.Flag{
			flags.Text(groupK8s, "kind", "", "job, jobset or dijob, if jobs of several kinds have the name"),
		}, more...), kubectlFlags()...)
	}
	return []*urfave.Command{
		{
			Name: "status", Usage: "print the state of a job and its pods, or, without a NAME, of all jobs", ArgsUsage: "[NAME]",
			Description: `   ditask k8s status
   ditask k8s status dqn --namespace rl
   ditask k8s status dqn --json`,
			Flags: one(flags.JSON()), Action: c.status,
		},
		{
			Name: "logs", Usage: "print the logs of a job's pods", ArgsUsage: "NAME",
			Description: `   ditask k8s logs dqn --follow
   ditask k8s logs dqn --rank 2 --tail 100
   ditask k8s logs dqn --rank 2 --previous     # of the previous pod, which failed`,
			Flags: one(
				&urfave.IntFlag{Category: groupK8s, Name: "rank", Value: -1, DefaultText: "all", Usage: "only the pod of this `RANK`"},
				&urfave.BoolFlag{Category: groupK8s, Name: "follow", Aliases: []string{"f"},
					Usage: "continue until the job has ended, and end with its exit code"},
				&urfave.BoolFlag{Category: groupK8s, Name: "previous", Usage: "print the logs of the previous pods, which were replaced"},
				&urfave.IntFlag{Category: groupK8s, Name: "tail", Value: -1, DefaultText: "all", Usage: "the last `LINES` of each pod"},
			),
			Action: c.logs,
		},
		{
			Name: "scale", Usage: "change the number of pods of a DIJob's last task while it runs", ArgsUsage: "NAME PODS",
			Description: `   ditask k8s scale dqn 8`,
			Flags:       one(), Action: c.scale,
		},
		{
			Name: "delete", ArgsUsage: "NAME",
			Usage:       "delete a job and the objects created for it: Services, the server between its nodes, the token",
			Description: `   ditask k8s delete dqn`,
			Flags:       kubectlFlags(), Action: c.delete,
		},
	}
}

func namespaceFlag() urfave.Flag {
	return &urfave.StringFlag{Category: groupKubectl, Name: "namespace", Usage: "`NAMESPACE` (default: that of kubectl)"}
}

// kubectlFlags returns the flags for calls of kubectl.
func kubectlFlags() []urfave.Flag {
	return []urfave.Flag{
		namespaceFlag(),
		flags.Text(groupKubectl, "context", "", "`CONTEXT` of the kubeconfig (default: its current one)"),
		&urfave.PathFlag{Category: groupKubectl, Name: "kubeconfig",
			Usage: "`FILE` with the address and credentials of the cluster (default: that of kubectl)"},
		&urfave.PathFlag{Category: groupKubectl, Name: "kubectl", Value: "kubectl", Usage: "`PROGRAM` to call, found in PATH"},
		&urfave.DurationFlag{Category: groupKubectl, Name: "timeout", Value: 30 * time.Second, Usage: "how long one call of kubectl may take"},
	}
}
