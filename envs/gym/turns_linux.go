package gym

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// takeTurn requests a step as requestStep does. If its answer comes soon, it waits for it, in the manner of the step.
func (p *process) takeTurn() {
	t := &p.turns
	switch how := t.next(); {
	case (how == roaming || how == fixed) && p.shareProcessor(how):
		return
	case how == spinning && p.avoidProcessor():
		p.mem.word(wordCPU).Store(0)
		p.requestStep(true)
		return
	}
	cpu := uint32(0)
	if t.cpu != 0 {
		t.cpu, cpu = 0, everyCPU
	}
	p.mem.word(wordCPU).Store(cpu)
	p.requestStep(false)
}

// shareProcessor requests a step and waits for its answer on the processor of Python. It does nothing, and reports that,
// where it is not possible.
func (p *process) shareProcessor(how manner) bool {
	runtime.LockOSThread() // no thread is started from this one, which would inherit its processor
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	p.turns.off = true
	here, ok := processor()
	if !ok || unix.SchedGetaffinity(0, &all) != nil {
		return false
	}
	if one.Set(here); unix.SchedSetaffinity(0, &one) != nil {
		return false
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	if !p.keepOn(here+1, &one) {
		return false
	}
	p.turns.off = false
	cpu := uint32(0)
	if how == roaming {
		cpu = uint32(here) + 1
	}
	p.mem.word(wordCPU).Store(cpu)
	p.requestStep(false)
	p.wait(turnsWait)
	return true
}

// avoidProcessor keeps Python from the processor of this thread, to which the kernel might move it when it wakes it.
func (p *process) avoidProcessor() bool {
	var others unix.CPUSet
	here, ok := processor()
	if ok && p.turns.cpu == -1-here {
		return true
	}
	if !ok || unix.SchedGetaffinity(0, &others) != nil {
		p.turns.spins = false
		return false
	}
	others.Clear(here)
	p.turns.spins = p.keepOn(-1-here, &others)
	return p.turns.spins
}

// processor is the number of that on which this thread runs.
func processor() (int, bool) {
	var n uint32
	_, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0)
	return int(n), e == 0
}

// keepOn keeps Python on some processors, which are those of a value of turns.cpu.
func (p *process) keepOn(cpu int, set *unix.CPUSet) bool {
	if p.turns.cpu == cpu {
		return true
	}
	p.turns.cpu = cpu
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped || unix.SchedSetaffinity(p.proc.Pid, set) == nil
}

// canSpin reports whether there is a processor for each side while both look for what the other one writes.
func canSpin() bool {
	var all unix.CPUSet
	return inOrder && runtime.GOMAXPROCS(0) > 1 && unix.SchedGetaffinity(0, &all) == nil && all.Count() > 1
}
