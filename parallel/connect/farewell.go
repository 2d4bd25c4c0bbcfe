package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
)

const (
	// farewellWithin bounds a farewell: running nodes receive it within a few round trips.
	farewellWithin = 2 * time.Second
	// farewellCalls bounds the nodes that are called through a server. Each that receives the
	// farewell announces the end to the other nodes.
	farewellCalls = 64
)

// Farewell is the main function of the process that launch.Config.Farewell names: it notifies the
// other nodes of the job that the process of a node has ended without leaving. It reads the
// environment of that node through lookup, which is os.LookupEnv in a program, and from r how the
// process has ended, as a line of a control socket (control.TypeLost). It returns when they know, and
// fails after 2 s if none has received it.
func Farewell(ctx context.Context, lookup func(string) (string, bool), r io.Reader) error {
	env, launched, err := control.Parse(lookup)
	if err != nil {
		return err
	}
	m, err := control.NewReader(r).Next()
	if err == nil && (m.Lost == nil || !launched) {
		err = errors.New("no node, or no line about its end")
	}
	if err != nil {
		return fmt.Errorf("a launcher runs this, for one of its nodes: %w", err)
	}
	cfg, below, err := configOf(env, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer below()
	if env.Bus != "" {
		cfg.Attach = onServer(env)
	}
	ctx, cancel := context.WithTimeout(ctx, farewellWithin)
	defer cancel()
	return router.SendFarewell(ctx, cfg, m.Lost.Reason, m.Lost.Final)
}

// onServer are the addresses of the other nodes on the server of the job. Those that dialled
// the node do not all dial it again at once: through a server they do not see that its
// process has ended.
func onServer(env control.Env) []string {
	out := slices.Clone(env.Attach)
	for id := range env.Nodes {
		addr := fmt.Sprintf("bus://node.%d", id)
		if len(out) < farewellCalls && id != env.NodeID && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}
