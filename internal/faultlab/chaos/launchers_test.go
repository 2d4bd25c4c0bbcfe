//go:build linux

package chaos_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// launcher is one launcher of a round, which may be started several times, one
// after the other.
type launcher struct {
	args, env []string
	dir       string
	out       *reader

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

// start starts the launcher. The one before, if there was one, has ended.
func (l *launcher) start() error {
	l.cmd = exec.Command(l.args[0], l.args[1:]...)
	l.cmd.Env = slices.Clone(l.env)
	if l.ended != nil {
		l.cmd.Env = append(l.cmd.Env, varAgain+"=1")
	}
	l.cmd.Dir, l.cmd.Stdout, l.cmd.Stderr = l.dir, l.out.w, l.out.w
	if err := l.cmd.Start(); err != nil {
		return err
	}
	l.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // ProcessState has it
		close(ended)
	}(l.cmd, l.ended)
	return nil
}

// signal sends the launcher a signal.
func (l *launcher) signal(s syscall.Signal) error {
	if err := l.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// code returns the exit code of a launcher that has ended, -1 after a signal.
func (l *launcher) code() int { return l.cmd.ProcessState.ExitCode() }

// reader reads the output of a launcher, as a terminal or a pager does: it
// can pause, and it can leave. It keeps the end of what it has read. It has one
// goroutine, which ends with close.
type reader struct {
	r, w *os.File
	done chan struct{}

	mu   sync.Mutex
	gate sync.Cond // while paused
	held bool
	kept []byte
}

// keptBytes is how much of the output is kept for a report.
const keptBytes = 300_000

func newReader(t *testing.T) *reader {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &reader{r: r, w: w, done: make(chan struct{})}
	p.gate.L = &p.mu
	go p.run()
	t.Cleanup(p.close)
	return p
}

func (p *reader) run() {
	defer close(p.done)
	buf := make([]byte, 4<<10)
	for {
		p.mu.Lock()
		for p.held {
			p.gate.Wait()
		}
		p.mu.Unlock()
		n, err := p.r.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.kept = append(p.kept, buf[:n]...); len(p.kept) > 2*keptBytes {
			p.kept = append(p.kept[:0], p.kept[len(p.kept)-keptBytes:]...)
		}
		p.mu.Unlock()
	}
}

// hold pauses the reader, or lets it continue.
func (p *reader) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = on
	p.gate.Broadcast()
}

// leave closes the reader: the launcher's next write fails.
func (p *reader) leave() { _ = p.r.Close() }

func (p *reader) close() {
	_ = p.w.Close()
	p.hold(false)
	p.leave()
	<-p.done
}

// text returns the end of the output that was read.
func (p *reader) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.kept[max(0, len(p.kept)-keptBytes):])
}
