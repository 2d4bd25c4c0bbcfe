//go:build linux

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

var soakTime = flag.Duration("soak.time", 0, "how long the soak lasts; 0: some seconds")

// The environment variables by which the soak configures its processes.
const (
	varSoak  = "CHAOS_SOAK"  // set for processes of the soak
	varGauge = "CHAOS_GAUGE" // the interval of the records of their resources
)

// gauge is the resources of a process. The process reports those that only it knows; the rest is
// read from /proc.
type gauge struct {
	Who        string // launcher, or node and its id
	Goroutines uint64
	Live       uint64 // bytes of live objects, at the end of the last collection
	Heard      uint64 // messages

	pid, files, threads int
	resident, peak      uint64 // bytes
}

// heardHere counts the messages that this process has received.
var heardHere atomic.Uint64

// tellGauges writes the resources of this process to its own file, at the interval that the
// laboratory sets, until the process ends.
func tellGauges(who string) {
	every, err := time.ParseDuration(os.Getenv(varGauge))
	if err != nil {
		return // nothing is measured
	}
	path := filepath.Join(os.Getenv(varDir), fmt.Sprint(os.Getpid(), ".gauge"))
	samples := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/gc/heap/live:bytes"}}
	go func() {
		for ; ; <-time.After(every) {
			metrics.Read(samples)
			b, err := json.Marshal(gauge{Who: who, Goroutines: samples[0].Value.Uint64(), Live: samples[1].Value.Uint64(), Heard: heardHere.Load()})
			if err == nil && os.WriteFile(path+"~", b, 0o600) == nil {
				_ = os.Rename(path+"~", path)
			}
		}
	}()
}

// Parcel is the event that nodes of the soak send each other.
type Parcel struct {
	Number uint64
	Data   []float32
}

var (
	parcel  = task.NewEvent[Parcel]("parcel")
	weights = task.NewEvent[Parcel]("weights", task.Latest())
	frames  = task.NewEvent[Parcel]("frames", task.DropOldest(64))
)

// soak is the job: every node sends all others small messages at some thousands a
// second, and large ones now and then. It checks the order of what it receives.
func soak(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	last := map[int]uint64{}
	parcel.On(t, func(ctx context.Context, p Parcel) error {
		heardHere.Add(1)
		from := task.Sender(ctx)
		if p.Number != last[from]+1 {
			return fmt.Errorf("node.%d sent number %d after number %d", from, p.Number, last[from])
		}
		last[from] = p.Number
		return nil
	}, task.Borrowed())
	for _, e := range []*task.Event[Parcel]{weights, frames} {
		e.On(t, func(context.Context, Parcel) error { heardHere.Add(1); return nil }, task.Borrowed())
	}
	small, large := make([]float32, 16), make([]float32, 64<<10)
	stop := filepath.Join(os.Getenv(varDir), "stop")
	number := uint64(0)
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		for range 50 {
			number++
			if err := parcel.Emit(ctx, t, Parcel{number, small}, task.OnlyRemote()); err != nil {
				return err
			}
		}
		err := errors.Join(weights.Emit(ctx, t, Parcel{number, large}), frames.Emit(ctx, t, Parcel{number, small}))
		if t.Steps()%10 == 0 {
			fmt.Println("step", t.Steps())
			if _, gone := os.Stat(stop); gone == nil && node.ID() == 0 {
				t.Finish("there is a file named stop")
			}
		}
		pause(ctx, 50*time.Millisecond)
		return err
	}))
	return t.Run(ctx)
}

