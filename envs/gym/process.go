package gym

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ditask/ditask/envs"
)

//go:embed bridge.py
var bridge []byte

// protocol is the version of the messages.
const protocol = 5

// The operations of a message.
const (
	opHello = 1 + iota
	opMap
	opReset
	opStep
	opRender
)

// The statuses of an answer.
const (
	statusOK = iota
	statusFault
)

// maxMessage bounds a message of a process.
const maxMessage = 64 << 20

// How long the end of a process is waited for.
const (
	closeTime = 3 * time.Second // until its environments are closed
	termTime  = 2 * time.Second // after SIGTERM
	killTime  = 5 * time.Second // after SIGKILL
	drainTime = time.Second     // for the rest of its output
)

// errGone reports that a process has ended, or closed its pipe, in the middle of a call.
var errGone = errors.New("no answer")

// process is a process of Python and the environments in it. The caller of start must call stop.
type process struct {
	first, num       int
	requests, answer *os.File
	out              *lines
	mem              *memory // nil before it is mapped
	turns            turns
	spin             spin
	raw              syscall.RawConn // of answer
	look             func(fd uintptr) bool
	lookFor          time.Duration // how long look waits
	ready            bool          // answer has something to read, as look has seen
	head             [8]byte

	proc  *os.Process
	ended chan struct{} // closed when the process has been reaped and its output read
	state *os.ProcessState

	mu     sync.Mutex
	reaped bool
}

// start starts Python. A thread waits for the process until it has ended: one that starts processes and
// ends before them would take them with it, because of the signal for the death of a parent.
func start(cfg *Config, first, num int, out *lines) (*process, error) {
	var files [6]*os.File // reading and writing ends: requests, answers, output
	closeAll := func(files ...*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for k := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(files[:2*k]...)
			return nil, fmt.Errorf("start %s: %w", cfg.Python, err)
		}
		copy(files[2*k:], []*os.File{r, w})
	}
	load := "import os\nb = b''\nwhile len(b) < " + strconv.Itoa(len(bridge)) + ":\n" +
		"    m = os.read(3, " + strconv.Itoa(len(bridge)) + " - len(b))\n    if not m:\n        raise SystemExit(1)\n    b += m\n" +
		"exec(compile(b, 'ditask-bridge', 'exec'))\n"
	cmd := exec.Command(cfg.Python, "-u", "-c", load) //nolint:noctx // stop ends it
	cmd.Env, cmd.Dir, cmd.SysProcAttr = cfg.Env, cfg.Dir, sysProcAttr()
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = files[5], files[5], []*os.File{files[0], files[3]}
	p := &process{first: first, num: num, requests: files[1], out: out, ended: make(chan struct{})}
	p.turns.spins = canSpin()
	if err := p.listen(files[2]); err != nil {
		closeAll(files[:]...)
		return nil, fmt.Errorf("start %s: %w", cfg.Python, err)
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		closeAll(files[0], files[3], files[5])
		p.proc = cmd.Process
		started <- err
		if err == nil {
			p.reap(files[4])
		}
	}()
	if err := <-started; err != nil {
		closeAll(files[1], p.answer, files[4])
		return nil, fmt.Errorf("%w: start %s: %w: install it (apt-get install python3), or name the program with %s",
			ErrPython, cfg.Python, err, "Config.Python or DITASK_PYTHON")
	}
	return p, nil
}

// listen takes the reading end of the pipe of answers over.
func (p *process) listen(f *os.File) (err error) {
	p.answer, p.raw, err = unpolled(f)
	p.look = func(fd uintptr) bool { p.ready = readable(fd, p.lookFor); return true }
	return err
}

// reap returns when the process has ended and its output has been read.
func (p *process) reap(output *os.File) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.out.copy(output)
	}()
	state, _ := p.proc.Wait() // of a child of our own, once
	p.mu.Lock()
	p.reaped, p.state = true, state
	killGroup(p.proc.Pid) // the processes that the environments have started
	p.mu.Unlock()
	_ = output.SetReadDeadline(time.Now().Add(drainTime))
	<-read
	_ = output.Close()
	close(p.ended)
}

// gone reports whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// writeProgram sends the program.
func (p *process) writeProgram(limit time.Duration) error { return p.writeLong(bridge, limit) }

// writeLong writes data that may have to wait for room in the pipe.
func (p *process) writeLong(data []byte, limit time.Duration) error {
	if err := p.requests.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := p.requests.Write(data)
	return errors.Join(err, p.requests.SetWriteDeadline(time.Time{}))
}

// send sends a message.
func (p *process) send(op byte, body any, limit time.Duration) error {
	p.turns.cpu = 0 // Python does so too
	p.spin = spin{}
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return p.write(op, payload, limit)
}

