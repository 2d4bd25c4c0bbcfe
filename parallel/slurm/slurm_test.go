package slurm_test

import (
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

// hostnames are lists with what "scontrol show hostnames" of Slurm 22.05.8 prints.
func hostnames() map[string]string {
	return map[string]string{
		"n1":                   "n1",
		"n[01-03,7]":           "n01 n02 n03 n7",
		"n[08-10,12],gpu3":     "n08 n09 n10 n12 gpu3",
		"n[1-3,7],m[01-02]":    "n1 n2 n3 n7 m01 m02",
		"rack[0-1]node[01-02]": "rack0node01 rack0node02 rack1node01 rack1node02",
		"cn[098-101]":          "cn098 cn099 cn100 cn101",
		"a[1-2]b[3-4]":         "a1b3 a1b4 a2b3 a2b4",
		"a[1-2,4]b[07,9]":      "a1b07 a1b9 a2b07 a2b9 a4b07 a4b9",
		"a[0-1]b[0-1]c[0-1]":   "a0b0c0 a0b0c1 a1b0c0 a1b0c1 a0b1c0 a0b1c1 a1b1c0 a1b1c1",
		"a[0-1]b[0-1]c[0-1]d[0-1]": "a0b0c0d0 a0b0c0d1 a1b0c0d0 a1b0c0d1 a0b1c0d0 a0b1c0d1 a1b1c0d0 a1b1c0d1 " +
			"a0b0c1d0 a0b0c1d1 a1b0c1d0 a1b0c1d1 a0b1c1d0 a0b1c1d1 a1b1c1d0 a1b1c1d1",
		"a[1-2][3-4]":    "a13 a14 a23 a24",
		"[1-2],n3":       "1 2 n3",
		"[08-10]x[1]":    "08x1 09x1 10x1",
		"n[1-3,2]":       "n1 n2 n3 n2",
		"n1,n1":          "n1 n1",
		"n[1-03]":        "n1 n2 n3",
		"n[9-011]":       "n9 n10 n11",
		"n[00-2]":        "n00 n01 n02",
		"n[007]":         "n007",
		"n_[1-2]":        "n_1 n_2",
		"n-[1-2]":        "n-1 n-2",
		"n1.example.com": "n1.example.com",
		"n1, n2":         "n1 n2",
		",n1,,n2,":       "n1 n2",
	}
}

func TestL8HostsAsScontrolPrintsThem(t *testing.T) {
	for list, want := range hostnames() {
		got, err := slurm.Hosts(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s:\ngot:  %v %v\nwant: %s", list, got, err, want)
		}
	}
}

func TestL8HostsRefusesMalformedLists(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "host list: no host",
		",":                     "host list: no host",
		"a[1-2]b":               `host list: "a[1-2]b": "b" stands after the last bracket, which Slurm does not allow`,
		"n[1-2,5],gpu[1-2]-ib0": `host list: "gpu[1-2]-ib0": "-ib0" stands after the last bracket, which Slurm does not allow`,
		"a[1-2":                 `host list: "a[1-2": the brackets do not match`,
		"a]":                    `host list: "a]": the brackets do not match`,
		"a[1[2]]":               `host list: "a[1[2]]": the brackets do not match`,
		"a[]":                   `host list: "a[]": range "": want a number, or two of them, the smaller first`,
		"a[1-]":                 `host list: "a[1-]": range "1-": want a number, or two of them, the smaller first`,
		"a[2-1]":                `host list: "a[2-1]": range "2-1": want a number, or two of them, the smaller first`,
		"a[1-2-3]":              `host list: "a[1-2-3]": range "1-2-3": want a number, or two of them, the smaller first`,
		"a[+1]":                 `host list: "a[+1]": want letters, digits, dots, hyphens, underscores and brackets, not "+"`,
		"a[1-99999999999999999]": `host list: "a[1-99999999999999999]": range "1-99999999999999999": ` +
			`want a number, or two of them, the smaller first`,
		"a[1-65537]":       `host list: "a[1-65537]": range "1-65537": more than 65536 hosts`,
		"a[1-300]b[1-300]": `host list: "a[1-300]b[1-300]": more than 65536 hosts`,
		"a[1-65536],b":     `host list: "b": more than 65536 hosts`,
		"a;b":              `host list: "a;b": want letters, digits, dots, hyphens, underscores and brackets, not ";"`,
	} {
		if got, err := slurm.Hosts(list); err == nil || err.Error() != want {
			t.Errorf("%s: %d hosts\ngot:  %v\nwant: %s", list, len(got), err, want)
		}
	}
	if got, err := slurm.Hosts("a[1-65536]"); err != nil || len(got) != 1<<16 {
		t.Errorf("the longest list: %d hosts, %v", len(got), err)
	}
}

