package natsbus_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/internal/race"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/natsbus/embedded"
	"github.com/ditask/ditask/router/routertest"
)

// receiver checks what one node receives: every message of every other node, once and
// in order.
type receiver struct {
	mu   sync.Mutex
	next map[int]uint64
	all  int
	more chan struct{}
}

func (h *receiver) receive(m *router.Message) error {
	n := binary.LittleEndian.Uint64(m.Payload)
	h.mu.Lock()
	due := h.next[m.From]
	h.next[m.From] = n + 1
	h.all++
	h.mu.Unlock()
	m.Credit.Return(1, len(m.Payload))
	select {
	case h.more <- struct{}{}:
	default:
	}
	if n != due {
		return fmt.Errorf("message %d of node.%d where %d belongs", n, m.From, due)
	}
	return nil
}

// wait returns when n messages were received.
func (h *receiver) wait(ctx context.Context, n int) error {
	for {
		h.mu.Lock()
		all := h.all
		h.mu.Unlock()
		if all >= n {
			return nil
		}
		select {
		case <-h.more:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages were received", all, n)
		}
	}
}

// traffic lets every node send each messages, some of them large, to every other.
// disturb is called with 1, 2, 3 when node 0 has received that many quarters. All
// must arrive once and in order, and no node may be lost.
func traffic(t *testing.T, transports []*natsbus.Transport, each int, disturb func(quarter int)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := len(transports)
	receivers := make([]*receiver, n)
	routers := make([]*router.Router, n)
	channels := make([]*router.Channel, n)
	for id := range n {
		cfg := router.Config{
			Job: "traffic", Token: []byte("secret"), Node: id, Expect: n, Transport: transports[id], Listen: address(t, id), Logger: quiet(),
			WindowMessages: 64,
		}
		for k := range id {
			cfg.Attach = append(cfg.Attach, address(t, k))
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		receivers[id] = &receiver{next: map[int]uint64{}, more: make(chan struct{}, 1)}
		ch, err := r.Channel(router.Spec{Name: "n"}, receivers[id].receive)
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
		routers[id], channels[id] = r, ch
	}
	at := func(fn func(id int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for id := range n {
			wg.Go(func() {
				if err := fn(id); err != nil {
					t.Errorf("node.%d: %v", id, err)
					cancel()
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	at(func(id int) error { return routers[id].Start(ctx, nil) })
	var disturbing sync.WaitGroup
	disturbing.Go(func() {
		for quarter := 1; quarter < 4; quarter++ {
			if receivers[0].wait(ctx, quarter*each*(n-1)/4) != nil {
				return
			}
			disturb(quarter)
		}
	})
	at(func(id int) error {
		for i := range each {
			b := make([]byte, 100)
			if i%20 == 0 {
				b = make([]byte, 300<<10)
			}
			binary.LittleEndian.PutUint64(b, uint64(i))
			if _, err := channels[id].Send(ctx, router.Bytes(b), nil); err != nil {
				return err
			}
		}
		return receivers[id].wait(ctx, each*(n-1))
	})
	disturbing.Wait()
	at(func(id int) error { return routers[id].Drain(ctx, true) })
	at(func(id int) error { return routers[id].Close() })
	for id, h := range receivers {
		if h.all != each*(n-1) {
			t.Errorf("node.%d received %d messages, want %d", id, h.all, each*(n-1))
		}
	}
}

// transports opens n transports, each as in a separate process.
func transports(t *testing.T, n int, cfg func(id int) natsbus.Config) []*natsbus.Transport {
	t.Helper()
	var out []*natsbus.Transport
	for id := range n {
		out = append(out, open(t, cfg(id)))
	}
	return out
}

// outage is how long a server is away.
func outage(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d): // the fault that is tested
	case <-t.Context().Done():
	}
}

func TestR4ServerRestartsUnderTraffic(t *testing.T) {
	cfg := embedded.Config{Logger: quiet(), Token: "t"}
	s := ours(t, cfg)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL(), "nats://"))
	_, _ = fmt.Sscan(port, &cfg.Port)
	bus := transports(t, 3, func(int) natsbus.Config { return natsbus.Config{URL: s.URL(), Token: "t"} })
	now, cancel := context.WithCancel(t.Context())
	cancel()
	traffic(t, bus, 1500, func(quarter int) {
		away := []time.Duration{0, 0, 3 * time.Second, 200 * time.Millisecond}[quarter]
		s.Close(now)
		outage(t, away)
		s = ours(t, cfg)
	})
	if st := bus[0].Stats(); st.Disconnects != 3 {
		t.Errorf("%+v, want 3 disconnects", st)
	}
}

// cluster starts servers that know each other.
func cluster(t *testing.T, n int) (servers []*server.Server, start func(i int) *server.Server) {
	t.Helper()
	ports, routes := freeport.Get(t, n), freeport.Get(t, n)
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("nats://127.0.0.1:%d", routes+i))
	}
	start = func(i int) *server.Server {
		return plain(t, server.Options{
			Port: ports + i, ServerName: fmt.Sprint("s", i), Routes: server.RoutesFromStr(strings.Join(list, ",")),
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: routes + i},
		})
	}
	for i := range n {
		servers = append(servers, start(i))
	}
	routed(t, servers, n)
	return servers, start
}

