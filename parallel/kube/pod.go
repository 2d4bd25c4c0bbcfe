package kube

import (
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ditask/ditask/internal/variables"
	"github.com/ditask/ditask/parallel/placement"
)

// The variables that are read here.
const (
	VarNodes    = "DI_NODES"
	VarRank     = "DI_RANK"
	VarJobID    = "DI_JOB_ID"
	VarTaskName = "DI_TASK_NAME" // its pods are in DI_<NAME>_NODES

	VarCompletionIndex = "JOB_COMPLETION_INDEX"
	VarJobSet          = "JOBSET_NAME"
	VarReplicatedJob   = "REPLICATED_JOB_NAME"
	VarJobIndex        = "JOB_INDEX"

	VarLeader    = "LWS_LEADER_ADDRESS"
	VarWorker    = "LWS_WORKER_INDEX"
	VarGroupSize = "LWS_GROUP_SIZE"

	VarTorchRank      = "RANK"
	VarTorchWorldSize = "WORLD_SIZE"
	VarTorchMaster    = "MASTER_ADDR"
	VarTorchPort      = "MASTER_PORT"
	VarTorchLocalRank = "LOCAL_RANK"
	VarTorchAgent     = "TORCHELASTIC_USE_AGENT_STORE"
	VarPodIP          = "POD_IP"
)

// Variables are the names of all variables that are read here, but for that of
// the pods of one task.
func Variables() []string {
	return []string{
		VarNodes, VarRank, VarJobID, VarTaskName, VarJobSet, VarReplicatedJob, VarJobIndex, VarCompletionIndex,
		VarLeader, VarWorker, VarGroupSize, VarTorchRank, VarTorchWorldSize, VarTorchMaster, VarTorchPort, VarTorchLocalRank, VarTorchAgent,
		VarPodIP,
	}
}

// Source names the set of variables that says where a pod is.
type Source int

// The sources, those that count first before the others.
const (
	Outside         Source = iota // nothing says that other pods belong to this one
	List                          // DI_NODES
	LeaderWorkerSet               // LWS_...
	Torchrun                      // RANK, WORLD_SIZE and MASTER_ADDR
)

// String names a source by the first of its variables.
func (s Source) String() string {
	return [...]string{"nothing", VarNodes, VarLeader, VarTorchRank + " and " + VarTorchMaster}[s]
}

// Where describes which variables lookup has. One variable of a source is enough, so that a missing
// one is noticed; but torchrun's names are common words, and count only if rank, size and address are
// all set.
func Where(lookup func(string) (string, bool)) Source {
	has := func(name string) bool { value, _ := lookup(name); return value != "" }
	switch {
	case has(VarNodes) || has(VarRank):
		return List
	case has(VarLeader) || has(VarWorker) || has(VarGroupSize):
		return LeaderWorkerSet
	case has(VarTorchRank) && has(VarTorchWorldSize) && has(VarTorchMaster):
		return Torchrun
	}
	return Outside
}

// Pod is a pod as its variables describe it.
type Pod struct {
	Source Source
	Rank   int      // its place among the pods of the job
	Size   int      // number of pods
	Hosts  []string // their names, by rank; nil: only Leader is known
	Leader string   // host of rank 0
	Port   int      // where rank 0 is dialled; 0: placement.DefaultPort
	Local  int      // number among the launchers on its host, with Torchrun
	Own    string   // POD_IP, needed if Hosts is nil: see NeedsOwn
	ID     string   // DI_JOB_ID; empty: none was given
	Task   string   // DI_TASK_NAME
}

// Parse reads the variables of a pod through lookup, which is os.LookupEnv in a
// program. The error joins all faults, each with the variable and its value.
func Parse(lookup func(string) (string, bool)) (Pod, error) {
	p := parser{variables.Reader{Lookup: lookup}}
	pod := Pod{Source: Where(lookup)}
	switch pod.Source {
	case LeaderWorkerSet:
		p.group(&pod)
	case Torchrun:
		p.torchrun(&pod)
	default:
		p.list(&pod)
	}
	if pod.ID, _ = lookup(VarJobID); pod.ID != "" {
		if err := placement.CheckJob(pod.ID); err != nil {
			p.Faultf(VarJobID, "%v", err)
		}
	}
	if err := p.Err(); err != nil {
		return Pod{}, err
	}
	return pod, nil
}

