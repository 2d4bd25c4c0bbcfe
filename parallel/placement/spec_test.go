package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/parallel/placement"
)

func TestL10SpecReadsEveryForm(t *testing.T) {
	got := spec(t, `{"tasks":[
		{"labels":"a,b","node_ids":10,"ports":"6000","attach_to":"$node.1"},
		{"labels":["a","b"],"node_ids":[1,"2"],"ports":[3,4],"address":"h","attach_to":["x","y"],"parallel_workers":2},
		{}]}`)
	want := &placement.Spec{Tasks: []placement.TaskSpec{
		{Labels: "a,b", NodeIDs: "10", Ports: "6000", AttachTo: "$node.1"},
		{Labels: "a,b", NodeIDs: "1,2", Ports: "3,4", Address: "h", AttachTo: "x,y", Workers: 2},
		{},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestL10SpecFaultsHaveTheirPath(t *testing.T) {
	for in, want := range map[string]string{
		`{`:                "platform spec: not JSON: unexpected EOF",
		`{"tasks":[{}]} x`: "platform spec: more than one JSON value",
		`[]`:               "platform spec: (top): want an object, got an array",
		`{}`:               "platform spec: tasks: want an array of at least one task",
		`{"tasks":[]}`:     "platform spec: tasks: want an array of at least one task",
		`{"task":[]}`:      "platform spec: task: unknown key; known are tasks",
		`{"tasks":[1]}`:    "platform spec: tasks[0]: want an object, got a number",
		`{"tasks":[{"x":1,"lables":"a"},{"labels":null}]}`: lines(
			"platform spec: tasks[0].lables: unknown key; known are labels, node_ids, ports, address, attach_to, parallel_workers",
			"platform spec: tasks[0].x: unknown key; known are labels, node_ids, ports, address, attach_to, parallel_workers",
			"platform spec: tasks[1].labels: want a text or a number, got null"),
		`{"tasks":[{"node_ids":[1,true]}]}`:      "platform spec: tasks[0].node_ids[1]: want a text or a number, got true or false",
		`{"tasks":[{"address":{}}]}`:             "platform spec: tasks[0].address: want a text, got an object",
		`{"tasks":[{"parallel_workers":0}]}`:     "platform spec: tasks[0].parallel_workers: want a number from 1 to 4096",
		`{"tasks":[{"parallel_workers":1.5}]}`:   "platform spec: tasks[0].parallel_workers: want a number from 1 to 4096",
		`{"tasks":[{"parallel_workers":"two"}]}`: "platform spec: tasks[0].parallel_workers: want a number from 1 to 4096",
	} {
		if s, err := placement.ParseSpec([]byte(in)); err == nil || err.Error() != want {
			t.Errorf("%s: %+v\ngot:  %v\nwant: %s", in, s, err, want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]placement.Address{
		"tcp://a:1":      {Scheme: "tcp", Host: "a", Port: 1},
		"tcp://[::1]:80": {Scheme: "tcp", Host: "::1", Port: 80},
		"unix:///r/s":    {Scheme: "unix", Path: "/r/s"},
	} {
		got, err := placement.ParseAddress(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%s: %+v %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "a:1", "tcp://a", "tcp://:1", "tcp://a:b", "tcp://a:65536", "tcp://a:-1", "unix://r",
		"http://a:1", "tcp://a,b:1", "tcp://a b:1", "tcp://u@h:1",
	} {
		if got, err := placement.ParseAddress(in); err == nil {
			t.Errorf("%q: %+v", in, got)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(`{"tasks":[{"labels":["a"],"node_ids":"1,2","parallel_workers":2,"attach_to":"$node.1"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := placement.ParseSpec(b)
		if err != nil {
			return
		}
		if len(s.Tasks) > 16 {
			s.Tasks = s.Tasks[:16]
		}
		for i := range s.Tasks {
			s.Tasks[i].Workers = min(s.Tasks[i].Workers, 8)
		}
		plan, err := placement.New(placement.Flags{Spec: s, RunDir: "/r"}, placement.Site{})
		if err == nil && len(plan.Nodes) == 0 {
			t.Error("a plan without nodes")
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	f.Add("tcp://[::1]:80")
	f.Add("unix:///r/s")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := placement.ParseAddress(s)
		if err != nil {
			return
		}
		if b, err := placement.ParseAddress(a.String()); err != nil || a != b {
			t.Errorf("%q: %+v, then %+v, %v", s, a, b, err)
		}
	})
}
