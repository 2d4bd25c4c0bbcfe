package slurm_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

// vars are the variables of one process.
type vars map[string]string

func (v vars) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// with is a copy with some variables changed; "-" removes one.
func (v vars) with(changes ...string) vars {
	out := maps.Clone(v)
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		if out[name] = value; value == "-" {
			delete(out, name)
		}
	}
	return out
}

// recorded reads a file of environments of a real Slurm, by the name of the process.
func recorded(t testing.TB, file string) map[string]vars {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]vars{}
	name := ""
	for line := range strings.SplitSeq(string(b), "\n") {
		if n, ok := strings.CutPrefix(line, "=== "); ok {
			name = n
			out[name] = vars{}
		} else if k, v, ok := strings.Cut(line, "="); ok && name != "" {
			out[name][k] = v
		}
	}
	return out
}

// step are the processes of a file whose names begin so, by SLURM_PROCID.
func step(t testing.TB, file, prefix string) []vars {
	t.Helper()
	var out []vars
	all := recorded(t, file)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, all[name])
		}
	}
	slices.SortFunc(out, func(a, b vars) int { return strings.Compare(a["SLURM_PROCID"], b["SLURM_PROCID"]) })
	return out
}

// layout is the host of each node in the plans of all tasks: "0@n1 1@n1 2@n2", and a star behind the
// node that all dial.
func layout(t *testing.T, tasks []vars, f placement.Flags) string {
	t.Helper()
	var words []string
	meetings := map[string]bool{}
	for i, v := range tasks {
		s, err := slurm.Parse(v.lookup)
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
		if s.ProcID != i {
			t.Fatalf("task %d has the number %d: a task is missing", i, s.ProcID)
		}
		f.Job = s.Job()
		plan, err := placement.New(f, s.Site())
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
		if want := s.Tasks * max(f.Workers, 1); plan.Expected != want {
			t.Errorf("task %d expects %d nodes, want %d", i, plan.Expected, want)
		}
		for _, n := range plan.Local() {
			if want := s.ProcID*max(f.Workers, 1) + n.LocalID; n.ID != want {
				t.Errorf("task %d, worker %d: node %d, want %d", i, n.LocalID, n.ID, want)
			}
			word := fmt.Sprintf("%d@%s", n.ID, s.Hosts[s.NodeID])
			if len(n.Attach) == 0 {
				word += "*"
				meetings[strings.Replace(n.Advertise, "0.0.0.0", n.Host, 1)] = true
			} else if n.LocalID == 0 {
				meetings[n.Attach[0]] = true
			}
			words = append(words, word)
		}
	}
	if len(meetings) != 1 {
		t.Errorf("the nodes dial %v", slices.Sorted(maps.Keys(meetings)))
	}
	return strings.Join(words, " ")
}

func TestL8RecordedStepsGiveIDsAndHosts(t *testing.T) {
	for _, c := range []struct {
		file, prefix, want string
	}{
		{"srun-n1", "task", "0@n1*"},
		{"srun-n4", "task", "0@n1* 1@n1 2@n1 3@n1"},
		{"srun-N2-n4", "task", "0@n1* 1@n1 2@n1 3@n2"},
		{"srun-N2-tpn2", "task", "0@n1* 1@n1 2@n2 3@n2"},
		{"srun-N2-n4-cyclic", "task", "0@n1* 1@n2 2@n1 3@n1"},
		{"srun-N2-n2-c2", "task", "0@n1* 1@n2"},
		{"srun-N4-n7", "task", "0@n1* 1@n1 2@n1 3@n1 4@n2 5@n3 6@n4"},
		{"srun-N3-n7-plane", "task", "0@n1* 1@n1 2@n2 3@n3 4@n1 5@n1 6@n1"},
		{"srun-arbitrary-hostfile", "task", "0@n3 1@n1* 2@n1 3@n2"},
		{"srun-arbitrary-w", "task", "0@n4 1@n2* 2@n2"},
		{"srun-het", "task", "0@n1* 1@n1 2@n2 3@n2 4@n3"},
		{"sbatch-het", "task", "0@n1* 1@n1 2@n2 3@n3"},
		{"sbatch-N2-tpn2", "task", "0@n1* 1@n1 2@n2 3@n2"},
		// SLURM_NTASKS_PER_NODE=2 is the job's in these two.
		{"sbatch-tpn2-substeps", "sub-N1-n1", "0@n2*"},
		{"sbatch-tpn2-substeps", "sub-n3", "0@n1* 1@n1 2@n2"},
		{"sbatch-array", "task-00-9", ""},
	} {
		t.Run(c.file+"/"+c.prefix, func(t *testing.T) {
			tasks := step(t, c.file, c.prefix)
			if c.want == "" { // the two steps of an array
				tasks = slices.DeleteFunc(step(t, c.file, "task"), func(v vars) bool { return v["SLURM_JOB_ID"] != "9" })
				c.want = "0@n1* 1@n1"
			}
			if got := layout(t, tasks, placement.Flags{RunDir: "/r"}); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			for _, v := range tasks {
				delete(v, "SLURM_NTASKS_PER_NODE")
			}
			if got := layout(t, tasks, placement.Flags{RunDir: "/r"}); got != c.want {
				t.Errorf("without SLURM_NTASKS_PER_NODE: got %s, want %s", got, c.want)
			}
		})
	}
}