// parser reads the variables of a pod.
type parser struct{ variables.Reader }

// The advice for a variable that is missing.
const (
	adviceNodes = "give all pods of the job, by rank, such as dqn-[0-3].dqn"
	adviceRank  = "give the pod's place in DI_NODES, from 0, or run an Indexed Job, whose pods have JOB_COMPLETION_INDEX"
	adviceSet   = "set all of JOBSET_NAME, REPLICATED_JOB_NAME, JOB_INDEX and JOB_COMPLETION_INDEX from the pod's labels"
	adviceLWS   = "LeaderWorkerSet sets LWS_LEADER_ADDRESS, LWS_WORKER_INDEX and LWS_GROUP_SIZE"
)

// list reads DI_NODES, and finds this pod in it.
func (p *parser) list(pod *Pod) {
	text := p.Text(VarNodes, adviceNodes)
	if text != "" {
		hosts, err := Hosts(text)
		if err != nil {
			p.Faultf(VarNodes, "%v", err)
			text = ""
		} else {
			pod.Hosts, pod.Size, pod.Leader = hosts, len(hosts), hosts[0]
		}
	}
	most := max(len(pod.Hosts), 1) - 1
	if text == "" { // how many there are is not known
		most = maxPods - 1
	}
	name := VarCompletionIndex
	switch {
	case p.Value(VarRank) != "":
		name = VarRank
	case p.Value(VarJobSet) != "":
		p.jobSet(pod)
		return
	case p.Value(VarCompletionIndex) == "":
		p.Text(VarRank, adviceRank)
		return
	}
	if n, err := strconv.Atoi(p.Value(name)); err != nil || n < 0 || n > most {
		p.Faultf(name, "want a number from 0 to %d, the place of this pod in %s=%s", most, VarNodes, brief(p.Value(VarNodes)))
	} else {
		pod.Rank = n
		p.task(pod)
	}
}

// jobSet finds this pod in DI_NODES by the name that JobSet gives it.
func (p *parser) jobSet(pod *Pod) {
	faults := p.Faults()
	name := fmt.Sprintf("%s-%s-%d-%d", p.Value(VarJobSet), p.Text(VarReplicatedJob, adviceSet),
		p.Number(VarJobIndex, 0, math.MaxInt32, adviceSet), p.Number(VarCompletionIndex, 0, math.MaxInt32, adviceSet))
	if p.Faults() > faults || pod.Hosts == nil {
		return
	}
	pod.Rank = slices.IndexFunc(pod.Hosts, func(host string) bool { return host == name || strings.HasPrefix(host, name+".") })
	if pod.Rank < 0 {
		p.Faultf(VarNodes, "this pod is not in it: it is %s, by %s, %s, %s and %s", name, VarJobSet, VarReplicatedJob, VarJobIndex,
			VarCompletionIndex)
		return
	}
	p.task(pod)
}

// task checks that the pods of this one's task are those of the job.
func (p *parser) task(pod *Pod) {
	pod.Task = p.Value(VarTaskName)
	if pod.Task == "" || pod.Hosts == nil {
		return
	}
	name := "DI_" + strings.ToUpper(strings.ReplaceAll(pod.Task, "-", "_")) + "_NODES"
	text := p.Value(name)
	if text == "" {
		return
	}
	hosts, err := Hosts(text)
	if err != nil {
		p.Faultf(name, "%v", err)
		return
	}
	if own := pod.Hosts[pod.Rank]; !slices.Contains(hosts, own) {
		p.Faultf(name, "%s is not in it, but is pod %d of %s=%s", own, pod.Rank, VarNodes, brief(p.Value(VarNodes)))
	}
}

