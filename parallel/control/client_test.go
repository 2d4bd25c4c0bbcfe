//go:build unix

package control_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
)

// TestMain runs the tests or, with the variable endGroup, ends its process group.
func TestMain(m *testing.M) {
	if os.Getenv(endGroup) != "" {
		control.KillGroup()
		fmt.Println("it goes on")
		os.Exit(0)
	}
	goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute))
}

func pair(t *testing.T) (*os.File, *control.Client) {
	t.Helper()
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	c := control.NewClient(node, "")
	t.Cleanup(func() { _ = launcher.Close(); _ = c.Close() }) // in this order: c waits for the launcher
	return launcher, c
}

func TestNodeSendsMessagesToItsLauncher(t *testing.T) {
	launcher, c := pair(t)
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := c.Status(control.Status{Step: 7}); err != nil {
		t.Fatal(err)
	}
	if err := c.Outcome(control.Outcome{Kind: control.Preempted, Node: 1}); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	r := control.NewReader(launcher)
	var got []string
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Type)
	}
	if s := strings.Join(got, " "); s != "ready status outcome" {
		t.Errorf("got %s", s)
	}
	select {
	case err := <-closed:
		t.Error("closed before the launcher had sent bye", err)
	default:
	}
	if _, err := launcher.WriteString("{\"type\":\"bye\"}\n"); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestAReadyNodeSendsAlive sends Ready and nothing more: the Client sends the other messages.
func TestAReadyNodeSendsAlive(t *testing.T) {
	t.Parallel()
	launcher, c := pair(t)
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	r := control.NewReader(launcher)
	for _, want := range []string{"ready", "alive", "alive"} {
		if m, err := r.Next(); err != nil || m.Type != want {
			t.Fatalf("got %q, %v; want %q", m.Type, err, want)
		}
	}
}

func TestByeKeepsTheSocketForTheLauncher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n0.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := launcher.WriteString("{\"type\":\"bye\"}\n"); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Close()
	c := control.NewClient(node, "unix://"+path)
	<-c.Gone()
	_ = c.Close()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestGoneWhenTheLauncherIs(t *testing.T) {
	launcher, c := pair(t)
	select {
	case <-c.Gone():
		t.Fatal("gone at once")
	default:
	}
	if err := launcher.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.Gone()
	if err := c.Ready(); err == nil {
		t.Error("Ready without a launcher: no error")
	}
}

func TestOrphanRemovesItsSocket(t *testing.T) {
	for _, byWriting := range []bool{false, true} {
		launcher, node, err := control.Pair()
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "run")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "n0.sock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := node.WriteString("never read\n"); err != nil {
			t.Fatal(err)
		}
		_ = launcher.Close()
		c := control.NewClient(node, "unix://"+filepath.Join(dir, "n0.sock"))
		if byWriting {
			if err := c.Outcome(control.Outcome{Kind: control.Success}); err == nil {
				t.Error("no error")
			}
		} else {
			<-c.Gone()
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("by writing %v: the folder is left: %v", byWriting, err)
		}
		_ = c.Close()
	}
}

