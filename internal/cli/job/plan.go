package job

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
)

// PlanCommand returns the command "ditask plan".
func PlanCommand(of *call.Call) *urfave.Command {
	return &urfave.Command{Name: "plan", Usage: "print where each node would run, and start nothing",
		Flags: append(flags.Job(), flags.JSON()), Action: command{of, nil}.plan}
}

// plan prints where each node would run.
func (c command) plan(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	at, err := placeOf(ctx)
	if err != nil {
		return err
	}
	job, err := jobID(ctx, at)
	if err != nil {
		return err
	}
	plan, err := planOf(ctx, at.site, job, launch.RunDirPattern(job))
	if err != nil {
		return err
	}
	if err := idle(ctx, plan); err != nil {
		return err
	}
	if ctx.Bool("json") {
		return c.WriteJSON(plan)
	}
	return writePlan(c.Stdout, plan)
}

// writePlan prints a plan as a table. It shows the hosts of nodes of other launchers.
func writePlan(w io.Writer, plan placement.Plan) error {
	head := fmt.Sprintf("job %s: %s, topology %s, over %s\n", plan.Job, nodes(plan.Expected), plan.Topology, sockets(plan))
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	if plan.Bus != "" {
		by := "an external server"
		if plan.BusListen != "" {
			by = fmt.Sprintf("run by launcher %d", plan.BusRank)
		}
		if _, err := fmt.Fprintf(w, "bus %s: %s\n", freePort(plan.Bus), by); err != nil {
			return err
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "NODE\tLAUNCHER\tLOCAL\tHOST\tLISTEN\tDIALS\tLABELS") // Flush has the error
	for _, n := range plan.Nodes {
		launcher := strconv.Itoa(n.Rank)
		if n.Rank == plan.Rank {
			launcher += " (this)"
		}
		host := cmp.Or(n.Host, "local")
		if n.Rank != plan.Rank && n.Host == "" && n.Listen == "" {
			host = "-" // not known until the node joins
		}
		_, _ = fmt.Fprintf(tw, "%d\t%s\t%d\t%s\t%s\t%s\t%s\n", n.ID, launcher, n.LocalID,
			host, cmp.Or(freePort(n.Listen), "-"), cmp.Or(dials(n), "-"), cmp.Or(strings.Join(n.Labels, ","), "-"))
	}
	return tw.Flush()
}

// nodes returns a number of nodes in words; 0 means unknown.
func nodes(n int) string {
	switch n {
	case 0:
		return "an unknown number of nodes"
	case 1:
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}

// sockets returns the name of the transport of a plan.
func sockets(plan placement.Plan) string {
	switch local := plan.Local(); {
	case plan.Transport == placement.TransportNATS:
		return "NATS"
	case plan.Transport == placement.TransportRedis:
		return "Redis"
	case len(local) > 0 && strings.HasPrefix(local[0].Listen, "unix://"):
		return "unix sockets"
	}
	return "tcp"
}

// dials returns the nodes that a node dials, by id, and the other addresses.
func dials(n placement.Node) string {
	var out []string
	for _, id := range n.Dials {
		out = append(out, strconv.Itoa(id))
	}
	return strings.Join(append(out, n.Extern...), ",")
}

func freePort(addr string) string {
	if base, ok := strings.CutSuffix(addr, ":0"); ok {
		return base + ":(free)"
	}
	return addr
}
