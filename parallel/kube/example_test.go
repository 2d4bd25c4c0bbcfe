package kube_test

import (
	"fmt"

	"github.com/ditask/ditask/parallel/kube"
	"github.com/ditask/ditask/parallel/placement"
)

func ExampleParse() {
	variables := map[string]string{"DI_NODES": "dqn-[0-3].dqn", "JOB_COMPLETION_INDEX": "2"}
	pod, err := kube.Parse(func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := placement.New(placement.Flags{Job: pod.Job()}, pod.Site())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range plan.Local() {
		fmt.Println(n.ID, n.Listen, n.Attach)
	}
	// Output: 2 tcp://0.0.0.0:50515 [tcp://dqn-0.dqn:50515 tcp://dqn-1.dqn:50515]
}

func ExampleHosts() {
	hosts, err := kube.Hosts("dqn-learner-0-0.dqn,dqn-collector-[0-1]-[0-1].dqn")
	fmt.Println(hosts, err)
	// Output: [dqn-learner-0-0.dqn dqn-collector-0-0.dqn dqn-collector-0-1.dqn dqn-collector-1-0.dqn dqn-collector-1-1.dqn] <nil>
}
