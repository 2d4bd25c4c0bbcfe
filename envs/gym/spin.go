package gym

import (
	"runtime"
	"time"
)

// Where the environments of a vector with one process take some microseconds, a step that wakes two threads takes several times as
// long. With a processor for each, they need not sleep: each side looks for some time for what the other one writes to the memory, and
// only then waits for a message in a pipe.
//
//   - This process writes wordSeq. It sends a message only if it sees wordAsleep, for which it looks until there is an answer.
//   - Python reads wordWaiting, writes wordTold and wordAnswered, and sends a message only if wordTold is 1. This process sets
//     wordWaiting before it waits for a message, and looks for an answer without one now and then.
//
// So every message has one request or answer, and the other side reads it. If the sides miss each other, because one begins to wait while
// the other one writes, they lose some time and nothing else. Python has no atomic operations, and needs none where the stores
// of a processor are seen in their order, as on amd64.
const (
	spinPython  = 2000                   // looks of Python, which take 50 to 100 µs
	spinLongest = 100 * time.Microsecond // for which this process looks, if Python does,
	spinWoken   = time.Millisecond       // and if it has to be woken; otherwise each would find the other one asleep, step after step
	spinLooks   = 16                     // between two looks at the clock
	spinPauses  = 16                     // between two looks
	spinMissed  = time.Millisecond       // the first wait for a message, after which the memory is looked at
)

// spin is how a process waits for the answer to a step without a message.
type spin struct {
	on      bool // both sides look for what the other one writes
	pending bool // the answer to the newest request, or the request itself, may be in the memory only
	sent    bool // the newest request is a message, too
}

// requestStep asks the process for a step of all environments, whose actions are in the memory. An error shows in the
// answer, with its cause. If spinning is set, both sides look for what the other one writes.
func (p *process) requestStep(spinning bool) {
	before := p.spin.on
	p.spin = spin{on: spinning, pending: spinning || before}
	spins, waiting := uint32(0), p.mem.seq
	if spinning {
		spins, waiting = spinPython, 0
	}
	p.mem.word(wordSpins).Store(spins)
	p.mem.word(wordWaiting).Store(waiting)
	p.mem.word(wordSeq).Store(p.mem.seq)
	if !before {
		p.sendStep()
	} else {
		p.wake()
	}
}

func (p *process) sendStep() {
	p.spin.sent = true
	_ = p.write(opStep, nil, 0)
}

// wake sends the newest request to a Python that waits for a message, unless it has answered it and waits for the next one.
func (p *process) wake() {
	if !p.spin.sent && p.mem.word(wordAsleep).Load() != 0 && p.mem.word(wordAnswered).Load() != p.mem.seq {
		p.sendStep()
	}
}

// answeredInMemory reports whether the memory has the answer to the newest request, and no message has.
func (p *process) answeredInMemory() bool {
	return p.mem.word(wordAnswered).Load() == p.mem.seq && p.mem.word(wordTold).Load() == 0
}

// awaitStep waits for the answer to a step, and reports whether it is in the memory. If not, a message is there, the process
// has ended, or the time is over.
func (p *process) awaitStep(until time.Time) bool {
	limit := spinLongest
	for began := time.Now(); p.spin.on && time.Since(began) < limit; {
		for range spinLooks {
			if p.answeredInMemory() {
				return true
			}
			pause(spinPauses)
		}
		if p.wake(); p.spin.sent {
			limit = spinWoken
		}
		runtime.Gosched()
	}
	p.mem.word(wordWaiting).Store(p.mem.seq)
	for slice := spinMissed; !p.ready; slice = min(2*slice, waitMost) {
		if p.answeredInMemory() {
			return true
		}
		p.wake()
		left := time.Until(until)
		p.wait(min(left, slice))
		if left <= 0 || p.gone() {
			return p.answeredInMemory()
		}
	}
	return false
}
