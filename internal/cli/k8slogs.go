package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// k8sLogs prints the logs of a job's pods, or follows them.
func (c *command) k8sLogs(ctx *urfave.Context) error {
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
		return call.Usage("--follow and --previous: give one of them: nothing more comes from a pod that is gone")
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
		f := &podFollower{c: c, k: k, doing: doing, job: job, rank: rank, tail: ctx.Int("tail")}
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
			l.prefix = p.host() + ": "
		}
		_, container := p.node()
		l.previous = ctx.Bool("previous") && container.RestartCount > 0
		if e := l.copy(run, doing); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// chosen are the pods whose logs are asked for: of one rank or all, those of now or
// those before them.
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
		return nil, fmt.Errorf("%s: no pod%s was there before those of now, or it is gone: status shows the last line of the one that failed first", doing, of)
	}
	return nil, fmt.Errorf("%s: no pod%s has started: status says why", doing, of)
}

// lineWriter writes whole lines of several writers.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (l *lineWriter) line(prefix, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.w, "%s%s\n", prefix, text) // nobody is left to tell
}

// podLog copies the log of a pod. When a copy breaks off, the next one begins
// where it has stopped.
type podLog struct {
	k        *kubectl
	pod      *kubePod
	prefix   string
	tail     int // lines; negative: all
	previous bool
	follow   bool
	idle     time.Duration // how long nothing may come; 0: for ever
	out      *lineWriter
	last     time.Time // of the line that was copied last
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
	heard := func() {}
	if l.idle > 0 {
		timer := time.AfterFunc(l.idle, func() { cancel(errSlow) })
		defer timer.Stop()
		heard = func() { timer.Reset(l.idle) }
	}
	after := l.last
	for r := bufio.NewReader(stdout); ; {
		line, err := r.ReadString('\n')
		heard()
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
		return &kubectlError{doing, fmt.Sprintf("nothing came for %v: see --timeout", l.idle), errSlow}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &kubectlError{doing, stderr.String(), err}
}

// args are those of kubectl.
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

// take copies a line that has its time before it, and is not known yet.
func (l *podLog) take(line string, after time.Time) {
	stamp, text, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	switch {
	case err != nil: // kubectl itself says something
		text = line
	case !after.IsZero() && !at.After(after):
		return
	default:
		l.last = at
	}
	l.out.line(l.prefix, text)
}

// interruption is the cause of a context that a signal has ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string { return i.signal.String() }

// interruptible is a context that ends with SIGINT and SIGTERM.
func interruptible(ctx context.Context) (run context.Context, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	run, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case s := <-signals:
			cancel(interruption{s})
		case <-run.Done():
		}
	})
	return run, func() {
		signal.Stop(signals)
		cancel(nil)
		watch.Wait()
	}
}

// How often a job is asked for, how long its cluster may be out of reach, and how
// often the log of a pod that has ended is asked for in vain.
const (
	podsInterval  = 2 * time.Second
	podsPatience  = 2 * time.Minute
	copiesAtMost  = 3
	lastsAtMost   = 30 * time.Second // for what is left of the logs when the job is over
	causesAtMost  = 160              // letters of what keeps a pod from running
	noRank        = -1
	everythingOut = -1
)

// podFollower watches a job to its end, and copies the logs of its pods.
type podFollower struct {
	c     *command
	k     *kubectl
	doing string
	job   *kubeJob
	rank  int // noRank: all
	tail  int // of each pod; everythingOut: all

	out     *lineWriter
	copying sync.WaitGroup
	logs    map[string]*following // by uid of the pod
	said    map[string]string     // what was said last of the job, and of each pod
}

// following is the log of a pod, of which one copy may run.
type following struct {
	podLog

	ended  chan error // of the copy that runs; nil: none does
	whole  bool       // the copy that runs began when the pod had ended
	failed int        // copies in a row
	done   bool
}

