//go:build amd64 || arm64

package socket_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/socket"
)

// Other processes that share memory with the test.
const (
	varProcess = "MESH_TEST_PROCESS" // folder, node id and incarnation
	wordBytes  = 8
	blockBytes = 1 << 20
)

// fill makes b block number n: all of its words are n.
func fill(b []byte, n uint64) {
	for ; len(b) > 0; b = b[wordBytes:] {
		binary.LittleEndian.PutUint64(b, n)
	}
}

// whole reports whether b is one block, and its number.
func whole(b []byte) (uint64, bool) {
	n := binary.LittleEndian.Uint64(b)
	for ; len(b) > 0; b = b[wordBytes:] {
		if binary.LittleEndian.Uint64(b) != n {
			return n, false
		}
	}
	return n, true
}

func processConfig(dir string, id int, incarnation uint64) router.Config {
	at := func(id int) string { return "unix://" + filepath.Join(dir, fmt.Sprint(id)) }
	c := router.Config{
		Job: "j", Token: []byte("t"), Node: id, Incarnation: incarnation, Transport: socket.New(socket.Config{}), Listen: at(id), Elastic: true,
		Logger: slog.New(slog.DiscardHandler), SharedBytes: 32 << 20, PeerTimeout: time.Second,
	}
	if id > 0 {
		c.Attach, c.Expect = []string{at(0)}, 2
	}
	return c
}

// sendBlocks sends blocks until ctx ends: 1, 2, ...
func sendBlocks(ctx context.Context, ch *router.Channel) error {
	for n := uint64(1); ctx.Err() == nil; n++ {
		l := &lent{}
		l.refs.Store(1)
		if l.mem = ch.Lend(blockBytes); l.mem != nil {
			l.b = l.mem.Bytes()
		} else {
			l.b = make([]byte, blockBytes)
		}
		fill(l.b, n)
		_, err := ch.Send(ctx, l, nil)
		l.Release()
		if lost := (*router.PeerError)(nil); err != nil && !errors.As(err, &lost) {
			return err
		}
	}
	return nil
}

// blocks receives blocks, each a while after it has arrived, and checks them.
type blocks struct {
	pause time.Duration
	fault func(string)

	heard, lent atomic.Uint64
	queue       chan func() // has room for a whole window
}

func newBlocks(pause time.Duration, fault func(string)) *blocks {
	return &blocks{pause: pause, fault: fault, queue: make(chan func(), 1<<14)}
}

func (k *blocks) deliver(m *router.Message) error {
	m.Taken = m.Takable
	from, number, b, lent, credit := m.From, m.Version, m.Payload, m.Lent, m.Credit
	k.queue <- func() {
		<-time.After(k.pause)
		if n, ok := whole(b); !ok || len(b) != blockBytes || n != number {
			k.fault(fmt.Sprintf("block %d of node.%d is not %d, or not whole", n, from, number))
		}
		if lent {
			k.lent.Add(1)
			credit.Recycle(b)
		}
		credit.Return(1, len(b))
		k.heard.Add(1)
	}
	return nil
}

func (k *blocks) run(ctx context.Context) {
	for {
		select {
		case do := <-k.queue:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// otherProcess is a node that sends blocks and receives those of others. It writes a line for each
// small event that it receives, and for each torn block.
func otherProcess() error {
	var dir string
	var id int
	var incarnation uint64
	if _, err := fmt.Sscan(os.Getenv(varProcess), &dir, &id, &incarnation); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := router.New(processConfig(dir, id, incarnation))
	if err != nil {
		return err
	}
	k := newBlocks(5*time.Millisecond, func(s string) { fmt.Println(s) })
	in, err := r.Channel(router.Spec{Name: "down"}, k.deliver)
	if err != nil {
		return err
	}
	in.Borrow(true)
	in.Listen(true)
	small, err := r.Channel(router.Spec{Name: "small"}, func(m *router.Message) error {
		fmt.Println("small", binary.LittleEndian.Uint64(m.Payload))
		m.Credit.Return(1, len(m.Payload))
		return nil
	})
	if err != nil {
		return err
	}
	small.Listen(true)
	out, err := r.Channel(router.Spec{Name: "up"}, func(*router.Message) error { return nil })
	if err != nil {
		return err
	}
	if err := r.Start(ctx, nil); err != nil {
		return err
	}
	fmt.Println("ready")
	go k.run(ctx)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }() // the test ends it
	_ = sendBlocks(ctx, out)                                       // until the end, or until the others give it up, as it was stopped
	<-ctx.Done()
	return nil
}

// other is such a process.
type other struct {
	cmd   *exec.Cmd
	stdin io.Closer
	torn  atomic.Int32
	small atomic.Uint64
	ready chan struct{}
	read  chan struct{} // closed when its output has ended
}

func startOther(t *testing.T, dir string, id int, incarnation uint64) *other {
	t.Helper()
	p := &other{cmd: exec.Command(os.Args[0]), ready: make(chan struct{}), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), fmt.Sprint(varProcess, "=", dir, " ", id, " ", incarnation))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "ready":
				close(p.ready)
			case "small":
				n, _ := strconv.ParseUint(rest, 10, 64)
				p.small.Store(n)
			case "block":
				p.torn.Add(1)
				t.Error(lines.Text())
			}
		}
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *other) kill() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	<-p.read
	_ = p.cmd.Wait() // it was killed
}

