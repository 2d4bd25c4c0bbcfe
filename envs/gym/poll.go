package gym

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Two processes that exchange short messages spend more time on falling asleep and waking up, some tens of
// microseconds on a virtual machine, than on the messages. So each of them can look at the shared memory for a while
// before it sleeps: this process about as long as a step takes, and Python about as long as the trainer takes
// between two steps. Whether that is faster depends on the environments, on the trainer and on what else runs on
// the machine. So a vector measures both from time to time, in blocks of steps that alternate, and keeps to what
// is faster.
const (
	pollMost   = 250 * time.Microsecond // a side whose wait is usually longer sleeps at once
	pollExtra  = 5 * time.Microsecond   // beyond what is usual
	pollBlock  = 32                     // steps of a block that count
	pollWarm   = 4                      // steps before them: the first wakes Python up
	pollBlocks = 6                      // blocks of a comparison: half of them poll
	pollRest   = 1 << 10                // steps until the next comparison, after one with another result
	pollLong   = 1 << 14                // steps until the next comparison, at most
	pollGain   = 0.9                    // of the time of a step without polling: more is not clearly faster
)

// polling decides for a vector whether it polls, and for how long. Its zero value never polls.
type polling struct {
	usable bool
	on     bool // the sides poll in this step
	faster bool // the result of the last comparison
	block  int  // of a comparison; pollBlocks: none is in progress
	left   int  // steps of the block, or until the next comparison
	rest   int  // how many of the latter there were last

	step, pause usual // how long a step takes while this process polls, and the trainer between two steps
	limit       time.Duration
	began       time.Time // when the last step was requested
	ended       time.Time // when it was done
	times       [2][pollBlocks / 2 * pollBlock]time.Duration
	taken       [2]int
	steps       [2]time.Duration // the sums of these times without those of the trainer
	mean        time.Duration    // of a step without polling, in the last comparison
	held        time.Duration    // of the newest steps while it polls after a comparison
	holds       int              // how many of those
	most        time.Duration    // that a step takes, if polling is not in the way
	seen, slow  int              // newest steps, and those of them that took longer
}

// usual is a duration that about two of three do not exceed. A long one now and then, as the update of a policy between
// two steps, moves it as little as any other one, and so do the pauses of a machine that is busy: a side that polls in
// vain polls for little more than it would have to.
type usual time.Duration

func (u *usual) add(d time.Duration) {
	d = min(d, 4*pollMost)
	switch {
	case *u == 0:
		*u = usual(d)
	case d > time.Duration(*u):
		*u += *u/4 + 1
	default:
		*u -= *u / 10
	}
}

// limit is how long it is worth to wait without sleeping: 0 for not at all.
func (u usual) limit() time.Duration {
	d := time.Duration(u)
	if d > pollMost {
		return 0
	}
	if d == 0 {
		d = pollMost // until something is known
	}
	return d + d/2 + pollExtra
}

// canPoll reports whether both sides can run at once, and see what the other one has written in the order
// in which it was written: Python has no means to ask for that order where the processor does not keep it.
func canPoll() bool {
	return runtime.GOARCH == "amd64" && runtime.GOMAXPROCS(0) > 1 && runtime.NumCPU() > 1
}

// newPolling begins a comparison with the first step.
func newPolling() polling { return polling{usable: canPoll(), left: pollBlock + pollWarm} }

// begin begins a step and returns for how many microseconds Python is to poll after it.
func (p *polling) begin(now time.Time) (python uint32) {
	if !p.usable {
		return 0
	}
	if !p.began.IsZero() {
		p.pause.add(now.Sub(p.ended))
		p.count(now.Sub(p.began), p.ended.Sub(p.began))
	}
	p.began, p.limit = now, 0
	if !p.on {
		return 0
	}
	p.limit = p.step.limit()
	return uint32((p.pause.limit() + time.Microsecond - 1) / time.Microsecond)
}

// end ends a step that has succeeded.
func (p *polling) end(now time.Time) {
	p.ended = now
	if p.on {
		p.step.add(p.ended.Sub(p.began))
	}
}

// count counts a step that has taken d with the trainer's time after it, and step without that, and decides about
// the next one.
func (p *polling) count(d, step time.Duration) {
	compares := p.block < pollBlocks
	if side := p.block & 1; compares && p.left <= pollBlock {
		p.times[side][p.taken[side]] = d
		p.taken[side]++
		p.steps[side] += step
	}
	if p.on && p.long(d) {
		if compares {
			p.decide(false)
			return
		}
		p.left = 1
	}
	if p.on && !compares && p.slower(step) {
		p.left = 1
	}
	if p.left--; p.left > 0 {
		return
	}
	switch {
	case !compares:
		p.block, p.taken, p.steps = 0, [2]int{}, [2]time.Duration{}
	case p.block == pollBlocks-1:
		p.mean = p.steps[0] / time.Duration(p.taken[0])
		mean := float64(p.steps[1]) / float64(p.taken[1])
		p.decide(float64(p.middle(1)) < pollGain*float64(p.middle(0)) && mean < pollGain*float64(p.mean))
		return
	default:
		p.block++
	}
	if p.on, p.left = p.block&1 == 1, pollBlock+pollWarm; p.on {
		p.most, p.seen, p.slow = 2*p.middle(0), 0, 0
	}
}

