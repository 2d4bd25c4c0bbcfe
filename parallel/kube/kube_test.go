package kube_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/placement"
)

// vars are the variables of a process.
type vars map[string]string

func (v vars) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// env reads NAME=value words; NAME=- removes a variable.
func env(words ...string) vars {
	v := vars{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if v[name] = value; value == "-" {
			delete(v, name)
		}
	}
	return v
}

// local is the plan of a pod's own nodes, a line each: id listen > dials.
func local(t *testing.T, v vars, f placement.Flags) string {
	t.Helper()
	pod, err := kube.Parse(v.lookup)
	if err != nil {
		t.Fatal(err)
	}
	f.Job = pod.Job()
	plan, err := placement.New(f, pod.Site())
	if err != nil {
		t.Fatal(err)
	}
	if plan.Expected != pod.Size*max(f.Workers, 1) {
		t.Errorf("%d nodes are expected of %d pods", plan.Expected, pod.Size)
	}
	var out []string
	for _, n := range plan.Local() {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s > %s", n.ID, n.Listen, strings.Join(n.Attach, " "))))
	}
	return strings.Join(out, "\n")
}

func lines(l ...string) string { return strings.Join(l, "\n") }

func TestL4MeshOfPods(t *testing.T) {
	v := env("DI_NODES=h0,h1,h2,h3", "DI_RANK=3")
	if got, want := local(t, v, placement.Flags{Workers: 1, Topology: "mesh"}),
		"3 tcp://0.0.0.0:50515 > tcp://h0:50515 tcp://h1:50515 tcp://h2:50515"; got != want {
		t.Errorf("1 worker:\ngot:  %s\nwant: %s", got, want)
	}
	others := "tcp://h0:50515 tcp://h0:50516 tcp://h1:50515 tcp://h1:50516 tcp://h2:50515 tcp://h2:50516"
	want := lines("6 tcp://0.0.0.0:50515 > "+others, "7 tcp://0.0.0.0:50516 > "+others+" tcp://127.0.0.1:50515")
	if got := local(t, v, placement.Flags{Workers: 2}); got != want {
		t.Errorf("2 workers:\ngot:\n%s\nwant:\n%s", got, want)
	}
}

