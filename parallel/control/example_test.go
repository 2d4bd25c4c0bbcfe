package control_test

import (
	"fmt"

	"github.com/ditask/ditask/parallel/control"
)

func ExampleParse() {
	environ := map[string]string{"DITASK_NODE_ID": "2", "DITASK_NODES": "4", "DITASK_ATTACH": "tcp://a:1,tcp://b:1"}
	env, present, err := control.Parse(func(name string) (string, bool) {
		value, ok := environ[name]
		return value, ok
	})
	fmt.Println(present, err)
	fmt.Printf("node %d of %d dials %v\n", env.NodeID, env.Nodes, env.Attach)
	// Output:
	// true <nil>
	// node 2 of 4 dials [tcp://a:1 tcp://b:1]
}

func ExampleEnv_Encode() {
	env := control.Env{JobID: "j1", NodeID: 1, Nodes: 2, Listen: "unix:///run/j1/n1.sock"}
	for _, kv := range env.Encode() {
		fmt.Println(kv)
	}
	// Output:
	// DITASK_JOB_ID=j1
	// DITASK_NODE_ID=1
	// DITASK_LOCAL_ID=0
	// DITASK_NODES=2
	// DITASK_LISTEN=unix:///run/j1/n1.sock
	// DITASK_ATTEMPT=0
	// DITASK_INCARNATION=0
	// DITASK_AUTO_RECOVER=false
	// DITASK_RESUME=false
	// DITASK_SEED=0
}

func ExampleMessage_Append() {
	line, err := control.Message{
		Type:    control.TypeOutcome,
		Outcome: &control.Outcome{Kind: control.Failure, Node: 2, Error: "node 2 is lost"},
	}.Append(nil)
	fmt.Print(string(line))
	fmt.Println(err)
	// Output:
	// {"type":"outcome","outcome":{"kind":"failure","node":2,"error":"node 2 is lost"}}
	// <nil>
}
