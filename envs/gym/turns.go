package gym

import (
	"math"
	"time"
)

// A vector with one process never has both sides at work: this process waits while Python steps, and Python waits for the
// next step. Where each waits on a processor of its own, every step wakes a processor twice, which takes some tens of
// microseconds on a virtual machine, longer than the step of many environments. There are two ways around it:
//
//   - Where both wait on the same processor, the side that falls asleep leaves it to the other, which takes five. The kernel prefers
//     a processor that is idle, so the two keep each other on one: this thread while it waits, and Python while it waits or, in short
//     steps, all the time.
//   - Where neither sleeps, and each looks for what the other one writes (see spin.go), it takes some two. It needs two processors
//     with nothing else to do, and steps that follow each other soon.
//
// Both are tried now and then, and the one that is faster is taken.
const (
	turnsAfter   = 100                    // steps: in the first ones, libraries start their threads, which inherit the processors
	turnsShort   = 100 * time.Microsecond // Python stays where it is in a step that is usually shorter
	turnsLongest = time.Millisecond       // of a step that is usually longer, waking a processor is a small part
	turnsWait    = 2 * time.Millisecond   // for an answer on the processor of Python; then as for every other answer
	turnsTried   = 64                     // short steps in each of the two ways, which decide on turnsEvery steps
	turnsEvery   = 5000
	turnsSeldom  = 16  // spinning ends before, if more than one of so many steps takes longer than spinLongest,
	turnsMissed  = 128 // as far as turns.missed has counted
)

// turns is how a process takes turns with this one.
type turns struct {
	off    bool // neither side can be kept on a processor here
	spins  bool // both sides can look for what the other one writes
	steps  int
	step   usual // how long a step takes
	cpu    int   // 1 + the processor of both; -1 - that of this process, which Python avoids; 0: each has all
	now    manner
	short  int                         // short steps since both ways were tried
	took   [spinning + 1]time.Duration // of the steps in which each was tried
	missed int                         // turnsSeldom for each step with spinning that took long, less 1 for each other one
}

// manner is where Python runs in a step.
type manner int

const (
	apart    manner = iota // wherever the kernel wants
	roaming                // on any processor in a step, and on that of this process between two
	fixed                  // on that of this process
	spinning               // on another one than this process, and each side looks for what the other one writes
)

// everyCPU in the word of a processor lets Python run on all.
const everyCPU = math.MaxUint32

// next chooses the manner of the next step.
func (t *turns) next() manner {
	switch d := time.Duration(t.step); {
	case t.steps < turnsAfter, d > turnsLongest:
		t.now = apart
	case d > turnsShort:
		t.now = roaming
	default:
		t.now = t.ofShort()
		t.short++
	}
	if t.off && (t.now == roaming || t.now == fixed) {
		t.now = apart
	}
	return t.now
}

// ofShort is the manner of a short step.
func (t *turns) ofShort() manner {
	if t.short == turnsEvery {
		t.short = 0
	}
	switch {
	case !t.spins:
		return fixed
	case t.short == 0:
		t.took, t.missed = [spinning + 1]time.Duration{}, 0
		return spinning
	case t.missed > turnsMissed:
		return fixed
	case t.short < turnsTried:
		return spinning
	case t.short < 2*turnsTried, t.took[fixed] < t.took[spinning]:
		return fixed
	default:
		return spinning
	}
}

// add counts a step that has taken d.
func (t *turns) add(d time.Duration) {
	t.steps++
	t.step.add(d)
	if t.short <= 2*turnsTried {
		t.took[t.now] += min(d, turnsShort) // a long one, now and then, does not decide
	}
	switch {
	case t.now != spinning:
	case d > spinLongest:
		t.missed += turnsSeldom
	default:
		t.missed = max(0, t.missed-1)
	}
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
