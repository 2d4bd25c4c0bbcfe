package k8s

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
)

// maxWhy bounds in bytes the text of Kubernetes, or the last lines of a pod, about a job or a pod.
const maxWhy = 2 << 10

// jobStatus is the status of a job, for people and as JSON. Its texts are safe to print,
// except for the fields of FirstFailure, whose String is safe.
type jobStatus struct {
	Name         string     `json:"name"`
	Namespace    string     `json:"namespace"`
	Kind         string     `json:"kind"`
	State        string     `json:"state"`
	Ready        int        `json:"ready"`
	Desired      int        `json:"desired"`
	Restarts     int        `json:"restarts"`
	Created      time.Time  `json:"created"`
	Why          string     `json:"why,omitempty"`
	FirstFailure *podEnd    `json:"first_failure,omitempty"`
	Pods         []podState `json:"pods,omitempty"`
}

// podState is the status of a pod.
type podState struct {
	Rank     int       `json:"rank"` // -1: not known
	Name     string    `json:"name"`
	Role     string    `json:"role,omitempty"`
	Phase    string    `json:"phase"`
	Ready    bool      `json:"ready"`
	Restarts int       `json:"restarts"`
	Node     string    `json:"node,omitempty"`
	Created  time.Time `json:"created"`
	Why      string    `json:"why,omitempty"`
}

