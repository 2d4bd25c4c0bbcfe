package gym

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
)

func TestPollingPausesAfterAMiss(t *testing.T) {
	var p polling
	until := func() (steps int) {
		for steps = 1; !p.begin(); steps++ {
			if steps > 2*pollRest {
				t.Fatal("it does not begin again")
			}
		}
		return steps
	}
	if n := until(); n != pollFirst+1 {
		t.Errorf("the first attempt is in step %d, not %d", n, pollFirst+1)
	}
	if p.miss(); !p.begin() {
		t.Error("a miss in the first step of an attempt, in which Python wakes up, ends it")
	}
	for want := 2 * pollFirst; want <= 2*pollRest; want *= 2 {
		if p.miss(); p.on {
			t.Fatal("it goes on after a miss")
		}
		if n := until(); n != min(want, pollRest) {
			t.Errorf("the next attempt is %d steps later, not %d", n, min(want, pollRest))
		}
		p.begin()
	}
	for range pollLong {
		p.begin()
	}
	if p.miss(); p.left != pollFirst {
		t.Errorf("after an attempt that lasted, the pause has %d steps, not %d", p.left, pollFirst)
	}
}

// force makes the next step of a process one in which both sides poll.
func force(t *testing.T, v *Vector) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("processes poll on amd64 only")
	}
	v.polls = true
	for _, p := range v.procs {
		p.polling = polling{on: true, wait: pollFirst}
	}
}

// TestPollingChangesNoStep compares steps with and without polling. Those with it succeed and miss as it
// happens on a busy machine.
func TestPollingChangesNoStep(t *testing.T) {
	cfg := Config{Num: 5, Processes: 2, Autoreset: envs.SameStep}
	a, b := open(t, cartPole, cfg), open(t, cartPole, cfg)
	b.polls = false
	actions := make([]float32, 5)
	rng := random()
	for step := range 300 {
		if step%100 == 0 {
			x, err := a.Reset(uint64(step))
			if err != nil {
				t.Fatal(err)
			}
			if y, err := b.Reset(uint64(step)); err != nil || !slices.Equal(x, y) {
				t.Fatalf("reset: %v, %v, not %v", err, x, y)
			}
		}
		for i := range actions {
			actions[i] = float32(rng.IntN(2))
		}
		force(t, a)
		x, err := a.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Obs, y.Obs) || !slices.Equal(x.Rewards, y.Rewards) || !slices.Equal(x.Terminated, y.Terminated) {
			t.Fatalf("step %d: %+v\nnot\n%+v", step, x, y)
		}
	}
}

// TestMessagesThatCameTooLate leaves a request and an answer in the pipes that nobody needs any more.
func TestMessagesThatCameTooLate(t *testing.T) {
	v := open(t, cartPole, Config{Num: 2, Processes: 1, Autoreset: envs.SameStep})
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	p := v.procs[0]
	for range 3 {
		p.mem.setActions([]float32{0, 1}, 2)
		p.request(false)
		for p.mem.word(wordAnswered).Load() != p.mem.seq {
			runtime.Gosched()
		}
		p.mem.word(wordReaderAsleep).Store(0)
		if err := p.answered(v.cfg.StepTimeout); err != nil { // without the message that is in the pipe
			t.Fatal(err)
		}
		if err := p.write(opStep, nil, 0); err != nil { // a request that is done already
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
		if r, err := v.Step([]float32{0, 1}); err != nil || r.Rewards[0] != 1 || r.Obs[1] >= 0 || r.Obs[5] <= 0 {
			t.Fatalf("%v: %+v", err, r)
		}
	}
}

// TestFaultWhilePolling has faults in steps in which both sides poll.
func TestFaultWhilePolling(t *testing.T) {
	for _, f := range faults {
		if !slices.Contains([]string{"raise", "kill", "torn", "nan", "shape", "terminated", "fork", "raise in reset", "hang"}, f.fault) {
			continue
		}
		t.Run(f.fault, func(t *testing.T) {
			v := open(t, "testdata/faults.py:make_env", Config{
				Num: 4, Processes: 1, Kwargs: map[string]any{"fault": f.fault}, StepTimeout: limitFor(f.fault),
			})
			var err error
			for k := 0; k < 10 && err == nil; k++ {
				if k%5 == 0 {
					_, err = v.Reset()
				}
				if err == nil {
					force(t, v)
					_, err = v.Step(make([]float32, 4))
				}
			}
			var e *envs.Error
			if !errors.As(err, &e) || e.Index != 2 || e.Op != f.op || !strings.Contains(err.Error(), f.text) || f.is != nil && !errors.Is(err, f.is) {
				t.Errorf("%s of environment 2: %v", f.op, err)
			}
		})
	}
}

// TestClosedPipeWhilePolling has an environment close the pipe of answers, which the next message needs.
func TestClosedPipeWhilePolling(t *testing.T) {
	v := open(t, "testdata/faults.py:make_env", Config{Num: 4, Processes: 1, Kwargs: map[string]any{"fault": "close"}})
	var err error
	for k := 0; k < 10 && err == nil; k++ {
		if k%5 == 0 {
			_, err = v.Reset()
		}
		if err == nil {
			force(t, v)
			_, err = v.Step(make([]float32, 4))
		}
	}
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "an environment has closed file descriptor 4") {
		t.Error(err)
	}
}

func TestRowsOfAnySize(t *testing.T) {
	rng := random()
	for dim := 1; dim <= 70; dim++ {
		bytewise, floats := places(3, dim, 1, true, true), places(3, dim, 1, false, true)
		for _, m := range []*memory{bytewise, floats} {
			m.b = make([]byte, m.Size)
			want, got := make([]float32, dim), make([]float32, dim)
			for k := range want {
				if m == bytewise {
					x := byte(rng.IntN(256))
					m.b[m.Obs+m.Row+headBytes+k], want[k] = x, float32(x)
					continue
				}
				want[k] = float32(rng.NormFloat64())
				setFloat(m, 1, k, want[k])
			}
			if m.row(got, m.Obs, 1); !slices.Equal(got, want) {
				t.Errorf("%d values: %v, not %v", dim, got, want)
			}
			if x, k := m.notFinite(m.Obs, 1); k != -1 {
				t.Errorf("%d values: value %d is %v", dim, k, x)
			}
		}
		for k := range dim {
			for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
				setFloat(floats, 1, k, bad)
				if _, at := floats.notFinite(floats.Obs, 1); at != k {
					t.Errorf("%d values: %v is found at %d, not %d", dim, bad, at, k)
				}
			}
			setFloat(floats, 1, k, 1)
		}
	}
}

func setFloat(m *memory, row, k int, x float32) {
	bits := math.Float32bits(x)
	at := m.Obs + row*m.Row + headBytes + 4*k
	m.b[at], m.b[at+1], m.b[at+2], m.b[at+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
}