// routed waits until the servers are connected with each other.
func routed(t *testing.T, servers []*server.Server, n int) {
	t.Helper()
	ctx := soon(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, s := range servers {
		for len(routesOf(s)) < n-1 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%d routes, want %d", len(routesOf(s)), n-1)
			}
		}
	}
}

func routesOf(s *server.Server) map[string]bool {
	out := map[string]bool{}
	z, err := s.Routez(nil)
	if err != nil {
		return nil
	}
	for _, r := range z.Routes {
		out[r.RemoteID] = true
	}
	return out
}

func urls(servers []*server.Server) string {
	var out []string
	for _, s := range servers {
		out = append(out, s.ClientURL())
	}
	return strings.Join(out, ",")
}

func TestCluster(t *testing.T) {
	servers, _ := cluster(t, 3)
	routertest.Run(t, setup(natsbus.Config{URL: urls(servers)}, router.Mesh))
}

func TestR4ClusterLosesServersUnderTraffic(t *testing.T) {
	servers, start := cluster(t, 3)
	all := urls(servers)
	bus := transports(t, 3, func(id int) natsbus.Config {
		return natsbus.Config{URL: servers[id].ClientURL() + "," + all}
	})
	traffic(t, bus, 1500, func(quarter int) {
		i := quarter - 1
		stop(servers[i])
		outage(t, 100*time.Millisecond)
		servers[i] = start(i)
		routed(t, servers, 3)
	})
	var lost uint64
	for _, c := range bus {
		lost += c.Stats().Disconnects
	}
	if lost == 0 {
		t.Error("no client was on a server that was stopped")
	}
}

// process is a server in a separate process.
type process struct {
	*exec.Cmd
	url string // with the token
}

func startProcess(t *testing.T) process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), varServer+"=word")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop() // the tests of a slow machine need the server for longer
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
		_ = cmd.Wait() // it was killed
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return process{cmd, strings.Replace(strings.TrimSpace(url), "nats://", "nats://word@", 1)}
}

func TestExternalServer(t *testing.T) {
	routertest.Run(t, setup(natsbus.Config{URL: startProcess(t).url}, router.Mesh))
}

// varServer makes this test program a server with that token, until its standard
// input ends.
const varServer = "NATSBUS_TEST_SERVER"

func serveAlone(token string) error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, Authorization: token})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return io.ErrUnexpectedEOF
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return err
}

func TestSmallMaxPayload(t *testing.T) {
	s := plain(t, server.Options{MaxPayload: 64 << 10})
	routertest.Run(t, setup(natsbus.Config{URL: s.ClientURL()}, router.Mesh))
}

// proxy stands between a client and the server.
type proxy struct {
	t       *testing.T
	l       net.Listener
	target  string
	wg      sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	stalled chan struct{} // nil: nothing is held back; else closed when that is over
}

func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, l: l, target: strings.TrimPrefix(url, "nats://"), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.release()
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		_ = out.(*net.TCPConn).SetReadBuffer(64 << 10) // else the system holds as much as a window
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(out, in); _, _ = in.Close(), out.Close() })
		p.wg.Go(func() { p.copyBack(in, out); _, _ = in.Close(), out.Close() })
	}
}