func TestL8SeveralWorkersATask(t *testing.T) {
	want := "0@n1* 1@n1 2@n2 3@n2 4@n1 5@n1 6@n1 7@n1"
	if got := layout(t, step(t, "srun-N2-n4-cyclic", "task"), placement.Flags{Workers: 2}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want = "0@n1* 1@n1 2@n1 3@n1 4@n1 5@n1 6@n1 7@n1"
	if got := layout(t, step(t, "srun-n4", "task"), placement.Flags{Workers: 2}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestL8PlanOfATask(t *testing.T) {
	for _, c := range []struct {
		file string
		task int
		f    placement.Flags
		want string
	}{
		// On one host no port is open to other hosts, and only one port is fixed.
		{"srun-n4", 0, placement.Flags{}, "0 tcp://127.0.0.1:20005"},
		{"srun-n4", 2, placement.Flags{}, "2 tcp://127.0.0.1:0 > tcp://127.0.0.1:20005"},
		{"srun-n4", 2, placement.Flags{Workers: 2},
			"4 tcp://127.0.0.1:0 > tcp://127.0.0.1:20005, 5 tcp://127.0.0.1:0 > tcp://127.0.0.1:20005 tcp://127.0.0.1:0"},
		{"srun-n4", 2, placement.Flags{Ports: "7000"}, "2 tcp://127.0.0.1:7002 > tcp://127.0.0.1:7000"},
		{"srun-N2-n4-cyclic", 2, placement.Flags{Ports: "7000"}, "2 tcp://0.0.0.0:7001 > tcp://n1:7000"},
		{"srun-N2-n4-cyclic", 3, placement.Flags{Topology: "star"}, "3 tcp://0.0.0.0:0 > tcp://n1:20011"},
		{"srun-N2-n4-cyclic", 3, placement.Flags{Topology: "alone"}, "3 tcp://0.0.0.0:0"},
		// One task is a job on one machine.
		{"srun-n1", 0, placement.Flags{Workers: 2, RunDir: "/r"}, "0 unix:///r/n0.sock, 1 unix:///r/n1.sock > unix:///r/n0.sock"},
		// Ports that Slurm has reserved are used as far as they go.
		{"srun-het", 3, placement.Flags{}, "3 tcp://0.0.0.0:12024 > tcp://n1:12023"},
		{"srun-het", 3, placement.Flags{Workers: 4},
			"12 tcp://0.0.0.0:12027 > tcp://n1:12023, 13 tcp://0.0.0.0:12028 > tcp://n1:12023 tcp://127.0.0.1:12027, " +
				"14 tcp://0.0.0.0:0 > tcp://n1:12023 tcp://127.0.0.1:12027 tcp://127.0.0.1:12028, " +
				"15 tcp://0.0.0.0:0 > tcp://n1:12023 tcp://127.0.0.1:12027 tcp://127.0.0.1:12028 tcp://127.0.0.1:0"},
		{"srun-het", 3, placement.Flags{Ports: "7000"}, "3 tcp://0.0.0.0:7001 > tcp://n1:7000"},
		// An arbitrary task 0 dials the first task of the first host.
		{"srun-arbitrary-w", 0, placement.Flags{}, "0 tcp://0.0.0.0:12000 > tcp://n2:12000"},
		{"srun-arbitrary-w", 2, placement.Flags{}, "2 tcp://0.0.0.0:12001 > tcp://n2:12000"},
	} {
		v := step(t, c.file, "task")[c.task]
		if c.file == "srun-arbitrary-w" {
			v = v.with("SLURM_STEP_RESV_PORTS=12000-12002")
		}
		s, err := slurm.Parse(v.lookup)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := placement.New(c.f, s.Site())
		if err != nil {
			t.Errorf("%s %d %+v: %v", c.file, c.task, c.f, err)
			continue
		}
		var got []string
		for _, n := range plan.Local() {
			line := fmt.Sprintf("%d %s", n.ID, n.Listen)
			if len(n.Attach) > 0 {
				line += " > " + strings.Join(n.Attach, " ")
			}
			got = append(got, line)
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s %d %+v:\ngot:  %s\nwant: %s", c.file, c.task, c.f, g, c.want)
		}
	}
}

func TestL8UnknownPlacesAreRefused(t *testing.T) {
	for _, c := range []struct {
		file string
		f    placement.Flags
		want string
	}{
		{"srun-arbitrary-w", placement.Flags{Topology: "star"},
			"--topology star: SLURM_DISTRIBUTION=arbitrary: the host of node 0 is not known: use --topology mesh, or another distribution"},
		{"srun-N2-n4", placement.Flags{AttachTo: "$node.3"},
			"--attach-to $node.3: the host of node 3 is not known before it joins: leave it out with --topology mesh, " +
				"in which all nodes meet, or give the task of node 3 an address and ports in --platform-spec\n" +
				"--attach-to $node.3: node 3 would dial itself"},
		{"srun-N2-n4", placement.Flags{Topology: "star", NodeIDs: "3,2,1,0"},
			"--topology star: all dial node 3, but the hub is node 0: leave out --node-ids"},
		{"srun-N2-n4", placement.Flags{Protocol: "ipc"}, "--protocol ipc: a job with several launchers needs --protocol tcp"},
	} {
		s, err := slurm.Parse(step(t, c.file, "task")[0].lookup)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := placement.New(c.f, s.Site()); err == nil || err.Error() != c.want {
			t.Errorf("%s %+v:\ngot:  %v\nwant: %s", c.file, c.f, err, c.want)
		}
	}
}

func TestL8BatchScriptIsNoRank(t *testing.T) {
	for _, c := range []struct {
		file, prefix string
		want         slurm.Place
	}{
		{"sbatch-N2-tpn2", "batch", slurm.Allocation}, // it has SLURM_PROCID and SLURM_NTASKS
		{"sbatch-requeue", "batch-r1", slurm.Allocation},
		{"sbatch-tpn2-substeps", "batch", slurm.Allocation},
		{"sbatch-het", "batch", slurm.Allocation},
		{"salloc", "shell", slurm.Allocation},
		{"salloc-interactive-step", "shell", slurm.Allocation}, // SLURM_STEP_ID=4294967290
		{"srun-n1", "task", slurm.Task},
		{"sbatch-tpn2-substeps", "sub", slurm.Task},
	} {
		for _, v := range step(t, c.file, c.prefix) {
			if got := slurm.Where(v.lookup); got != c.want {
				t.Errorf("%s %s: %v, want %v", c.file, c.prefix, got, c.want)
			}
		}
	}
	if got := slurm.Where(vars{}.lookup); got != slurm.Outside {
		t.Errorf("without variables: %v", got)
	}
}

func TestJobIsTheSameInEachTaskAndNowhereElse(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"srun-n4", "slurm-5.0"},
		{"sbatch-N2-tpn2", "slurm-16.0"},
		{"srun-het", "slurm-7.0"},
		{"sbatch-het", "slurm-20.0"},
		{"sbatch-array", "slurm-9_1.0 slurm-9_2.0"},
		{"sbatch-tpn2-substeps", "slurm-22.0 slurm-22.1"},
	} {
		seen := map[string]bool{}
		for _, prefix := range []string{"task", "sub"} {
			for _, v := range step(t, c.file, prefix) {
				s, err := slurm.Parse(v.lookup)
				if err != nil {
					t.Fatal(err)
				}
				if err := placement.CheckJob(s.Job()); err != nil {
					t.Error(err)
				}
				seen[s.Job()] = true
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(seen)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.file, got, c.want)
		}
	}
	s, err := slurm.Parse(step(t, "srun-n4", "task")[0].with("SLURM_RESTART_COUNT=2").lookup)
	if err != nil || s.Job() != "slurm-5.0.r2" || s.Restarts != 2 {
		t.Errorf("after two requeues: %s, %v", s.Job(), err)
	}
	// The longest that Slurm can make.
	s = slurm.Step{JobID: 67108863, StepID: 4294967279, ArrayJobID: 67108863, ArrayTaskID: 4000000, Restarts: 9999}
	if err := placement.CheckJob(s.Job()); err != nil {
		t.Error(err)
	}
}

func TestPortsOfNeighboursDiffer(t *testing.T) {
	for job := range 100 {
		seen := map[int]string{}
		for id := job; id < job+500; id++ {
			for step := range 4 {
				s := slurm.Step{JobID: id + 1, StepID: step}
				port := s.Port()
				if port < 20000 || port > 30006 {
					t.Fatalf("%s: port %d", s.Job(), port)
				}
				if other, taken := seen[port]; taken {
					t.Fatalf("%s and %s have port %d", s.Job(), other, port)
				}
				seen[port] = s.Job()
			}
		}
	}
}

func TestProcessorsOfATask(t *testing.T) {
	for _, c := range []struct {
		file string
		task int
		want int
	}{
		{"srun-n4", 0, 1},       // 4 on the node, 4 tasks
		{"srun-N2-n2-c2", 0, 2}, // asked for
		{"srun-N4-n7", 5, 1},
	} {
		s, err := slurm.Parse(step(t, c.file, "task")[c.task].lookup)
		if err != nil || s.CPUs != c.want {
			t.Errorf("%s: %d, %v, want %d", c.file, s.CPUs, err, c.want)
		}
	}
}