// follow returns when the job has ended, with its exit code, or the user has enough
// of watching.
func (f *podFollower) follow(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	defer f.copying.Wait()
	defer cancel()
	f.out, f.logs, f.said = &lineWriter{w: f.c.Stdout}, map[string]*following{}, map[string]string{}
	tick := time.NewTicker(podsInterval)
	defer tick.Stop()
	name, seen, over := f.job.Metadata.Name, time.Now(), time.Time{}
	for {
		s, pods, err := f.ask(run)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errNoJob):
			return err
		case err != nil && time.Since(seen) > podsPatience:
			return fmt.Errorf("%w\nit may still run: ditask k8s status %s", err, name)
		case err == nil:
			seen = time.Now()
			left := f.copy(run, pods)
			f.say(s)
			if s.over() && over.IsZero() {
				over = time.Now()
			}
			if s.over() && (left == 0 || time.Since(over) > lastsAtMost) {
				return call.ExitError(s.exitCode())
			}
		}
		select {
		case <-ctx.Done():
			if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
				f.c.Warn("text", fmt.Sprintf("job %s goes on: ditask k8s logs %s --follow, or status; ditask k8s delete %s ends it", name, name, name))
				return call.EndedBy(i.signal)
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// ask asks for the job and its pods.
func (f *podFollower) ask(ctx context.Context) (jobStatus, []kubePod, error) {
	var job kubeJob
	if _, err := f.k.list(ctx, f.doing, kinds[f.job.kind()].resource, &job, f.job.Metadata.Name, "--ignore-not-found"); err != nil {
		return jobStatus{}, nil, err
	}
	if job.Metadata.UID != f.job.Metadata.UID {
		return jobStatus{}, nil, fmt.Errorf("%s: %w: somebody has deleted %v", f.doing, errNoJob, f.job)
	}
	pods, err := f.k.pods(ctx, f.doing, &job)
	if err != nil {
		return jobStatus{}, nil, err
	}
	return f.k.status(ctx, &job, pods), pods, nil
}

// copy starts to copy the logs of pods that are not copied yet, and says of how many
// that have ended there is more to come.
func (f *podFollower) copy(ctx context.Context, pods []kubePod) (left int) {
	for i := range pods {
		p := &pods[i]
		if f.rank != noRank && p.rank() != f.rank || !p.started() {
			continue
		}
		l := f.logs[p.Metadata.UID]
		if l == nil {
			l = &following{podLog: podLog{k: f.k, tail: f.tail, out: f.out}}
			if f.job.desired() > 1 && f.rank == noRank {
				l.prefix = p.host() + ": "
			}
			f.logs[p.Metadata.UID] = l
		}
		if l.ended != nil {
			select {
			case err := <-l.ended:
				f.ended(l, err)
			default:
			}
		}
		if !l.done && l.ended == nil {
			l.pod, l.whole, l.ended = p, p.ended(), make(chan error, 1)
			l.follow = !l.whole
			f.copying.Go(func() { l.ended <- l.copy(ctx, "log of "+l.pod.Metadata.Name) })
		}
		if !l.done && p.ended() {
			left++
		}
	}
	return left
}

// ended takes note of a copy that has ended.
func (f *podFollower) ended(l *following, err error) {
	l.ended = nil
	if err == nil {
		l.failed, l.done = 0, l.whole
		return
	}
	if l.failed++; l.failed >= copiesAtMost && l.whole {
		l.done = true
	}
	f.tell(l.pod.Metadata.UID+" log", err.Error())
}

// say tells what has changed of a job and its pods.
func (f *podFollower) say(s jobStatus) {
	text := fmt.Sprintf("job %s: %s, %d of %d pods ready", s.Name, strings.ToLower(s.State), s.Ready, s.Desired)
	if s.over() {
		text = fmt.Sprintf("job %s: %s", s.Name, strings.ToLower(s.State))
		if s.FirstFailure != nil && s.State == stateFailed {
			text += fmt.Sprintf("; failed first: %v", s.FirstFailure)
		} else if s.Why != "" {
			text += ": " + s.Why
		}
	}
	f.tell("", text)
	if s.over() {
		return
	}
	told := false
	for _, p := range s.Pods {
		if p.Why != "" {
			told = true
			f.tell(p.Name, p.Name+": "+p.Why)
		}
	}
	if s.Why != "" && !told { // of a DIJob it is the same
		f.tell("why", "job "+s.Name+": "+s.Why)
	}
}

// tell tells what has changed of something.
func (f *podFollower) tell(of, text string) {
	text, _, _ = strings.Cut(text, "\n")
	if line := []rune(text); of != "" && len(line) > causesAtMost {
		text = string(line[:causesAtMost]) + "..."
	}
	if f.said[of] != text {
		f.said[of] = text
		f.c.Warn("text", text)
	}
}
