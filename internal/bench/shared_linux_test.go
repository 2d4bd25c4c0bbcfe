package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

var sharedPairs = flag.Int("shared.pairs", 0,
	"number of measurements of payloads of 1 MiB by shared memory, each beside the baselines; the ratios are printed")

// cost is the time of one message.
type cost struct{ clock, processor float64 } // ns

// TestSharedMemory prints what payloads of 1 MiB take by shared memory, by the socket, and by a raw socket, alternately in one run. It does
// not fail where a floor is missed: that depends on the machine.
//
//	go test ./internal/bench -run TestSharedMemory -v -args -shared.pairs=7
//
// Without -shared.pairs it measures once, to see that the table can be made.
func TestSharedMemory(t *testing.T) {
	const memory = 256
	messages := 500 // in a burst
	if *sharedPairs == 0 {
		messages = 20
		f := flag.Lookup("test.benchtime").Value
		was := f.String()
		if err := f.Set("1x"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Set(was) }) // it was valid before
	}
	costs := map[string][]cost{}
	for range max(*sharedPairs, 1) {
		for _, c := range []struct {
			name, network string
			memory, peers int
			raw           bool
		}{
			{"raw 1", "unix", 0, 1, true}, {"shared 1", "unix", memory, 1, false}, {"shared 3", "unix", memory, 3, false},
			{"socket 1", "unix", 0, 1, false}, {"raw 3", "unix", 0, 3, true},
			{"raw tcp", "tcp", 0, 1, true}, {"shared tcp", "tcp", memory, 1, false}, {"socket tcp", "tcp", 0, 1, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Setenv(control.VarSharedMemory, fmt.Sprint(c.memory))
				if c.memory == 0 {
					_ = os.Unsetenv(control.VarSharedMemory)
				}
				var got cost
				measure := func(b *testing.B) { got = measureBlocks(b, c.network, c.raw, c.peers, messages) }
				if r := testing.Benchmark(measure); r.N == 0 {
					t.Fatal("the benchmark has failed")
				}
				costs[c.name] = append(costs[c.name], got)
			})
		}
	}
	if *sharedPairs == 0 {
		return
	}
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%s, load %s\nmedian (least to greatest); the clock and the processor time of all processes, per message\n%s",
		processor(), load, ratios(costs))
}

// ratios is the table.
func ratios(costs map[string][]cost) string {
	var out strings.Builder
	spread := func(all []float64) string {
		slices.Sort(all)
		return fmt.Sprintf("%.2f (%.2f to %.2f)", all[len(all)/2], all[0], all[len(all)-1])
	}
	pairs := [][2]string{
		{"raw 1", "shared 1"}, {"socket 1", "shared 1"}, {"shared 3", "shared 1"}, {"raw 3", "shared 3"}, {"raw 1", "socket 1"},
		{"raw tcp", "shared tcp"}, {"socket tcp", "shared tcp"},
	}
	for _, p := range pairs {
		var clock, processor []float64
		if len(costs[p[0]]) != len(costs[p[1]]) || len(costs[p[0]]) == 0 {
			continue // -run has left one of them out
		}
		for i, c := range costs[p[0]] {
			d := costs[p[1]][i]
			clock, processor = append(clock, c.clock/d.clock), append(processor, c.processor/d.processor)
		}
		fmt.Fprintf(&out, "%s / %s: clock %s, processor %s\n", p[0], p[1], spread(clock), spread(processor))
	}
	for name, all := range costs {
		var us []float64
		for _, c := range all {
			us = append(us, c.processor/1000)
		}
		fmt.Fprintf(&out, "%s: processor %s µs\n", name, spread(us))
	}
	return out.String()
}

// measureBlocks sends bursts of 1 MiB to peers, and returns the cost of a message.
func measureBlocks(b *testing.B, network string, raw bool, peers, messages int) (got cost) {
	const size = 1 << 20
	var pids []int
	done := func(began time.Time, before float64) {
		n := float64(b.N * messages)
		got = cost{float64(time.Since(began)) / n, (processorTime(pids) - before) / n}
	}
	if raw {
		send, end, children := rawTo(b, network, peers, size)
		pids = children
		began, before := time.Now(), processorTime(pids)
		bursts(b, size, messages, send, end)
		done(began, before)
		return got
	}
	t, children := jobOf(b, network, peers+1)
	pids = children
	answers := make(chan int, peers)
	received.On(t, func(_ context.Context, n int) error { answers <- n; return nil })
	run(b, t, func(ctx context.Context) {
		block := make([]float32, size/4)
		emit := func() error { return blocks.Emit(ctx, t, block) }
		end := func() error {
			if err := burst.Emit(ctx, t, messages); err != nil {
				return err
			}
			for range peers {
				<-answers
			}
			return nil
		}
		for range 3 { // the memory is there, and sizes are known
			for range 20 {
				_ = emit()
			}
			_ = end()
		}
		began, before := time.Now(), processorTime(pids)
		bursts(b, size, messages, emit, end)
		done(began, before)
	})
	return got
}

// processorTime is the user and system time of this process and of those, in ns. The system counts in ticks of 10 ms.
func processorTime(pids []int) float64 {
	ticks := 0
	for _, pid := range append([]int{os.Getpid()}, pids...) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // a process that has ended has none
		_, rest, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(rest)
		for _, i := range []int{11, 12} {
			if i < len(fields) {
				n, _ := strconv.Atoi(fields[i]) // the system's
				ticks += n
			}
		}
	}
	return float64(ticks) * 1e7
}
