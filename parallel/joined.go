package parallel

import (
	"context"
	"fmt"

	"github.com/ditask/ditask/router"
)

// returned is the error of a node whose function has returned err. A function that
// returns nil before its node has joined the job has done nothing that the job asked
// for, and the other nodes wait for the node: that is a failure. In the topology alone
// no other node waits.
func (n *Node) returned(ctx context.Context, err error) error {
	if err != nil || n.bus == nil || n.env.Nodes < 2 || n.env.Topology == router.Alone.String() {
		return err
	}
	select {
	case <-n.ready:
		return nil
	default:
	}
	if ctx.Err() != nil { // it was told to end
		return context.Cause(ctx)
	}
	return fmt.Errorf("returned before it joined the job of %d nodes, which wait for it: run a task (task.New, then Run) in every node", n.env.Nodes)
}
