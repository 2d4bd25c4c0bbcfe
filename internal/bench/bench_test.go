package bench

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
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

// Sample is a typed payload of 64 bytes on the wire, or about that.
type Sample struct {
	Env    int32
	Step   int64
	Obs    [4]float32
	Next   [4]float32
	Action int32
	Reward float32
	Done   bool
}

var (
	samples  = task.NewEvent[Sample]("bench.sample")
	blocks   = task.NewEvent[[]float32]("bench.block")
	burst    = task.NewEvent[int]("bench.burst")
	received = task.NewEvent[int]("bench.received")
	ping     = task.NewEvent[Sample]("bench.ping")
	pong     = task.NewEvent[Sample]("bench.pong")
)

const varRaw = "DITASK_BENCH_RAW"

func TestMain(m *testing.M) {
	if is, err := redisMain(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	switch {
	case os.Getenv(varRaw) != "":
		if err := rawPeer(os.Getenv(varRaw)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(varServer) != "":
		if err := serveNATS(os.Getenv(varServer)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(varTrain) != "" && os.Getenv(control.VarNodeID) != "":
		parallel.Main(trainer)
	case os.Getenv(control.VarNodeID) != "":
		parallel.Main(peer)
	default:
		os.Exit(m.Run())
	}
}

// peer receives everything and answers once for each burst, or for each ping.
func peer(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	samples.On(t, func(context.Context, Sample) error { return nil })
	blocks.On(t, func(context.Context, []float32) error { return nil }, task.Borrowed())
	burst.On(t, func(ctx context.Context, n int) error { return received.Emit(ctx, t, n, task.To("node.0")) })
	ping.On(t, func(ctx context.Context, s Sample) error { return pong.Emit(ctx, t, s, task.To("node.0")) })
	t.Use(func(ctx context.Context, _ *struct{}, _ task.Next) error {
		<-ctx.Done() // the other node finishes
		return context.Cause(ctx)
	})
	return t.Run(ctx)
}

// job starts n-1 peers and makes this process node 0.
func job(b *testing.B, network string, n int) *task.Task[struct{}] {
	b.Helper()
	t, _ := jobOf(b, network, n)
	return t
}

// share gives this process and each of its children an n-th of the processors, as
// ditask does with the nodes of a job.
func share(b testing.TB, n int) {
	was := runtime.GOMAXPROCS(0)
	each := max(was/n, 1)
	b.Setenv("GOMAXPROCS", fmt.Sprint(each))
	runtime.GOMAXPROCS(each)
	b.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

// jobOf is job, with the process ids of the peers.
func jobOf(b *testing.B, network string, n int) (*task.Task[struct{}], []int) {
	b.Helper()
	node, pids := joined(b, network, n)
	return task.New[struct{}](node), pids
}

// joined starts n-1 processes of this program and returns the node of this one, node 0.
func joined(b testing.TB, network string, n int) (*parallel.Node, []int) {
	b.Helper()
	dir := b.TempDir()
	var addrs []string
	for id := range n {
		addr := "unix://" + filepath.Join(dir, fmt.Sprint(id))
		if network == "tcp" {
			addr = fmt.Sprint("tcp://127.0.0.1:", freeport.Get(b, 1))
		}
		addrs = append(addrs, addr)
	}
	shared, _ := strconv.Atoi(os.Getenv(control.VarSharedMemory)) // 0 without it: none
	env := func(id int) []string {
		return control.Env{JobID: "bench", Token: "bench", NodeID: id, Nodes: n, Listen: addrs[id], Attach: addrs[:id],
			Incarnation: 1, SharedMemory: shared}.Encode()
	}
	share(b, n)
	var pids []int
	for id := 1; id < n; id++ {
		pids = append(pids, child(b, env(id)...))
	}
	node, err := parallel.Join(lookup(env(0)), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	return node, pids
}

func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
}

// child starts this program again, waits for its end at the end of b, and returns
// its process id.
func child(b testing.TB, env ...string) int {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cmd.Wait(); err != nil {
			b.Errorf("the other process: %v\n%s", err, out.String())
		}
	})
	return cmd.Process.Pid
}

// run starts the task, measures, and finishes the job.
func run(b *testing.B, t *task.Task[struct{}], measure func(ctx context.Context)) {
	b.Helper()
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		measure(ctx)
		return nil
	}))
	if err := t.Run(b.Context(), task.MaxSteps(1)); err != nil {
		b.Fatal(err)
	}
}