// group reads the variables of a LeaderWorkerSet: the names of the workers are
// that of the leader with a number.
func (p *parser) group(pod *Pod) {
	leader := p.Text(VarLeader, adviceLWS)
	pod.Size = p.Number(VarGroupSize, 1, maxPods, adviceLWS)
	pod.Rank = p.Number(VarWorker, 0, max(pod.Size, 1)-1, adviceLWS)
	name, domain, qualified := strings.Cut(leader, ".")
	_, err := netip.ParseAddr(leader)
	switch {
	case leader == "":
		return
	case err == nil:
		p.Faultf(VarLeader, "want the name of the leader's pod, from which those of the workers follow, not an address")
		return
	}
	for k := range pod.Size {
		host := name
		if k > 0 {
			host += "-" + strconv.Itoa(k)
		}
		if qualified {
			host += "." + domain
		}
		if err := checkHost(host); err != nil {
			p.Faultf(VarLeader, "%v", err)
			return
		}
		pod.Hosts = append(pod.Hosts, host)
	}
	pod.Leader = leader
}

// torchrun reads the names of torchrun.
func (p *parser) torchrun(pod *Pod) {
	const advice = "torchrun sets it"
	pod.Size = p.Number(VarTorchWorldSize, 1, maxPods, advice)
	pod.Rank = p.Number(VarTorchRank, 0, max(pod.Size, 1)-1, advice)
	pod.Leader = p.Text(VarTorchMaster, advice)
	if err := checkHost(pod.Leader); err != nil {
		p.Faultf(VarTorchMaster, "%v", err)
	}
	if p.Value(VarTorchPort) != "" {
		pod.Port = p.Number(VarTorchPort, 1, math.MaxUint16-1, advice)
		if p.Value(VarTorchAgent) == "True" && pod.Port > 0 { // torchrun itself listens there
			pod.Port++
		}
	}
	if pod.Own = p.Value(VarPodIP); pod.Own != "" {
		if _, err := netip.ParseAddr(pod.Own); err != nil {
			p.Faultf(VarPodIP, "want an address: set it from status.podIP")
		}
	}
	if p.Value(VarTorchLocalRank) != "" {
		pod.Local = p.Number(VarTorchLocalRank, 0, maxPods-1, advice)
	}
}

// brief is a text, its end left out if it is long.
func brief(s string) string {
	if len(s) > 120 {
		return s[:100] + "..."
	}
	return s
}

// maxID bounds a job id.
const maxID = 40

// Job is the id of the job, the same for all its pods: DI_JOB_ID, or else one
// made of the first pod's name.
func (p Pod) Job() string {
	if p.ID != "" {
		return p.ID
	}
	name := p.Leader
	if p.Port != 0 {
		name += "-" + strconv.Itoa(p.Port)
	}
	id := "kube-" + strings.Map(func(r rune) rune {
		if r == ':' || r == '%' {
			return '-'
		}
		return r
	}, name)
	if len(id) > maxID {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(name)) // never fails
		id = fmt.Sprintf("%s-%08x", id[:maxID-9], sum.Sum32())
	}
	return id
}

// NeedsOwn reports whether Own has to be set before [Pod.Site] is called: no
// variable has the address at which the other pods find this one.
func (p Pod) NeedsOwn() bool {
	return p.Own == "" && p.Hosts == nil && p.Size > 1 && p.Rank > 0 && !p.oneHost()
}

// oneHost reports whether all launchers are on this machine.
func (p Pod) oneHost() bool {
	ip, err := netip.ParseAddr(p.Leader)
	return p.Leader == "localhost" || err == nil && ip.IsLoopback()
}

// Site describes where the launchers run.
func (p Pod) Site() placement.Site {
	site := placement.Site{Rank: p.Rank, Port: p.Port, Launchers: make([]placement.Launcher, p.Size)}
	if p.Hosts != nil {
		before := map[string]int{}
		for i, host := range p.Hosts {
			site.Launchers[i] = placement.Launcher{Host: host, Slot: before[host]}
			before[host]++
		}
		return site
	}
	if p.Size == 1 {
		return site
	}
	site.Rendezvous = &placement.Rendezvous{Here: p.Rank == 0}
	site.Launchers[p.Rank].Slot = p.Local
	if p.oneHost() {
		return site
	}
	site.Launchers[p.Rank].Host = p.Own
	site.Launchers[0].Host, site.Rendezvous.Host = p.Leader, p.Leader
	return site
}
