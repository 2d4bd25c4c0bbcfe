package placement

import (
	"net"
	"slices"
	"strconv"
)

// needsRendezvous reports whether nodes have to find each other: they need not where a server
// between them knows them by their ids.
func (p *planner) needsRendezvous() bool {
	return p.site.Rendezvous != nil && p.plan.Transport == TransportMesh
}

// located reports whether this launcher knows where node i of the plan listens.
func (p *planner) located(i int) bool {
	return !p.needsRendezvous() || p.plan.Nodes[i].Rank == p.plan.Rank || p.isRendezvous(i) || p.specified(i)
}

// specified reports whether the platform spec says where node i listens.
func (p *planner) specified(i int) bool {
	t := p.tasks[p.task[i]]
	return specific(bareHost(t.Address)) && t.Ports != ""
}

// isRendezvous reports whether node i is known to be the one that all dial.
func (p *planner) isRendezvous(i int) bool {
	m, n := p.site.Rendezvous, p.plan.Nodes[i]
	if m == nil || n.LocalID != 0 {
		return false
	}
	return m.Here && n.Rank == p.plan.Rank || m.Elsewhere == "" && n.Rank == 0
}

// rendezvous is the address of the node that all dial, for other launchers.
func (p *planner) rendezvous() string {
	m := p.site.Rendezvous
	host := m.Host
	if a := bareHost(p.tasks[0].Address); m.Elsewhere == "" && specific(a) {
		host = a
	}
	if a := bareHost(p.flags.Address); host == "" && specific(a) { // all are on this machine
		host = a
	}
	if host == "" {
		host = "127.0.0.1"
	}
	port := p.site.Port
	list := p.flags.Ports
	if p.tasks[0].Ports != "" {
		list = p.tasks[0].Ports
	}
	if first := words(list); len(first) > 0 {
		port, _ = strconv.Atoi(first[0]) // ports has checked it
	} else if len(m.Ports) > 0 {
		port = m.Ports[0]
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// specific reports whether host is the address of one interface.
func specific(host string) bool {
	return host != "" && !Address{Scheme: "tcp", Host: host}.Wildcard()
}

// rendezvousPorts gives the nodes from first to last their ports if the user has
// given none: what is reserved for those that come as number offset and after
// on their host, and otherwise the site's port for the node that all dial, and
// any free one for others.
func (p *planner) rendezvousPorts(first, last, offset int, out []int) {
	for i := first; i < last; i++ {
		reserved := p.site.Rendezvous.Ports
		switch at := offset + i - first; {
		case at < len(reserved):
			out[i] = reserved[at]
		case p.isRendezvous(i):
			out[i] = p.site.Port
		}
	}
}

// dialRendezvous sets the addresses that node i dials: the node that all dial and, in a mesh,
// those of its own launcher with a smaller id. least is the smallest id.
func (p *planner) dialRendezvous(i, least int) {
	n := &p.plan.Nodes[i]
	m := p.site.Rendezvous
	if p.plan.Topology == Star && m.Elsewhere != "" {
		p.faultf("--topology star: %s: the host of node %d is not known: use --topology mesh, or another distribution", m.Elsewhere, least)
		return
	}
	for j, o := range p.plan.Nodes {
		same := o.Rank == n.Rank && o.ID < n.ID && p.plan.Topology == Mesh && n.Rank == p.plan.Rank
		if o.ID != n.ID && (same || p.isRendezvous(j)) {
			n.Dials = append(n.Dials, o.ID)
			if p.plan.Topology == Star && o.ID != least {
				p.faultf("--topology star: all dial node %d, but the hub is node %d: leave out --node-ids", o.ID, least)
			}
		}
	}
	slices.Sort(n.Dials)
	if m.Elsewhere != "" && !m.Here && n.Rank == p.plan.Rank {
		n.Extern = append(n.Extern, p.rendezvous())
	}
}