// podEnd is the failure of a pod.
type podEnd struct {
	Pod      string    `json:"pod"`
	Role     string    `json:"role,omitempty"`
	Rank     int       `json:"rank"`
	ExitCode int       `json:"exit_code"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Time     time.Time `json:"time"`
}

// statusOf returns the status of a job with these pods.
func statusOf(job *kubeJob, pods []kubePod) jobStatus {
	s := jobStatus{
		Name: printable.Text(job.Metadata.Name), Namespace: printable.Text(job.Metadata.Namespace), Kind: kinds[job.kind()].title,
		Desired: job.desired(), Created: job.Metadata.Created, Why: printable.Block(job.why(), maxWhy),
	}
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == "Failed" {
			s.failed(p)
		}
		_, c := p.node()
		state := podState{
			Rank: p.rank(), Name: printable.Text(p.Metadata.Name), Role: printable.Text(p.role()), Phase: printable.Text(p.phase()), Ready: c.Ready,
			Restarts: c.RestartCount + job.restarts(p), Node: printable.Text(p.Spec.NodeName), Created: p.Metadata.Created,
			Why: printable.Cut(strings.TrimSpace(p.why()), maxWhy),
		}
		// A new pod replaces the previous one of its rank.
		if n := len(s.Pods); n > 0 && state.Rank >= 0 && s.Pods[n-1].Rank == state.Rank {
			state.Restarts += s.Pods[n-1].Restarts + 1
			s.Pods[n-1] = state
			continue
		}
		s.Pods = append(s.Pods, state)
	}
	for _, p := range s.Pods {
		s.Restarts += p.Restarts
		if p.Ready {
			s.Ready++
		}
	}
	if job.kind() == kindDIJob {
		s.Restarts = job.Status.Restarts
		if f := job.Status.FirstFailure; f != nil {
			s.FirstFailure = &podEnd{f.Pod, f.Type, f.Rank, f.ExitCode, f.Reason, f.Message, f.Time}
			if f.Type == "none" {
				s.FirstFailure.Role = f.Task
			}
		}
	}
	s.State = printable.Text(job.state(s.Ready))
	if s.State == statePending && s.FirstFailure != nil && job.kind() != kindDIJob {
		s.State = stateRestarting
	}
	return s
}

// failed records the failure of a pod, if it was the first. A preempted pod has not failed.
func (s *jobStatus) failed(p *kubePod) {
	_, c := p.node()
	end := podEnd{Pod: p.Metadata.Name, Role: p.role(), Rank: p.rank(), ExitCode: -1, Reason: p.Status.Reason, Message: p.Status.Message,
		Time: p.Metadata.Created}
	if t := c.State.Terminated; t != nil {
		end.ExitCode, end.Reason, end.Message, end.Time = t.ExitCode, t.Reason, t.Message, t.FinishedAt
	}
	if end.ExitCode != call.ExitPreempted && (s.FirstFailure == nil || end.Time.Before(s.FirstFailure.Time)) {
		s.FirstFailure = &end
	}
}

// exitCode returns the exit code for the end of the job.
func (s *jobStatus) exitCode() int {
	switch {
	case s.State == stateSucceeded:
		return call.ExitSuccess
	case s.FirstFailure != nil && s.FirstFailure.ExitCode > 0:
		return s.FirstFailure.ExitCode
	}
	return call.ExitFailure
}

// over reports whether the job has ended.
func (s *jobStatus) over() bool { return s.State == stateSucceeded || s.State == stateFailed }

// String describes the failure of a pod, safe to print.
func (e *podEnd) String() string {
	role := ""
	if e.Role != "" {
		role = e.Role + ", "
	}
	text := fmt.Sprintf("%s (%srank %d)", e.Pod, role, e.Rank)
	if e.ExitCode >= 0 {
		text += fmt.Sprintf(": exit code %d", e.ExitCode)
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if e.Message != "" {
		text += ": " + lastLine(e.Message)
	}
	return printable.Cut(text, maxWhy)
}

// nameOf returns the only argument of a command, the name of a job.
func nameOf(ctx *urfave.Context) (string, error) {
	if ctx.NArg() != 1 {
		return "", call.Usage("%s: want the NAME of one job: see %s --help", ctx.Command.HelpName, ctx.Command.HelpName)
	}
	return checkedName(ctx, ctx.Args().First())
}

// checkedName checks the name of a job: it becomes an argument of kubectl, and part of the
// selector of the objects that are deleted.
func checkedName(ctx *urfave.Context, name string) (string, error) {
	if !isObjectName(name) {
		return "", call.Usage("%s: %q: want the NAME of a job: lower-case letters, digits, hyphens and dots", ctx.Command.HelpName, name)
	}
	return name, nil
}

// status prints the status of a job, or of all jobs.
func (c command) status(ctx *urfave.Context) error {
	k, err := newKubectl(ctx)
	if err != nil {
		return err
	}
	if ctx.NArg() == 0 {
		return c.list(ctx, k)
	}
	name, err := nameOf(ctx)
	if err != nil {
		return err
	}
	job, pods, err := k.look(ctx.Context, "status of "+name, name, ctx.String("kind"))
	if err != nil {
		return err
	}
	s := k.status(ctx.Context, job, pods)
	if ctx.Bool("json") {
		return c.WriteJSON(s)
	}
	return s.write(c.Stdout, time.Now())
}

// look finds a job and its pods.
func (k *kubectl) look(ctx context.Context, doing, name, kind string) (*kubeJob, []kubePod, error) {
	job, err := k.find(ctx, doing, name, kind)
	if err != nil {
		return nil, nil, err
	}
	pods, err := k.pods(ctx, doing, job)
	return job, pods, err
}

// status is statusOf, with the reason why pods are missing.
func (k *kubectl) status(ctx context.Context, job *kubeJob, pods []kubePod) jobStatus {
	s := statusOf(job, pods)
	if s.Why == "" && !s.over() && len(s.Pods) < s.Desired {
		s.Why = printable.Block(k.refusal(ctx, job), maxWhy)
	}
	return s
}

// refusal returns the last warning about a job that has too few pods, such as of a quota.
// It returns "" if there is none, or if the user may not read events.
func (k *kubectl) refusal(ctx context.Context, job *kubeJob) string {
	var list struct {
		Items []struct {
			Message  string    `json:"message"`
			Last     time.Time `json:"lastTimestamp"`
			Involved struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"involvedObject"`
		} `json:"items"`
	}
	if _, err := k.list(ctx, "events", "events", &list, "--field-selector=type=Warning"); err != nil {
		return ""
	}
	message, last := "", time.Time{}
	for _, e := range list.Items {
		// For a JobSet, the event names the Job of one of its groups.
		of := e.Involved.Name == job.Metadata.Name || job.kind() == kindJobSet && strings.HasPrefix(e.Involved.Name, job.Metadata.Name+"-")
		if of && (e.Involved.Kind == kinds[kindJob].title || e.Involved.Kind == job.Kind) && !e.Last.Before(last) {
			message, last = e.Message, e.Last
		}
	}
	return message
}

