package slurm_test

import (
	"fmt"

	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

func ExampleHosts() {
	hosts, err := slurm.Hosts("n[08-10,12],gpu3")
	fmt.Println(hosts, err)
	// Output: [n08 n09 n10 n12 gpu3] <nil>
}

func ExampleCounts() {
	counts, err := slurm.Counts("2(x3),1")
	fmt.Println(counts, err)
	// Output: [2 2 2 1] <nil>
}

func ExampleParse() {
	environment := map[string]string{
		"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4",
		"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "3,1",
		"SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
	}
	step, err := slurm.Parse(func(name string) (string, bool) { v, ok := environment[name]; return v, ok })
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := placement.New(placement.Flags{Job: step.Job()}, step.Site())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range plan.Local() {
		fmt.Println(plan.Job, n.ID, n.Listen, n.Attach)
	}
	// Output: slurm-7.0 3 tcp://0.0.0.0:0 [tcp://n1:20007]
}

func ExampleWhere() {
	batch := map[string]string{"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
	fmt.Println(slurm.Where(func(name string) (string, bool) { v, ok := batch[name]; return v, ok }) == slurm.Allocation)
	// Output: true
}