// long counts a step that has taken d while both sides poll, and reports whether many of the newest ones took
// twice as long as those without polling: other programs need the processors.
func (p *polling) long(d time.Duration) bool {
	if d > p.most {
		p.slow++
	}
	if p.slow > pollBlock/4 {
		return true
	}
	if p.seen++; p.seen == pollBlock {
		p.seen, p.slow = 0, 0
	}
	return false
}

// slower counts a step while both sides poll after a comparison, and reports whether the newest ones took longer than
// those without polling, in the mean: a side that polls may keep the processor from the one that it waits for, in
// few steps but for long.
func (p *polling) slower(step time.Duration) bool {
	p.held += step
	if p.holds++; p.holds < 4*pollBlock {
		return false
	}
	slower := p.held > p.mean*4*pollBlock
	p.held, p.holds = 0, 0
	return slower
}

// middle is the time in the middle of those of one side of a comparison. A pause of the trainer, or of the
// machine, is in few of them, and does not change it.
func (p *polling) middle(side int) time.Duration {
	times := p.times[side][:p.taken[side]]
	slices.Sort(times)
	return times[len(times)/2]
}

// decide ends a comparison.
func (p *polling) decide(faster bool) {
	if p.rest = min(2*p.rest, pollLong); p.rest == 0 || faster != p.faster {
		p.rest = pollRest
	}
	p.faster, p.on, p.block, p.left = faster, faster, pollBlocks, p.rest
	p.seen, p.slow, p.held, p.holds = 0, 0, 0, 0
}

// request asks the process for a step of all environments, whose actions are in the memory, and to poll
// for so many microseconds after it. An error shows in the answer, with its cause.
func (p *process) request(reader time.Duration, python uint32) {
	m := p.mem
	var asleep uint32
	if reader == 0 {
		asleep = 1
	}
	m.word(wordPoll).Store(python)
	m.word(wordReaderAsleep).Store(asleep)
	m.word(wordRequested).Store(m.seq)
	if m.word(wordAsleep).Load() != 0 {
		_ = p.write(opStep, nil, 0)
	}
}

// pollLooks is how many times this process looks at the memory between two looks at the clock. Goroutines that
// wait for a processor get this one after pollYield: earlier would cost more than it gives, since the runtime
// wakes a thread for it.
const (
	pollLooks = 16
	pollYield = 50 * time.Microsecond
)

// answered returns when the process has done the step that was requested: it polls until the given
// time, if request was told that, and sleeps then. The error is that of receive.
func (p *process) answered(until time.Time, limit time.Duration) error {
	m := p.mem
	if done := m.word(wordAnswered); m.word(wordReaderAsleep).Load() == 0 {
		if m.poll(done, until) {
			return nil
		}
		m.word(wordReaderAsleep).Store(1)
		if done.Load() == m.seq {
			return nil
		}
	}
	if err := p.arm(limit); err != nil {
		return err
	}
	for {
		payload, status, err := p.read()
		if err == nil && status == statusWake {
			if m.word(wordAnswered).Load() == m.seq {
				return nil
			}
			continue // of a step before, which was seen to be done without it
		}
		_, err = p.result(payload, status, err)
		return err
	}
}

// poll looks at the number of the step that is done until it is that of the last request, or until the
// given time, and reports which of them ended it.
func (m *memory) poll(done *atomic.Uint32, until time.Time) bool {
	yielded := time.Now()
	for look := 1; done.Load() != m.seq; look++ {
		pause()
		if look%pollLooks != 0 {
			continue
		}
		switch now := time.Now(); {
		case now.After(until):
			return false
		case now.Sub(yielded) > pollYield:
			runtime.Gosched()
			yielded = now
		}
	}
	return true
}

// arm sets the deadline of an answer. One that is at most a sixteenth later serves too, and need not be set
// again for each of many steps.
func (p *process) arm(limit time.Duration) error {
	now, slack := time.Now(), limit/16
	if p.limit == limit && now.Sub(p.armed) < slack {
		if p.gone() {
			return errGone
		}
		return nil
	}
	if err := p.answer.SetReadDeadline(now.Add(limit + slack)); err != nil {
		return errGone
	}
	p.limit, p.armed = limit, now
	if p.gone() { // it may have reset the deadline that its end has set
		return errGone
	}
	return nil
}