var sizes = []struct {
	name     string
	bytes    int
	messages int // in a burst
}{
	{"64B", 64, 200_000},
	{"4KiB", 4 << 10, 50_000},
	{"1MiB", 1 << 20, 500},
}

// BenchmarkEmit is a reliable typed event to one listener in another process.
func BenchmarkEmit(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, size := range sizes {
			b.Run(network+"/"+size.name, func(b *testing.B) { benchEmit(b, network, 2, size.bytes, size.messages) })
		}
	}
}

// BenchmarkEmitTo3 is the same to three processes that listen.
func BenchmarkEmitTo3(b *testing.B) {
	for _, size := range sizes {
		b.Run("unix/"+size.name, func(b *testing.B) { benchEmit(b, "unix", 4, size.bytes, size.messages/2) })
	}
}

// BenchmarkEmitFrom is an event of 64 bytes that a number of goroutines of one process, which
// has all processors, emit at once to a listener in another one.
func BenchmarkEmitFrom(b *testing.B) {
	const messages = 100_000
	for _, goroutines := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("unix/64B/%d", goroutines), func(b *testing.B) {
			procs := runtime.GOMAXPROCS(0)
			t := job(b, "unix", 2)
			runtime.GOMAXPROCS(procs)
			b.SetBytes(64 * messages)
			answers := make(chan int, 1) // one answer to a burst
			received.On(t, func(_ context.Context, n int) error { answers <- n; return nil })
			run(b, t, func(ctx context.Context) {
				for b.Loop() {
					emitFrom(ctx, b, t, goroutines, messages)
					<-answers
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/messages, "ns/msg")
			})
		})
	}
}

