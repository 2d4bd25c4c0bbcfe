package slurm

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ditask/ditask/internal/variables"
	"github.com/ditask/ditask/parallel/placement"
)

// The variables of Slurm that are read here.
const (
	VarJobID        = "SLURM_JOB_ID"
	VarStepID       = "SLURM_STEP_ID"
	VarProcID       = "SLURM_PROCID"
	VarLocalID      = "SLURM_LOCALID"
	VarNodeID       = "SLURM_NODEID"
	VarGTIDs        = "SLURM_GTIDS"
	VarNumTasks     = "SLURM_STEP_NUM_TASKS"
	VarNodeList     = "SLURM_STEP_NODELIST"
	VarTasksPerNode = "SLURM_STEP_TASKS_PER_NODE"
	VarNodeName     = "SLURMD_NODENAME"
	VarJobNodeList  = "SLURM_JOB_NODELIST"
	VarDistribution = "SLURM_DISTRIBUTION"
	VarResvPorts    = "SLURM_STEP_RESV_PORTS"
	VarArrayJobID   = "SLURM_ARRAY_JOB_ID"
	VarArrayTaskID  = "SLURM_ARRAY_TASK_ID"
	VarRestarts     = "SLURM_RESTART_COUNT"
	VarCPUsPerTask  = "SLURM_CPUS_PER_TASK"
	VarCPUsOnNode   = "SLURM_CPUS_ON_NODE"
)

// Variables are the names of all variables that are read here, those of the step
// first.
func Variables() []string {
	return []string{
		VarJobID, VarStepID, VarProcID, VarLocalID, VarNodeID, VarGTIDs, VarNumTasks, VarNodeList, VarTasksPerNode,
		VarNodeName, VarJobNodeList, VarDistribution, VarResvPorts, VarArrayJobID, VarArrayTaskID, VarRestarts,
		VarCPUsPerTask, VarCPUsOnNode,
	}
}

// Place is the position of a process in a Slurm step.
type Place int

// The places.
const (
	Outside    Place = iota // in no Slurm job
	Allocation              // in a job but in no step: a batch script, or the shell of salloc
	Task                    // a task of a step, started by srun
)

// firstSpecialStep is the first of the step ids that are no steps of srun: the
// batch script, the shell of salloc, and others (slurm.h: SLURM_BATCH_SCRIPT).
const firstSpecialStep = 0xfffffff0

// Where returns the place of the process whose variables lookup reads.
func Where(lookup func(string) (string, bool)) Place {
	job, _ := lookup(VarJobID)
	step, inStep := lookup(VarStepID)
	if id, err := strconv.ParseUint(step, 10, 32); err == nil && id >= firstSpecialStep {
		inStep = false
	}
	switch {
	case inStep:
		return Task
	case job != "":
		return Allocation
	default:
		return Outside
	}
}

// Step is a step as one of its tasks sees it.
type Step struct {
	JobID       int      // SLURM_JOB_ID
	StepID      int      // SLURM_STEP_ID
	ArrayJobID  int      // SLURM_ARRAY_JOB_ID; 0: no array
	ArrayTaskID int      // SLURM_ARRAY_TASK_ID, with an array
	Restarts    int      // SLURM_RESTART_COUNT: how often the job was requeued
	Tasks       int      // number of tasks
	Hosts       []string // names of the hosts, in Slurm's order
	PerHost     []int    // number of tasks on each
	ProcID      int      // this task: its number in the step
	LocalID     int      // its number on its host
	NodeID      int      // which of Hosts that is
	Arbitrary   bool     // task 0 may be on any host
	Ports       []int    // ports that Slurm has reserved for the step, on each host
	CPUs        int      // processors for this task; 0: not given
}

