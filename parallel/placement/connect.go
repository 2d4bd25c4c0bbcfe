package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// listen gives every node the address on which it listens.
func (p *planner) listen() {
	switch {
	case p.plan.Transport != TransportMesh:
		p.listenBus()
	case p.tcp:
		p.listenTCP()
	default:
		p.listenUnix()
	}
}

func (p *planner) listenUnix() {
	for i := range p.plan.Nodes {
		n := &p.plan.Nodes[i]
		path := fmt.Sprintf("%s/n%d.sock", strings.TrimSuffix(p.flags.RunDir, "/"), n.ID)
		size := len(path)
		if strings.Contains(path, "*") {
			size += 9
		}
		if size > maxSocketPath {
			p.faultf("socket path %s: %d bytes, the system allows %d: set XDG_RUNTIME_DIR or TMPDIR to a shorter folder, or use --protocol tcp",
				path, size, maxSocketPath)
			return
		}
		n.Listen = "unix://" + path
		n.Advertise = n.Listen
	}
}

func (p *planner) listenTCP() {
	ports := p.ports()
	if ports == nil {
		return
	}
	seen := make(map[string]int)
	for i := range p.plan.Nodes {
		n := &p.plan.Nodes[i]
		if !p.located(i) {
			continue
		}
		a := Address{Scheme: "tcp", Host: p.host(i), Port: ports[i]}
		n.Listen, n.Advertise = a.String(), p.advertise(a, n.Host)
		if p.site.Rendezvous != nil && n.Rank != p.plan.Rank && !p.specified(i) {
			n.Listen, n.Advertise = p.rendezvous(), p.rendezvous()
		}
		if other, taken := seen[n.Advertise]; taken && ports[i] != 0 {
			p.faultf("%s is given to node %d and to node %d: give each its own port", n.Advertise, other, n.ID)
		}
		seen[n.Advertise] = n.ID
	}
}

// host returns the host at which node i listens: at the address of its task, or else at that of
// --address, which is one of the host of this launcher and says nothing of other hosts.
func (p *planner) host(i int) string {
	n := p.plan.Nodes[i]
	here := n.Host == p.site.Launchers[p.plan.Rank].Host
	if a := p.tasks[p.task[i]].Address; a != "" {
		return bareHost(a)
	}
	if a := bareHost(p.flags.Address); a != "" && here {
		if loopback(a) && p.elsewhere(n.Host) {
			p.faultf("--address %s: nodes on other hosts cannot reach it: give an address of this host's network, or leave it out", a)
		}
		return a
	}
	if p.site.several() && n.Host != "" {
		return "0.0.0.0"
	}
	return "127.0.0.1"
}

// elsewhere reports whether there are launchers on other machines than host, which is
// empty if it is not known.
func (p *planner) elsewhere(host string) bool {
	return host != "" && !loopback(host) && slices.ContainsFunc(p.site.Launchers, func(l Launcher) bool { return l.Host != host })
}

// advertise is the address that other machines dial to reach a.
func (p *planner) advertise(a Address, host string) string {
	if !a.Wildcard() {
		return a.String()
	}
	switch {
	case host != "":
		a.Host = host
	case p.flags.Hostname != "":
		a.Host = p.flags.Hostname
	default:
		a = a.Loopback()
	}
	return a.String()
}

// ports are the ports of all nodes, 0 for a free one; nil after a fault.
func (p *planner) ports() []int {
	faults := len(p.faults)
	out := make([]int, len(p.plan.Nodes))
	inSpec := slices.ContainsFunc(p.tasks, func(t TaskSpec) bool { return t.Ports != "" })
	if inSpec && p.flags.Ports != "" {
		p.faultf("--ports: the platform spec has ports too; give one of them")
		return nil
	}
	if inSpec && p.site.Rendezvous != nil && p.site.Rendezvous.Elsewhere != "" {
		p.faultf("platform spec: ports: %s: the hosts of the tasks are not known: use --ports, or another distribution",
			p.site.Rendezvous.Elsewhere)
		return nil
	}
	for rank, launcher := range p.site.Launchers {
		first := slices.IndexFunc(p.plan.Nodes, func(n Node) bool { return n.Rank == rank })
		last := first
		for last < len(p.plan.Nodes) && p.plan.Nodes[last].Rank == rank {
			last++
		}
		list := p.flags.Ports
		if list == "" && p.site.several() {
			list = strconv.Itoa(p.site.Port)
		}
		if p.site.Rendezvous != nil && p.flags.Ports == "" {
			p.rendezvousPorts(first, last, launcher.Slot*(last-first), out)
			continue
		}
		// Launchers on one host share its ports: each begins after the ones before.
		if base, err := strconv.Atoi(list); err == nil {
			list = strconv.Itoa(base + launcher.Slot*(last-first))
		}
		if list != "" {
			p.portsOf("--ports", list, first, last, out)
		}
	}
	for first, last := range p.runs() {
		if t := p.tasks[p.task[first]]; t.Ports != "" {
			p.portsOf(fmt.Sprintf("platform spec: tasks[%d].ports", p.task[first]), t.Ports, first, last, out)
		}
	}
	if len(p.faults) > faults {
		return nil
	}
	return out
}

