package placement

import (
	"fmt"
	"strconv"
	"strings"
)

// The topologies.
const (
	Mesh  = "mesh"  // every node dials all nodes with a smaller id
	Star  = "star"  // every node dials the node with the smallest id
	Alone = "alone" // nodes dial only their attach list
)

// The transports of messages.
const (
	TransportMesh  = "mesh"  // sockets between the nodes
	TransportRedis = "redis" // a Redis server between them
	TransportNATS  = "nats"  // a NATS server between them
)

// DefaultPort is the first port on each host of a job with several launchers.
const DefaultPort = 50515

// Flags are the user's settings for placement. The zero value is one node on this machine.
type Flags struct {
	Job      string // job id, part of the plan; see CheckJob
	Workers  int    // nodes for each launcher, or task of the spec; 0: 1
	Protocol string // tcp, or ipc for unix sockets; empty: ipc unless another flag needs tcp
	Ports    string // "6000": that port and those after it; "6000,6005": one for each worker; empty: see the package
	AttachTo string // comma-separated addresses or $node.N, dialled by every node
	Address  string // address of this host to listen on, without a port; empty: 127.0.0.1, or all addresses with several launchers
	Labels   string // comma-separated labels, for every node
	NodeIDs  string // "10": that id and those after it; "10,12": one for each node; empty: from 0
	Topology string // mesh, star or alone; empty: mesh
	MQType   string // mesh (nng means the same), nats or redis; empty: nats with NATSURL, redis with RedisURL, else mesh
	NATSURL  string // of a NATS server elsewhere, without its secrets; empty: the launcher of the first node runs one
	RedisURL string // of a server, without its secrets; empty: none
	Spec     *Spec  // the platform spec; nil: none

	// RunDir is the folder of unix sockets. One "*" in it stands for ten
	// characters that are not known yet.
	RunDir string
	// Hostname is the name of this machine for other ones, for --address 0.0.0.0.
	Hostname string
}

// Site describes where the launchers of a job run. The zero value is one launcher
// on this machine.
type Site struct {
	Launchers []Launcher // in order of rank; empty: one, on this machine
	Rank      int        // which of them this one is
	Port      int        // first port on each host when --ports is not given; 0: DefaultPort
	// Open means that there may be more launchers than these.
	Open bool
	// Rendezvous describes where the nodes find each other if a launcher does not know on
	// which hosts and ports the others are; nil: it does.
	Rendezvous *Rendezvous
}

// Rendezvous is one node that all others can find: the first one of one launcher.
// All nodes dial it and learn of the others when they join, so that these may
// listen on any port.
type Rendezvous struct {
	Host string // where it is dialled; empty: the loopback address
	Here bool   // it is this launcher's
	// Elsewhere describes why it need not be the first node of launcher 0; empty: it is.
	Elsewhere string
	// Ports are reserved for the job on each host: the first is the port of that
	// node, and others use them before free ones. Empty: its port is that of the Site.
	Ports []int
}

// Launcher is one process that starts nodes.
type Launcher struct {
	Host string // name or address that others can dial; empty: the loopback address, or not known
	Slot int    // number of this launcher among those on the same host, from 0
}

// CheckJob reports whether id can name a job: 1 to 40 letters, digits, dots,
// underscores and hyphens, beginning with a letter or digit.
func CheckJob(id string) error {
	valid := len(id) >= 1 && len(id) <= 40
	for i, r := range id {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		valid = valid && (alnum || i > 0 && strings.ContainsRune("._-", r))
	}
	if !valid {
		return fmt.Errorf("job id %q: want 1 to 40 letters, digits, dots, underscores and hyphens, the first a letter or digit", id)
	}
	return nil
}

// words splits a comma-separated list; empty parts vanish.
func words(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// nodes is a number of nodes in words.
func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}

// series is count numbers from a list of one, which counts up, or of count.
// name is the flag or path, noun what is counted, and limit the largest.
func series(name, noun, list string, count, least, limit int) ([]int, error) {
	parts := words(list)
	if len(parts) != 1 && len(parts) != count {
		return nil, fmt.Errorf("%s %s: %d %s for %s; give one for each, or the first", name, list, len(parts), noun, nodes(count))
	}
	out := make([]int, 0, count)
	for _, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < least || n > limit {
			return nil, fmt.Errorf("%s %q: want a number from %d to %d", name, part, least, limit)
		}
		out = append(out, n)
	}
	for len(out) < count {
		next := out[len(out)-1] + 1
		if next > limit {
			return nil, fmt.Errorf("%s %s: counting up for %d nodes goes past %d", name, list, count, limit)
		}
		out = append(out, next)
	}
	return out, nil
}