// Parse reads the variables of a task through lookup, which is os.LookupEnv in
// a program. The error joins all faults, each with the variable and its value.
func Parse(lookup func(string) (string, bool)) (Step, error) {
	p := parser{variables.Reader{Lookup: lookup}}
	s := Step{
		JobID:   p.Number(VarJobID, 1, math.MaxUint32, adviceStep),
		StepID:  p.Number(VarStepID, 0, firstSpecialStep-1, adviceStep),
		Tasks:   p.Number(VarNumTasks, 1, maxHosts, adviceStep),
		ProcID:  p.Number(VarProcID, 0, maxHosts, adviceStep),
		LocalID: p.Number(VarLocalID, 0, maxHosts, adviceStep),
		NodeID:  p.Number(VarNodeID, 0, maxHosts, adviceStep),
		Hosts:   list(&p, VarNodeList, adviceStep, Hosts),
		PerHost: list(&p, VarTasksPerNode, adviceStep, Counts),
		Ports:   list(&p, VarResvPorts, "", ports),

		ArrayJobID:  p.Number(VarArrayJobID, 1, math.MaxUint32, ""),
		ArrayTaskID: p.Number(VarArrayTaskID, 0, math.MaxUint32, ""),
		Restarts:    p.Number(VarRestarts, 0, math.MaxUint32, ""),
	}
	distribution, _ := lookup(VarDistribution)
	s.Arbitrary = strings.HasPrefix(distribution, "arbitrary") && len(s.Hosts) > 1
	if p.Err() == nil {
		p.compare(s)
	}
	s.CPUs = p.processors(s)
	if err := p.Err(); err != nil {
		return Step{}, err
	}
	return s, nil
}

// parser reads the variables of a task.
type parser struct{ variables.Reader }

// adviceStep is the advice about a missing variable.
const adviceStep = "srun sets it for each task: start ditask with srun"

// text is the value of a variable that may be missing, and whether there is one.
func (p *parser) text(name string) (string, bool) {
	value := p.Value(name)
	return value, value != ""
}

// list reads a variable that read understands, and that has to be set if there is
// an advice.
func list[T any](p *parser, name, advice string, read func(string) ([]T, error)) []T {
	value := p.Value(name)
	if advice != "" {
		value = p.Text(name, advice)
	}
	if value == "" {
		return nil
	}
	out, err := read(value)
	if err != nil {
		p.Faultf(name, "%v", err)
	}
	return out
}

// ports reads a list of ports, such as 12015-12018,12020.
func ports(list string) ([]int, error) {
	numbers, err := numbersOf(list)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > math.MaxUint16 {
			return nil, fmt.Errorf("port %s: want a number from 1 to %d", text, math.MaxUint16)
		}
		out = append(out, n)
	}
	return out, nil
}

// compare looks for variables that contradict each other: they are not all of
// one step.
func (p *parser) compare(s Step) {
	tasks := 0
	for _, n := range s.PerHost {
		tasks += n
	}
	if len(s.Hosts) != len(s.PerHost) {
		p.Faultf(VarTasksPerNode, "%d counts for the %d hosts of %s", len(s.PerHost), len(s.Hosts), p.show(VarNodeList))
		return
	}
	if tasks != s.Tasks {
		p.Faultf(VarTasksPerNode, "%d tasks, but %s", tasks, p.show(VarNumTasks))
	}
	if s.ProcID >= s.Tasks {
		p.Faultf(VarProcID, "want a number below %s", p.show(VarNumTasks))
	}
	if s.NodeID >= len(s.Hosts) {
		p.Faultf(VarNodeID, "want a number below %d, the hosts of %s", len(s.Hosts), p.show(VarNodeList))
		return
	}
	here := s.PerHost[s.NodeID]
	if s.LocalID >= here {
		p.Faultf(VarLocalID, "want a number below %d, the tasks of host %d in %s", here, s.NodeID, p.show(VarTasksPerNode))
	}
	if name, ok := p.text(VarNodeName); ok && name != s.Hosts[s.NodeID] {
		p.Faultf(VarNodeName, "host %d of %s is %s", s.NodeID, p.show(VarNodeList), s.Hosts[s.NodeID])
	}
	if ids, ok := p.text(VarGTIDs); ok {
		words := strings.Split(ids, ",")
		if len(words) != here || s.LocalID < here && words[s.LocalID] != strconv.Itoa(s.ProcID) {
			p.Faultf(VarGTIDs, "contradicts %s, %s and %s", p.show(VarProcID), p.show(VarLocalID), p.show(VarTasksPerNode))
		}
	}
	if first := s.NodeID == 0 && s.LocalID == 0; !s.Arbitrary && first != (s.ProcID == 0) {
		p.Faultf(VarProcID, "task 0 is not the first on the first host (%s, %s, %s)", p.show(VarNodeID), p.show(VarLocalID),
			p.show(VarDistribution))
	}
	p.compareJob(s)
}