func (s Site) several() bool { return len(s.Launchers) > 1 || s.Open }

func (p *planner) portsOf(name, list string, first, last int, out []int) {
	i := first
	p.assign(name, "ports", list, first, last, 1, 65535, func(_ *Node, port int) { out[i] = port; i++ })
}

// connect decides which nodes dial which.
func (p *planner) connect() {
	ids := make([]int, 0, len(p.plan.Nodes))
	for _, n := range p.plan.Nodes {
		ids = append(ids, n.ID)
	}
	slices.Sort(ids)
	for i := range p.plan.Nodes {
		n := &p.plan.Nodes[i]
		switch {
		case p.needsRendezvous() && p.plan.Topology != Alone:
			p.dialRendezvous(i, ids[0])
		case p.plan.Topology == Mesh:
			at, _ := slices.BinarySearch(ids, n.ID)
			n.Dials = slices.Clone(ids[:at])
		case p.plan.Topology == Star && n.ID != ids[0]:
			n.Dials = []int{ids[0]}
		}
		p.attachTo(n, ids, "--attach-to", p.flags.AttachTo)
		p.attachTo(n, ids, fmt.Sprintf("platform spec: tasks[%d].attach_to", p.task[i]), p.tasks[p.task[i]].AttachTo)
	}
	p.plan.attach()
}

// attachTo adds an attach list to what a node dials. An address outside of
// the plan means that the job is larger than the plan.
func (p *planner) attachTo(n *Node, ids []int, name, list string) {
	for _, word := range words(list) {
		ref, isNode := strings.CutPrefix(word, "$node.")
		if !isNode && p.plan.Transport != TransportMesh {
			if _, err := busNode(word); err != nil {
				p.faultf("%s %q: want bus://node.<id> or $node.<id> with --mq-type %s", name, word, p.plan.Transport)
				return
			}
			if !slices.Contains(n.Extern, word) {
				n.Extern = append(n.Extern, word)
			}
			p.plan.Expected = 0
			continue
		}
		if !isNode {
			a, err := ParseAddress(word)
			switch {
			case err != nil:
				p.faultf("%s %q: %w", name, word, err)
				return
			case a.Port == 0 && a.Scheme == "tcp":
				p.faultf("%s %q: want a port from 1 to 65535", name, word)
				return
			case n.Rank == p.plan.Rank && p.own(*n, a):
				p.faultf("%s %s: node %d listens there itself: leave this address out", name, word, n.ID)
				return
			}
			if !slices.Contains(n.Extern, a.String()) {
				n.Extern = append(n.Extern, a.String())
			}
			p.plan.Expected = 0
			continue
		}
		id, err := strconv.Atoi(ref)
		_, known := slices.BinarySearch(ids, id)
		switch {
		case err != nil || !known:
			p.faultf("%s %s: no such node; there are %s", name, word, brief(ids))
			return
		case id == n.ID:
			p.faultf("%s %s: node %d would dial itself", name, word, id)
			return
		case !p.located(slices.IndexFunc(p.plan.Nodes, func(m Node) bool { return m.ID == id })):
			p.faultf("%s %s: the host of node %d is not known before it joins: leave it out with --topology mesh, "+
				"in which all nodes meet, or give the task of node %d an address and ports in --platform-spec", name, word, id, id)
			return
		case !slices.Contains(n.Dials, id):
			n.Dials = append(n.Dials, id)
		}
	}
}

// own reports whether a is where node n listens.
func (p *planner) own(n Node, a Address) bool {
	listens, err := ParseAddress(n.Listen)
	if err != nil || a.Port != listens.Port {
		return false
	}
	names := []string{listens.Host}
	if listens.Wildcard() {
		names = append(names, n.Host, p.flags.Hostname)
	}
	return a == listens || a.Scheme == "tcp" && (slices.Contains(names, a.Host) || listens.Wildcard() && loopback(a.Host))
}

// brief lists ids, the middle left out if there are many.
func brief(ids []int) string {
	var b strings.Builder
	for i, id := range ids {
		if i == 8 && len(ids) > 10 {
			return fmt.Sprintf("%s ... %d", b.String(), ids[len(ids)-1])
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(id))
	}
	return b.String()
}
