package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/placement"
)

// show is a plan in one line a node: id listen > attach [labels].
func show(nodes []placement.Node) string {
	var lines []string
	for _, n := range nodes {
		line := fmt.Sprintf("%d %s", n.ID, n.Listen)
		if len(n.Attach) > 0 {
			line += " > " + strings.Join(n.Attach, " ")
		}
		if len(n.Labels) > 0 {
			line += " [" + strings.Join(n.Labels, " ") + "]"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func lines(l ...string) string { return strings.Join(l, "\n") }

func spec(t *testing.T, text string) *placement.Spec {
	t.Helper()
	s, err := placement.ParseSpec([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at are launchers on hosts; a host named again is its next slot.
func at(rank int, hosts ...string) placement.Site {
	s := placement.Site{Rank: rank}
	slots := map[string]int{}
	for _, h := range hosts {
		s.Launchers = append(s.Launchers, placement.Launcher{Host: h, Slot: slots[h]})
		slots[h]++
	}
	return s
}

func TestPlanOfLocalNodes(t *testing.T) {
	const lo = "tcp://127.0.0.1:"
	for _, c := range []struct {
		name string
		f    placement.Flags
		spec string
		want string
	}{
		{"L1 mesh", placement.Flags{Workers: 3, Protocol: "tcp", Ports: "50515", Topology: "mesh"}, "",
			lines("0 "+lo+"50515", "1 "+lo+"50516 > "+lo+"50515", "2 "+lo+"50517 > "+lo+"50515 "+lo+"50516")},
		{"L2 star", placement.Flags{Workers: 3, Protocol: "tcp", Ports: "50515", Topology: "star"}, "",
			lines("0 "+lo+"50515", "1 "+lo+"50516 > "+lo+"50515", "2 "+lo+"50517 > "+lo+"50515")},
		{"L2 alone", placement.Flags{Workers: 2, Protocol: "tcp", Ports: "50515", Topology: "alone", AttachTo: "tcp://a:1"}, "",
			lines("0 "+lo+"50515 > tcp://a:1", "1 "+lo+"50516 > tcp://a:1")},
		{"L3 lists", placement.Flags{Workers: 2, Ports: "6000,9000", NodeIDs: "10,12"}, "",
			lines("10 "+lo+"6000", "12 "+lo+"9000 > "+lo+"6000")},
		{"L3 counting up", placement.Flags{Workers: 2, Ports: "6000", NodeIDs: "10"}, "",
			lines("10 "+lo+"6000", "11 "+lo+"6001 > "+lo+"6000")},
		{"ids in another order", placement.Flags{Workers: 2, Ports: "6000", NodeIDs: "5,3"}, "",
			lines("5 "+lo+"6000 > "+lo+"6001", "3 "+lo+"6001")},
		{"the default is a mesh of unix sockets", placement.Flags{Workers: 2, RunDir: "/run/j"}, "",
			lines("0 unix:///run/j/n0.sock", "1 unix:///run/j/n1.sock > unix:///run/j/n0.sock")},
		{"zero value", placement.Flags{RunDir: "/r"}, "", "0 unix:///r/n0.sock"},
		{"tcp without ports", placement.Flags{Workers: 2, Protocol: "tcp"}, "",
			lines("0 "+lo+"0", "1 "+lo+"0 > "+lo+"0")},
		{"all addresses", placement.Flags{Workers: 2, Ports: "7000", Address: "0.0.0.0", Hostname: "me"}, "",
			lines("0 tcp://0.0.0.0:7000", "1 tcp://0.0.0.0:7001 > "+lo+"7000")},
		{"version 6", placement.Flags{Workers: 2, Ports: "7000", Address: "::1"}, "",
			lines("0 tcp://[::1]:7000", "1 tcp://[::1]:7001 > tcp://[::1]:7000")},
		{"labels", placement.Flags{Labels: "gpu, big,gpu", RunDir: "/r"}, "", "0 unix:///r/n0.sock [big gpu]"},
		{"redis", placement.Flags{Workers: 2, RedisURL: "redis://r:6379"}, "",
			lines("0 bus://node.0", "1 bus://node.1 > bus://node.0")},
		{"nats", placement.Flags{Workers: 3, MQType: "nats", Topology: "star", AttachTo: "bus://node.9"}, "",
			lines("0 bus://node.0 > bus://node.9", "1 bus://node.1 > bus://node.0 bus://node.9", "2 bus://node.2 > bus://node.0 bus://node.9")},
		{"nats elsewhere", placement.Flags{Workers: 2, NATSURL: "nats://h:1"}, "",
			lines("0 bus://node.0", "1 bus://node.1 > bus://node.0")},
		{"nng means the mesh", placement.Flags{MQType: "nng", RunDir: "/r"}, "", "0 unix:///r/n0.sock"},
		{"L9 forward and backward", placement.Flags{Topology: "alone", RunDir: "/r"},
			`{"tasks":[{"node_ids":10,"attach_to":"$node.12"},{"attach_to":["$node.10","tcp://x:1"]},{"node_ids":[12,13],"parallel_workers":2}]}`,
			lines("10 unix:///r/n10.sock > unix:///r/n12.sock",
				"11 unix:///r/n11.sock > unix:///r/n10.sock tcp://x:1",
				"12 unix:///r/n12.sock", "13 unix:///r/n13.sock")},
		{"L9 in the flag", placement.Flags{Workers: 2, Ports: "7000", Topology: "alone", AttachTo: "$node.1"},
			`{"tasks":[{"node_ids":"2,3"},{"node_ids":"0,1","attach_to":""}]}`, "--attach-to $node.1: node 1 would dial itself"},
		{"L9 no node twice", placement.Flags{RunDir: "/r"},
			`{"tasks":[{},{"attach_to":"$node.0,$node.0"}]}`,
			lines("0 unix:///r/n0.sock", "1 unix:///r/n1.sock > unix:///r/n0.sock")},
		{"L10 tasks", placement.Flags{Topology: "star", Labels: "all"},
			`{"tasks":[{"labels":"learn","ports":6000},{"labels":["collect","fast"],"parallel_workers":2,"ports":"7000","address":"10.0.0.1"}]}`,
			lines("0 "+lo+"6000 [all learn]", "1 tcp://10.0.0.1:7000 > "+lo+"6000 [all collect fast]",
				"2 tcp://10.0.0.1:7001 > "+lo+"6000 [all collect fast]")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spec != "" {
				c.f.Spec = spec(t, c.spec)
			}
			plan, err := placement.New(c.f, placement.Site{})
			got := show(plan.Local())
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestPlanOverSeveralLaunchers(t *testing.T) {
	for _, c := range []struct {
		name string
		f    placement.Flags
		site placement.Site
		want string
	}{
		{"mesh, one worker", placement.Flags{}, at(3, "h0", "h1", "h2", "h3"),
			"3 tcp://0.0.0.0:50515 > tcp://h0:50515 tcp://h1:50515 tcp://h2:50515"},
		{"mesh, two workers", placement.Flags{Workers: 2}, at(2, "h0", "h1", "h2"),
			lines("4 tcp://0.0.0.0:50515 > tcp://h0:50515 tcp://h0:50516 tcp://h1:50515 tcp://h1:50516",
				"5 tcp://0.0.0.0:50516 > tcp://h0:50515 tcp://h0:50516 tcp://h1:50515 tcp://h1:50516 tcp://127.0.0.1:50515")},
		{"star, two workers", placement.Flags{Workers: 2, Topology: "star"}, at(2, "h0", "h1", "h2"),
			lines("4 tcp://0.0.0.0:50515 > tcp://h0:50515", "5 tcp://0.0.0.0:50516 > tcp://h0:50515")},
		{"launchers of one host share its ports", placement.Flags{Workers: 2, Ports: "7000", Topology: "star"}, at(1, "h0", "h0"),
			lines("2 tcp://0.0.0.0:7002 > tcp://h0:7000", "3 tcp://0.0.0.0:7003 > tcp://h0:7000")},
		{"an address is that of this launcher's host", placement.Flags{Address: "10.0.0.3"}, at(2, "h0", "h1", "h2"),
			"2 tcp://10.0.0.3:50515 > tcp://h0:50515 tcp://h1:50515"},
		{"and of other launchers on it", placement.Flags{Address: "10.0.0.3", Topology: "star"}, at(1, "h0", "h0"),
			"1 tcp://10.0.0.3:50516 > tcp://10.0.0.3:50515"},
		{"all addresses of each host", placement.Flags{Address: "::"}, at(1, "h0", "h1"),
			"1 tcp://[::]:50515 > tcp://h0:50515"},
		{"loopback where all launchers are on one host", placement.Flags{Address: "127.0.0.1"}, at(1, "h0", "h0"),
			"1 tcp://127.0.0.1:50516 > tcp://127.0.0.1:50515"},
		{"hosts that are this machine", placement.Flags{Address: "127.0.0.2"}, at(1, "127.0.0.1", "127.0.0.2"),
			"1 tcp://127.0.0.2:50515 > tcp://127.0.0.1:50515"},
		{"an open site of one", placement.Flags{}, placement.Site{Open: true, Launchers: make([]placement.Launcher, 1)},
			"0 tcp://127.0.0.1:50515"},
		{"a lone launcher with a name", placement.Flags{RunDir: "/r"}, at(0, "h0"), "0 unix:///r/n0.sock"},
		{"another first port", placement.Flags{}, placement.Site{Port: 15151, Launchers: []placement.Launcher{{Host: "a"}, {Host: "b"}}},
			"0 tcp://0.0.0.0:15151"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan, err := placement.New(c.f, c.site)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(plan.Local()); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestPlanTakesOneTaskOfTheSpecALauncher(t *testing.T) {
	s := spec(t, `{"tasks":[{"node_ids":10},{"node_ids":20,"attach_to":"$node.10","labels":"learn"}]}`)
	plan, err := placement.New(placement.Flags{Spec: s, Topology: "alone"}, at(1, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := show(plan.Local()), "20 tcp://0.0.0.0:50515 > tcp://a:50515 [learn]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err = placement.New(placement.Flags{Spec: s}, at(0, "a", "b", "c")); err == nil ||
		err.Error() != "platform spec: 2 tasks for 3 launchers" {
		t.Error(err)
	}
}

func TestPlanFaultsNameFlagAndValue(t *testing.T) {
	for _, c := range []struct {
		f    placement.Flags
		spec string
		want string
	}{
		{placement.Flags{Workers: 3, Ports: "1,2"}, "", "--ports 1,2: 2 ports for 3 nodes; give one for each, or the first"},
		{placement.Flags{Ports: "1,2"}, "", "--ports 1,2: 2 ports for 1 node; give one for each, or the first"},
		{placement.Flags{Workers: 2, NodeIDs: "1,2,3"}, "", "--node-ids 1,2,3: 3 ids for 2 nodes; give one for each, or the first"},
		{placement.Flags{Workers: 2, NodeIDs: "4,4", RunDir: "/r"}, "",
			"--node-ids 4,4: node id 4 is given twice: every node of the job needs its own"},
		{placement.Flags{NodeIDs: "x"}, "", `--node-ids "x": want a number from 0 to 2147483647`},
		{placement.Flags{Ports: "70000"}, "", `--ports "70000": want a number from 1 to 65535`},
		{placement.Flags{Ports: "0"}, "", `--ports "0": want a number from 1 to 65535`},
		{placement.Flags{Workers: 2, Ports: "65535"}, "", `--ports 65535: counting up for 2 nodes goes past 65535`},
		{placement.Flags{Workers: 2, Ports: "6000,6000"}, "", "tcp://127.0.0.1:6000 is given to node 0 and to node 1: give each its own port"},
		{placement.Flags{Workers: -1}, "", "--parallel-workers -1: want a number from 1 to 4096"},
		{placement.Flags{Workers: 4096}, `{"tasks":[{},{}]}`, "more than 4096 nodes"},
		{placement.Flags{Topology: "ring", Protocol: "udp", MQType: "zmq", Job: "a/b"}, "", lines(
			`job id "a/b": want 1 to 40 letters, digits, dots, underscores and hyphens, the first a letter or digit`,
			`--topology "ring": want one of mesh, star, alone`,
			`--mq-type "zmq": want one of mesh, nng, nats, redis`,
			`--protocol "udp": want one of tcp, ipc`)},
		{placement.Flags{Protocol: "ipc", Ports: "1"}, "", "--protocol ipc: --ports needs --protocol tcp"},
		{placement.Flags{Protocol: "ipc", Address: "h"}, "", "--protocol ipc: --address needs --protocol tcp"},
		{placement.Flags{Protocol: "ipc"}, `{"tasks":[{"ports":1}]}`,
			"--protocol ipc: ports or address in the platform spec needs --protocol tcp"},
		{placement.Flags{Labels: "a b"}, "", `--labels "a b": a label has no white space and no *, ?, [, ] or \`},
		{placement.Flags{Labels: "node.3"}, "", `--labels "node.3": is given by ditask itself`},
		{placement.Flags{AttachTo: "a:1", RunDir: "/r"}, "", `--attach-to "a:1": want tcp://host:port or unix:///path`},
		{placement.Flags{AttachTo: "tcp://a:0", RunDir: "/r"}, "", `--attach-to "tcp://a:0": want a port from 1 to 65535`},
		{placement.Flags{Workers: 3, AttachTo: "$node.7", RunDir: "/r"}, "", `--attach-to $node.7: no such node; there are 0, 1, 2`},
		{placement.Flags{Workers: 12, AttachTo: "$node.x", RunDir: "/r"}, "",
			`--attach-to $node.x: no such node; there are 0, 1, 2, 3, 4, 5, 6, 7 ... 11`},
		{placement.Flags{RunDir: "/r"}, `{"tasks":[{"attach_to":"$node.0"}]}`,
			"platform spec: tasks[0].attach_to $node.0: node 0 would dial itself"},
		{placement.Flags{NodeIDs: "1"}, `{"tasks":[{"node_ids":0}]}`, "--node-ids: the platform spec has node_ids too; give one of them"},
		{placement.Flags{Ports: "1"}, `{"tasks":[{"ports":2}]}`, "--ports: the platform spec has ports too; give one of them"},
		{placement.Flags{Address: "a/b"}, "", `--address "a/b": want the name or the address of a host, without a port`},
		{placement.Flags{Address: "127.0.0.1:80"}, "", `--address "127.0.0.1:80": want a host without a port: --address 127.0.0.1 --ports 80`},
		{placement.Flags{Address: "[::1]:80", Workers: 2}, "", `--address "[::1]:80": want a host without a port: --address ::1 --ports 80`},
		{placement.Flags{Address: "tcp://h:80"}, "", `--address "tcp://h:80": want a host without a port: --address h --ports 80`},
		{placement.Flags{Address: "tcp://h"}, "", `--address "tcp://h": want the name or the address of a host, without a port`},
		{placement.Flags{Address: "a:b:c"}, "", `--address "a:b:c": want the name or the address of a host, without a port`},
		{placement.Flags{Address: "h:99999"}, "", `--address "h:99999": want the name or the address of a host, without a port`},
		{placement.Flags{}, `{"tasks":[{},{"address":"h:80"}]}`,
			`platform spec: tasks[1].address "h:80": want a host without a port: address h, ports 80`},
		{placement.Flags{Ports: "7000", AttachTo: "tcp://127.0.0.1:7000"}, "",
			"--attach-to tcp://127.0.0.1:7000: node 0 listens there itself: leave this address out"},
		{placement.Flags{Ports: "7000", Address: "0.0.0.0", AttachTo: "tcp://localhost:7000"}, "",
			"--attach-to tcp://localhost:7000: node 0 listens there itself: leave this address out"},
		{placement.Flags{Ports: "7000", Address: "0.0.0.0", Hostname: "me", AttachTo: "tcp://me:7000"}, "",
			"--attach-to tcp://me:7000: node 0 listens there itself: leave this address out"},
		{placement.Flags{RunDir: "/r", AttachTo: "unix:///r/n0.sock"}, "",
			"--attach-to unix:///r/n0.sock: node 0 listens there itself: leave this address out"},
		{placement.Flags{Protocol: "tcp", MQType: "nats"}, "", "--protocol tcp: nodes do not listen with --mq-type nats: leave --protocol out"},
		{placement.Flags{Protocol: "ipc", RedisURL: "redis://r:6379"}, "",
			"--protocol ipc: nodes do not listen with --mq-type redis: leave --protocol out"},
		{placement.Flags{RedisURL: "redis://r:6379", Ports: "1", AttachTo: "tcp://a:1"}, "", lines(
			"--redis-url: the server runs elsewhere; leave out --ports and --address",
			`--attach-to "tcp://a:1": want bus://node.<id> or $node.<id> with --mq-type redis`)},
		{placement.Flags{MQType: "redis"}, "", "--mq-type redis: which server? give --redis-url"},
		{placement.Flags{MQType: "nats", RedisURL: "redis://r:6379"}, "", "--redis-url: needs --mq-type redis, or none"},
		{placement.Flags{MQType: "mesh", NATSURL: "nats://h:1", RunDir: "/r"}, "", "--nats-url: needs --mq-type nats, or none"},
		{placement.Flags{NATSURL: "nats://h:1", Ports: "1"}, "", "--nats-url: the server runs elsewhere; leave out --ports and --address"},
		{placement.Flags{MQType: "nats", Ports: "0"}, "", `--ports "0": want a number from 1 to 65535`},
		{placement.Flags{MQType: "nats", Address: "a/b"}, "", `--address "a/b": want the name or the address of a host, without a port`},
		{placement.Flags{MQType: "nats", AttachTo: "tcp://a:1"}, "",
			`--attach-to "tcp://a:1": want bus://node.<id> or $node.<id> with --mq-type nats`},
		{placement.Flags{MQType: "nats"}, `{"tasks":[{"ports":1}]}`,
			"platform spec: nodes do not listen with --mq-type nats; leave out ports and address"},
		{placement.Flags{RunDir: "/" + strings.Repeat("x", 91)}, "",
			"socket path /" + strings.Repeat("x", 91) + "/n0.sock: 100 bytes"},
		{placement.Flags{RunDir: "/*" + strings.Repeat("x", 82)}, "",
			"socket path /*" + strings.Repeat("x", 82) +
				"/n0.sock: 101 bytes, the system allows 100: set XDG_RUNTIME_DIR or TMPDIR to a shorter folder, or use --protocol tcp"},
	} {
		if c.spec != "" {
			c.f.Spec = spec(t, c.spec)
		}
		plan, err := placement.New(c.f, placement.Site{})
		if strings.HasSuffix(c.want, ": 100 bytes") {
			if err != nil {
				t.Errorf("the longest path: %v", err)
			}
			continue
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: %s\ngot:  %v\nwant: %s", c.f, show(plan.Nodes), err, c.want)
		}
	}
}

func TestAddressesThatCannotServeSeveralHostsAreRefused(t *testing.T) {
	for _, c := range []struct {
		f    placement.Flags
		spec string
		site placement.Site
		want string
	}{
		{placement.Flags{Address: "127.0.0.1"}, "", at(0, "h0", "h1"),
			"--address 127.0.0.1: nodes on other hosts cannot reach it: give an address of this host's network, or leave it out"},
		{placement.Flags{Address: "localhost"}, "", rendezvous(3, 0),
			"--address localhost: nodes on other hosts cannot reach it: give an address of this host's network, or leave it out"},
		{placement.Flags{Address: "127.0.0.1", MQType: "nats"}, "", at(0, "h0", "h1"),
			"--address 127.0.0.1: nodes on other hosts cannot reach it: give an address of this host's network, or leave it out"},
		{placement.Flags{Topology: "star"}, `{"tasks":[{"address":"10.0.0.1"},{"address":"10.0.0.1"}]}`, at(1, "h0", "h1"),
			"tcp://10.0.0.1:50515 is given to node 0 and to node 1: give each its own port"},
		{placement.Flags{AttachTo: "tcp://h1:50515"}, "", at(1, "h0", "h1"),
			"--attach-to tcp://h1:50515: node 1 listens there itself: leave this address out"},
	} {
		if c.spec != "" {
			c.f.Spec = spec(t, c.spec)
		}
		if plan, err := placement.New(c.f, c.site); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %s\ngot:  %v\nwant: %s", c.f, show(plan.Nodes), err, c.want)
		}
	}
	// The other launcher's own address is fine.
	if _, err := placement.New(placement.Flags{AttachTo: "tcp://h1:50515", Topology: "alone"}, at(0, "h0", "h1")); err != nil {
		t.Error(err)
	}
}

func TestPlanRankOutOfRange(t *testing.T) {
	if _, err := placement.New(placement.Flags{}, at(2, "a", "b")); err == nil ||
		err.Error() != "rank 2 of 2 launchers: want a number from 0 to 1" {
		t.Error(err)
	}
}

func TestBindPutsFreePortsEverywhere(t *testing.T) {
	plan, err := placement.New(placement.Flags{Workers: 3, Protocol: "tcp", Topology: "star", Address: "0.0.0.0", Hostname: "me"},
		placement.Site{})
	if err != nil {
		t.Fatal(err)
	}
	bound := plan.Bind(map[int]int{0: 4000, 1: 4001, 2: 4002})
	want := lines("0 tcp://0.0.0.0:4000", "1 tcp://0.0.0.0:4001 > tcp://127.0.0.1:4000", "2 tcp://0.0.0.0:4002 > tcp://127.0.0.1:4000")
	if got := show(bound.Nodes); got != want {
		t.Errorf("got:\n%s", got)
	}
	if got := bound.Nodes[2].Advertise; got != "tcp://me:4002" {
		t.Errorf("advertise %s", got)
	}
	if plan.Nodes[0].Listen != "tcp://0.0.0.0:0" {
		t.Error("Bind changed the plan that it was given")
	}
}

func TestPlanPutsTheBusAtTheLauncherOfItsFirstNode(t *testing.T) {
	for _, c := range []struct {
		name string
		f    placement.Flags
		site placement.Site
		want string // URL, where it listens, which launcher, and whether this is it
	}{
		{"one machine", placement.Flags{}, placement.Site{}, "nats://127.0.0.1:0 tcp://127.0.0.1:0 0 true"},
		{"first of the ports", placement.Flags{Ports: "6000,6001", Workers: 2, NodeIDs: "5,3"}, placement.Site{},
			"nats://127.0.0.1:6000 tcp://127.0.0.1:6000 0 true"},
		{"all addresses", placement.Flags{Address: "0.0.0.0", Hostname: "me"}, placement.Site{}, "nats://127.0.0.1:0 tcp://0.0.0.0:0 0 true"},
		{"version 6", placement.Flags{Address: "::1", Ports: "7"}, placement.Site{}, "nats://[::1]:7 tcp://[::1]:7 0 true"},
		{"several machines", placement.Flags{}, at(1, "a", "b"), "nats://a:50515 tcp://0.0.0.0:50515 0 false"},
		{"first node at the second", placement.Flags{NodeIDs: "5,3"}, at(1, "a", "b"), "nats://b:50515 tcp://0.0.0.0:50515 1 true"},
		{"several launchers here", placement.Flags{}, placement.Site{Open: true, Launchers: make([]placement.Launcher, 1)},
			"nats://127.0.0.1:50515 tcp://127.0.0.1:50515 0 true"},
		// --address is that of this launcher's host, and all launchers dial one server.
		{"address of the first host", placement.Flags{Address: "10.0.0.1"}, at(0, "a", "b"), "nats://a:50515 tcp://10.0.0.1:50515 0 true"},
		{"address of the second host", placement.Flags{Address: "10.0.0.2"}, at(1, "a", "b"), "nats://a:50515 tcp://0.0.0.0:50515 0 false"},
		{"all addresses of the second host", placement.Flags{Address: "0.0.0.0", Ports: "7"}, at(1, "a", "b"),
			"nats://a:7 tcp://0.0.0.0:7 0 false"},
		{"address of the rendezvous's host", placement.Flags{Address: "10.0.0.1"}, rendezvous(0, 0),
			"nats://h0:20000 tcp://10.0.0.1:20000 0 true"},
		{"address of another host than the rendezvous's", placement.Flags{Address: "10.0.0.2"}, rendezvous(2, 0),
			"nats://h0:20000 tcp://0.0.0.0:20000 0 false"},
		{"elsewhere", placement.Flags{NATSURL: "nats://h:1,nats://i:2"}, at(1, "a", "b"), "nats://h:1,nats://i:2  0 false"},
	} {
		c.f.MQType = "nats"
		plan, err := placement.New(c.f, c.site)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := fmt.Sprint(plan.Bus, " ", plan.BusListen, " ", plan.BusRank, " ", plan.RunsBus()); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	plan, _ := placement.New(placement.Flags{MQType: "nats"}, placement.Site{})
	if got := plan.BindBus(99); got.Bus != "nats://127.0.0.1:99" || got.BusListen != "tcp://127.0.0.1:99" {
		t.Errorf("bound: %s %s", got.Bus, got.BusListen)
	}
}

func TestExpectedIsUnknownWhenOthersMayJoin(t *testing.T) {
	for _, c := range []struct {
		f    placement.Flags
		site placement.Site
		want int
	}{
		{placement.Flags{Workers: 3, RunDir: "/r"}, placement.Site{}, 3},
		{placement.Flags{Workers: 2}, at(0, "a", "b"), 4},
		{placement.Flags{Workers: 3, RunDir: "/r", Topology: "alone"}, placement.Site{}, 0},
		{placement.Flags{Workers: 3, RunDir: "/r", AttachTo: "tcp://a:1"}, placement.Site{}, 0},
		{placement.Flags{}, placement.Site{Open: true}, 0},
	} {
		plan, err := placement.New(c.f, c.site)
		if err != nil || plan.Expected != c.want {
			t.Errorf("%+v: expected %d, %v", c.f, plan.Expected, err)
		}
	}
}
