package placement

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxNodes bounds the nodes of a job, so that a typing error does not fill the memory.
const maxNodes = 4096

// maxSocketPath bounds the path of a unix socket in bytes: the systems allow
// 104 to 108, their last a zero.
const maxSocketPath = 100

// Plan is the placement of all nodes of a job.
type Plan struct {
	Job       string `json:"job"`
	Topology  string `json:"topology"`
	Transport string `json:"transport"`
	// Bus is the URL of the server between the nodes, port 0 for a free one, without its secrets; empty:
	// nodes connect with each other.
	Bus string `json:"bus,omitempty"`
	// BusListen is the address at which the launcher BusRank runs that server, tcp://host:port, port 0
	// for a free one; empty: it runs elsewhere.
	BusListen string `json:"bus_listen,omitempty"`
	BusRank   int    `json:"-"`
	Rank      int    `json:"rank"`     // which launcher this is
	Expected  int    `json:"expected"` // nodes in the whole job; 0: not known
	Nodes     []Node `json:"nodes"`    // of all launchers, by rank and local id
}

// Node is one node of a Plan.
type Node struct {
	ID        int      `json:"id"`
	LocalID   int      `json:"local_id"`  // from 0, among the nodes of its launcher
	Rank      int      `json:"rank"`      // its launcher
	Host      string   `json:"host"`      // empty: this machine
	Listen    string   `json:"listen"`    // unix:///path, tcp://host:port, port 0 for a free one, or bus://node.<id>; empty: none
	Advertise string   `json:"advertise"` // the address that others dial; empty: they cannot
	Dials     []int    `json:"dials"`     // ids of the planned nodes that it dials
	Extern    []string `json:"-"`         // addresses that it dials besides
	Attach    []string `json:"attach"`    // addresses of Dials, then Extern
	Labels    []string `json:"labels"`
}

// Local are the nodes that this launcher starts.
func (p Plan) Local() []Node {
	var out []Node
	for _, n := range p.Nodes {
		if n.Rank == p.Rank {
			out = append(out, n)
		}
	}
	return out
}

// Shared reports whether other launchers have nodes in the job, or may have, as far
// as the plan tells.
func (p Plan) Shared() bool {
	local := p.Local()
	return p.Expected != len(local) || slices.ContainsFunc(local, func(n Node) bool { return len(n.Extern) > 0 })
}

// Bind returns the plan with the ports that were found free: ports gives, by
// node id, the port of each node whose Listen has port 0. Others are left as
// they are.
func (p Plan) Bind(ports map[int]int) Plan {
	p.Nodes = slices.Clone(p.Nodes)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if port, ok := ports[n.ID]; ok {
			n.Listen, n.Advertise = bindPort(n.Listen, port), bindPort(n.Advertise, port)
		}
	}
	p.attach()
	return p
}

// BindBus returns the plan with the port that was found free for the server that its
// first launcher runs.
func (p Plan) BindBus(port int) Plan {
	p.Bus, p.BusListen = bindPort(p.Bus, port), bindPort(p.BusListen, port)
	return p
}

// RunsBus reports whether this launcher runs the server.
func (p Plan) RunsBus() bool { return p.BusListen != "" && p.Rank == p.BusRank }

func bindPort(addr string, port int) string {
	if base, ok := strings.CutSuffix(addr, ":0"); ok {
		return base + ":" + strconv.Itoa(port)
	}
	return addr
}

// attach computes what every node dials from Dials and Extern.
func (p *Plan) attach() {
	byID := make(map[int]Node, len(p.Nodes))
	for _, n := range p.Nodes {
		byID[n.ID] = n
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		n.Attach = make([]string, 0, len(n.Dials)+len(n.Extern))
		for _, id := range n.Dials {
			n.Attach = append(n.Attach, byID[id].dialledBy(*n))
		}
		n.Attach = append(n.Attach, n.Extern...)
	}
}

// dialledBy is the address under which other reaches n: on one machine a
// socket that listens on all addresses is reached by the loopback one, which
// needs no name to resolve.
func (n Node) dialledBy(other Node) string {
	if n.Rank != other.Rank {
		return n.Advertise
	}
	if a, err := ParseAddress(n.Listen); err == nil && a.Wildcard() {
		return a.Loopback().String()
	}
	return n.Advertise
}

// New computes the plan. The error joins all faults.
func New(flags Flags, site Site) (Plan, error) {
	p := planner{flags: flags, site: site}
	p.defaults()
	if len(p.faults) == 0 {
		p.layout()
	}
	if len(p.faults) == 0 {
		p.listen()
		p.connect()
	}
	if len(p.faults) > 0 {
		return Plan{}, errors.Join(p.faults...)
	}
	return p.plan, nil
}