// copyBack carries the server's bytes, unless they are held back.
func (p *proxy) copyBack(in, out net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := out.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		wait := p.stalled
		p.mu.Unlock()
		if wait != nil {
			<-wait
		}
		if _, err := in.Write(b[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

func TestR4ClientConnectionIsCut(t *testing.T) {
	s := plain(t, server.Options{})
	p := newProxy(t, s.ClientURL())
	bus := transports(t, 3, func(id int) natsbus.Config {
		return natsbus.Config{URL: []string{p.url(), p.url(), s.ClientURL()}[id]}
	})
	traffic(t, bus, 1500, func(int) { p.cut() })
	if st := bus[0].Stats(); st.Disconnects != 3 {
		t.Errorf("%+v, want 3 disconnects", st)
	}
	if st := bus[2].Stats(); st.Disconnects != 0 {
		t.Errorf("%+v of the client that was not cut", st)
	}
}

// TestSlowClientDropsAndResumes lowers what may wait in a client, so that package
// nats drops messages, and lifts that again.
func TestSlowClientDropsAndResumes(t *testing.T) {
	s := plain(t, server.Options{})
	var log logtest.Buffer
	bus := transports(t, 2, func(id int) natsbus.Config {
		cfg := natsbus.Config{URL: s.ClientURL()}
		if id == 0 {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}
		return cfg
	})
	ctx := soon(t)
	traffic(t, bus, 3000, func(quarter int) {
		if quarter != 1 {
			return
		}
		if err := bus[0].Limit(1, -1); err != nil {
			t.Error(err)
		}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for bus[0].Stats().Dropped < 2 || bus[0].Stats().Broken < 1 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Errorf("nothing was dropped: %+v", bus[0].Stats())
				return
			}
		}
		if err := bus[0].Limit(-1, 512<<20); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{"too slow for NATS", "a connection over NATS broke"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is logged %d times:\n%s", want, n, log.String())
		}
	}
}

// TestServerClosesSlowClient holds back the bytes of a server with little patience, until that closes
// the client as a slow consumer.
func TestServerClosesSlowClient(t *testing.T) {
	s := plain(t, server.Options{WriteDeadline: 100 * time.Millisecond})
	p := newProxy(t, s.ClientURL())
	bus := transports(t, 2, func(id int) natsbus.Config {
		return natsbus.Config{URL: []string{p.url(), s.ClientURL()}[id], Nodes: 2}
	})
	ctx := soon(t)
	traffic(t, bus, 3000, func(quarter int) {
		if quarter != 1 {
			return
		}
		p.stall()
		defer p.release()
		noise, err := nats.Connect(s.ClientURL()) // more than what the system keeps for the client
		if err != nil {
			t.Error(err)
			return
		}
		defer noise.Close()
		junk := make([]byte, 256<<10)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for s.NumSlowConsumers() == 0 {
			if err := noise.Publish("ditask.job.dial.0", junk); err != nil {
				t.Error(err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Error("the server closed no client")
				return
			}
		}
	})
	if st := bus[0].Stats(); st.Disconnects == 0 {
		t.Errorf("%+v, want a disconnect", st)
	}
}

func TestAuthorizationIsRevokedAndComesBack(t *testing.T) {
	if race.Enabled {
		t.Skip("a server that reads its options anew races with its own clients: nats-server 2.15.2, sendAuthErrorEvent")
	}
	opts := server.Options{Authorization: "one"}
	s := plain(t, opts)
	set := func(word string) {
		o := server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, Authorization: word}
		if err := s.ReloadOptions(&o); err != nil {
			t.Error(err)
		}
	}
	bus := transports(t, 2, func(int) natsbus.Config { return natsbus.Config{URL: s.ClientURL(), Token: "one"} })
	ctx := soon(t)
	traffic(t, bus, 1000, func(quarter int) {
		if quarter != 1 {
			return
		}
		set("two")
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for bus[0].Stats().Disconnects == 0 || bus[1].Stats().Disconnects == 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Error("the clients stay connected")
				return
			}
		}
		brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if _, err := bus[0].Dial(brief, address(t, 1)); err == nil || !strings.Contains(strings.ToLower(err.Error()), "authorization") {
			t.Errorf("a dial without authorization: %v", err)
		}
		set("one")
	})
}
