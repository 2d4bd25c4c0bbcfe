package k8s

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
)

// interruption is the cause of a context that a signal has ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string { return i.signal.String() }

// interruptible returns a context that ends with SIGINT or SIGTERM.
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

// How often a job is polled, how long its cluster may be unreachable, and how often
// reading the log of an ended pod may fail.
const (
	podsInterval  = 2 * time.Second
	podsPatience  = 2 * time.Minute
	copiesAtMost  = 3
	lastsAtMost   = 30 * time.Second // for the rest of the logs after the end of the job
	causesAtMost  = 160              // characters of the reason why a pod does not run
	noRank        = -1
	everythingOut = -1
)

// podFollower watches a job to its end, and copies the logs of its pods.
type podFollower struct {
	c     *call.Call
	k     *kubectl
	doing string
	job   *kubeJob
	rank  int // noRank: all
	tail  int // of each pod; everythingOut: all

	out     *lineWriter
	copying sync.WaitGroup
	logs    map[string]*following // by uid of the pod
	said    map[string]string     // the last message about the job, and about each pod
}

// following is the log of a pod, of which one copy may run.
type following struct {
	podLog

	ended  chan error // of the running copy; nil: none runs
	whole  bool       // the running copy began after the pod had ended
	failed int        // consecutive failed copies
	done   bool
}

// follow returns when the job has ended, with its exit code, or when the user interrupts
// it.
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
			return fmt.Errorf("%w\nthe job may still run: ditask k8s status %s", err, name)
		case err == nil:
			seen = time.Now()
			left := f.copy(run, pods)
			f.logStatus(s)
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
				f.c.Warn("text", fmt.Sprintf("job %s continues: ditask k8s logs %s --follow, or status; ditask k8s delete %s ends it", name, name,
					name))
				return call.EndedBy(i.signal)
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// ask reads the job and its pods.
func (f *podFollower) ask(ctx context.Context) (jobStatus, []kubePod, error) {
	var job kubeJob
	if _, err := f.k.list(ctx, f.doing, kinds[f.job.kind()].resource, &job, f.job.Metadata.Name, "--ignore-not-found"); err != nil {
		return jobStatus{}, nil, err
	}
	if job.Metadata.UID != f.job.Metadata.UID {
		return jobStatus{}, nil, fmt.Errorf("%s: %w: %v was deleted", f.doing, errNoJob, f.job)
	}
	pods, err := f.k.pods(ctx, f.doing, &job)
	if err != nil {
		return jobStatus{}, nil, err
	}
	return f.k.status(ctx, &job, pods), pods, nil
}

// copy starts to copy the logs of pods that are not being copied, and returns the number of
// ended pods whose logs are incomplete.
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
				l.prefix = printable.Text(p.host()) + ": "
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
			f.copying.Go(func() { l.ended <- l.copy(ctx, "log of "+printable.Text(l.pod.Metadata.Name)) })
		}
		if !l.done && p.ended() {
			left++
		}
	}
	return left
}

// ended records the end of a copy.
func (f *podFollower) ended(l *following, err error) {
	l.ended = nil
	if err == nil {
		l.failed, l.done = 0, l.whole
		return
	}
	if l.failed++; l.failed >= copiesAtMost && l.whole {
		l.done = true
	}
	f.logOnce(l.pod.Metadata.UID+" log", err.Error())
}

// logStatus prints the changes of a job and its pods.
func (f *podFollower) logStatus(s jobStatus) {
	text := fmt.Sprintf("job %s: %s, %d of %d pods ready", s.Name, strings.ToLower(s.State), s.Ready, s.Desired)
	if s.over() {
		text = fmt.Sprintf("job %s: %s", s.Name, strings.ToLower(s.State))
		if s.FirstFailure != nil && s.State == stateFailed {
			text += fmt.Sprintf("; failed first: %v", s.FirstFailure)
		} else if s.Why != "" {
			text += ": " + s.Why
		}
	}
	f.logOnce("", text)
	if s.over() {
		return
	}
	logged := false
	for _, p := range s.Pods {
		if p.Why != "" {
			logged = true
			f.logOnce(p.Name, p.Name+": "+p.Why)
		}
	}
	if s.Why != "" && !logged { // a DIJob repeats the reason of its pod
		f.logOnce("why", "job "+s.Name+": "+s.Why)
	}
}

// logOnce prints a message about the job or a pod, unless it was the last one about it.
func (f *podFollower) logOnce(of, text string) {
	text, _, _ = strings.Cut(text, "\n")
	if line := []rune(text); of != "" && len(line) > causesAtMost {
		text = string(line[:causesAtMost]) + "..."
	}
	if f.said[of] != text {
		f.said[of] = text
		f.c.Warn("text", text)
	}
}