func TestL8Counts(t *testing.T) {
	for list, want := range map[string][]int{
		"4": {4}, "3,1": {3, 1}, "2(x3),1": {2, 2, 2, 1}, "4,1(x3)": {4, 1, 1, 1}, "2(x2)": {2, 2}, "1(x1)": {1},
	} {
		got, err := slurm.Counts(list)
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %v %v", list, got, err)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", list, got, want)
			}
		}
	}
	for _, list := range []string{"", "0", "2,", "x", "2(x", "2(x3", "2(x0)", "2(y3)", "2(x3)4", "-1", "1(x65537)", "1(x65536),1"} {
		if got, err := slurm.Counts(list); err == nil {
			t.Errorf("%q: %d counts, want an error", list, len(got))
		}
	}
}

func TestL7FaultsNameVariableAndValue(t *testing.T) {
	task := step(t, "srun-N2-n4", "task")[2]
	const missing = ": srun sets it for each task: start ditask with srun, or give --platform local"
	for _, c := range []struct{ change, want string }{
		{"SLURM_JOB_ID=-", "SLURM_JOB_ID is not set" + missing},
		{"SLURM_PROCID=-", "SLURM_PROCID is not set" + missing},
		{"SLURM_PROCID=", "SLURM_PROCID is empty" + missing},
		{"SLURM_LOCALID=-", "SLURM_LOCALID is not set" + missing},
		{"SLURM_NODEID=-", "SLURM_NODEID is not set" + missing},
		{"SLURM_STEP_NUM_TASKS=-", "SLURM_STEP_NUM_TASKS is not set" + missing},
		{"SLURM_STEP_NODELIST=-", "SLURM_STEP_NODELIST is not set" + missing},
		{"SLURM_STEP_TASKS_PER_NODE=-", "SLURM_STEP_TASKS_PER_NODE is not set" + missing},
		{"SLURM_STEP_ID=", "SLURM_STEP_ID is empty" + missing},
		{"SLURM_PROCID=x", `SLURM_PROCID="x": want a number from 0 to 65536`},
		{"SLURM_PROCID=-1", `SLURM_PROCID="-1": want a number from 0 to 65536`},
		{"SLURM_STEP_NODELIST=n[1-", `SLURM_STEP_NODELIST="n[1-": host list: "n[1-": the brackets do not match`},
		{"SLURM_STEP_TASKS_PER_NODE=2(x", `SLURM_STEP_TASKS_PER_NODE="2(x": counts: "2(x": want a number, or one such as 2(x3)`},
		{"SLURM_STEP_RESV_PORTS=70000", `SLURM_STEP_RESV_PORTS="70000": port 70000: want a number from 1 to 65535`},
		{"SLURM_ARRAY_TASK_ID=3", `SLURM_ARRAY_TASK_ID="3": belongs together with SLURM_ARRAY_JOB_ID=`},
		{"SLURM_RESTART_COUNT=-1", `SLURM_RESTART_COUNT="-1": want a number from 0 to 4294967295`},
		{"SLURM_CPUS_PER_TASK=0", `SLURM_CPUS_PER_TASK="0": want a number from 1 to 65536`},
		// Contradictions.
		{"SLURM_STEP_NUM_TASKS=5", `SLURM_STEP_TASKS_PER_NODE="3,1": 4 tasks, but SLURM_STEP_NUM_TASKS=5`},
		{"SLURM_STEP_NODELIST=n1", `SLURM_STEP_TASKS_PER_NODE="3,1": 2 counts for the 1 hosts of SLURM_STEP_NODELIST=n1`},
		{"SLURM_NODEID=2", `SLURM_NODEID="2": want a number below 2, the hosts of SLURM_STEP_NODELIST=n[1-2]`},
		{"SLURMD_NODENAME=n2", `SLURMD_NODENAME="n2": host 0 of SLURM_STEP_NODELIST=n[1-2] is n1`},
		{"SLURM_GTIDS=0,1", `SLURM_GTIDS="0,1": contradicts SLURM_PROCID=2, SLURM_LOCALID=2 and SLURM_STEP_TASKS_PER_NODE=3,1`},
		{"SLURM_GTIDS=0,1,3", `SLURM_GTIDS="0,1,3": contradicts SLURM_PROCID=2, SLURM_LOCALID=2 and SLURM_STEP_TASKS_PER_NODE=3,1`},
		{"SLURM_JOB_NODELIST=n1",
			`SLURM_STEP_NODELIST="n[1-2]": n2 is no host of SLURM_JOB_NODELIST=n1: ` +
				`the variables of another job's step are set: start ditask with srun`},
	} {
		if s, err := slurm.Parse(task.with(c.change).lookup); err == nil || err.Error() != c.want {
			t.Errorf("%s: %+v\ngot:  %v\nwant: %s", c.change, s, err, c.want)
		}
	}
	_, err := slurm.Parse(task.with("SLURM_PROCID=9", "SLURM_LOCALID=8").lookup)
	if err == nil || !strings.Contains(err.Error(), `SLURM_PROCID="9": want a number below SLURM_STEP_NUM_TASKS=4`) ||
		!strings.Contains(err.Error(), `SLURM_LOCALID="8": want a number below 3, the tasks of host 0 in SLURM_STEP_TASKS_PER_NODE=3,1`) {
		t.Errorf("not all faults: %v", err)
	}
}

