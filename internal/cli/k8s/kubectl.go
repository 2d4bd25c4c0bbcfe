package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
)

// kubectl calls the user's kubectl, which is configured for the cluster.
type kubectl struct {
	path    string
	flags   []string // of every call
	timeout time.Duration
}

// newKubectl finds kubectl. The error for a missing kubectl has advice.
func newKubectl(ctx *urfave.Context) (*kubectl, error) {
	path, err := exec.LookPath(ctx.Path("kubectl"))
	if err != nil {
		return nil, call.Usage("--kubectl: %w: install kubectl (https://kubernetes.io/docs/tasks/tools/), or give its path with --kubectl", err)
	}
	k := &kubectl{path: path, timeout: ctx.Duration("timeout")}
	if k.timeout < time.Second {
		return nil, call.Usage("--timeout %v: want at least 1s", k.timeout)
	}
	for _, name := range []string{"kubeconfig", "context", "namespace"} {
		if v := ctx.String(name); v != "" {
			k.flags = append(k.flags, "--"+name+"="+v)
		}
	}
	return k, nil
}

// kubectlError is a failure of kubectl, with its messages.
type kubectlError struct {
	doing, said string
	err         error
}

func (e *kubectlError) Error() string {
	lines := spoken(e.said)
	if len(lines) == 0 {
		lines = []string{e.err.Error()}
	}
	return e.doing + ": kubectl: " + strings.Join(lines, "\n"+e.doing+": ")
}

// maxSaid bounds a line of kubectl in bytes: an error of the API server about a manifest.
const maxSaid = 2 << 10

// spoken returns the messages of kubectl, each once. It leaves out the lines of kubectl's
// log, unless there are no others.
func spoken(said string) (lines []string) {
	own := regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d`)
	var log []string
	for line := range strings.Lines(said) {
		switch line = printable.Cut(strings.TrimSpace(line), maxSaid); {
		case line == "" || slices.Contains(lines, line):
		case own.MatchString(line):
			log = append(log, line)
		default:
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 && len(log) > 0 {
		return log[len(log)-1:]
	}
	return lines
}

func (e *kubectlError) Unwrap() error { return e.err }

// errSlow is in the error of a call that took longer than --timeout.
var errSlow = errors.New("no answer in time")

// command returns a call of kubectl with arguments and the flags of every call.
func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.path, append(args, k.flags...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs kubectl to its end. doing names the operation, for errors.
func (k *kubectl) run(ctx context.Context, doing, stdin string, args ...string) ([]byte, error) {
	out, _, err := k.runWarned(ctx, doing, stdin, args...)
	return out, err
}

// runWarned is run, and also returns the warnings of the API server and of kubectl.
func (k *kubectl) runWarned(ctx context.Context, doing, stdin string, args ...string) (out []byte, warnings []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.timeout, errSlow)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := k.command(ctx, append(args, "--request-timeout="+k.timeout.String())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err = cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), spoken(stderr.String()), nil
	case errors.Is(context.Cause(ctx), errSlow):
		return nil, nil, &kubectlError{doing,
			fmt.Sprintf("no answer within %v: check the cluster with kubectl cluster-info, or give a longer --timeout", k.timeout), errSlow}
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	}
	return stdout.Bytes(), nil, &kubectlError{doing, stderr.String(), err}
}

// list reads the objects of a kind that args select. It returns known false, and reads
// none, if the cluster does not know the kind.
func (k *kubectl) list(ctx context.Context, doing, kind string, into any, args ...string) (known bool, err error) {
	out, err := k.run(ctx, doing, "", append([]string{"get", kind, "--output=json"}, args...)...)
	if fault, ok := errors.AsType[*kubectlError](err); ok && strings.Contains(fault.said, "the server doesn't have a resource type") {
		return false, nil
	}
	if err != nil || len(bytes.TrimSpace(out)) == 0 {
		return true, err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return true, fmt.Errorf("%s: kubectl get %s: %w", doing, kind, printable.Error(err))
	}
	return true, nil
}