// planner is a plan in the making.
type planner struct {
	flags  Flags
	site   Site
	tcp    bool
	tasks  []TaskSpec // of nodes: node i belongs to tasks[task[i]]
	task   []int
	labels []string
	plan   Plan
	faults []error
}

func (p *planner) faultf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if !slices.ContainsFunc(p.faults, func(e error) bool { return e.Error() == err.Error() }) {
		p.faults = append(p.faults, err)
	}
}

// pick is value, or fallback if that is empty, checked to be one of known.
func (p *planner) pick(flag, value, fallback string, known ...string) string {
	if value == "" {
		return fallback
	}
	if !slices.Contains(known, value) {
		p.faultf("%s %q: want one of %s", flag, value, strings.Join(known, ", "))
	}
	return value
}

// defaults settles everything that holds for the whole job.
func (p *planner) defaults() {
	f, s := &p.flags, &p.site
	if f.Job != "" {
		if err := CheckJob(f.Job); err != nil {
			p.faultf("%w", err)
		}
	}
	p.plan = Plan{Job: f.Job, Rank: s.Rank}
	p.plan.Topology = p.pick("--topology", f.Topology, Mesh, Mesh, Star, Alone)
	fallback := TransportMesh
	switch {
	case f.NATSURL != "":
		fallback = TransportNATS
	case f.RedisURL != "":
		fallback = TransportRedis
	}
	p.plan.Transport = p.pick("--mq-type", f.MQType, fallback, TransportMesh, "nng", TransportNATS, TransportRedis)
	if p.plan.Transport == "nng" {
		p.plan.Transport = TransportMesh
	}
	if f.NATSURL != "" && p.plan.Transport != TransportNATS {
		p.faultf("--nats-url: needs --mq-type nats, or none")
	}
	if f.RedisURL != "" && p.plan.Transport != TransportRedis {
		p.faultf("--redis-url: needs --mq-type redis, or none")
	}
	if f.Workers < 0 || f.Workers > maxNodes {
		p.faultf("--parallel-workers %d: want a number from 1 to %d", f.Workers, maxNodes)
	}
	f.Workers = max(f.Workers, 1)
	if s.Port == 0 {
		s.Port = DefaultPort
	}
	if len(s.Launchers) == 0 {
		s.Launchers = []Launcher{{}}
	}
	if s.Rank < 0 || s.Rank >= len(s.Launchers) {
		p.faultf("rank %d of %d launchers: want a number from 0 to %d", s.Rank, len(s.Launchers), len(s.Launchers)-1)
	}
	p.labels = p.checkLabels("--labels", f.Labels)
	p.checkHosts()
	p.protocol()
}

// checkHosts checks the addresses to listen on, which have no port.
func (p *planner) checkHosts() {
	if a := p.flags.Address; a != "" {
		if err := CheckHost(a, "--address %s --ports %d"); err != nil {
			p.faultf("--address %q: %w", a, err)
		}
	}
	if p.flags.Spec == nil {
		return
	}
	for i, t := range p.flags.Spec.Tasks {
		if t.Address == "" {
			continue
		}
		if err := CheckHost(t.Address, "address %s, ports %d"); err != nil {
			p.faultf("platform spec: tasks[%d].address %q: %w", i, t.Address, err)
		}
	}
}

// protocol decides between tcp and unix sockets.
func (p *planner) protocol() {
	f := p.flags
	protocol := p.pick("--protocol", f.Protocol, "", "tcp", "ipc")
	needs := ""
	switch {
	case p.site.several():
		needs = "a job with several launchers"
	case f.Ports != "":
		needs = "--ports"
	case f.Address != "":
		needs = "--address"
	case f.Spec != nil && slices.ContainsFunc(f.Spec.Tasks, func(t TaskSpec) bool { return t.Ports+t.Address != "" }):
		needs = "ports or address in the platform spec"
	}
	switch {
	case protocol != "" && (p.plan.Transport == TransportNATS || p.plan.Transport == TransportRedis):
		p.faultf("--protocol %s: nodes do not listen with --mq-type %s: leave --protocol out", protocol, p.plan.Transport)
	case protocol == "ipc" && needs != "":
		p.faultf("--protocol ipc: %s needs --protocol tcp", needs)
	}
	p.tcp = protocol == "tcp" || needs != ""
}

