package k8s

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
)

// logs prints the logs of a job's pods, or follows them.
func (c command) logs(ctx *urfave.Context) error {
	name, err := nameOf(ctx)
	if err != nil {
		return err
	}
	rank := ctx.Int("rank")
	switch {
	case ctx.IsSet("rank") && rank < 0:
		return call.Usage("--rank %d: want at least 0", rank)
	case ctx.IsSet("tail") && ctx.Int("tail") < 0:
		return call.Usage("--tail %d: want at least 0", ctx.Int("tail"))
	case ctx.Bool("follow") && ctx.Bool("previous"):
		return call.Usage("--follow and --previous: give one of them: the log of a replaced pod is complete")
	}
	k, err := newKubectl(ctx)
	if err != nil {
		return err
	}
	doing := "logs of " + name
	run, stop := interruptible(ctx.Context)
	defer stop()
	job, pods, err := k.look(run, doing, name, ctx.String("kind"))
	if err != nil {
		return err
	}
	if ctx.Bool("follow") {
		f := &podFollower{c: c.Call, k: k, doing: doing, job: job, rank: rank, tail: ctx.Int("tail")}
		return f.follow(run)
	}
	wanted, err := chosen(doing, pods, rank, ctx.Bool("previous"))
	if err != nil {
		return err
	}
	out := &lineWriter{w: c.Stdout}
	for i := range wanted {
		p := &wanted[i]
		l := &podLog{k: k, pod: p, tail: ctx.Int("tail"), out: out, idle: k.timeout}
		if len(wanted) > 1 {
			l.prefix = printable.Text(p.host()) + ": "
		}
		_, container := p.node()
		l.previous = ctx.Bool("previous") && container.RestartCount > 0
		if e := l.copy(run, doing); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// chosen returns the pods whose logs are printed: of one rank or all, the current pods or
// the previous ones.
func chosen(doing string, pods []kubePod, rank int, previous bool) ([]kubePod, error) {
	var out, before []kubePod
	for i, p := range pods {
		r := p.rank()
		if rank >= 0 && r != rank {
			continue
		}
		_, container := p.node()
		replaced := i+1 < len(pods) && r >= 0 && pods[i+1].rank() == r
		switch {
		case !previous && !replaced && p.started():
			out = append(out, p)
		case previous && !replaced && container.RestartCount > 0:
			out = append(out, p)
		case previous && replaced && (i+2 >= len(pods) || pods[i+2].rank() != r):
			before = append(before, p)
		}
	}
	out = append(out, before...)
	if len(out) > 0 {
		return out, nil
	}
	of := ""
	if rank >= 0 {
		of = fmt.Sprintf(" of rank %d", rank)
	}
	if previous {
		return nil, fmt.Errorf("%s: no pod%s preceded the current ones, or it was deleted: ditask k8s status shows the last line of the pod "+
			"that failed first", doing, of)
	}
	return nil, fmt.Errorf("%s: no pod%s has started: ditask k8s status shows the reason", doing, of)
}

// lineWriter writes whole lines of several writers.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (l *lineWriter) line(prefix, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.w, "%s%s\n", prefix, text) // there is no other place to report to
}

// podLog copies the log of a pod. After an interrupted copy the next one continues where it
// stopped.
type podLog struct {
	k        *kubectl
	pod      *kubePod
	prefix   string
	tail     int // lines; negative: all
	previous bool
	follow   bool
	idle     time.Duration // the longest time without a line; 0: no bound
	out      *lineWriter
	last     time.Time // of the last copied line
}

// copy runs kubectl logs to its end.
func (l *podLog) copy(ctx context.Context, doing string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var stderr strings.Builder
	cmd := l.k.command(ctx, l.args()...)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return &kubectlError{doing, "", err}
	}
	received := func() {}
	if l.idle > 0 {
		timer := time.AfterFunc(l.idle, func() { cancel(errSlow) })
		defer timer.Stop()
		received = func() { timer.Reset(l.idle) }
	}
	after := l.last
	for r := bufio.NewReader(stdout); ; {
		line, err := r.ReadString('\n')
		received()
		if line != "" {
			l.take(strings.TrimSuffix(line, "\n"), after)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errSlow):
		return &kubectlError{doing, fmt.Sprintf("no line for %v: give a longer --timeout", l.idle), errSlow}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &kubectlError{doing, stderr.String(), err}
}

// args returns the arguments of kubectl.
func (l *podLog) args() []string {
	container, _ := l.pod.node()
	args := []string{"logs", l.pod.Metadata.Name, "--container=" + container, "--timestamps"}
	if l.follow {
		args = append(args, "--follow")
	}
	if l.previous {
		args = append(args, "--previous")
	}
	switch {
	case !l.last.IsZero():
		args = append(args, "--since-time="+l.last.Format(time.RFC3339Nano))
	case l.tail >= 0:
		args = append(args, fmt.Sprintf("--tail=%d", l.tail))
	}
	return args
}

// take copies a line that begins with its time, unless it was copied before.
func (l *podLog) take(line string, after time.Time) {
	stamp, text, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	switch {
	case err != nil: // a message of kubectl
		text = line
	case !after.IsZero() && !at.After(after):
		return
	default:
		l.last = at
	}
	l.out.line(l.prefix, text)
}