// write prints the status of a job.
func (s *jobStatus) write(w io.Writer, now time.Time) error {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s %s in %s: %s, %d of %d pods ready, %s, %s old\n", // to memory, and so on
		s.Kind, s.Name, s.Namespace, s.State, s.Ready, s.Desired, counted(s.Restarts, "restart"), age(now, s.Created))
	if s.Why != "" {
		_, _ = fmt.Fprintf(&b, "why: %s\n", strings.ReplaceAll(strings.TrimSpace(s.Why), "\n", "\n     "))
	}
	if f := s.FirstFailure; f != nil {
		_, _ = fmt.Fprintf(&b, "failed first: %v, %s ago\n", f, age(now, f.Time))
	}
	if len(s.Pods) > 0 {
		b.WriteByte('\n')
		t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "RANK\tPOD\tROLE\tPHASE\tREADY\tRESTARTS\tNODE\tAGE\tWHY")
		for _, p := range s.Pods {
			rank, ready := "?", "no"
			if p.Rank >= 0 {
				rank = strconv.Itoa(p.Rank)
			}
			if p.Ready {
				ready = "yes"
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n",
				rank, p.Name, cmp.Or(p.Role, "-"), p.Phase, ready, p.Restarts, cmp.Or(p.Node, "-"), age(now, p.Created), p.Why)
		}
		_ = t.Flush() // to memory
	}
	_, err := io.WriteString(w, trimmed(b.String()))
	return err
}

// trimmed returns a text without blanks at the ends of its lines.
func trimmed(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// age returns the time since then in one unit, as kubectl prints it.
func age(now, then time.Time) string {
	d := max(now.Sub(then), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// list prints all jobs: DIJobs, and other jobs from a manifest of ditask.
func (c command) list(ctx *urfave.Context, k *kubectl) error {
	const doing = "list the jobs"
	if kind := ctx.String("kind"); kind != "" && kinds[kind].resource == "" {
		return call.Usage("--kind %q: want job, jobset or dijob", kind)
	}
	jobs, _, err := k.each(ctx.String("kind"), func(kind string) ([]kubeJob, bool, error) {
		var list struct {
			Items []kubeJob `json:"items"`
		}
		var of []string
		if kind != kindDIJob { // other tools create jobs of the other kinds too
			of = append(of, "--selector="+labelPartOf+"="+ours)
		}
		known, err := k.list(ctx.Context, doing, kinds[kind].resource, &list, of...)
		return list.Items, known, err
	})
	if err != nil {
		return err
	}
	all := []jobStatus{}
	var faults []error
	for i := range jobs {
		job := &jobs[i]
		pods, err := k.pods(ctx.Context, doing, job)
		faults = append(faults, err)
		s := statusOf(job, pods)
		s.Pods = nil
		all = append(all, s)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if ctx.Bool("json") {
		return c.WriteJSON(all)
	}
	if len(all) == 0 {
		c.Warn("text", "no job found: ditask k8s submit starts one; --namespace selects another namespace")
		return nil
	}
	t := tabwriter.NewWriter(c.Stdout, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NAME\tKIND\tSTATE\tREADY\tRESTARTS\tAGE") // Flush returns the error
	for _, s := range all {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d/%d\t%d\t%s\n", s.Name, s.Kind, s.State, s.Ready, s.Desired, s.Restarts, age(time.Now(), s.Created))
	}
	return t.Flush()
}