func (p *planner) checkLabels(name, list string) []string {
	labels := words(list)
	for _, l := range labels {
		switch {
		case strings.ContainsAny(l, " \t\r\n\x00*?[]\\"):
			p.faultf("%s %q: a label has no white space and no *, ?, [, ] or \\", name, l)
		case l == "standalone" || l == "distributed" || strings.HasPrefix(l, "node."):
			p.faultf("%s %q: is given by ditask itself", name, l)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// layout makes the nodes, with their ids and labels.
func (p *planner) layout() {
	p.tasks = []TaskSpec{{}}
	perRank := false // whether launcher k runs task k
	if p.flags.Spec != nil {
		p.tasks = p.flags.Spec.Tasks
		if perRank = len(p.site.Launchers) > 1; perRank && len(p.tasks) != len(p.site.Launchers) {
			p.faultf("platform spec: %d tasks for %d launchers", len(p.tasks), len(p.site.Launchers))
			return
		}
	}
	for rank := range p.site.Launchers {
		local := 0
		for k := range p.tasks {
			if perRank && k != rank {
				continue
			}
			p.addTask(rank, k, &local)
			if len(p.faults) > 0 {
				return
			}
		}
	}
	p.identify()
}

// addTask appends the nodes of task k, run by the launcher of that rank.
func (p *planner) addTask(rank, k int, local *int) {
	t := p.tasks[k]
	workers := t.Workers
	if workers == 0 {
		workers = p.flags.Workers
	}
	if len(p.plan.Nodes)+workers > maxNodes {
		p.faultf("more than %d nodes", maxNodes)
		return
	}
	labels := append(slices.Clone(p.labels), p.checkLabels(fmt.Sprintf("platform spec: tasks[%d].labels", k), t.Labels)...)
	slices.Sort(labels)
	labels = append([]string{}, slices.Compact(labels)...) // never null in JSON
	for range workers {
		p.plan.Nodes = append(p.plan.Nodes, Node{
			LocalID: *local, Rank: rank, Host: p.site.Launchers[rank].Host, Labels: labels, Dials: []int{},
		})
		p.task = append(p.task, k)
		*local++
	}
}

// identify gives every node its id.
func (p *planner) identify() {
	nodes := p.plan.Nodes
	inSpec := slices.ContainsFunc(p.tasks, func(t TaskSpec) bool { return t.NodeIDs != "" })
	switch {
	case inSpec && p.flags.NodeIDs != "":
		p.faultf("--node-ids: the platform spec has node_ids too; give one of them")
		return
	case p.flags.NodeIDs != "":
		p.assign("--node-ids", "ids", p.flags.NodeIDs, 0, len(nodes), 0, maxID, func(n *Node, id int) { n.ID = id })
	default:
		p.idsByTask()
	}
	if len(p.faults) > 0 {
		return
	}
	where := "node_ids of the platform spec"
	if p.flags.NodeIDs != "" {
		where = "--node-ids " + p.flags.NodeIDs
	}
	seen := make(map[int]bool, len(nodes))
	for _, n := range nodes {
		if seen[n.ID] {
			p.faultf("%s: node id %d is given twice: every node of the job needs its own", where, n.ID)
		}
		seen[n.ID] = true
	}
	p.plan.Expected = len(nodes)
	if p.plan.Topology == Alone || p.site.Open {
		p.plan.Expected = 0
	}
}

// maxID bounds a node id.
const maxID = 1<<31 - 1

// idsByTask gives ids by the tasks' node_ids; a task without any continues
// counting where the one before stopped.
func (p *planner) idsByTask() {
	next := 0
	for first, last := range p.runs() {
		list := p.tasks[p.task[first]].NodeIDs
		if list == "" {
			list = strconv.Itoa(next)
		}
		p.assign(fmt.Sprintf("platform spec: tasks[%d].node_ids", p.task[first]), "ids", list, first, last, 0, maxID,
			func(n *Node, id int) { n.ID = id; next = id + 1 })
	}
}

// runs yields the range of nodes of each task of each launcher.
func (p *planner) runs() func(yield func(first, last int) bool) {
	return func(yield func(first, last int) bool) {
		first := 0
		for i := range p.plan.Nodes {
			end := i+1 == len(p.plan.Nodes) || p.task[i+1] != p.task[i] || p.plan.Nodes[i+1].Rank != p.plan.Nodes[i].Rank
			if end {
				if !yield(first, i+1) {
					return
				}
				first = i + 1
			}
		}
	}
}

// assign gives each of the nodes from first to last its number of a list.
func (p *planner) assign(name, noun, list string, first, last, least, limit int, set func(*Node, int)) {
	numbers, err := series(name, noun, list, last-first, least, limit)
	if err != nil {
		p.faultf("%w", err)
		return
	}
	for i, number := range numbers {
		set(&p.plan.Nodes[first+i], number)
	}
}