// emitFrom emits a burst of messages from that many goroutines.
func emitFrom(ctx context.Context, b *testing.B, t *task.Task[struct{}], goroutines, messages int) {
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range messages / goroutines {
				if err := samples.Emit(ctx, t, Sample{Step: 1}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := burst.Emit(ctx, t, messages); err != nil {
		b.Error(err)
	}
}

func benchEmit(b *testing.B, network string, nodes, bytes, messages int) {
	benchEmitOf(b, job(b, network, nodes), nodes, bytes, messages)
}

func benchEmitOf(b *testing.B, t *task.Task[struct{}], nodes, bytes, messages int) {
	answers := make(chan int, nodes)
	received.On(t, func(_ context.Context, n int) error { answers <- n; return nil })
	run(b, t, func(ctx context.Context) {
		emit := func() error { return samples.Emit(ctx, t, Sample{Step: 1}) }
		if bytes > 64 {
			block := make([]float32, bytes/4)
			emit = func() error { return blocks.Emit(ctx, t, block) }
		}
		bursts(b, bytes, messages, emit, func() error {
			if err := burst.Emit(ctx, t, messages); err != nil {
				return err
			}
			for range nodes - 1 {
				<-answers
			}
			return nil
		})
	})
}

// bursts measures bursts of that many messages of that many bytes: send sends one of
// them, and end asks whether all have come, and waits for the answers.
func bursts(b *testing.B, bytes, messages int, send, end func() error) {
	b.SetBytes(int64(bytes * messages))
	b.ReportAllocs()
	for b.Loop() {
		for range messages {
			if err := send(); err != nil {
				b.Fatal(err)
			}
		}
		if err := end(); err != nil {
			b.Fatal(err)
		}
	}
	ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(messages)
	b.ReportMetric(ns, "ns/msg")
	b.ReportMetric(1e9/ns, "msg/s")
}

// BenchmarkRaw is the baseline: frames of a length and a body through buffers of
// 64 KiB, over the same kind of socket, to another process.
func BenchmarkRaw(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		for _, size := range sizes {
			b.Run(network+"/"+size.name, func(b *testing.B) { benchRaw(b, network, 1, size.bytes, size.messages) })
		}
	}
}

// BenchmarkRawTo3 is the baseline with three processes.
func BenchmarkRawTo3(b *testing.B) {
	for _, size := range sizes {
		b.Run("unix/"+size.name, func(b *testing.B) { benchRaw(b, "unix", 3, size.bytes, size.messages/2) })
	}
}

func benchRaw(b *testing.B, network string, peers, bytes, messages int) {
	send, end, _ := rawTo(b, network, peers, bytes)
	bursts(b, bytes, messages, send, end)
}

// rawTo connects with processes that read frames. It returns a function that sends one to each, a function that
// waits for all of them, and the ids of the processes.
func rawTo(b *testing.B, network string, peers, bytes int) (send, end func() error, pids []int) {
	share(b, peers+1)
	var conns []net.Conn
	var writers []*bufio.Writer
	for range peers {
		c, pid := rawConnOf(b, network)
		pids = append(pids, pid)
		conns = append(conns, c)
		writers = append(writers, bufio.NewWriterSize(c, 64<<10))
	}
	body := make([]byte, bytes)
	send = func() error {
		for _, w := range writers {
			rawWrite(w, body)
		}
		return nil
	}
	end = func() error {
		for _, w := range writers {
			rawWrite(w, nil) // asks for the answer
			_ = w.Flush()
		}
		for _, c := range conns {
			var one [1]byte
			if _, err := io.ReadFull(c, one[:]); err != nil {
				return err
			}
		}
		return nil
	}
	return send, end, pids
}

func rawWrite(w *bufio.Writer, body []byte) {
	if w.Available() < 4 {
		_ = w.Flush()
	}
	_, _ = w.Write(binary.LittleEndian.AppendUint32(w.AvailableBuffer(), uint32(len(body))))
	_, _ = w.Write(body)
}

func rawConn(b *testing.B, network string) net.Conn {
	c, _ := rawConnOf(b, network)
	return c
}

// rawConnOf is rawConn, with the id of the process.
func rawConnOf(b *testing.B, network string) (net.Conn, int) {
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(b.TempDir(), "raw")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	pid := child(b, varRaw+"="+network+" "+l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c, pid
}

// rawPeer reads frames and answers each empty one with a byte.
func rawPeer(where string) error {
	network, addr, _ := strings.Cut(where, " ")
	if network == "nats" {
		return natsPeer(addr)
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return err
	}
	rd := bufio.NewReaderSize(c, 64<<10)
	body := make([]byte, 1<<20)
	var n [4]byte
	for {
		if _, err := io.ReadFull(rd, n[:]); err != nil {
			return nil //nolint:nilerr // the other side has ended
		}
		size := binary.LittleEndian.Uint32(n[:])
		if _, err := io.ReadFull(rd, body[:size]); err != nil {
			return err
		}
		if size == 0 {
			if _, err := c.Write(n[:1]); err != nil {
				return err
			}
		}
	}
}

// BenchmarkRoundTrip is an event of 64 bytes to a listener that emits another one
// back, and BenchmarkRawRoundTrip an empty frame and its answer.
func BenchmarkRoundTrip(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) { benchRoundTripOf(b, job(b, network, 2)) })
	}
}

func benchRoundTripOf(b *testing.B, t *task.Task[struct{}]) {
	back := make(chan struct{}, 1)
	pong.On(t, func(context.Context, Sample) error { back <- struct{}{}; return nil })
	run(b, t, func(ctx context.Context) {
		var took []time.Duration
		b.ReportAllocs()
		for b.Loop() {
			begin := time.Now()
			if err := ping.Emit(ctx, t, Sample{}); err != nil {
				b.Fatal(err)
			}
			<-back
			took = append(took, time.Since(begin))
		}
		percentiles(b, took)
	})
}

// BenchmarkRawRoundTrip is the baseline of BenchmarkRoundTrip.
func BenchmarkRawRoundTrip(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			share(b, 2)
			c := rawConn(b, network)
			var took []time.Duration
			var n [4]byte
			for b.Loop() {
				begin := time.Now()
				if _, err := c.Write(n[:]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, n[:1]); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			percentiles(b, took)
		})
	}
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
