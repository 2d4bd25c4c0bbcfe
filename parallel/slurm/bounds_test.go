package slurm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/slurm"
)

func TestListsHaveBounds(t *testing.T) {
	for in, want := range map[string]int{
		"n[0-65535]": 1 << 16, "n[0-65536]": 0, "m,n[0-65535]": 0, "m,n[1-65535]": 1 << 16,
	} {
		if got, err := slurm.Hosts(in); len(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v", in, len(got), err)
		}
	}
	for in, want := range map[string]int{"1(x65536)": 1 << 16, "1(x65537)": 0, "2,1(x65536)": 0} {
		if got, err := slurm.Counts(in); len(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v", in, len(got), err)
		}
	}
}

func TestStepsOfSlurmItselfAreNoTasks(t *testing.T) {
	for step, want := range map[string]slurm.Place{
		"0": slurm.Task, fmt.Sprint(0xffffffef): slurm.Task, fmt.Sprint(0xfffffff0): slurm.Allocation, fmt.Sprint(0xfffffffb): slurm.Allocation,
	} {
		if got := slurm.Where(lookup("SLURM_JOB_ID=1", "SLURM_STEP_ID="+step)); got != want {
			t.Errorf("step %s: %v", step, got)
		}
	}
}

// lookup reads NAME=value words; the last of a name counts.
func lookup(words ...string) func(string) (string, bool) {
	v := map[string]string{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		v[name] = value
	}
	return func(name string) (string, bool) {
		value, ok := v[name]
		return value, ok
	}
}

func TestStepBounds(t *testing.T) {
	step := []string{
		"SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NODEID=1",
		"SLURM_STEP_NODELIST=a,b", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
	}
	for word, want := range map[string]string{
		"SLURM_PROCID=3":              "",
		"SLURM_PROCID=4":              `SLURM_PROCID="4": want a number below SLURM_STEP_NUM_TASKS=4`,
		"SLURM_LOCALID=2":             `SLURM_LOCALID="2": want a number below 2, the tasks of host 1 in SLURM_STEP_TASKS_PER_NODE=2(x2)`,
		"SLURM_NODEID=2":              `SLURM_NODEID="2": want a number below 2, the hosts of SLURM_STEP_NODELIST=a,b`,
		"SLURM_STEP_RESV_PORTS=65536": `SLURM_STEP_RESV_PORTS="65536": port 65536: want a number from 1 to 65535`,
		"SLURM_STEP_RESV_PORTS=0-1":   `SLURM_STEP_RESV_PORTS="0-1": port 0: want a number from 1 to 65535`,
		"SLURM_STEP_RESV_PORTS=65535": "",
	} {
		_, err := slurm.Parse(lookup(append(step, word)...))
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: got %v, want %q", word, err, want)
		}
	}
	for _, c := range []struct {
		words []string
		cpus  int
		job   string
		port  int
	}{
		{nil, 0, "slurm-12.3", 20000 + 12 + 3*1009},
		{[]string{"SLURM_RESTART_COUNT=1", "SLURM_CPUS_ON_NODE=9"}, 4, "slurm-12.3.r1", 20000 + 12 + 3*1009},
		{[]string{"SLURM_CPUS_ON_NODE=1"}, 1, "slurm-12.3", 20000 + 12 + 3*1009},
		{[]string{"SLURM_CPUS_ON_NODE=9", "SLURM_CPUS_PER_TASK=2"}, 2, "slurm-12.3", 20000 + 12 + 3*1009},
		{[]string{"SLURM_STEP_RESV_PORTS=7-8", "SLURM_JOB_ID=10013"}, 0, "slurm-10013.3", 7},
		{[]string{"SLURM_JOB_ID=10013", "SLURM_STEP_ID=0"}, 0, "slurm-10013.0", 20006},
	} {
		s, err := slurm.Parse(lookup(append(step, c.words...)...))
		if err != nil || s.CPUs != c.cpus || s.Job() != c.job || s.Port() != c.port {
			t.Errorf("%v: %d processors, %s, port %d, %v", c.words, s.CPUs, s.Job(), s.Port(), err)
		}
	}
}
