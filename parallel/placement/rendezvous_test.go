package placement_test

import (
	"testing"

	"github.com/ditask/ditask/parallel/placement"
)

// rendezvous is a site of four launchers, of which this one, of a rank and slot, knows
// only the first one's host.
func rendezvous(rank, slot int, ports ...int) placement.Site {
	s := placement.Site{
		Rank: rank, Port: 20000, Launchers: make([]placement.Launcher, 4),
		Rendezvous: &placement.Rendezvous{Host: "h0", Here: rank == 0, Ports: ports},
	}
	s.Launchers[0].Host = "h0"
	s.Launchers[rank] = placement.Launcher{Host: "h" + string(rune('0'+rank-slot)), Slot: slot}
	return s
}

func TestPlanWithARendezvous(t *testing.T) {
	elsewhere := rendezvous(2, 0)
	elsewhere.Rendezvous.Elsewhere, elsewhere.Launchers[0].Host = "why", ""
	here := rendezvous(2, 0)
	here.Rendezvous.Elsewhere, here.Rendezvous.Host, here.Rendezvous.Here, here.Launchers[0].Host = "why", "h2", true, ""
	oneHost := placement.Site{Rank: 1, Port: 20000, Launchers: []placement.Launcher{{}, {Slot: 1}}, Rendezvous: &placement.Rendezvous{}}
	for _, c := range []struct {
		name string
		f    placement.Flags
		site placement.Site
		want string
	}{
		{"the one whom all dial", placement.Flags{Workers: 2}, rendezvous(0, 0),
			lines("0 tcp://0.0.0.0:20000", "1 tcp://0.0.0.0:0 > tcp://127.0.0.1:20000")},
		{"another", placement.Flags{Workers: 2}, rendezvous(3, 0),
			lines("6 tcp://0.0.0.0:0 > tcp://h0:20000", "7 tcp://0.0.0.0:0 > tcp://h0:20000 tcp://127.0.0.1:0")},
		{"star", placement.Flags{Workers: 2, Topology: "star"}, rendezvous(3, 0),
			lines("6 tcp://0.0.0.0:0 > tcp://h0:20000", "7 tcp://0.0.0.0:0 > tcp://h0:20000")},
		{"alone", placement.Flags{Topology: "alone"}, rendezvous(3, 0), "3 tcp://0.0.0.0:0"},
		{"reserved ports", placement.Flags{Workers: 2}, rendezvous(3, 1, 12000, 12001, 12002),
			lines("6 tcp://0.0.0.0:12002 > tcp://h0:12000", "7 tcp://0.0.0.0:0 > tcp://h0:12000 tcp://127.0.0.1:12002")},
		{"ports that are given", placement.Flags{Workers: 2, Ports: "7000"}, rendezvous(3, 1, 12000),
			lines("6 tcp://0.0.0.0:7002 > tcp://h0:7000", "7 tcp://0.0.0.0:7003 > tcp://h0:7000 tcp://127.0.0.1:7002")},
		{"an address of the spec", placement.Flags{Spec: spec(t, `{"tasks":[{"address":"10.0.0.1","ports":9000},{},{},{"ports":9100}]}`)},
			rendezvous(3, 0),
			"3 tcp://0.0.0.0:9100 > tcp://10.0.0.1:9000"},
		{"a node whose task has an address and ports", placement.Flags{Topology: "alone",
			Spec: spec(t, `{"tasks":[{},{},{"address":"10.0.0.7","ports":9000},{"attach_to":"$node.2"}]}`)}, rendezvous(3, 0),
			"3 tcp://0.0.0.0:0 > tcp://10.0.0.7:9000"},
		{"where the first launcher is not known", placement.Flags{Workers: 2}, elsewhere,
			lines("4 tcp://0.0.0.0:0 > tcp://h0:20000", "5 tcp://0.0.0.0:0 > tcp://127.0.0.1:0 tcp://h0:20000")},
		{"and it is this one whom all dial", placement.Flags{Workers: 2}, here,
			lines("4 tcp://0.0.0.0:20000", "5 tcp://0.0.0.0:0 > tcp://127.0.0.1:20000")},
		{"one host", placement.Flags{}, oneHost, "1 tcp://127.0.0.1:0 > tcp://127.0.0.1:20000"},
		{"one host, one of its addresses", placement.Flags{Address: "10.0.0.1"}, oneHost, "1 tcp://10.0.0.1:0 > tcp://10.0.0.1:20000"},
		{"one host, all addresses", placement.Flags{Address: "0.0.0.0"}, oneHost, "1 tcp://0.0.0.0:0 > tcp://127.0.0.1:20000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := placement.New(c.f, c.site)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(plan.Local()); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
			if want := len(c.site.Launchers) * max(c.f.Workers, 1); plan.Expected != want && plan.Topology != placement.Alone {
				t.Errorf("expects %d nodes, want %d", plan.Expected, want)
			}
		})
	}
	for _, task := range []string{`{}`, `{"address":"10.0.0.7"}`, `{"ports":9000}`, `{"address":"0.0.0.0","ports":9000}`} {
		tasks := `{"tasks":[{},` + task + `,{},{"attach_to":"$node.1"}]}`
		const want = "platform spec: tasks[3].attach_to $node.1: the host of node 1 is not known before it joins: " +
			"leave it out with --topology mesh, in which all nodes meet, or give the task of node 1 an address and ports in --platform-spec"
		if _, err := placement.New(placement.Flags{Spec: spec(t, tasks)}, rendezvous(3, 0)); err == nil || err.Error() != want {
			t.Errorf("%s\ngot:  %v\nwant: %s", tasks, err, want)
		}
	}
	const unknown = "--mq-type nats: why: the host of the first node, whose launcher runs the server, is not known: " +
		"give --nats-url, or another distribution"
	if _, err := placement.New(placement.Flags{MQType: "nats"}, elsewhere); err == nil || err.Error() != unknown {
		t.Error(err)
	}
	plan, err := placement.New(placement.Flags{MQType: "nats", Workers: 2}, rendezvous(3, 0))
	if err != nil || plan.Bus != "nats://h0:20000" ||
		show(plan.Local()) != lines("6 bus://node.6 > bus://node.0 bus://node.1 bus://node.2 bus://node.3 bus://node.4 bus://node.5",
			"7 bus://node.7 > bus://node.0 bus://node.1 bus://node.2 bus://node.3 bus://node.4 bus://node.5 bus://node.6") {
		t.Errorf("%s over %s, %v", show(plan.Local()), plan.Bus, err)
	}
	if _, err := placement.New(placement.Flags{Spec: spec(t, `{"tasks":[{"ports":9000},{},{},{}]}`)}, elsewhere); err == nil ||
		err.Error() != "platform spec: ports: why: the hosts of the tasks are not known: use --ports, or another distribution" {
		t.Error(err)
	}
}

func TestSharedJobsHaveOtherLaunchers(t *testing.T) {
	for name, tt := range map[string]struct {
		flags placement.Flags
		site  placement.Site
		want  bool
	}{
		"alone on a machine":  {placement.Flags{Workers: 3, RunDir: "/r"}, placement.Site{}, false},
		"attached to another": {placement.Flags{Workers: 2, Protocol: "tcp", AttachTo: "tcp://a:1"}, placement.Site{}, true},
		"one of several pods": {placement.Flags{Ports: "20000"},
			placement.Site{Rank: 1, Launchers: []placement.Launcher{{Host: "h0"}, {Host: "h1"}}}, true},
		"the only one of a step": {placement.Flags{Workers: 2, Ports: "20000"},
			placement.Site{Launchers: []placement.Launcher{{Host: "h0"}}}, false},
	} {
		plan, err := placement.New(tt.flags, tt.site)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := plan.Shared(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
