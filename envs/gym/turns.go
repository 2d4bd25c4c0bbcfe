package gym

import (
	"math"
	"time"
)

// A vector with one process never has both sides at work: this process waits while Python steps, and Python waits for the
// next step. Where each waits on a processor of its own, every step wakes a processor twice, which takes some tens of
// microseconds on a virtual machine, longer than the step of many environments. Where both wait on the same one,
// the side that falls asleep leaves it to the other, which takes five. The kernel prefers a processor that is idle, so
// the two keep each other on one: this thread while it waits, and Python while it waits or, in short steps, all the time.
const (
	turnsAfter   = 100                    // steps: in the first ones, libraries start their threads, which inherit the processors
	turnsShort   = 100 * time.Microsecond // Python stays where it is in a step that is usually shorter
	turnsLongest = time.Millisecond       // of a step that is usually longer, waking a processor is a small part
	turnsWait    = 2 * time.Millisecond   // for an answer on the processor of Python; then as for every other answer
)

// turns is how a process takes turns with this one.
type turns struct {
	off   bool // it is not possible here
	steps int
	step  usual // how long a step takes
	cpu   int   // 1 + the processor of both; 0: each has its own
}

// manner is where Python runs in a step.
type manner int

const (
	apart   manner = iota // wherever the kernel wants
	roaming               // on any processor in a step, and on that of this process between two
	fixed                 // on that of this process
)

// everyCPU in the word of a processor lets Python run on all.
const everyCPU = math.MaxUint32

// manner is that of the next step.
func (t *turns) manner() manner {
	switch d := time.Duration(t.step); {
	case t.off, t.steps < turnsAfter, d > turnsLongest:
		return apart
	case d > turnsShort:
		return roaming
	default:
		return fixed
	}
}

// add counts a step that has taken d.
func (t *turns) add(d time.Duration) {
	t.steps++
	t.step.add(d)
}

// usual is a duration that about two of three do not exceed. A long one now and then moves it as little as any other one.
type usual time.Duration

func (u *usual) add(d time.Duration) {
	switch {
	case *u == 0:
		*u = usual(d)
	case d > time.Duration(*u):
		*u += *u/4 + 1
	default:
		*u -= *u / 10
	}
}