// TestSoak runs a launcher with four busy nodes, and measures their
// resources: after the first fifth of the time these must not grow.
func TestSoak(t *testing.T) {
	lasts := *soakTime
	if lasts == 0 {
		lasts = 8 * time.Second
	}
	watch := leak.Check(t)
	dir := t.TempDir()
	every := min(max(lasts/100, 200*time.Millisecond), 10*time.Second)
	j := &launcher{
		args: []string{os.Args[0], "--package", os.Args[0], "--parallel-workers", "4", "--dir", filepath.Join(dir, "run")},
		env:  append(watch.Environ(), varDir+"="+dir, varSoak+"=1", fmt.Sprint(varGauge, "=", every)), dir: dir, out: newReader(t),
	}
	if err := j.start(); err != nil {
		t.Fatal(err)
	}
	series := map[int][]gauge{} // by process
	for began := time.Now(); time.Since(began) < lasts; {
		pause(t.Context(), every)
		for _, g := range gauges(dir) {
			series[g.pid] = append(series[g.pid], g)
		}
		select {
		case <-j.ended:
			t.Fatalf("the job has ended with %d:\n%s", j.code(), j.out.text())
		default:
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-j.ended:
	case <-time.After(time.Minute):
		_ = j.signal(syscall.SIGQUIT)
		t.Errorf("the job did not end within a minute")
		<-j.ended
	}
	if j.code() != 0 {
		t.Errorf("the job ended with %d:\n%s", j.code(), j.out.text())
	}
	if len(series) != 5 {
		t.Errorf("%d processes were seen, want a launcher and 4 nodes", len(series))
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| early and late in %v | messages received | resident, MiB | live heap, KiB | goroutines | open files | threads "+
		"|\n|---|---:|---:|---:|---:|---:|---:|\n", lasts)
	for _, pid := range slices.SortedFunc(maps.Keys(series), func(a,
		b int) int {
		return strings.Compare(series[a][0].Who, series[b][0].Who)
	}) {
		judge(t, &table, series[pid])
	}
	t.Logf("\n%s", table.String())
}

// judge compares the second fifth of the time with the last one.
func judge(t *testing.T, table *strings.Builder, all []gauge) {
	n := len(all)
	if n < 10 {
		t.Errorf("%s was seen %d times", all[0].Who, n)
		return
	}
	early, late := all[n/5:2*n/5], all[4*n/5:]
	fmt.Fprintf(table, "| %s | %d |", all[0].Who, all[n-1].Heard)
	for _, what := range []struct {
		name  string
		of    func(gauge) uint64
		slack uint64
		unit  uint64
	}{
		{"resident, MiB", func(g gauge) uint64 { return g.resident }, 8 << 20, 1 << 20},
		{"live heap, KiB", func(g gauge) uint64 { return g.Live }, 2 << 20, 1 << 10},
		{"goroutines", func(g gauge) uint64 { return g.Goroutines }, 6, 1},
		{"open files", func(g gauge) uint64 { return uint64(g.files) }, 4, 1},
		{"threads", func(g gauge) uint64 { return uint64(g.threads) }, 6, 1},
	} {
		a, b := median(early, what.of), median(late, what.of)
		fmt.Fprintf(table, " %d, %d |", a/what.unit, b/what.unit)
		if b > a+a/10+what.slack {
			t.Errorf("%s: %s grew from %d to %d", all[0].Who, what.name, a/what.unit, b/what.unit)
		}
	}
	fmt.Fprintln(table)
}

func median(all []gauge, of func(gauge) uint64) uint64 {
	var values []uint64
	for _, g := range all {
		values = append(values, of(g))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// gauges reads the present resources of the processes of the soak.
func gauges(dir string) (out []gauge) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.gauge"))
	for _, path := range files {
		var g gauge
		b, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(b, &g) != nil {
			continue
		}
		g.pid, _ = strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".gauge"))
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.pid))
		status, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.pid))
		if errors.Join(err, err2) != nil {
			continue // it has ended
		}
		g.files, g.threads, g.resident = len(open), int(field(status, "Threads:")), field(status, "VmRSS:")<<10
		g.peak = field(status, "VmHWM:") << 10
		out = append(out, g)
	}
	return out
}

// field returns a number in a file such as /proc/self/status.
func field(status []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	words := bytes.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(words[0]), 10, 64)
	return n
}
