package gym

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
)

// course is how the times of steps depend on polling, in a simulation.
type course struct {
	without, with time.Duration // from the request of a step to its end
	trainer       time.Duration // between two steps
	update        time.Duration // in the place of trainer after every 64th step; 0: none
	stall         time.Duration // in the place of with in every 20th step that polls; 0: none
}

// simulate runs steps and returns how many of them poll, and how long all take.
func (c course) simulate(p *polling, steps int) (polls int, took time.Duration) {
	began := time.Unix(1, 0)
	now := began
	for k := range steps {
		p.begin(now)
		step := c.without
		if p.on {
			step = c.with
			if polls++; c.stall > 0 && polls%20 == 0 {
				step = c.stall
			}
		}
		now = now.Add(step)
		p.end(now)
		if now = now.Add(c.trainer); c.update > 0 && k%64 == 63 {
			now = now.Add(c.update - c.trainer)
		}
	}
	return polls, now.Sub(began)
}

func TestPollingKeepsWhatIsFaster(t *testing.T) {
	const steps = 100_000
	for name, test := range map[string]struct {
		course
		faster bool
	}{
		"much faster":                        {course{without: 100, with: 25, trainer: 5}, true},
		"clearly faster":                     {course{without: 100, with: 75, trainer: 10}, true},
		"faster, with updates":               {course{without: 100, with: 25, trainer: 5, update: 50_000}, true},
		"as fast":                            {course{without: 100, with: 100, trainer: 5}, false},
		"hardly faster":                      {course{without: 100, with: 97, trainer: 5}, false},
		"faster in most steps only":          {course{without: 100, with: 25, trainer: 5, stall: 4000}, false},
		"slower":                             {course{without: 100, with: 300, trainer: 5}, false},
		"faster, but not beside the trainer": {course{without: 100, with: 25, trainer: 10_000}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := test.course
			for _, d := range []*time.Duration{&c.without, &c.with, &c.trainer, &c.update, &c.stall} {
				*d *= 1000 // microseconds
			}
			p := newPolling()
			p.usable = true
			polls, took := c.simulate(&p, steps)
			if share := float64(polls) / steps; share < 0.9 && test.faster || share > 0.02 && !test.faster {
				t.Errorf("%.3f of the steps poll", share)
			}
			c.with, c.stall = min(c.with, c.without), 0
			if _, best := c.simulate(&polling{on: test.faster}, steps); float64(took) > 1.05*float64(best) {
				t.Errorf("all steps take %v, those of the better kind alone %v", took, best)
			}
		})
	}
}

// TestPollingFollowsTheMachine has other programs begin and end.
func TestPollingFollowsTheMachine(t *testing.T) {
	free := course{without: 100 * time.Microsecond, with: 25 * time.Microsecond, trainer: 5 * time.Microsecond}
	busy := course{without: 200 * time.Microsecond, with: 3 * time.Millisecond, trainer: 5 * time.Microsecond}
	stalls := course{without: 100 * time.Microsecond, with: 25 * time.Microsecond, trainer: 5 * time.Microsecond, stall: 4 * time.Millisecond}
	p := newPolling()
	p.usable = true
	for k, c := range []course{free, busy, free, stalls, free, busy} {
		if k%2 == 0 {
			c.simulate(&p, 2*pollLong)
		}
		if polls, _ := c.simulate(&p, 2*pollRest); (polls > pollRest) != (k%2 == 0) || k%2 == 1 && polls > 12*pollBlock {
			t.Errorf("part %d: %d of %d steps poll", k, polls, 2*pollRest)
		}
	}
}

// TestPollingOfLongWaits does not poll for what takes longer than sleeping and waking up would matter in.
func TestPollingOfLongWaits(t *testing.T) {
	for _, c := range []course{
		{without: 10 * time.Millisecond, with: 10 * time.Millisecond, trainer: 10 * time.Microsecond},
		{without: 50 * time.Microsecond, with: 50 * time.Microsecond, trainer: 10 * time.Millisecond},
	} {
		p := newPolling()
		p.usable = true
		c.simulate(&p, 100)
		if p.on = true; c.trainer > c.with {
			if python := p.begin(p.ended.Add(c.trainer)); python != 0 || p.limit == 0 || p.limit > 2*c.with {
				t.Errorf("trainer takes %v: Python polls for %d µs, this process for %v", c.trainer, python, p.limit)
			}
			continue
		}
		if python := p.begin(p.ended.Add(c.trainer)); python == 0 || python > 40 || p.limit != 0 {
			t.Errorf("steps take %v: Python polls for %d µs, this process for %v", c.with, python, p.limit)
		}
	}
	p := newPolling()
	p.usable = false
	if polls, _ := (course{without: 100, with: 1, trainer: 1}).simulate(&p, 10_000); polls != 0 {
		t.Errorf("%d steps poll where that is not possible", polls)
	}
}

func TestPollingAllocatesNothing(t *testing.T) {
	p := newPolling()
	p.usable = true
	c := course{without: 100, with: 25, trainer: 5}
	if n := testing.AllocsPerRun(10, func() { c.simulate(&p, 5000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// force makes the next step of a process one in which both sides poll.
func force(t *testing.T, v *Vector) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("processes poll on amd64 only")
	}
	v.polling = polling{usable: true, on: true, block: pollBlocks, left: pollLong}
}

// TestPollingChangesNoStep compares steps with and without polling. Those with it succeed and miss as it
// happens on a busy machine.
func TestPollingChangesNoStep(t *testing.T) {
	cfg := Config{Num: 5, Processes: 2, Autoreset: envs.SameStep}
	a, b := open(t, cartPole, cfg), open(t, cartPole, cfg)
	b.polling = polling{}
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
		p.request(0, 0)
		for p.mem.word(wordAnswered).Load() != p.mem.seq {
			runtime.Gosched()
		}
		p.mem.word(wordReaderAsleep).Store(0)
		if err := p.answered(time.Time{}, v.cfg.StepTimeout); err != nil { // without the message that is in the pipe
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
		bytewise, floats := places(3, dim, 1, 0, true, true), places(3, dim, 1, 0, false, true)
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