// compareJob looks for a step that is not one of the job: sbatch hands on
// the variables of a step in which it is called.
func (p *parser) compareJob(s Step) {
	if (s.ArrayJobID == 0) != (p.show(VarArrayTaskID) == VarArrayTaskID+"=") {
		p.Faultf(VarArrayTaskID, "belongs together with %s", p.show(VarArrayJobID))
	}
	value, ok := p.text(VarJobNodeList)
	if !ok {
		return
	}
	job, err := Hosts(value)
	if err != nil {
		p.Faultf(VarJobNodeList, "%v", err)
		return
	}
	have := make(map[string]bool, len(job))
	for _, h := range job {
		have[h] = true
	}
	if at := slices.IndexFunc(s.Hosts, func(h string) bool { return !have[h] }); at >= 0 {
		p.Faultf(VarNodeList, "%s is no host of %s: the variables of another job's step are set: start ditask with srun", s.Hosts[at],
			p.show(VarJobNodeList))
	}
}

// show is a variable with its value.
func (p *parser) show(name string) string {
	return name + "=" + p.Value(name)
}

// processors is the number of processors of the task: what was asked for each task,
// or its share of those that the step has on the host.
func (p *parser) processors(s Step) int {
	if n := p.Number(VarCPUsPerTask, 1, maxHosts, ""); n > 0 {
		return n
	}
	n := p.Number(VarCPUsOnNode, 1, maxHosts, "")
	if n == 0 || s.NodeID >= len(s.PerHost) {
		return 0
	}
	return max(n/s.PerHost[s.NodeID], 1)
}

// Name is the job as squeue shows it: 123, or 120_3 for a task of an array.
func (s Step) Name() string {
	if s.ArrayJobID != 0 {
		return fmt.Sprintf("%d_%d", s.ArrayJobID, s.ArrayTaskID)
	}
	return strconv.Itoa(s.JobID)
}

// Job is the id of the ditask job that the step is: slurm-123.0, or slurm-120_3.0
// in an array, and another one after each requeue, such as slurm-123.0.r1, so
// that what is left of the run before is refused.
func (s Step) Job() string {
	id := fmt.Sprintf("slurm-%s.%d", s.Name(), s.StepID)
	if s.Restarts > 0 {
		id += ".r" + strconv.Itoa(s.Restarts)
	}
	return id
}

// The ports that steps without reserved ones share out among them. The number
// is a prime, so that also jobs some steps apart do not meet.
const (
	portBase  = 20000
	portCount = 10007
	stepWidth = 1009
)

// Port is the port of the node that all others dial.
func (s Step) Port() int {
	if len(s.Ports) > 0 {
		return s.Ports[0]
	}
	return portBase + (s.JobID+stepWidth*s.StepID)%portCount
}

// Site describes where the launchers run. On one host they meet on the loopback
// address.
func (s Step) Site() placement.Site {
	site := placement.Site{Rank: s.ProcID, Port: s.Port(), Launchers: make([]placement.Launcher, s.Tasks)}
	if s.Tasks == 1 {
		return site
	}
	site.Rendezvous = &placement.Rendezvous{Here: s.NodeID == 0 && s.LocalID == 0, Ports: s.Ports}
	site.Launchers[s.ProcID].Slot = s.LocalID
	if len(s.Hosts) == 1 {
		return site
	}
	site.Launchers[s.ProcID].Host = s.Hosts[s.NodeID]
	site.Rendezvous.Host = s.Hosts[0]
	if s.Arbitrary {
		site.Rendezvous.Elsewhere = VarDistribution + "=arbitrary"
	} else {
		site.Launchers[0].Host = s.Hosts[0]
	}
	return site
}
