package parallel

import (
	"context"
	"errors"
	"fmt"

	"github.com/ditask/ditask/router"
)

// returned is the error of a node whose function has returned err. A function that
// returns nil before its node has joined the job has done nothing that the job asked
// for, and the other nodes wait for the node: that is a failure. So is a return before the
// started task has been run or closed, as the nodes of a star may then never meet. In the
// topology alone no other node waits.
func (n *Node) returned(ctx context.Context, err error) error {
	if err != nil || n.bus == nil || n.env.Nodes < 2 || n.env.Topology == router.Alone.String() {
		return err
	}
	joined := false
	select {
	case <-n.ready:
		joined = true
	default:
	}
	if joined && n.bus.ended.Load() {
		return nil
	}
	if ctx.Err() != nil { // it was stopped
		return context.Cause(ctx)
	}
	if joined {
		return errUnended
	}
	return fmt.Errorf("returned before it joined the job of %d nodes, which wait for it: "+
		"run a task (task.New, then Run) in every node", n.env.Nodes)
}

var errUnended = errors.New("returned before its task had ended: return after Run, or after Close for a task that is not run")