// write sends a message. The pipe is empty before it, so that one without a payload does not wait.
func (p *process) write(op byte, payload []byte, limit time.Duration) error {
	p.head = [8]byte{op}
	binary.LittleEndian.PutUint32(p.head[4:], uint32(len(payload)))
	_, err := p.requests.Write(p.head[:])
	if err == nil && len(payload) > 0 {
		err = p.writeLong(payload, limit)
	}
	return err
}

// receive returns the payload of the answer. The error wraps a *fault that the process has sent,
// os.ErrDeadlineExceeded or errGone.
func (p *process) receive(limit time.Duration) ([]byte, error) {
	payload, status, err := p.read(limit)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && !p.gone():
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	case status == statusOK:
		return payload, nil
	}
	f, err := decodeFault(payload)
	if err != nil {
		return nil, err
	}
	return nil, &f
}

// Error makes a fault an error, of which the vector makes an *envs.Error.
func (f *fault) Error() string { return f.cause().Error() }

func (p *process) read(limit time.Duration) (payload []byte, status byte, err error) {
	until := time.Now().Add(limit)
	if p.spin.pending && p.awaitStep(until) {
		return nil, statusOK, nil
	}
	if err := p.fill(p.head[:], until); err != nil {
		return nil, 0, err
	}
	status, n := p.head[0], binary.LittleEndian.Uint32(p.head[4:])
	if n > maxMessage || status > statusFault {
		return nil, 0, fmt.Errorf("a message of %d bytes with the status %d: an environment writes to file descriptor 4", n, status)
	}
	if n > 0 {
		payload = make([]byte, n)
		err = p.fill(payload, until)
	}
	return payload, status, err
}

// waitMost is how long a wait for an answer lasts until it is known that the process has ended, where others hold its
// end of the pipe.
const waitMost = 50 * time.Millisecond

// fill reads data from the answers until the given time.
func (p *process) fill(data []byte, until time.Time) error {
	for len(data) > 0 {
		for !p.ready {
			left := time.Until(until)
			p.wait(min(left, waitMost))
			switch {
			case p.ready:
			case p.gone():
				return errGone
			case left <= 0:
				return os.ErrDeadlineExceeded
			}
		}
		n, err := p.answer.Read(data)
		if err != nil {
			return err
		}
		data, p.ready = data[n:], false
	}
	return nil
}

// wait waits for something to read in the answers, and notes whether there is.
func (p *process) wait(limit time.Duration) {
	p.lookFor = limit
	err := p.raw.Read(p.look)
	p.ready = p.ready || err != nil // which a read returns
}

// failure returns the error of a call of an operation, which failed with err: it names the
// environment, if one is known.
func (p *process) failure(name, op string, limit time.Duration, err error) error {
	index := p.first
	if p.mem != nil {
		var i int
		i, op = p.mem.busy(p.num)
		index += i
	}
	var f *fault
	switch {
	case errors.As(err, &f):
		if f.Index < 0 || f.Index >= p.num {
			f.Index = 0
		}
		return &envs.Error{Env: name, Index: p.first + f.Index, Op: f.Op, Err: f.cause()}
	case errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errGone):
		p.stop(false)
		err = fmt.Errorf("%w: no answer for %v%s", envs.ErrHung, limit, p.out.last())
	default:
		p.await(termTime) // if it has only closed its pipe, it is ended
		err = p.exited(err)
	}
	return &envs.Error{Env: name, Index: index, Op: op, Err: err}
}

// exited reports how the process has ended.
func (p *process) exited(err error) error {
	if !p.gone() {
		p.stop(false)
		return fmt.Errorf("%w: it has closed its pipe: %w%s", ErrExited, err, p.out.last())
	}
	how := "unknown"
	if p.state != nil {
		how = p.state.String()
		if name, ok := signaled(p.state); ok {
			how = "killed by signal: " + name
		}
	}
	return fmt.Errorf("%w: %s%s", ErrExited, how, p.out.last())
}

// await waits until the process has ended, and reports whether it has.
func (p *process) await(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// answered reports whether a fault is one that the process has told: then it can end by itself.
func answered(fault error) bool {
	for _, silent := range []error{envs.ErrHung, ErrExited} {
		if errors.Is(fault, silent) {
			return false
		}
	}
	return true
}

// signal sends a signal to the process, or kills its group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.reaped:
	case sig == syscall.SIGKILL:
		_ = p.proc.Kill()
		killGroup(p.proc.Pid)
	default:
		_ = p.proc.Signal(sig)
	}
}

// stop ends the process and returns when it has ended: it closes the pipe, on which the
// environments are closed, if the process is not in the middle of something; then it sends SIGTERM, on which the
// process prints where it is, and SIGKILL. It reports whether the process had to be killed. Further
// calls do no harm.
func (p *process) stop(politely bool) (killed bool) {
	_ = p.requests.Close()
	if !politely || !p.await(closeTime) {
		p.signal(syscall.SIGTERM)
		if !p.await(termTime) {
			killed = true
			p.signal(syscall.SIGKILL)
			p.await(killTime)
		}
	}
	_ = p.answer.Close()
	return killed
}
