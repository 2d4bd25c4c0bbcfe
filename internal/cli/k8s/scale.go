package k8s

import (
	"fmt"
	"strconv"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// scale changes the number of pods of a DIJob.
func (c command) scale(ctx *urfave.Context) error {
	if ctx.NArg() != 2 {
		return call.Usage("%s: want the NAME of a job and a number of PODS: see %s --help", ctx.Command.HelpName, ctx.Command.HelpName)
	}
	name, err := checkedName(ctx, ctx.Args().Get(0))
	if err != nil {
		return err
	}
	word := ctx.Args().Get(1)
	pods, err := strconv.Atoi(word)
	if err != nil || pods < 0 {
		return call.Usage("%s: %q: want a number of pods", ctx.Command.HelpName, word)
	}
	k, err := newKubectl(ctx)
	if err != nil {
		return err
	}
	doing := "scale " + name
	job, err := k.find(ctx.Context, doing, name, ctx.String("kind"))
	if err != nil {
		return err
	}
	if job.kind() != kindDIJob {
		return fmt.Errorf("%s: %v has a fixed number of pods, which each pod has in DI_NODES: delete it and submit it with another number, "+
			"or with --kind dijob, which can be scaled while it runs", doing, job)
	}
	if _, err := k.run(ctx.Context, doing, "", "scale", kinds[kindDIJob].resource+"/"+name, "--replicas="+word); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Stdout, "%v: the last task now has %s\n", job, counted(pods, "pod"))
	return err
}
