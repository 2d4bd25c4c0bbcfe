package k8s

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/printable"
)

// delete deletes a job and the objects that were created for it.
func (c command) delete(ctx *urfave.Context) error {
	name, err := nameOf(ctx)
	if err != nil {
		return err
	}
	k, err := newKubectl(ctx)
	if err != nil {
		return err
	}
	doing := "delete " + name
	jobs, installed, err := k.named(ctx.Context, doing, name, "")
	if err != nil {
		return err
	}
	resources := []string{"services", "deployments.apps", "secrets"}
	for _, kind := range slices.Sorted(maps.Keys(installed)) {
		if installed[kind] {
			resources = append(resources, kinds[kind].resource)
		}
	}
	var foreign *kubeJob
	deleted := 0
	remove := func(args ...string) error {
		out, err := k.run(ctx.Context, doing, "", append([]string{"delete", "--wait=false", "--ignore-not-found", "--output=name"}, args...)...)
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "/") { // other lines report that there is nothing
				deleted++
				_, _ = fmt.Fprintf(c.Stdout, "deleted %s\n", printable.Text(strings.TrimSpace(line))) // it is deleted, even if no process reads this
			}
		}
		return err
	}
	for i := range jobs {
		switch job := &jobs[i]; {
		case job.Metadata.isOurs(): // deleted below, by its labels
		case job.kind() == kindDIJob:
			if err := remove(kinds[kindDIJob].resource, name); err != nil {
				return err
			}
		default:
			foreign = job
		}
	}
	if err := remove(strings.Join(resources, ","), "--selector="+labelPartOf+"="+ours+","+labelName+"="+name); err != nil {
		return err
	}
	switch {
	case deleted > 0:
		return nil
	case foreign != nil:
		return fmt.Errorf("%s: %v has no label %s=%s, so it may belong to another user: kubectl delete %v deletes it", doing, foreign,
			labelPartOf, ours, foreign)
	}
	return fmt.Errorf("%s: %w: no job has this name, and no object was created for it", doing, errNoJob)
}