func TestL5StarOfPods(t *testing.T) {
	got := local(t, env("DI_NODES=h0,h1,h2,h3", "DI_RANK=2"), placement.Flags{Workers: 2, Topology: "star"})
	if want := lines("4 tcp://0.0.0.0:50515 > tcp://h0:50515", "5 tcp://0.0.0.0:50516 > tcp://h0:50515"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestL6EachPlatformGivesTheSameKindOfPlan(t *testing.T) {
	lws := func(rank int) vars {
		return env("LWS_LEADER_ADDRESS=dqn-1.dqn.default", fmt.Sprint("LWS_WORKER_INDEX=", rank), "LWS_GROUP_SIZE=3")
	}
	torch := func(more ...string) vars {
		return env(append([]string{"RANK=2", "WORLD_SIZE=3", "MASTER_ADDR=dqn-master-0", "MASTER_PORT=23456", "POD_IP=10.1.2.3"}, more...)...)
	}
	for _, c := range []struct {
		name string
		v    vars
		f    placement.Flags
		want string
	}{
		{"Indexed Job with a headless service", env("JOB_COMPLETION_INDEX=2", "DI_NODES=dqn-[0-2].dqn"), placement.Flags{},
			"2 tcp://0.0.0.0:50515 > tcp://dqn-0.dqn:50515 tcp://dqn-1.dqn:50515"},
		{"JobSet", env("JOBSET_NAME=dqn", "REPLICATED_JOB_NAME=collector", "JOB_INDEX=1", "JOB_COMPLETION_INDEX=0",
			"DI_NODES=dqn-learner-0-0.dqn,dqn-collector-[0-1]-[0-1].dqn"), placement.Flags{},
			"3 tcp://0.0.0.0:50515 > tcp://dqn-learner-0-0.dqn:50515 tcp://dqn-collector-0-0.dqn:50515 tcp://dqn-collector-0-1.dqn:50515"},
		{"DIJob", env("DI_NODES=dqn-learner-0.dqn,dqn-collector-[0-1].dqn", "DI_RANK=2", "DI_TASK_NAME=collector",
			"DI_COLLECTOR_NODES=dqn-collector-[0-1].dqn"),
			placement.Flags{}, "2 tcp://0.0.0.0:50515 > tcp://dqn-learner-0.dqn:50515 tcp://dqn-collector-0.dqn:50515"},
		{"LWS leader", lws(0), placement.Flags{}, "0 tcp://0.0.0.0:50515 >"},
		{"LWS worker", lws(2), placement.Flags{}, "2 tcp://0.0.0.0:50515 > tcp://dqn-1.dqn.default:50515 tcp://dqn-1-1.dqn.default:50515"},
		{"torchrun", torch(), placement.Flags{}, "2 tcp://0.0.0.0:0 > tcp://dqn-master-0:23456"},
		{"torchrun, the master", torch("RANK=0"), placement.Flags{}, "0 tcp://0.0.0.0:23456 >"},
		{"torchrun, whose agent has the port", torch("TORCHELASTIC_USE_AGENT_STORE=True"), placement.Flags{},
			"2 tcp://0.0.0.0:0 > tcp://dqn-master-0:23457"},
		{"torchrun on one machine", torch("MASTER_ADDR=127.0.0.1", "LOCAL_RANK=2"), placement.Flags{Workers: 2},
			lines("4 tcp://127.0.0.1:0 > tcp://127.0.0.1:23456", "5 tcp://127.0.0.1:0 > tcp://127.0.0.1:23456 tcp://127.0.0.1:0")},
		{"torchrun without a port", torch("MASTER_PORT=-"), placement.Flags{}, "2 tcp://0.0.0.0:0 > tcp://dqn-master-0:50515"},
		{"explicit flags win", env("DI_NODES=h0,h1", "DI_RANK=1"), placement.Flags{Ports: "7000", NodeIDs: "10", Topology: "star"},
			"11 tcp://0.0.0.0:7000 > tcp://h0:7000"},
		{"a host that comes twice", env("DI_NODES=h0,h0,h1", "DI_RANK=1"), placement.Flags{Workers: 2, Topology: "star"},
			lines("2 tcp://0.0.0.0:50517 > tcp://h0:50515", "3 tcp://0.0.0.0:50518 > tcp://h0:50515")},
		// Precedence.
		{"DI_RANK before JobSet", env("DI_NODES=h0,h1", "DI_RANK=0", "JOBSET_NAME=x", "JOB_COMPLETION_INDEX=1"), placement.Flags{},
			"0 tcp://0.0.0.0:50515 >"},
		{"DI_NODES before LWS", env("DI_NODES=h0,h1", "DI_RANK=1", "LWS_LEADER_ADDRESS=a", "LWS_WORKER_INDEX=0", "LWS_GROUP_SIZE=1"),
			placement.Flags{}, "1 tcp://0.0.0.0:50515 > tcp://h0:50515"},
		{"LWS before torchrun", func() vars { v := lws(1); maps.Copy(v, torch()); return v }(), placement.Flags{},
			"1 tcp://0.0.0.0:50515 > tcp://dqn-1.dqn.default:50515"},
	} {
		if got := local(t, c.v, c.f); got != c.want {
			t.Errorf("%s:\ngot:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
}

// All pods of a job compute one plan, except for values that only one pod has.
func TestL6PodsAgree(t *testing.T) {
	for _, workers := range []int{1, 3} {
		var plans []placement.Plan
		for rank := range 4 {
			pod, err := kube.Parse(env("DI_NODES=h0,h1,h2,h3", fmt.Sprint("DI_RANK=", rank)).lookup)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := placement.New(placement.Flags{Job: pod.Job(), Workers: workers}, pod.Site())
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, plan)
		}
		for _, plan := range plans {
			if plan.Job != "kube-h0" || !slices.EqualFunc(plan.Nodes, plans[0].Nodes, func(a, b placement.Node) bool {
				return a.ID == b.ID && a.Advertise == b.Advertise && slices.Equal(a.Attach, b.Attach)
			}) {
				t.Errorf("pod %d has another plan than pod 0: %+v", plan.Rank, plan)
			}
		}
	}
}

func TestL6DefaultsOfThePlatform(t *testing.T) {
	for _, v := range []vars{
		{}, env("KUBERNETES_SERVICE_HOST=10.0.0.1"), env("JOB_COMPLETION_INDEX=1"), env("RANK=1"),
		env("WORLD_SIZE=2", "RANK=1"), env("DI_NODES=", "RANK="),
	} {
		if got := kube.Where(v.lookup); got != kube.Outside {
			t.Errorf("%v: %v", v, got)
		}
	}
	for want, v := range map[kube.Source]vars{
		kube.List: env("DI_RANK=0"), kube.LeaderWorkerSet: env("LWS_GROUP_SIZE=1"), kube.Torchrun: env("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a"),
	} {
		if got := kube.Where(v.lookup); got != want {
			t.Errorf("%v: %v", v, got)
		}
	}
}

func TestL7FaultsNameVariableAndValue(t *testing.T) {
	const local = ", or give --platform local"
	const rank = "give the pod's place in DI_NODES, from 0, or run an Indexed Job, whose pods have JOB_COMPLETION_INDEX" + local
	const set = "set all of JOBSET_NAME, REPLICATED_JOB_NAME, JOB_INDEX and JOB_COMPLETION_INDEX from the pod's labels" + local
	const lws = "LeaderWorkerSet sets LWS_LEADER_ADDRESS, LWS_WORKER_INDEX and LWS_GROUP_SIZE" + local
	di := []string{"DI_NODES=h0,h1,h2,h3", "DI_RANK=3"}
	group := []string{"LWS_LEADER_ADDRESS=d-0.d.ns", "LWS_WORKER_INDEX=1", "LWS_GROUP_SIZE=2"}
	torch := []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=1000"}
	for _, c := range []struct {
		base         []string
		change, want string
	}{
		{di, "DI_RANK=4", `DI_RANK="4": want a number from 0 to 3, the place of this pod in DI_NODES=h0,h1,h2,h3`},
		{di, "DI_RANK=-1", `DI_RANK="-1": want a number from 0 to 3, the place of this pod in DI_NODES=h0,h1,h2,h3`},
		{di, "DI_RANK=x", `DI_RANK="x": want a number from 0 to 3, the place of this pod in DI_NODES=h0,h1,h2,h3`},
		{di, "DI_RANK=-", "DI_RANK is not set: " + rank},
		{di, "DI_RANK=", "DI_RANK is empty: " + rank},
		{di, "DI_NODES=-", "DI_NODES is not set: give all pods of the job, by rank, such as dqn-[0-3].dqn" + local},
		{di, "DI_NODES=h0,,h2,h3", `DI_NODES="h0,,h2,h3": "": want the name of a host, such as dqn-0.dqn, or an address, without a port`},
		{di, "DI_NODES=h0:50515,h1,h2,h3",
			`DI_NODES="h0:50515,h1,h2,h3": "h0:50515": want the name of a host, such as dqn-0.dqn, or an address, without a port`},
		{di, "DI_NODES=h[0-", `DI_NODES="h[0-": "h[0-": want a range such as [0-3]`},
		{di, "DI_NODES=h[3-0]", `DI_NODES="h[3-0]": "h[3-0]": want a range such as [0-3]`},
		{di, "DI_NODES=h[0-4096]", `DI_NODES="h[0-4096]": "h[0-4096]": want a range such as [0-3]`},
		{di, "DI_NODES=h[0-99]-[0-99]", `DI_NODES="h[0-99]-[0-99]": more than 4096 pods`},
		{di, "DI_JOB_ID=a b",
			`DI_JOB_ID="a b": job id "a b": want 1 to 40 letters, digits, dots, underscores and hyphens, the first a letter or digit`},
		{append(di, "DI_TASK_NAME=gpu-learner"), "DI_GPU_LEARNER_NODES=h0,h1",
			`DI_GPU_LEARNER_NODES="h0,h1": h3 is not in it, but is pod 3 of DI_NODES=h0,h1,h2,h3`},
		{append(di, "DI_TASK_NAME=learner"), "DI_LEARNER_NODES=h[", `DI_LEARNER_NODES="h[": "h[": want a range such as [0-3]`},
		{[]string{"DI_NODES=h0,h1"}, "JOB_COMPLETION_INDEX=2",
			`JOB_COMPLETION_INDEX="2": want a number from 0 to 1, the place of this pod in DI_NODES=h0,h1`},
		{[]string{"DI_NODES=h0,h1", "JOBSET_NAME=s", "REPLICATED_JOB_NAME=r", "JOB_COMPLETION_INDEX=1"}, "JOB_INDEX=-",
			"JOB_INDEX is not set: " + set},
		{[]string{"DI_NODES=h0,h1", "JOBSET_NAME=s", "REPLICATED_JOB_NAME=r", "JOB_COMPLETION_INDEX=1"}, "JOB_INDEX=0",
			`DI_NODES="h0,h1": this pod is not in it: it is s-r-0-1, by JOBSET_NAME, REPLICATED_JOB_NAME, JOB_INDEX and JOB_COMPLETION_INDEX`},
		{group, "LWS_WORKER_INDEX=2", `LWS_WORKER_INDEX="2": want a number from 0 to 1`},
		{group, "LWS_WORKER_INDEX=-", "LWS_WORKER_INDEX is not set: " + lws},
		{group, "LWS_GROUP_SIZE=two", lines(`LWS_GROUP_SIZE="two": want a number from 1 to 4096`,
			`LWS_WORKER_INDEX="1": want a number from 0 to 0`)},
		{group, "LWS_LEADER_ADDRESS=", "LWS_LEADER_ADDRESS is empty: " + lws},
		{group, "LWS_LEADER_ADDRESS=10.0.0.1",
			`LWS_LEADER_ADDRESS="10.0.0.1": want the name of the leader's pod, from which those of the workers follow, not an address`},
		{torch, "RANK=2", `RANK="2": want a number from 0 to 1`},
		{torch, "MASTER_PORT=0", `MASTER_PORT="0": want a number from 1 to 65534`},
		{torch, "MASTER_ADDR=tcp://m",
			`MASTER_ADDR="tcp://m": "tcp://m": want the name of a host, such as dqn-0.dqn, or an address, without a port`},
		{torch, "LOCAL_RANK=x", `LOCAL_RANK="x": want a number from 0 to 4095`},
		{torch, "POD_IP=me", `POD_IP="me": want an address: set it from status.podIP`},
	} {
		if pod, err := kube.Parse(env(append(slices.Clone(c.base), c.change)...).lookup); err == nil || err.Error() != c.want {
			t.Errorf("%s: %+v\ngot:  %v\nwant: %s", c.change, pod, err, c.want)
		}
	}
	// Without variables: the error names the missing ones.
	if _, err := kube.Parse(vars{}.lookup); err == nil || !strings.Contains(err.Error(), "DI_NODES is not set") ||
		!strings.Contains(err.Error(), "DI_RANK is not set") {
		t.Error(err)
	}
}

func TestJobIsTheSameInAllPodsAndValid(t *testing.T) {
	long := strings.Repeat("long", 12)
	for want, v := range map[string]vars{
		"dqn-1b4e28ba":   env("DI_NODES=a-0.a,a-1.a", "DI_RANK=1", "DI_JOB_ID=dqn-1b4e28ba"),
		"kube-a-0.a":     env("DI_NODES=a-0.a,a-1.a", "DI_RANK=1"),
		"kube-fd00--1":   env("DI_NODES=fd00::1,fd00::2", "DI_RANK=1"),
		"kube-g-2.g.ns":  env("LWS_LEADER_ADDRESS=g-2.g.ns", "LWS_WORKER_INDEX=1", "LWS_GROUP_SIZE=2"),
		"kube-m-0-29500": env("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m-0", "MASTER_PORT=29500"),
	} {
		pod, err := kube.Parse(v.lookup)
		if err != nil || pod.Job() != want || placement.CheckJob(pod.Job()) != nil {
			t.Errorf("%s, %v, want %s", pod.Job(), err, want)
		}
	}
	a, err1 := kube.Parse(env("DI_NODES="+long+"-0.x", "DI_RANK=0").lookup)
	b, err2 := kube.Parse(env("DI_NODES="+long+"-1.x", "DI_RANK=0").lookup)
	if err := errors.Join(err1, err2, placement.CheckJob(a.Job())); err != nil || a.Job() == b.Job() {
		t.Errorf("%s and %s, %v", a.Job(), b.Job(), err)
	}
}

// The variables of a pod that joins later have more pods than the running ones: the added pods follow
// these, and no place of a running pod changes.
func TestPodsOfAGrownJobKeepTheirPlaces(t *testing.T) {
	plan := func(nodes string, rank int) placement.Plan {
		pod, err := kube.Parse(env("DI_NODES="+nodes, fmt.Sprint("DI_RANK=", rank), "DI_JOB_ID=j").lookup)
		if err != nil {
			t.Fatal(err)
		}
		p, err := placement.New(placement.Flags{Job: pod.Job(), Workers: 2}, pod.Site())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before, after := plan("h0,h1,h2", 0), plan("h0,h1,h2,h3", 3)
	for i, n := range before.Nodes {
		if m := after.Nodes[i]; m.ID != n.ID || m.Advertise != n.Advertise {
			t.Errorf("node %+v is %+v for the pod that came later", n, m)
		}
	}
}

func FuzzHosts(f *testing.F) {
	for _, s := range []string{"h0,h1", "dqn-[0-3].dqn", "a-[0-1]-[0-3].b,c", "[", "a[1-]", "::1", "h[0-4095]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := kube.Hosts(list)
		if err != nil {
			return
		}
		if len(hosts) == 0 || len(hosts) > 4096 {
			t.Fatalf("%d hosts", len(hosts))
		}
		again, err := kube.Hosts(strings.Join(hosts, ","))
		if err != nil || !slices.Equal(hosts, again) {
			t.Fatalf("%q: %q, then %q, %v", list, hosts, again, err)
		}
	})
}

// FuzzParse changes real environments: what is accepted gives a plan in which
// this pod's nodes have their ids.
func FuzzParse(f *testing.F) {
	f.Add("h0,h1,h2,h3", "3", "", "", "", "", "", "", "", "", uint8(1))
	f.Add("d-[0-3].d", "", "2", "", "", "", "", "", "", "", uint8(2))
	f.Add("", "", "", "d-0.d.ns", "1", "2", "", "", "", "", uint8(3))
	f.Add("", "", "", "", "", "", "1", "2", "m", "29500", uint8(0))
	f.Fuzz(func(t *testing.T, nodes, rank, index, leader, worker, size, torchRank, world, master, port string, workers uint8) {
		v := vars{
			"DI_NODES": nodes, "DI_RANK": rank, "JOB_COMPLETION_INDEX": index, "LWS_LEADER_ADDRESS": leader, "LWS_WORKER_INDEX": worker,
			"LWS_GROUP_SIZE": size, "RANK": torchRank, "WORLD_SIZE": world, "MASTER_ADDR": master, "MASTER_PORT": port, "POD_IP": "10.0.0.9",
		}
		pod, err := kube.Parse(v.lookup)
		if err != nil || pod.Size > 64 {
			return
		}
		each := int(workers%4) + 1
		plan, err := placement.New(placement.Flags{Job: pod.Job(), Workers: each, RunDir: "/r"}, pod.Site())
		if err != nil {
			// The same host so often that its ports run out, or overlap those of another.
			if pod.Hosts != nil && len(slices.Compact(slices.Sorted(slices.Values(pod.Hosts)))) == len(pod.Hosts) {
				t.Fatalf("%+v: %v", pod, err)
			}
			return
		}
		for _, n := range plan.Local() {
			if n.ID != pod.Rank*each+n.LocalID || n.Listen == "" {
				t.Fatalf("%+v: node %+v", pod, n)
			}
		}
	})
}
