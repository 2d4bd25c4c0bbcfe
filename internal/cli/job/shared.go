package job

import (
	"fmt"
	"slices"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/parallel/placement"
)

// The memory that each node of a launcher may take for payloads that it shares with nodes of its host, unless the user gives a size.
const (
	// mostShared is the default where there is enough memory, in MiB: room for a payload of 64 MiB, for the one before, and for small ones.
	mostShared = 256
	// leastShared is the least useful default in MiB: half of it is the window of one event for one peer.
	leastShared = 16
	// sharedPart is the part of the memory that all nodes of a host may take together: 1/8.
	sharedPart = 8
	// limitShared is the largest size that a user can give, in MiB: router.Config.SharedBytes is at most 1 GiB.
	limitShared = 1024
)

// sharedMemory returns the size in MiB of the memory that each local node shares; 0 for none.
func sharedMemory(ctx *urfave.Context, plan placement.Plan, available func() uint64) (int, error) {
	size := ctx.Int("shared-memory")
	switch given := ctx.IsSet("shared-memory"); {
	case size < 0 || size > limitShared:
		return 0, call.UsageError{Err: fmt.Errorf("--shared-memory %d: want 0 to %d MiB", size, limitShared)}
	case given && size > 0 && ctx.Bool("no-shared-memory"):
		return 0, call.UsageError{Err: fmt.Errorf("--shared-memory %d: has no effect with --no-shared-memory: leave one of the two out", size)}
	case ctx.Bool("no-shared-memory") || !neighbours(plan):
		return 0, nil
	case given:
		return size, nil
	}
	return defaultShared(available(), onThisHost(plan)), nil
}

// onThisHost counts the nodes of the plan that run on this launcher's host, which may have several launchers.
func onThisHost(plan placement.Plan) (n int) {
	local := plan.Local()
	for _, node := range plan.Nodes {
		if len(local) > 0 && node.Host == local[0].Host {
			n++
		}
	}
	return n
}

// defaultShared returns the default size in MiB for each of a host's nodes, which together may use so many bytes of memory;
// 0: that is not known.
func defaultShared(available uint64, nodes int) int {
	if available == 0 {
		return leastShared
	}
	each := available / sharedPart / uint64(max(nodes, 1)) >> 20
	if each < leastShared {
		return 0
	}
	return int(min(each, mostShared))
}

// neighbours reports whether nodes of this launcher may connect with others of their host, of this launcher or another one: by sockets,
// and not through a server.
func neighbours(plan placement.Plan) bool {
	open := plan.Expected == 0 || slices.ContainsFunc(plan.Local(), func(n placement.Node) bool { return len(n.Extern) > 0 })
	return plan.Transport == placement.TransportMesh && (open || onThisHost(plan) > 1)
}
