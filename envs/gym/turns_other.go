//go:build !linux

package gym

// takeTurn requests a step: only Linux lets a thread choose its processor.
func (p *process) takeTurn() { p.requestStep(false) }

func canSpin() bool { return false }
