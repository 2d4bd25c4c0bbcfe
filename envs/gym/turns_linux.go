package gym

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// takeTurn requests a step as requestStep does. If its answer comes soon, it waits for it, in the manner of the step.
func (p *process) takeTurn() {
	t := &p.turns
	if how := t.manner(); how != apart && p.shareProcessor(how) {
		return
	}
	if t.cpu != 0 {
		t.cpu = 0
		p.mem.word(wordCPU).Store(everyCPU)
	}
	p.requestStep()
}

// shareProcessor requests a step and waits for its answer on the processor of Python. It does nothing, and reports that,
// where it is not possible.
func (p *process) shareProcessor(how manner) bool {
	runtime.LockOSThread() // no thread is started from this one, which would inherit its processor
	defer runtime.UnlockOSThread()
	var here uint32
	var all, one unix.CPUSet
	p.turns.off = true
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&here)), 0, 0); e != 0 || unix.SchedGetaffinity(0, &all) != nil {
		return false
	}
	if one.Set(int(here)); unix.SchedSetaffinity(0, &one) != nil {
		return false
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	if !p.keepOn(int(here), &one) {
		return false
	}
	p.turns.off = false
	cpu := uint32(0)
	if how == roaming {
		cpu = here + 1
	}
	p.mem.word(wordCPU).Store(cpu)
	p.requestStep()
	p.wait(turnsWait)
	return true
}

// keepOn keeps Python on a processor.
func (p *process) keepOn(cpu int, one *unix.CPUSet) bool {
	if p.turns.cpu == cpu+1 {
		return true
	}
	p.turns.cpu = cpu + 1
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped || unix.SchedSetaffinity(p.proc.Pid, one) == nil
}