// sbatch called inside of a step passes on that step's variables.
func TestL7VariablesOfAnotherStepAreRefused(t *testing.T) {
	v := step(t, "sbatch-in-a-step", "stale")[0]
	if s, err := slurm.Parse(v.lookup); err == nil || !strings.Contains(err.Error(), "n2 is no host of SLURM_JOB_NODELIST=n1") {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzHosts(f *testing.F) {
	for list := range hostnames() {
		f.Add(list)
	}
	f.Add("a[1-65536]b[1-65536]")
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := slurm.Hosts(list)
		if err != nil {
			return
		}
		if len(hosts) == 0 || len(hosts) > 1<<16 {
			t.Fatalf("%d hosts", len(hosts))
		}
		for _, h := range hosts[:min(len(hosts), 100)] {
			if h == "" || strings.ContainsAny(h, "[], \n") {
				t.Fatalf("host %q", h)
			}
			if again, err := slurm.Hosts(h); err != nil || len(again) != 1 || again[0] != h {
				t.Fatalf("%q is the list %q, %v", h, again, err)
			}
		}
	})
}

func FuzzCounts(f *testing.F) {
	f.Add("2(x3),1")
	f.Fuzz(func(t *testing.T, list string) {
		counts, err := slurm.Counts(list)
		if err != nil {
			return
		}
		for _, n := range counts {
			if n < 1 {
				t.Fatalf("count %d", n)
			}
		}
	})
}

// FuzzParse changes a real environment: what is accepted gives a plan.
func FuzzParse(f *testing.F) {
	f.Add("n[1-2]", "3,1", "2", "2", "0", "4", "0,1,2", "12000-12003", "block", uint8(1))
	f.Add("n[2,4]", "2,1", "0", "0", "1", "3", "0", "", "arbitrary", uint8(2))
	f.Fuzz(func(t *testing.T, hosts, perNode, proc, local, node, tasks, gtids, ports, distribution string, workers uint8) {
		v := vars{
			"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": proc, "SLURM_LOCALID": local, "SLURM_NODEID": node,
			"SLURM_STEP_NUM_TASKS": tasks, "SLURM_STEP_NODELIST": hosts, "SLURM_STEP_TASKS_PER_NODE": perNode,
			"SLURM_GTIDS": gtids, "SLURM_STEP_RESV_PORTS": ports, "SLURM_DISTRIBUTION": distribution,
		}
		s, err := slurm.Parse(v.lookup)
		if err != nil || s.Tasks > 64 {
			return
		}
		plan, err := placement.New(placement.Flags{Job: s.Job(), Workers: int(workers%4) + 1, RunDir: "/r"}, s.Site())
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		for _, n := range plan.Local() {
			if n.ID != s.ProcID*(int(workers%4)+1)+n.LocalID || n.Listen == "" {
				t.Fatalf("%+v: node %+v", s, n)
			}
		}
	})
}
