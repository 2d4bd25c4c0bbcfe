package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// listenBus gives every node its name on the bus, and the bus its server: one
// elsewhere, or a NATS server that the launcher of the node with the smallest id runs.
func (p *planner) listenBus() {
	for i := range p.plan.Nodes {
		n := &p.plan.Nodes[i]
		n.Listen = busAddress(n.ID)
		n.Advertise = n.Listen
	}
	if slices.ContainsFunc(p.tasks, func(t TaskSpec) bool { return t.Ports+t.Address != "" }) {
		p.faultf("platform spec: nodes do not listen with --mq-type %s; leave out ports and address", p.plan.Transport)
	}
	p.plan.Bus = p.flags.NATSURL + p.flags.RedisURL
	switch {
	case p.plan.Bus == "" && p.plan.Transport == TransportNATS:
		p.serveNATS()
	case p.plan.Bus == "":
		p.faultf("--mq-type redis: which server? give --redis-url")
	case p.flags.Ports != "" || p.flags.Address != "":
		p.faultf("--%s-url: the server runs elsewhere; leave out --ports and --address", p.plan.Transport)
	}
}

// serveNATS decides where the launcher of the first node runs the server. All launchers
// compute the same URL: where the hosts are known it has the name of that launcher's
// host, as --address is one of the host of this launcher alone.
func (p *planner) serveNATS() {
	if m := p.site.Rendezvous; m != nil && m.Elsewhere != "" {
		p.faultf("--mq-type nats: %s: the host of the first node, whose launcher runs the server, is not known: "+
			"give --nats-url, or another distribution", m.Elsewhere)
		return
	}
	i := 0
	for k, n := range p.plan.Nodes {
		if n.ID < p.plan.Nodes[i].ID {
			i = k
		}
	}
	first, port := p.plan.Nodes[i], 0
	if list := words(p.flags.Ports); len(list) > 0 {
		n, err := strconv.Atoi(list[0])
		if err != nil || n < 1 || n > 65535 {
			p.faultf("--ports %q: want a number from 1 to 65535", list[0])
			return
		}
		port = n
	} else if p.site.several() {
		port = p.site.Port
	}
	a := Address{Scheme: "tcp", Host: p.host(i), Port: port}
	p.plan.BusRank, p.plan.BusListen = first.Rank, a.String()
	switch {
	case p.site.several() && first.Host != "":
		a.Host = first.Host
	case a.Wildcard():
		a = a.Loopback()
	}
	p.plan.Bus = "nats://" + a.HostPort()
}

func busAddress(id int) string { return "bus://node." + strconv.Itoa(id) }

// busNode is the id in an address on the bus.
func busNode(addr string) (int, error) {
	id, err := strconv.Atoi(strings.TrimPrefix(addr, "bus://node."))
	if err != nil || id < 0 || id > maxID || busAddress(id) != addr {
		return 0, fmt.Errorf("%q: want bus://node.<id>", addr)
	}
	return id, nil
}
