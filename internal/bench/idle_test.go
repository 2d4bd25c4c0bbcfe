package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkIdle is a job of 8 processes that has nothing to do: the share of one
// core that a node takes, and its memory.
func BenchmarkIdle(b *testing.B) {
	const span = 10 * time.Second
	t, pids := jobOf(b, "unix", 8)
	run(b, t, func(ctx context.Context) {
		var cpu, rss float64
		for b.Loop() {
			before := ticks(b, pids)
			select {
			case <-time.After(span):
			case <-ctx.Done():
			}
			cpu = float64(ticks(b, pids)-before) / 100 / span.Seconds() / float64(len(pids)) * 100
			rss = float64(resident(b, pids)) / float64(len(pids)) / (1 << 20)
		}
		b.ReportMetric(cpu, "%core/node")
		b.ReportMetric(rss, "MiB/node")
	})
}

// ticks is the processor time of the processes, in hundredths of a second.
func ticks(b *testing.B, pids []int) (sum int) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Skip("needs /proc")
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))
		for _, i := range []int{12, 13} { // utime and stime, fields 14 and 15, counted from the second
			n, _ := strconv.Atoi(f[i])
			sum += n
		}
	}
	return sum
}

// resident is the memory of the processes, in bytes.
func resident(b *testing.B, pids []int) (sum int) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			b.Skip("needs /proc")
		}
		n, _ := strconv.Atoi(strings.Fields(string(text))[1])
		sum += n * os.Getpagesize()
	}
	return sum
}