func TestClientReceivesTheInterval(t *testing.T) {
	launcher, c := pair(t)
	line, err := control.Message{Type: control.TypeInterval, Interval: 250 * time.Millisecond}.Append([]byte("rubbish\n{\"type\":\"bye\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := launcher.Write(line); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Close()
	<-c.Gone()
	if got := c.Interval(); got != 250*time.Millisecond {
		t.Errorf("interval %v", got)
	}
}

func TestStatusToABusyLauncherIsDroppedWhole(t *testing.T) {
	launcher, c := pair(t)
	for i := range 500 { // far more than the socket holds, and no process reads
		if err := c.Status(control.Status{Step: int64(i), Note: strings.Repeat("x", 900)}); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan string)
	go func() {
		r, n := control.NewReader(launcher), 0
		for {
			m, err := r.Next()
			if err != nil {
				read <- fmt.Sprintf("after %d: %v", n, err)
				return
			}
			if n++; m.Type == control.TypeOutcome {
				read <- "outcome"
				return
			}
		}
	}()
	if err := c.Outcome(control.Outcome{Kind: control.Success}); err != nil {
		t.Error(err)
	}
	if got := <-read; got != "outcome" {
		t.Error(got)
	}
}

func TestClientWithoutLauncherDoesNothing(t *testing.T) {
	c, err := control.Open(control.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Gone() != nil || c.Interval() != 0 {
		t.Error("gone or interval")
	}
	for _, err := range []error{c.Ready(), c.Status(control.Status{}), c.Outcome(control.Outcome{}), c.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestStatusSendsNumbersThatAreNotFiniteAsZero(t *testing.T) {
	launcher, c := pair(t)
	_ = launcher.SetReadDeadline(time.Now().Add(20 * time.Second))
	said := control.NewReader(launcher)
	for _, pair := range [][2]control.Status{
		{{Step: 7, Rate: math.NaN(), Lag: math.Inf(-1)}, {Step: 7}},
		{{Rate: math.Inf(1), Lag: math.NaN()}, {}},
		{{Rate: 1.5, Lag: -2.5}, {Rate: 1.5, Lag: -2.5}},
	} {
		if err := c.Status(pair[0]); err != nil {
			t.Error(err)
		}
		if m, err := said.Next(); err != nil || m.Status == nil || *m.Status != pair[1] {
			t.Errorf("%+v, %v", m.Status, err)
		}
	}
}

func TestLostNodesAreKeptUntilTheyAreTaken(t *testing.T) {
	launcher, c := pair(t)
	say := func(m control.Message) {
		t.Helper()
		line, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := launcher.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	for i, node := range []int{3, 4, 3} {
		say(control.Message{Type: control.TypeLost, Lost: &control.Lost{Node: node, Incarnation: uint64(i) + 7, Reason: "exit code 3"}})
	}
	say(control.Message{Type: control.TypeMetrics, Metrics: &control.Metrics{Seq: 1}})
	<-c.Asked() // earlier data was read
	want := []control.Lost{{Node: 4, Incarnation: 8, Reason: "exit code 3"}, {Node: 3, Incarnation: 9, Reason: "exit code 3"}}
	if got := <-c.Lost(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestOpenSaysHello(t *testing.T) {
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(node.Fd())) // the Client owns the descriptor of that number
	if err != nil {
		t.Fatal(err)
	}
	_ = node.Close()
	c, err := control.Open(control.Env{ControlFD: fd})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = launcher.Close(); _ = c.Close() }()
	if m, err := control.NewReader(launcher).Next(); err != nil || m.Type != control.TypeHello {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestOpenOfAClosedDescriptorFails(t *testing.T) {
	if _, err := control.Open(control.Env{ControlFD: 9999}); err == nil || !strings.Contains(err.Error(), "DITASK_CONTROL_FD=9999") {
		t.Error(err)
	}
	if _, err := control.Listener(control.Env{ListenFD: 9999}); err == nil || !strings.Contains(err.Error(), "DITASK_LISTEN_FD=9999") {
		t.Error(err)
	}
	if l, err := control.Listener(control.Env{}); l != nil || err != nil {
		t.Error(l, err)
	}
}

func TestRemoveSocketRemovesTheFolderWithTheLast(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for i := range 2 {
		path := fmt.Sprintf("%s/n%d.sock", dir, i)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		addrs = append(addrs, "unix://"+path)
	}
	for _, other := range []string{"", "tcp://127.0.0.1:1", "unix://"} {
		control.RemoveSocket(other)
	}
	control.RemoveSocket(addrs[0])
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	control.RemoveSocket(addrs[1])
	control.RemoveSocket(addrs[1])
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestMetricsGoInLinesThatFit answers with labels of the maximum size, and the newest
// request of two.
func TestMetricsGoInLinesThatFit(t *testing.T) {
	launcher, c := pair(t)
	for seq := range uint64(2) {
		line, err := control.Message{Type: control.TypeMetrics, Metrics: &control.Metrics{Seq: seq + 1}}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := launcher.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	seq := <-c.Asked()
	for seq != 2 { // the first may have been taken before the second came
		seq = <-c.Asked()
	}
	const n = 100
	told := make(chan error, 1)
	go func() {
		var samples []metrics.Sample
		for i := range n {
			samples = append(samples, metrics.Sample{Name: "x", Labels: []string{"event", strings.Repeat("\x01", 300*i)}, Value: math.Inf(1)})
		}
		told <- c.Metrics(seq, samples)
	}()
	r := control.NewReader(launcher)
	for got, last := 0, false; !last; {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		got += len(m.Metrics.Samples)
		if last = m.Metrics.Last; last && got != n || m.Metrics.Seq != 2 {
			t.Errorf("%d samples of %d, request %d", got, n, m.Metrics.Seq)
		}
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	if err := c.Metrics(3, nil); err != nil {
		t.Error(err)
	}
	if m, err := r.Next(); err != nil || !m.Metrics.Last || m.Metrics.Seq != 3 {
		t.Errorf("without samples: %+v, %v", m, err)
	}
}

// Long names count for the length of a line too.
func TestMetricsWithLongNamesGoInLinesThatFit(t *testing.T) {
	launcher, c := pair(t)
	samples := make([]metrics.Sample, 2000)
	for i := range samples {
		samples[i] = metrics.Sample{Name: strings.Repeat("n", 100), Value: float64(i)}
	}
	told := make(chan error, 1)
	go func() { told <- c.Metrics(3, samples) }()
	r := control.NewReader(launcher)
	for got, last := 0, false; !last; {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got += len(m.Metrics.Samples); m.Metrics.Last && got != len(samples) {
			t.Errorf("%d samples", got)
		}
		last = m.Metrics.Last
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// The launcher's message that it has read everything ends Close before its timeout, which
// does not pass here while the Client reads.
func TestByeEndsTheWaitOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launcher, node, err := control.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = launcher.Close() }()
		c := control.NewClient(node, "")
		if _, err := launcher.WriteString("{\"type\":\"bye\"}\n"); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
