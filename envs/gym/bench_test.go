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

// TestFloors prints the rates of vectors beside those of a plain loop in Python over the same
// environments with the same actions, both in processor time: for a vector that of Python and of this
// process together. It does not fail where the floor is missed: that depends on the machine.
//
//	go test ./envs/gym -run TestFloors -v -args -floors
//
// Without -floors it measures a little, to see that the table can be made.
func TestFloors(t *testing.T) {
	pythonForTests(t)
	leak.Check(t)
	rows := []struct {
		file string
		num  int
	}{{"cartpole.py:make_env", 1}, {"cartpole.py:make_env", 16}, {"cartpole.py:make_env", 64}, {"cartpole.py:make_env", 256},
		{"cartpole.py:make_busy", 1}, {"cartpole.py:make_busy", 4}, {"cartpole.py:make_busy", 16}, {"cartpole.py:make_busy", 64},
		{"dict.py:make_env", 64}, {"large.py:make_env", 8}, {"large.py:make_bytes", 8}}
	if !*floors {
		rows = rows[:1]
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "environments of one process\tplain loop, ns/step\tvector\tof them Python\tshare\tquartiles\tfloor\t")
	for _, row := range rows {
		plain, all, python := measure(t, row.file, row.num)
		shares := make([]float64, len(all))
		for k := range all {
			shares[k] = plain[k] / all[k]
		}
		for _, batches := range [][]float64{plain, all, python, shares} {
			slices.Sort(batches)
		}
		if !(plain[0] > 0 && all[0] > 0) {
			t.Fatalf("%s: %v ns in a plain loop, %v ns in a vector", row.file, plain, all)
		}
		n := len(all)
		fmt.Fprintf(w, "%d of %s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f..%.2f\t%.2f\t\n",
			row.num, row.file, plain[n/2], all[n/2], python[n/2], shares[n/2], shares[n/4], shares[3*n/4], leastShare)
	}
	_ = w.Flush()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load %s\n%s", strings.TrimSpace(string(load)), out.String())
}

// measure returns the processor time of a step of an environment in nanoseconds, in a plain loop, in a vector, and
// in the Python of the vector, for some batches. A batch of the loop and one of the vector take turns, so that
// other work on the machine meets both.
func measure(tb testing.TB, file string, num int) (plain, all, python []float64) {
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
		batches, span = 40, 4*time.Millisecond
	}
	actions := make([]float32, num)
	run := func(steps int) (all, python time.Duration) {
		all, python = both(tb, v)
		for k := range steps {
			for i := range actions {
				actions[i] = float32(k & 1)
			}
			if _, err := v.Step(actions); err != nil {
				tb.Fatal(err)
			}
		}
		a, p := both(tb, v)
		return a - all, p - python
	}
	n := 1
	for took := time.Duration(0); took < span; took, _ = run(n) {
		n *= 2
	}
	batch, end := plainLoop(tb, file, num)
	defer end()
	for range batches {
		plain = append(plain, batch())
		a, p := run(n)
		all, python = append(all, float64(a)/float64(n*num)), append(python, float64(p)/float64(n*num))
	}
	return plain, all, python
}

// both is the processor time of this process and of those of v together, and that of v alone.
func both(tb testing.TB, v *Vector) (all, python time.Duration) {
	tb.Helper()
	for _, p := range v.procs {
		python += cpu(tb, p.proc.Pid)
	}
	return cpu(tb, os.Getpid()) + python, python
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

// plainLoop starts a loop of Python over environments. batch runs it for some milliseconds and returns the
// processor time of a step in nanoseconds.
func plainLoop(tb testing.TB, file string, num int) (batch func() float64, end func()) {
	tb.Helper()
	const program = `
import importlib.util, sys, time
path, attr = sys.argv[1].split(":")
spec = importlib.util.spec_from_file_location("environment", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
envs = [getattr(module, attr)() for _ in range(int(sys.argv[2]))]
for k, env in enumerate(envs):
    env.reset(seed=1 + k)
def run(rounds):
    began = time.process_time()
    for k in range(rounds):
        action = k & 1
        for env in envs:
            obs, reward, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                obs, info = env.reset()
    return (time.process_time() - began) / rounds / len(envs)
rounds, took = 1, 0.0
while took < 0.004:
    rounds *= 2
    took = run(rounds) * rounds * len(envs)
for _ in sys.stdin:
    print(run(rounds) * 1e9, flush=True)
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
	batch = func() (ns float64) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			tb.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &ns); err != nil {
			tb.Fatal(err)
		}
		return ns
	}
	return batch, func() { _, _ = in.Close(), cmd.Wait() }
}
