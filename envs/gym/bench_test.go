package gym

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	fmt.Fprintln(w, "environments of one process\tplain loop, ns/step\tmedian\tvector\tmedian\tof them Python\tshare\tof medians\tfloor\t")
	for _, row := range rows {
		before := plainLoop(t, row.file, row.num)
		all, python := vectorLoop(t, row.file, row.num)
		plain := append(before, plainLoop(t, row.file, row.num)...)
		for _, batches := range [][]float64{plain, all, python} {
			slices.Sort(batches)
		}
		if !(plain[0] > 0 && all[0] > 0) {
			t.Fatalf("%s: %v ns in a plain loop, %v ns in a vector", row.file, plain, all)
		}
		p, a := plain[len(plain)/2], all[len(all)/2]
		fmt.Fprintf(w, "%d of %s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t\n",
			row.num, row.file, plain[0], p, all[0], a, python[0], plain[0]/all[0], p/a, leastShare)
	}
	_ = w.Flush()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load %s\n%s", strings.TrimSpace(string(load)), out.String())
}

// vectorLoop is the processor time of a step of an environment in a vector, in nanoseconds, and the part
// of it that Python takes, for some batches.
func vectorLoop(tb testing.TB, file string, num int) (all, python []float64) {
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
		batches, span = 25, 5*time.Millisecond
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
	for range batches {
		a, p := run(n)
		all, python = append(all, float64(a)/float64(n*num)), append(python, float64(p)/float64(n*num))
	}
	return all, python
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

// plainLoop is the processor time of a step of an environment in a loop of Python, in nanoseconds, for some
// batches.
func plainLoop(tb testing.TB, file string, num int) []float64 {
	tb.Helper()
	const program = `
import importlib.util, json, sys, time
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
while took < 0.005:
    rounds *= 2
    took = run(rounds) * rounds * len(envs)
print(json.dumps([run(rounds) * 1e9 for _ in range(15)]))
`
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), pythonForTests(tb), "-", "testdata/"+file, strconv.Itoa(num))
	cmd.Stdin, cmd.Stderr = strings.NewReader(program), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	var ns []float64
	if err := json.Unmarshal(bytes.TrimSpace(out), &ns); err != nil {
		tb.Fatal(err)
	}
	return ns
}
