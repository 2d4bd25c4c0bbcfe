package gym

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ditask/ditask/envs"
)

// TestProcessorsOfPython looks at the number of processors that Python may use: in a step, in a thread that a step starts,
// in a reset and afterwards.
func TestProcessorsOfPython(t *testing.T) {
	v := open(t, "testdata/processors.py:make_env", Config{Num: 1, Processes: 1})
	pid := v.procs[0].proc.Pid
	all := processors(t, pid)
	if all != runtime.NumCPU() {
		t.Fatalf("Python begins with %d processors of %d", all, runtime.NumCPU())
	}
	spun := 1 // processors in a step of the manner spinning, which is fixed where neither side can spin
	if canSpin() {
		spun = all - 1
	}
	for k, c := range []struct {
		manner
		step  int // of how many processors in the step
		reset bool
	}{
		{apart, all, false}, {fixed, 1, false}, {fixed, all, true}, {fixed, 1, false},
		{roaming, all, false}, {roaming, all, false}, {apart, all, false}, {fixed, 1, false},
		{apart, all, false}, {fixed, 1, false}, {roaming, all, true}, {fixed, 1, false},
		{spinning, spun, false}, {spinning, spun, false}, {fixed, 1, false},
		{roaming, all, false}, {spinning, spun, false}, {apart, all, false},
	} {
		if k == 0 || c.reset {
			obs, err := v.Reset()
			if err != nil {
				t.Fatal(err)
			}
			if got := int(obs[1]); got != all || processors(t, pid) != all {
				t.Errorf("%d: %d processors in a reset, %d after it", k, got, processors(t, pid))
			}
			if c.reset {
				continue
			}
		}
		force(v, c.manner)
		r, err := v.Step([]float32{float32(k & 1)})
		if err != nil {
			t.Fatal(err)
		}
		if got := int(r.Obs[0]); got != c.step {
			t.Errorf("%d: %d processors in a step of manner %d", k, got, c.manner)
		}
		if got := int(r.Obs[2]); k&1 == 1 && got != c.step {
			t.Errorf("%d: %d processors in a thread of a step of manner %d", k, got, c.manner)
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if tid, _ := strconv.Atoi(thread.Name()); processors(t, tid) != all {
			t.Errorf("a thread of this process may use %d processors of %d", processors(t, tid), all)
		}
	}
}

// processors is how many processors a thread may use, or 0 if it has ended.
func processors(t *testing.T, id int) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(id, &set); err != nil && err != unix.ESRCH {
		t.Fatal(err)
	}
	return set.Count()
}

// TestTurnsEndWhereThereAreNone takes steps where a processor cannot be chosen.
func TestTurnsEndWhereThereAreNone(t *testing.T) {
	v := open(t, "testdata/processors.py:make_env", Config{Num: 1, Processes: 1, Autoreset: envs.SameStep})
	if _, err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	p := v.procs[0]
	pid := p.proc.Pid
	all := processors(t, pid)
	for k := range 4 {
		force(v, fixed)
		p.turns.off = k >= 2
		r, err := v.Step([]float32{0})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := int(r.Obs[0]), []int{1, 1, all, all}[k]; got != want {
			t.Errorf("step %d: %d processors, not %d", k, got, want)
		}
	}
}
