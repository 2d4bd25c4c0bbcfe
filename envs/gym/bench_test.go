package gym

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/leak"
)

// leastShare is the floor: of the rate of a plain loop in Python, the share that a vector has.
const leastShare = 0.6

var floors = flag.Bool("floors", false, "measure the steps of environments for a minute, and print them as a table")

// cost is the time of a step of an environment in nanoseconds.
type cost struct {
	clock float64 // that passes
	cpu   float64 // that processors spend: for a vector those of Python and of this process together
}

// TestFloors prints the cost of the steps of vectors beside that of a plain loop in Python over the same
// environments with the same actions: by the clock, from which the rate of steps follows, and in processor time.
// The floor is for the share by the clock. The test does not fail where the floor is missed: that depends on
// the machine.
//
//	go test ./envs/gym -run TestFloors -v -args -floors
//	go test ./envs/gym -run TestFloors/cartpole.py:make_busy/1 -v -args -floors
//
// Without -floors it measures a little, to see that the table can be made.
func TestFloors(t *testing.T) {
	pythonForTests(t)
	leak.Check(t)
	rows := []struct {
		file string
		num  int
	}{{"cartpole.py:make_env", 1}, {"cartpole.py:make_env", 4}, {"cartpole.py:make_env", 16},
		{"cartpole.py:make_env", 64}, {"cartpole.py:make_env", 256},
		{"cartpole.py:make_busy", 1}, {"cartpole.py:make_busy", 4}, {"cartpole.py:make_busy", 16}, {"cartpole.py:make_busy", 64},
		{"dict.py:make_env", 64}, {"large.py:make_env", 8}, {"large.py:make_bytes", 8}}
	if !*floors {
		rows = rows[:1]
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "environments of one process\tplain loop, ns/step\tvector, ns/step\tshare by the clock\tquartiles\t"+
		"of the fastest batches\tprocessor time\tshare\tquartiles\t")
	for _, row := range rows {
		t.Run(fmt.Sprint(row.file, "/", row.num), func(t *testing.T) {
			plain, vector := measure(t, row.file, row.num)
			n := len(plain)
			column := func(of func(k int) float64) []float64 {
				sorted := make([]float64, n)
				for k := range sorted {
					sorted[k] = of(k)
				}
				slices.Sort(sorted)
				return sorted
			}
			clock := column(func(k int) float64 { return plain[k].clock / vector[k].clock })
			cpu := column(func(k int) float64 { return plain[k].cpu / vector[k].cpu })
			if !(clock[0] > 0 && cpu[0] > 0) {
				t.Fatalf("%v ns in a plain loop, %v ns in a vector", plain, vector)
			}
			loop, took := column(func(k int) float64 { return plain[k].clock }), column(func(k int) float64 { return vector[k].clock })
			spent := column(func(k int) float64 { return vector[k].cpu })
			fmt.Fprintf(w, "%d of %s\t%.0f\t%.0f\t%.2f\t%.2f..%.2f\t%.2f\t%.0f\t%.2f\t%.2f..%.2f\t\n", row.num, row.file, loop[n/2], took[n/2],
				clock[n/2], clock[n/4], clock[3*n/4], loop[n/20]/took[n/20], spent[n/2], cpu[n/2], cpu[n/4], cpu[3*n/4])
		})
	}
	_ = w.Flush()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load %s; the floor of the share by the clock is %.2f\n%s", strings.TrimSpace(string(load)), leastShare, out.String())
}

// measure returns the cost of a step in a plain loop and in a vector, for some batches. A batch of the loop and one
// of the vector take turns, so that other work on the machine meets both.
func measure(tb testing.TB, file string, num int) (plain, vector []cost) {
	tb.Helper()
	v, err := Open(tb.Context(), "testdata/"+file, Config{Num: num, Processes: 1, Autoreset: envs.SameStep})
	if err != nil {
		tb.Fatal(err)
	}
	defer v.Close()
	if _, err := v.Reset(1); err != nil {
		tb.Fatal(err)
	}
	batches, span := 1, time.Millisecond
	if *floors {
		batches, span = 60, 20*time.Millisecond
	}
	actions := make([]float32, num)
	run := func(steps int) (c cost, took time.Duration) {
		before, began := spent(tb, v), time.Now()
		for k := range steps {
			for i := range actions {
				actions[i] = float32(k & 1)
			}
			if _, err := v.Step(actions); err != nil {
				tb.Fatal(err)
			}
		}
		took = time.Since(began)
		return cost{float64(took) / float64(steps*num), float64(spent(tb, v)-before) / float64(steps*num)}, took
	}
	n := 1
	for took := time.Duration(0); took < span; _, took = run(n) {
		n *= 2
	}
	batch, end := plainLoop(tb, file, num)
	defer end()
	for range batches {
		plain = append(plain, batch())
		c, _ := run(n)
		vector = append(vector, c)
	}
	return plain, vector
}

// spent is the processor time of this process and of those of v together.
func spent(tb testing.TB, v *Vector) time.Duration {
	tb.Helper()
	sum := cpu(tb, os.Getpid())
	for _, p := range v.procs {
		sum += cpu(tb, p.proc.Pid)
	}
	return sum
}

// cpu is the processor time of all threads of a process.
func cpu(tb testing.TB, pid int) (sum time.Duration) {
	tb.Helper()
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		tb.Skip("processor time is read from /proc")
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + task.Name() + "/schedstat")
		if err != nil {
			continue // a thread that has ended
		}
		ns, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// plainLoop starts a loop of Python over environments. batch runs it for some milliseconds and returns the cost
// of a step.
func plainLoop(tb testing.TB, file string, num int) (batch func() cost, end func()) {
	tb.Helper()
	const program = `
import importlib.util, os, sys, time
path, attr = sys.argv[1].split(":")
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location("environment", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
envs = [getattr(module, attr)() for _ in range(int(sys.argv[2]))]
for k, env in enumerate(envs):
    env.reset(seed=1 + k)
def run(rounds):
    clock, cpu = time.perf_counter(), time.process_time()
    for k in range(rounds):
        action = k & 1
        for env in envs:
            obs, reward, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                obs, info = env.reset()
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    return [1e9 * t / rounds / len(envs) for t in (clock, cpu)]
rounds, took = 1, 0.0
while took < 20e6:
    rounds *= 2
    took = run(rounds)[0] * rounds * len(envs)
for _ in sys.stdin:
    print(*run(rounds), flush=True)
`
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), pythonForTests(tb), "-c", program, "testdata/"+file, strconv.Itoa(num))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	batch = func() (c cost) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			tb.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &c.clock, &c.cpu); err != nil {
			tb.Fatal(err)
		}
		return c
	}
	return batch, func() { _, _ = in.Close(), cmd.Wait() }
}
