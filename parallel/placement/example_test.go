package placement_test

import (
	"fmt"

	"github.com/ditask/ditask/parallel/placement"
)

func ExampleNew() {
	plan, err := placement.New(placement.Flags{Workers: 3, Ports: "50515"}, placement.Site{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range plan.Local() {
		fmt.Println(n.ID, n.Listen, n.Dials)
	}
	// Output:
	// 0 tcp://127.0.0.1:50515 []
	// 1 tcp://127.0.0.1:50516 [0]
	// 2 tcp://127.0.0.1:50517 [0 1]
}

func ExampleParseSpec() {
	_, err := placement.ParseSpec([]byte(`{"tasks":[{"lables":"learn"}]}`))
	fmt.Println(err)
	// Output:
	// platform spec: tasks[0].lables: unknown key; known are labels, node_ids, ports, address, attach_to, parallel_workers
}

func ExamplePlan_Bind() {
	plan, _ := placement.New(placement.Flags{Workers: 2, Protocol: "tcp"}, placement.Site{})
	fmt.Println(plan.Nodes[1].Listen, plan.Nodes[1].Attach)
	plan = plan.Bind(map[int]int{0: 40000, 1: 40001})
	fmt.Println(plan.Nodes[1].Listen, plan.Nodes[1].Attach)
	// Output:
	// tcp://127.0.0.1:0 [tcp://127.0.0.1:0]
	// tcp://127.0.0.1:40001 [tcp://127.0.0.1:40000]
}
