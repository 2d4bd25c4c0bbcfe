package gym

import (
	"runtime"
	"time"
)

// Two processes that exchange short messages spend more time on falling asleep and waking up than on
// the messages. So each of them looks at the shared memory for a moment before it sleeps, as long as that
// succeeds. A moment is about the time that sleeping takes, so that it costs at most twice as much where
// it fails.
const (
	pollTime  = 5 * time.Microsecond // this process; Python counts to POLLS
	pollFirst = 16                   // steps before the first attempt, and after one that lasted
	pollRest  = 1024                 // steps before the next attempt, at most
	pollLong  = 64                   // steps of an attempt that lasted
)

// polling decides for a process whether both sides poll. Its zero value begins without.
type polling struct {
	on   bool
	run  int // steps since it is on
	wait int // steps that it stays off
	left int // of them
}

// canPoll reports whether both sides can run at once, and see what the other one has written in the order
// in which it was written: Python has no means to ask for that order where the processor does not keep it.
func canPoll() bool {
	return runtime.GOARCH == "amd64" && runtime.GOMAXPROCS(0) > 1 && runtime.NumCPU() > 1
}

// begin begins a step, and reports whether both sides poll in it.
func (p *polling) begin() bool {
	switch {
	case p.on:
		p.run++
	case p.wait == 0:
		p.wait, p.left = pollFirst, pollFirst
	case p.left > 1:
		p.left--
	default:
		p.on, p.run = true, 0
	}
	return p.on
}

// miss notes that one side has polled in vain. In the first step Python was still asleep.
func (p *polling) miss() {
	if !p.on || p.run == 0 {
		return
	}
	if p.run >= pollLong {
		p.wait = pollFirst
	} else {
		p.wait = min(2*p.wait, pollRest)
	}
	p.on, p.left = false, p.wait
}

// request asks the process for a step of all environments, whose actions are in the memory. An error
// shows in the answer, with its cause.
func (p *process) request(poll bool) {
	m := p.mem
	poll = poll && p.polling.begin()
	var asleep, polls uint32 = 1, 0
	if poll {
		asleep, polls = 0, 1
	}
	m.word(wordPoll).Store(polls)
	m.word(wordReaderAsleep).Store(asleep)
	m.word(wordRequested).Store(m.seq)
	if m.word(wordAsleep).Load() != 0 {
		p.polling.miss()
		_ = p.write(opStep, nil, 0)
	}
}

// answered returns when the process has done the step that was requested. The error is that of receive.
func (p *process) answered(limit time.Duration) error {
	m := p.mem
	if done := m.word(wordAnswered); m.word(wordReaderAsleep).Load() == 0 {
		for began := time.Now(); done.Load() != m.seq; {
			if time.Since(began) > pollTime {
				p.polling.miss()
				m.word(wordReaderAsleep).Store(1)
				break
			}
		}
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
