package k8s

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/kube"
)

// kinds are the kinds of jobs: their resource, their title, and the label of their pods
// that holds their name.
var kinds = map[string]struct{ resource, title, label string }{
	kindDIJob:  {"dijobs.ditask.dev", "DIJob", "ditask.dev/job"},
	kindJob:    {"jobs.batch", "Job", "batch.kubernetes.io/job-name"},
	kindJobSet: {"jobsets.jobset.x-k8s.io", "JobSet", "jobset.sigs.k8s.io/jobset-name"},
}

// Labels of objects.
const (
	labelName   = "app.kubernetes.io/name"
	labelPartOf = "app.kubernetes.io/part-of"
	labelRole   = "ditask.dev/type"
	labelTask   = "ditask.dev/task"
	ours        = "ditask" // the value of part-of
)

// kubeMeta has the metadata of an object that are read here.
type kubeMeta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	UID       string            `json:"uid"`
	Created   time.Time         `json:"creationTimestamp"`
	Deleted   *time.Time        `json:"deletionTimestamp"`
	Labels    map[string]string `json:"labels"`
	Owners    []struct {
		Kind string `json:"kind"`
		UID  string `json:"uid"`
	} `json:"ownerReferences"`
}

// kubeCondition is a condition of an object.
type kubeCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// kubeJob has the fields of a Job, a JobSet and a DIJob that are read here.
type kubeJob struct {
	Kind     string   `json:"kind"`
	Metadata kubeMeta `json:"metadata"`
	Spec     struct {
		Suspend        bool `json:"suspend"`
		Completions    int  `json:"completions"`
		ReplicatedJobs []struct {
			Replicas *int `json:"replicas"`
			Template struct {
				Spec struct {
					Completions *int `json:"completions"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"replicatedJobs"`
	} `json:"spec"`
	Status struct {
		Conditions []kubeCondition `json:"conditions"`
		// Of a Job.
		Active int `json:"active"`
		Failed int `json:"failed"`
		// Of a DIJob.
		State        string `json:"state"`
		Desired      int    `json:"desired"`
		Ready        int    `json:"ready"`
		Restarts     int    `json:"restarts"`
		FirstFailure *struct {
			Pod      string    `json:"pod"`
			Task     string    `json:"task"`
			Type     string    `json:"type"`
			Rank     int       `json:"rank"`
			ExitCode int       `json:"exitCode"`
			Reason   string    `json:"reason"`
			Message  string    `json:"message"`
			Time     time.Time `json:"time"`
		} `json:"firstFailure"`
		Replaced []struct {
			Pod    string `json:"pod"`
			UID    string `json:"uid"`
			Streak int    `json:"streak"`
		} `json:"replaced"`
	} `json:"status"`
}

// kind returns the kind of the job, one of kindJob, kindJobSet and kindDIJob.
func (j *kubeJob) kind() string { return strings.ToLower(j.Kind) }

// String names a job as kubectl does.
func (j *kubeJob) String() string { return printable.Text(j.kind() + "/" + j.Metadata.Name) }

// condition returns a condition that is true, or nil.
func (j *kubeJob) condition(kind string) *kubeCondition {
	for i, c := range j.Status.Conditions {
		if c.Type == kind && c.Status == "True" {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

// isOurs reports whether ditask wrote the manifest of an object.
func (m *kubeMeta) isOurs() bool { return m.Labels[labelPartOf] == ours }

// The states of a job. A DIJob has further states, which are shown unchanged.
const (
	statePending    = "Pending"
	stateRunning    = "Running"
	stateRestarting = "Restarting"
	stateSuspended  = "Suspended"
	stateSucceeded  = "Succeeded"
	stateFailed     = "Failed"
)

// state returns the state of the job, which has this number of ready pods.
func (j *kubeJob) state(ready int) string {
	switch {
	case j.kind() == kindDIJob:
		return cmp.Or(j.Status.State, statePending)
	case j.condition("Complete") != nil || j.condition("Completed") != nil:
		return stateSucceeded
	case j.condition("Failed") != nil:
		return stateFailed
	case j.Spec.Suspend:
		return stateSuspended
	case ready > 0 && ready >= j.desired():
		return stateRunning
	}
	return statePending
}

// desired returns the number of pods that the job should have.
func (j *kubeJob) desired() int {
	switch j.kind() {
	case kindDIJob:
		return j.Status.Desired
	case kindJob:
		return max(j.Spec.Completions, 1)
	}
	n := 0
	one := 1
	for _, r := range j.Spec.ReplicatedJobs {
		n += *cmp.Or(r.Replicas, &one) * *cmp.Or(r.Template.Spec.Completions, &one)
	}
	return n
}

// restarts returns how often in a row a pod of a DIJob was replaced.
func (j *kubeJob) restarts(p *kubePod) int {
	for _, r := range j.Status.Replaced {
		if r.Pod == p.Metadata.Name && r.UID != p.Metadata.UID {
			return r.Streak
		}
	}
	return 0
}

// why returns the reason why the job does not run, or why it has failed, or "".
func (j *kubeJob) why() string {
	if c := j.condition("Failed"); c != nil {
		return c.Message
	}
	if j.kind() == kindDIJob {
		for _, c := range j.Status.Conditions {
			if c.Status == "False" && (c.Type == "Created" || c.Type == "Running") && j.condition("Succeeded") == nil && !j.Spec.Suspend {
				return c.Message
			}
		}
	}
	return ""
}

// kubePod has the fields of a pod that are read here.
type kubePod struct {
	Metadata kubeMeta `json:"metadata"`
	Spec     struct {
		Hostname   string `json:"hostname"`
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Name string `json:"name"`
			Env  []struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			} `json:"env"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase             string          `json:"phase"`
		Reason            string          `json:"reason"`
		Message           string          `json:"message"`
		Conditions        []kubeCondition `json:"conditions"`
		ContainerStatuses []kubeContainer `json:"containerStatuses"`
	} `json:"status"`
}

// kubeContainer is the status of a container.
type kubeContainer struct {
	Name         string `json:"name"`
	Ready        bool   `json:"ready"`
	RestartCount int    `json:"restartCount"`
	State        struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Running    *struct{} `json:"running"`
		Terminated *struct {
			ExitCode   int       `json:"exitCode"`
			Reason     string    `json:"reason"`
			Message    string    `json:"message"`
			FinishedAt time.Time `json:"finishedAt"`
		} `json:"terminated"`
	} `json:"state"`
}

// node returns the container with the nodes: the first one.
func (p *kubePod) node() (name string, status kubeContainer) {
	if len(p.Spec.Containers) > 0 {
		name = p.Spec.Containers[0].Name
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == name {
			return name, c
		}
	}
	return name, kubeContainer{}
}

// started reports whether the pod has a log.
func (p *kubePod) started() bool {
	_, c := p.node()
	return c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0
}

// ended reports whether the log is complete.
func (p *kubePod) ended() bool {
	_, c := p.node()
	return p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" || c.State.Terminated != nil
}

// host returns the host name of the pod, under which other nodes reach it.
func (p *kubePod) host() string { return cmp.Or(p.Spec.Hostname, p.Metadata.Name) }

// rank returns the rank of the pod in the job, by DI_NODES, or -1 if it is not known.
func (p *kubePod) rank() int {
	if rank, err := strconv.Atoi(p.Metadata.Labels["ditask.dev/rank"]); err == nil {
		return rank
	}
	for _, c := range p.Spec.Containers {
		for _, e := range c.Env {
			if e.Name != kube.VarNodes {
				continue
			}
			hosts, _ := kube.Hosts(e.Value) // an invalid list has no ranks
			return slices.IndexFunc(hosts, func(h string) bool { return h == p.host() || strings.HasPrefix(h, p.host()+".") })
		}
	}
	if index, err := strconv.Atoi(p.Metadata.Labels["batch.kubernetes.io/job-completion-index"]); err == nil {
		return index
	}
	return -1
}

// role returns the type of the pod's task, or the task's name.
func (p *kubePod) role() string {
	if t := p.Metadata.Labels[labelRole]; t != "" && t != "none" {
		return t
	}
	return p.Metadata.Labels[labelTask]
}

// phase returns the phase in the words of kubectl.
func (p *kubePod) phase() string {
	if p.Metadata.Deleted != nil {
		return "Terminating"
	}
	return p.Status.Phase
}

// why returns the reason why a pod does not run, or why it has failed, or "".
func (p *kubePod) why() string {
	_, c := p.node()
	switch t := c.State.Terminated; {
	case t != nil && t.ExitCode != 0:
		return strings.TrimSuffix(fmt.Sprintf("exit code %d (%s): %s", t.ExitCode, t.Reason, lastLine(t.Message)), ": ")
	case p.Status.Phase == "Failed" || p.Status.Reason != "":
		return strings.TrimSuffix(p.Status.Reason+": "+p.Status.Message, ": ")
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" {
			return c.Reason + ": " + c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}

// lastLine returns the last line of a text.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// errNoJob is wrapped by the error for a name that no job has.
var errNoJob = errors.New("not found")

// named returns the jobs with a name, of all kinds or of one. installed has the kinds that
// the cluster knows.
func (k *kubectl) named(ctx context.Context, doing, name, kind string) (jobs []kubeJob, installed map[string]bool, err error) {
	return k.each(kind, func(kind string) ([]kubeJob, bool, error) {
		var job kubeJob
		known, err := k.list(ctx, doing, kinds[kind].resource, &job, name, "--ignore-not-found")
		if job.Kind == "" {
			return nil, known, err
		}
		return []kubeJob{job}, known, err
	})
}

// find finds the job of a name among all kinds, or among those of one.
func (k *kubectl) find(ctx context.Context, doing, name, kind string) (*kubeJob, error) {
	if kind != "" && kinds[kind].resource == "" {
		return nil, call.Usage("--kind %q: want job, jobset or dijob", kind)
	}
	jobs, _, err := k.named(ctx, doing, name, kind)
	switch {
	case err != nil:
		return nil, err
	case len(jobs) == 0:
		return nil, fmt.Errorf("%s: %w: no Job, JobSet or DIJob has this name; ditask k8s status lists all jobs", doing, errNoJob)
	case len(jobs) > 1:
		return nil, call.Usage("%s: %v and %v have this name: give --kind", doing, &jobs[0], &jobs[1])
	}
	return &jobs[0], nil
}

// each reads the jobs of each kind concurrently, or of one kind.
func (k *kubectl) each(kind string, ask func(kind string) ([]kubeJob, bool, error)) (jobs []kubeJob, installed map[string]bool, err error) {
	type answer struct {
		jobs  []kubeJob
		known bool
		err   error
	}
	names := []string{kind}
	if kind == "" {
		names = slices.Sorted(maps.Keys(kinds))
	}
	answers := make([]answer, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() {
			a := &answers[i]
			a.jobs, a.known, a.err = ask(name)
		})
	}
	asked.Wait()
	installed = map[string]bool{}
	for i, a := range answers {
		if a.err != nil { // the others are likely to be the same
			return nil, nil, a.err
		}
		installed[names[i]] = a.known
		jobs = append(jobs, a.jobs...)
	}
	return jobs, installed, nil
}

// pods returns the pods of a job, sorted by rank, and by age within a rank.
func (k *kubectl) pods(ctx context.Context, doing string, job *kubeJob) ([]kubePod, error) {
	var list struct {
		Items []kubePod `json:"items"`
	}
	if _, err := k.list(ctx, doing, "pods", &list, "--selector="+kinds[job.kind()].label+"="+job.Metadata.Name); err != nil {
		return nil, err
	}
	// Pods of an earlier job of that name may still be ending.
	pods := slices.DeleteFunc(list.Items, func(p kubePod) bool {
		for _, owner := range p.Metadata.Owners {
			if owner.Kind == job.Kind {
				return owner.UID != job.Metadata.UID
			}
		}
		uid := p.Metadata.Labels["jobset.sigs.k8s.io/jobset-uid"]
		return job.kind() == kindJobSet && uid != "" && uid != job.Metadata.UID
	})
	slices.SortFunc(pods, func(a, b kubePod) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.Metadata.Created.Compare(b.Metadata.Created),
			cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return pods, nil
}
