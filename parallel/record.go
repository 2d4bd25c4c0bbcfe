package parallel

import (
	"log/slog"
	"os"
	"sync"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/trace"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// recorder records the events that pass a node's router. A node that is not recorded has none of its
// cost.
type recorder struct {
	*trace.Recorder
	log    *slog.Logger
	full   sync.Once // the limit was reached, which was logged
	closed sync.Once
}

// record begins the record that env asks for; nil if it asks for none.
func record(env control.Env, log *slog.Logger) (*recorder, error) {
	if env.Trace == "" {
		return nil, nil
	}
	rec, err := trace.Create(trace.Path(env.Trace, env.NodeID, env.Attempt), trace.Head{
		Job: env.JobID, Node: env.NodeID, LocalID: env.LocalID, Nodes: env.Nodes, Topology: env.Topology, Labels: env.Labels,
		Attempt: env.Attempt, Incarnation: env.Incarnation, Seed: env.Seed, Resume: env.Resume || env.Continue, Recover: env.AutoRecover,
		Main: env.Main, Args: os.Args[1:],
	}, int64(env.TraceLimit)<<20)
	if err != nil {
		return nil, err
	}
	return &recorder{Recorder: rec, log: log}, nil
}

// Sent satisfies router.Tap.
func (r *recorder) Sent(event string, peer int, version uint64, payload []byte) {
	r.Recorder.Sent(event, peer, version, len(payload))
}

// Received satisfies router.Tap.
func (r *recorder) Received(event string, m *router.Message) {
	r.Recorder.Received(event, m.From, m.Version, m.Header, m.Payload)
	if r.Full() {
		r.full.Do(func() {
			r.log.Warn("the record of this node's events has reached its limit: later events are not recorded; see --trace-limit")
		})
	}
}

func (r *recorder) declare(spec task.ChannelSpec) {
	r.Declare(trace.Event{
		Name: spec.Name, Delivery: spec.Delivery.String(), Queue: spec.Queue,
		Fingerprint: spec.Fingerprint, Schema: spec.Schema,
	})
}

// done ends the record, and logs its fault, if there is one.
func (r *recorder) done() {
	r.closed.Do(func() {
		if err := r.Close(); err != nil {
			r.log.Error("the record of this node's events is not whole", "err", err)
		}
	})
}

// changed notes the change of a peer.
func (r *recorder) changed(c router.Change) {
	kind, ok := map[router.ChangeKind]string{router.Joined: trace.PeerJoined, router.Left: trace.PeerLeft,
		router.Lost: trace.PeerLost}[c.Kind]
	if !ok {
		return
	}
	p := trace.Peer{Node: c.Peer.ID, Change: kind, Incarnation: c.Peer.Incarnation, Labels: c.Peer.Labels}
	if c.Err != nil {
		p.Error = c.Err.Error()
	}
	r.Peer(p)
}
