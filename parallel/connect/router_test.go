package connect

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/socket"
)

func TestMain(m *testing.M) { os.Exit(deadline.Each(m, time.Minute).Run()) }

// tap records the messages that a router sends.
type tap struct {
	mu   sync.Mutex
	sent []string
}

func (r *tap) Sent(event string, peer int, _ uint64, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, fmt.Sprintf("%s to %d: %s", event, peer, payload))
}

func (r *tap) Received(string, *router.Message) {}

func (r *tap) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// Every field of the environment that a router needs is in its configuration.
func TestConfigurationFollowsFromTheEnvironment(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := control.Env{
		JobID: "j", TokenFile: file, NodeID: 3, Incarnation: 7, Nodes: 5, Topology: "star", Listen: "unix:///s", Advertise: "unix:///t",
		Attach: []string{"unix:///u"}, JoinTimeout: time.Hour, PeerTimeout: time.Minute, AutoRecover: true,
	}
	c, below, err := configOf(env, log)
	if err != nil {
		t.Fatal(err)
	}
	defer below()
	if c.Job != "j" || string(c.Token) != "secret" || c.Node != 3 || c.Incarnation != 7 || c.Expect != 5 ||
		c.Topology != router.Star || c.Listener != nil {
		t.Errorf("%+v", c)
	}
	if c.Listen != "unix:///s" || c.Advertise != "unix:///t" || !slices.Equal(c.Attach, env.Attach) || !c.Elastic || c.Logger != log {
		t.Errorf("%+v", c)
	}
	if _, ok := c.Transport.(*socket.Transport); !ok || c.Version == "" || c.JoinTimeout != time.Hour || c.PeerTimeout != time.Minute {
		t.Errorf("%+v", c)
	}
}

// The transport of an environment reaches the nodes of its job.
func TestTheTransportReachesANode(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	env := control.Env{JobID: "j", Token: "secret", Listen: "unix://" + filepath.Join(t.TempDir(), "s")}
	transport, end, err := Transport(env, log)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	l, err := transport.Listen(t.Context(), env.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := transport.Dial(t.Context(), transport.Advertise(l))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for want, env := range map[string]control.Env{"token file": {TokenFile: "/nowhere/token"}, "no transport for ftp": {Bus: "ftp://h"}} {
		if _, _, err := Transport(env, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

func TestFaultsOfTheEnvironment(t *testing.T) {
	for want, env := range map[string]control.Env{
		"token file: open /nowhere/token": {TokenFile: "/nowhere/token"},
		`topology "ring"`:                 {Topology: "ring"},
		"no transport for ftp://h":        {Bus: "ftp://h"},
		"router config: Node -1":          {NodeID: -1},
	} {
		r, below, err := Router(env, nil, slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "DITASK_BUS: "), want) || r != nil || below != nil {
			t.Errorf("%+v: %v, want %s", env, err, want)
		}
	}
}

// nodes starts two nodes over sockets in a folder, and returns them with the environment
// of the second one.
func nodes(t *testing.T, first router.Tap) ([2]*router.Router, control.Env) {
	t.Helper()
	addr := "unix://" + filepath.Join(leak.Check(t).Dir, "0")
	var out [2]*router.Router
	env := control.Env{JobID: "j", Token: "secret", Nodes: 2, Incarnation: 5, Listen: addr}
	for id, own := range []router.Tap{first, nil} {
		if env.NodeID = id; id > 0 {
			env.Listen, env.Attach = "", []string{addr}
		}
		r, below, err := Router(env, own, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Abandon(); below() })
		out[id] = r
	}
	return out, env
}

// start starts nodes, which wait for each other.
func start(t *testing.T, nodes [2]*router.Router) {
	t.Helper()
	started := make(chan error)
	for _, r := range nodes {
		go func() { started <- r.Start(t.Context(), nil) }()
	}
	for range nodes {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
}

// Routers that follow from environments meet, and the tap of one sees the messages that it sends.
func TestRoutersMeetAndTheTapSeesMessages(t *testing.T) {
	seen := &tap{}
	both, _ := nodes(t, seen)
	received := make(chan string, 1)
	spec := router.Spec{Name: "news"}
	from, err := both[0].Channel(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := both[1].Channel(spec, func(m *router.Message) error { received <- string(m.Payload); return nil })
	if err != nil {
		t.Fatal(err)
	}
	to.Listen(true)
	start(t, both)
	if _, err := from.Send(t.Context(), router.Bytes("hello"), nil); err != nil {
		t.Fatal(err)
	}
	if got := <-received; got != "hello" {
		t.Errorf("received %q", got)
	}
	if got, want := seen.all(), []string{"news to 1: hello"}; !slices.Equal(got, want) {
		t.Errorf("the tap saw %q, want %q", got, want)
	}
}
