package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// drainTime is the time that the output of a node is read after its process has
// ended and its group was killed: only what has left the group can still hold
// it open.
const drainTime = time.Second

// proc is one running attempt of a node. It is waited for by wait.
type proc struct {
	cmd     *exec.Cmd
	log     *nodeLog
	watcher *watcher
	pipes   []*os.File // our ends: stdout, stderr, control
	readers sync.WaitGroup

	mu      sync.Mutex
	reaped  bool // the pid may be another's
	spoke   bool // a message has come
	outcome *control.Outcome
}

// spec is all that a process is started from.
type spec struct {
	command []string
	workDir string
	environ []string
	env     control.Env
	socket  *socket // nil: the node does not listen
	watcher *watcher
}

// startProc starts an attempt. onMessage is called for every message of the
// node but its outcome, from one goroutine that ends before wait returns.
func startProc(s spec, log *nodeLog, onMessage func(control.Message)) (*proc, error) {
	p := &proc{log: log, watcher: s.watcher}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	for _, open := range []func() (ours, its *os.File, err error){os.Pipe, os.Pipe, control.Pair} {
		ours, its, err := open()
		if err != nil {
			p.closePipes()
			return nil, err
		}
		p.pipes, theirs = append(p.pipes, ours), append(theirs, its)
	}
	s.env.ControlFD = 3
	p.cmd = exec.Command(s.command[0], s.command[1:]...) //nolint:noctx // it ends by the rules, not by a context
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = s.workDir, theirs[0], theirs[1]
	p.cmd.ExtraFiles = []*os.File{theirs[2]}
	if s.socket != nil {
		s.env.ListenFD = 4
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, s.socket.file)
	}
	p.cmd.Env = slices.Concat(control.Strip(s.environ), s.env.Encode())
	p.cmd.SysProcAttr = sysProcAttr()
	p.watcher.send(watchBegin, s.env.Incarnation)
	if err := p.cmd.Start(); err != nil {
		p.closePipes()
		return nil, err
	}
	p.watcher.send(watchStart, p.cmd.Process.Pid)
	p.readers.Go(func() { log.copy("stdout", p.pipes[0]) })
	p.readers.Go(func() { log.copy("stderr", p.pipes[1]) })
	p.readers.Go(func() { p.receive(onMessage) })
	return p, nil
}

// receive reads the node's messages until its end of the socket is closed, and then confirms that all
// was read.
func (p *proc) receive(onMessage func(control.Message)) {
	r := control.NewReader(p.pipes[2])
	for {
		m, err := r.Next()
		if err == nil {
			p.mu.Lock()
			p.spoke = true
			p.mu.Unlock()
		}
		switch {
		case errors.Is(err, control.ErrMalformed):
		case err != nil:
			p.write(control.Message{Type: control.TypeBye}, patience)
			return
		case m.Type == control.TypeOutcome:
			p.mu.Lock()
			p.outcome = m.Outcome
			p.mu.Unlock()
		default:
			onMessage(m)
		}
	}
}

// How long a message to a node may wait for room in its control socket: patience
// where nothing else waits for it, promptly in the rules' loop. The room is short only
// in a node that has not read for long.
const (
	patience = time.Second
	promptly = 100 * time.Millisecond
)

// write sends a message to the node, and ignores errors.
func (p *proc) write(m control.Message, wait time.Duration) {
	line, err := m.Append(nil)
	if err == nil && p.pipes[2].SetWriteDeadline(time.Now().Add(wait)) == nil {
		_, _ = p.pipes[2].Write(line) // the node may have ended
	}
}

// signal sends a signal to the node, and wakes it if it was stopped.
func (p *proc) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = p.cmd.Process.Signal(sig) // it may have ended just now
		wake(p.cmd.Process)
	}
}

// kill kills the process group of the node.
func (p *proc) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.cmd.Process)
	}
}

// wait returns when the process has ended, nothing is left of its group, and
// all that it wrote was read.
func (p *proc) wait() exit {
	waitErr := reap(p.cmd, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		killGroup(p.cmd.Process)
		p.watcher.send(watchEnd, p.cmd.Process.Pid) // before the number can be another's
		p.reaped = true
	})
	close(p.log.ended)
	awaitGroup(p.cmd.Process)
	late := time.AfterFunc(drainTime, p.closePipes)
	p.readers.Wait()
	if late.Stop() {
		p.closePipes()
	}
	e := exit{outcome: p.outcome, spoke: p.spoke, lines: p.log.lines(), role: p.log.Role()}
	p.log.close()
	state := p.cmd.ProcessState
	if state == nil {
		e.code, e.err = 1, fmt.Errorf("wait: %w", waitErr)
		return e
	}
	e.code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.signal, e.code = ws.Signal(), 128+int(ws.Signal())
	}
	return e
}

func (p *proc) closePipes() {
	for _, f := range p.pipes {
		_ = f.Close()
	}
}
