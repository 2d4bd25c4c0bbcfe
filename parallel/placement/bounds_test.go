package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel/placement"
)

func TestCheckJobBounds(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "Z": true, "0": true, "a.b_c-d": true, strings.Repeat("x", 40): true,
		"": false, strings.Repeat("x", 41): false, ".a": false, "_a": false, "-a": false, "a b": false, "a/b": false, "ä": false,
	} {
		if err := placement.CheckJob(id); (err == nil) != want {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestExposedAddresses(t *testing.T) {
	for in, want := range map[string]bool{
		"tcp://localhost:1": false, "tcp://127.0.0.1:1": false, "tcp://127.9.9.9:1": false, "tcp://[::1]:1": false,
		"tcp://[::ffff:127.0.0.1]:1": false,
		"tcp://0.0.0.0:1":            true, "tcp://10.0.0.1:1": true, "tcp://h:1": true, "unix:///s": false,
	} {
		a, err := placement.ParseAddress(in)
		if err != nil || a.Exposed() != want {
			t.Errorf("%s: %v, %v", in, a.Exposed(), err)
		}
	}
}

func TestPlanBounds(t *testing.T) {
	for _, c := range []struct {
		f    placement.Flags
		want string // empty: no fault
	}{
		{placement.Flags{Workers: 4096, RunDir: "/r", Topology: "alone"}, ""},
		{placement.Flags{Workers: 4097, RunDir: "/r"}, "--parallel-workers 4097: want a number from 1 to 4096"},
		{placement.Flags{Workers: 2, Ports: "65534"}, ""},
		{placement.Flags{Workers: 2, NodeIDs: "2147483646", RunDir: "/r"}, ""},
		{placement.Flags{Workers: 2, NodeIDs: "2147483647", RunDir: "/r"}, "--node-ids 2147483647: counting up for 2 nodes goes past 2147483647"},
		{placement.Flags{Spec: spec(t, `{"tasks":[{"parallel_workers":4096}]}`), RunDir: "/r", Topology: "alone"}, ""},
		{placement.Flags{Labels: "standalone", RunDir: "/r"}, `--labels "standalone": is given by ditask itself`},
		{placement.Flags{Labels: "distributed", RunDir: "/r"}, `--labels "distributed": is given by ditask itself`},
		{placement.Flags{Labels: "node", RunDir: "/r"}, ""},
		{placement.Flags{MQType: "nats", AttachTo: "bus://node.-1"},
			`--attach-to "bus://node.-1": want bus://node.<id> or $node.<id> with --mq-type nats`},
		{placement.Flags{MQType: "nats", AttachTo: "bus://node.01"},
			`--attach-to "bus://node.01": want bus://node.<id> or $node.<id> with --mq-type nats`},
		{placement.Flags{Workers: 10, AttachTo: "$node.99", RunDir: "/r"},
			"--attach-to $node.99: no such node; there are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"},
		{placement.Flags{Workers: 11, AttachTo: "$node.99", RunDir: "/r"},
			"--attach-to $node.99: no such node; there are 0, 1, 2, 3, 4, 5, 6, 7 ... 10"},
		{placement.Flags{Ports: "7000", AttachTo: "tcp://127.0.0.1:7001"}, ""},
		{placement.Flags{Protocol: "tcp", Address: "0.0.0.0", AttachTo: "tcp://localhost:7001"}, ""},
	} {
		_, err := placement.New(c.f, placement.Site{})
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%+v: got %v, want %q", c.f, err, c.want)
		}
	}
	if _, err := placement.ParseSpec([]byte(`{"tasks":[{"parallel_workers":4097}]}`)); err == nil {
		t.Error("4097 workers in a task")
	}
}

func TestPlanHasNothingTwice(t *testing.T) {
	for _, c := range []struct {
		f    placement.Flags
		want string
	}{
		{placement.Flags{RunDir: "/r", AttachTo: "tcp://a:1,tcp://a:1", Spec: spec(t, `{"tasks":[{"attach_to":"tcp://a:1"}]}`)},
			"0 unix:///r/n0.sock > tcp://a:1"},
		{placement.Flags{MQType: "nats", AttachTo: "bus://node.7,bus://node.7"}, "0 bus://node.0 > bus://node.7"},
		{placement.Flags{RunDir: "/r", Labels: "a,b", Spec: spec(t, `{"tasks":[{"labels":"b,c"}]}`)}, "0 unix:///r/n0.sock [a b c]"},
	} {
		plan, err := placement.New(c.f, placement.Site{})
		if err != nil || show(plan.Nodes) != c.want {
			t.Errorf("%+v: %s, %v", c.f, show(plan.Nodes), err)
		}
	}
}

func TestExternalServerIsRunByNoNode(t *testing.T) {
	plan, err := placement.New(placement.Flags{NATSURL: "nats://h:1"}, placement.Site{})
	if err != nil || plan.RunsBus() {
		t.Errorf("%+v, %v", plan, err)
	}
}

func TestStarWithARendezvous(t *testing.T) {
	_, err := placement.New(placement.Flags{Topology: "star", NodeIDs: "3,2,1,0"}, rendezvous(0, 0))
	if want := "--topology star: all dial node 3, but the hub is node 0: leave out --node-ids"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	// Where the first launcher is not known, the address of the first task has no effect.
	site := rendezvous(2, 0)
	site.Rendezvous.Elsewhere, site.Launchers[0].Host = "why", ""
	plan, err := placement.New(placement.Flags{Spec: spec(t, `{"tasks":[{"address":"10.0.0.1"},{},{},{}]}`)}, site)
	if want := "2 tcp://0.0.0.0:0 > tcp://h0:20000"; err != nil || show(plan.Local()) != want {
		t.Errorf("%s, %v", show(plan.Local()), err)
	}
}