// sharedFiles counts the memory files that this process has mapped, and has open.
func sharedFiles(t *testing.T) (mapped, open int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	mapped = strings.Count(string(b), "/memfd:ditask")
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "/memfd:ditask") {
			open++
		}
	}
	return mapped, open
}

func until(done func() bool) {
	for !done() {
		<-time.After(5 * time.Millisecond)
	}
}

// hub is the node of the test: it sends blocks and small events to all, and receives their blocks.
type hub struct {
	*router.Router
	blocks *blocks
	small  *router.Channel
	stop   func()
}

func newHub(t *testing.T, dir string) *hub {
	t.Helper()
	r, err := router.New(processConfig(dir, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := &hub{Router: r, blocks: newBlocks(0, func(s string) { t.Error(s) })}
	channel := func(name string, deliver func(*router.Message) error) *router.Channel {
		ch, err := r.Channel(router.Spec{Name: name}, deliver)
		if err != nil {
			t.Fatal(err)
		}
		return ch
	}
	none := func(*router.Message) error { return nil }
	in, out := channel("up", h.blocks.deliver), channel("down", none)
	h.small = channel("small", none)
	in.Borrow(true)
	in.Listen(true)
	if err := r.Start(ctx, nil); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { h.blocks.run(ctx) })
	wg.Go(func() {
		if err := sendBlocks(ctx, out); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	h.stop = func() { cancel(); wg.Wait() }
	return h
}

// tell sends a small event.
func (h *hub) tell(t *testing.T, n uint64) {
	t.Helper()
	l := &lent{b: binary.LittleEndian.AppendUint64(nil, n)}
	l.refs.Store(1)
	defer l.Release()
	if _, err := h.small.Send(t.Context(), l, nil); err != nil {
		t.Error(err)
	}
}

// end closes the hub, and checks what remains.
func (h *hub) end(t *testing.T) {
	t.Helper()
	h.stop()
	_ = h.Close()
	for len(h.blocks.queue) > 0 {
		(<-h.blocks.queue)()
	}
	if mapped, open := sharedFiles(t); mapped != 0 || open != 0 {
		t.Errorf("%d memory files are mapped, %d open at the end", mapped, open)
	}
	if st := h.Stats().Shared; st.Segments != 0 || st.Withheld != 0 {
		t.Errorf("%+v", st)
	}
}

// Processes are killed in the middle of many blocks, and started again: the memory that they held is
// used again, and the memory that they shared is not mapped any more. Memory stays bounded.
func TestProcessesThatAreKilled(t *testing.T) {
	dir, err := os.MkdirTemp("", "mesh") //nolint:usetesting // t.TempDir has names too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	h := newHub(t, dir)
	for incarnation := range uint64(4) {
		incarnation++
		before, lent := h.blocks.heard.Load(), h.Stats().Shared.Sent
		p := startOther(t, dir, 1, incarnation)
		until(func() bool { return h.blocks.heard.Load() > before+40 && h.Stats().Shared.Sent > lent+40 })
		if err := p.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		p.kill()
		if incarnation%2 == 0 { // the report of its launcher; else the next one replaces it, or it is lost as it is silent
			h.Gone(router.Farewell{Node: 1, Incarnation: incarnation, Reason: "killed"})
			until(func() bool { return len(h.Peers()) == 0 })
		}
		if st := h.Stats().Shared; st.Kept > 32<<20 {
			t.Errorf("%+v", st)
		}
	}
	until(func() bool { mapped, _ := sharedFiles(t); return mapped == 1 }) // its own
	until(func() bool { return h.Stats().Shared.Segments == 0 })
	if _, open := sharedFiles(t); open != 1 {
		t.Errorf("%d memory files are open", open)
	}
	if h.blocks.lent.Load() == 0 {
		t.Error("no block came in shared memory")
	}
	h.end(t)
}

// A process that is stopped for longer than the others wait for it reads the messages that were sent
// to it, and nothing else, when it continues. The others receive their blocks meanwhile, and small
// events.
func TestProcessThatIsStopped(t *testing.T) {
	dir, err := os.MkdirTemp("", "mesh") //nolint:usetesting // t.TempDir has names too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	h := newHub(t, dir)
	stopped, runs := startOther(t, dir, 1, 1), startOther(t, dir, 2, 1)
	<-stopped.ready
	<-runs.ready
	until(func() bool { return h.Stats().Shared.Sent > 60 })
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n := uint64(1)
	h.tell(t, n) // while the blocks for the stopped process wait
	until(func() bool { return runs.small.Load() == n })
	until(func() bool { return len(h.Peers()) == 1 })
	st := h.Stats().Shared
	if st.Withheld == 0 || st.Withheld > 16<<20 {
		t.Errorf("%+v", st)
	}
	until(func() bool { return h.Stats().Shared.Sent > st.Sent+200 })
	h.tell(t, n+1)
	until(func() bool { return runs.small.Load() == n+1 })
	if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	now := h.Stats().Shared.Sent
	until(func() bool { return h.Stats().Shared.Sent > now+200 }) // it has read its blocks
	if got := h.Stats().Shared; got.Withheld != st.Withheld {
		t.Errorf("%+v", got)
	}
	stopped.kill()
	until(func() bool { return h.Stats().Shared.Withheld == 0 }) // without a report of its end
	if n := stopped.torn.Load(); n > 0 {
		t.Errorf("%d torn blocks", n)
	}
	runs.kill()
	h.Gone(router.Farewell{Node: 2, Incarnation: 1, Reason: "killed"})
	until(func() bool { return h.Stats().Shared.Segments == 0 })
	h.end(t)
}
