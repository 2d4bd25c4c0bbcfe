package launch

import (
	"fmt"
	"slices"
	"time"
)

// succeeded ends the job, unless that ends when all nodes are done. A node that waits to
// be started again has nothing more to do then.
func (c *core) succeeded(now time.Time, all bool) []action {
	c.all = c.all || all
	if c.phase != running || c.independent || all {
		return nil
	}
	c.phase, c.deadline, c.finished = finishing, now.Add(c.grace), true
	var out []action
	for _, n := range c.nodes {
		if n.state == pending && n.attempt > 0 {
			out = append(out, action{do: logNote, note: fmt.Sprintf("node %d is not started again: the job has succeeded", n.id)})
		}
	}
	return append(out, c.cancelStarts()...)
}

// forsake ends the nodes that wait to be started again where all others are done and
// have ended: they would have no peers. Their last failure is that of the job.
func (c *core) forsake() []action {
	present := func(n coreNode) bool { return n.state == alive || n.state == pending && n.attempt == 0 }
	if !c.all || c.phase != running || c.shared || c.independent || slices.ContainsFunc(c.nodes, present) {
		return nil
	}
	var out []action
	for i := range c.nodes {
		if n := &c.nodes[i]; n.state == pending {
			n.state = ended
			n.attempt--
			c.failures = append(c.failures, n.last)
			note := fmt.Sprintf("node %d is not started again: all other nodes are done and have ended; the job ends", n.id)
			out = append(out, action{do: logNote, note: note}, action{do: retire, node: i})
		}
	}
	return out
}
