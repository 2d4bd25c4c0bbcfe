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

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/task"
)

// brief is a job that ends as soon as all nodes are ready.
func brief(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	t.Use(task.Step(func(context.Context, *struct{}) error { return nil }))
	return t.Run(ctx, task.MaxSteps(1))
}

// BenchmarkJob is a whole job of 4 processes: started, all connected to all and
// ready, finished, ended, nothing left.
func BenchmarkJob(b *testing.B) {
	for b.Loop() {
		dir, err := launch.MakeRunDir("bench")
		if err != nil {
			b.Fatal(err)
		}
		plan, err := placement.New(placement.Flags{Job: "bench", Workers: 4, RunDir: dir}, placement.Site{})
		if err != nil {
			b.Fatal(err)
		}
		l, err := launch.New(launch.Config{Plan: plan, Command: []string{os.Args[0]}, Env: control.Env{Token: "bench", Main: "brief"}, Stdout: os.Stderr, Stderr: os.Stderr})
		if err != nil {
			b.Fatal(err)
		}
		result, err := l.Run(b.Context())
		if err != nil || result.ExitCode() != 0 {
			b.Fatalf("exit code %d, %v", result.ExitCode(), err)
		}
		_ = os.RemoveAll(dir)
	}
}

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
