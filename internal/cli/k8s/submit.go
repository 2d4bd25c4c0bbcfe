package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/token"
)

// submit creates the objects of a manifest, and follows the job to its end.
func (c command) submit(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	m, err := c.manifestOf(ctx, false)
	if err != nil {
		return err
	}
	k, err := newKubectl(ctx)
	if err != nil {
		return err
	}
	run, stop := interruptible(ctx.Context)
	defer stop()
	job, err := c.create(run, k, m)
	if err != nil {
		if i, ok := errors.AsType[interruption](context.Cause(run)); ok {
			c.Warn("text", fmt.Sprintf("interrupted: ditask k8s delete %s removes the objects of the job", m.Name))
			return call.EndedBy(i.signal)
		}
		return err
	}
	if ctx.Bool("no-follow") {
		_, err := fmt.Fprintln(c.Stdout, m.Name)
		return err
	}
	f := &podFollower{c: c.Call, k: k, doing: "follow " + m.Name, job: job, rank: noRank, tail: everythingOut}
	return f.follow(run)
}

// create creates the objects of a manifest, and prints them.
func (c command) create(ctx context.Context, k *kubectl, m *manifest) (*kubeJob, error) {
	doing := "submit " + m.Name
	switch there, installed, err := k.named(ctx, doing, m.Name, ""); {
	case err != nil:
		return nil, err
	case len(there) > 0:
		return nil, fmt.Errorf("%s: %v already exists: see ditask k8s status %s; ditask k8s delete %s removes it; or give another --name",
			doing, &there[0], m.Name, m.Name)
	case !installed[m.Kind]:
		what := "JobSet, which https://jobset.sigs.k8s.io/docs/installation/ installs"
		if m.Kind == kindDIJob {
			what = "DIJob, which kubectl apply -k k8s/config installs, with its operator"
		}
		return nil, fmt.Errorf("%s: the cluster has no %s; --kind job works on every cluster", doing, what)
	}
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	for _, s := range m.Needs() {
		if err := c.createSecret(ctx, k, doing, m, s); err != nil {
			return nil, err
		}
	}
	out, warnings, err := k.runWarned(ctx, doing, text, "apply", "--filename=-")
	for line := range strings.Lines(string(out)) {
		c.Warn("text", strings.TrimSpace(line))
	}
	for _, line := range warnings {
		c.Warn("text", line)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nditask k8s delete %s removes the objects of the job", err, m.Name)
	}
	return k.find(ctx, doing, m.Name, m.Kind)
}

// needed is a Secret that the pods of a manifest need, with a random text under one key.
type needed struct{ Name, Key, namespace string }

// Needs returns the Secrets that must exist before the pods start, each with a different text.
func (m *manifest) Needs() (all []needed) {
	if m.Secret != "" {
		all = append(all, needed{m.Secret, "token", m.Namespace})
	}
	if m.Bus != nil {
		all = append(all, needed{m.Bus.Secret, "password", m.Namespace})
	}
	return all
}

// Command returns the shell command that makes the Secret. Its arguments contain no secret.
func (n needed) Command() string {
	namespace := ""
	if n.namespace != "" {
		namespace = " --namespace " + n.namespace
	}
	return `openssl rand -hex 32 | tr -d '\n' | kubectl create secret generic ` + n.Name + namespace + " --from-file=" + n.Key + "=/dev/stdin"
}

// createSecret creates a Secret, unless it exists. It is deleted with the job.
func (c command) createSecret(ctx context.Context, k *kubectl, doing string, m *manifest, s needed) error {
	there, err := k.run(ctx, doing, "", "get", "secret", s.Name, "--ignore-not-found", "--output=name")
	if err != nil || len(there) > 0 {
		return err
	}
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": s.Name, "labels": map[string]string{labelName: m.Name, labelPartOf: ours,
			"app.kubernetes.io/managed-by": ours}},
		"stringData": map[string]string{s.Key: token.Random(32)},
	})
	if err != nil {
		return err
	}
	out, err := k.run(ctx, doing, string(secret), "create", "--filename=-", "--output=name")
	if err == nil {
		c.Warn("text", strings.TrimSpace(string(out))+" created, with a new "+s.Key)
	}
	return err
}
