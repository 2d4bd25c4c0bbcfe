// Package placement decides where each node runs: from the user's flags ([Flags])
// and from where the launchers of the job run ([Site]) it computes the id, the
// address and the attach list of every node, before anything is started.
//
//	plan, err := placement.New(placement.Flags{Workers: 3, Ports: "50515"}, placement.Site{})
//	if err != nil {
//		return err // all faults, one a line
//	}
//	for _, n := range plan.Local() {
//		fmt.Println(n.ID, n.Listen, n.Attach) // 2 tcp://127.0.0.1:50517 [tcp://127.0.0.1:50515 tcp://127.0.0.1:50516]
//	}
//
// Everything here is a pure function: no file, socket, clock or environment is
// touched, so that a plan can be printed, compared and tested. A platform such
// as Slurm or Kubernetes is another pure function, from its variables to a
// [Site].
//
// # Rules
//
// Ids count from 0 over all launchers in order of rank, or follow --node-ids
// and the platform spec. On one machine nodes listen on unix sockets in the
// run folder, or on tcp when ports, an address or the protocol ask for it; tcp
// listens on the loopback address unless an address is given, and on a free
// port (port 0, to be resolved with [Plan.Bind]) unless ports are given. Over
// several launchers it is always tcp, counting from the site's port on each host.
// With several launchers an address is one of the host of this launcher: its nodes
// listen there, and they dial the nodes of other hosts at the names of these hosts.
// In a mesh each node dials all nodes with a smaller id; in a star all dial the
// node with the smallest id; alone, a node dials only its attach list. The attach
// list is dialled besides: "$node.N" in it stands for the address of node N. A node
// never dials an address on which it listens itself.
//
// A launcher may not know where the others are ([Site.Rendezvous]): then all nodes dial the
// one that everyone can find, listen on free ports, and learn of each other when
// they join. Their addresses are missing in the plan, except for those of tasks to
// which the platform spec gives both an address and ports.
//
// # Concurrency and errors
//
// A Plan is a value; its slices are shared by its copies and must not be
// changed. Errors join all faults, each naming the flag or the path in the
// platform spec.
package placement
