package launch

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/placement"
)

// Launcher starts the local nodes of a plan and supervises them. Make it with
// New; Run runs it once.
type Launcher struct {
	cfg     Config
	plan    placement.Plan // with the ports that were found free
	out     *output
	watcher *watcher // nil: none
	core    *core
	nodes   []*node // in order of local id
	exits   chan exited
	parted  chan parted   // ends of farewells
	saying  int           // farewells that have not ended
	ready   chan struct{} // closed when all nodes have been ready
	began   time.Time
	waiters sync.WaitGroup

	gather sync.Mutex // one gathering of metrics at a time

	mu       sync.Mutex
	states   []State      // in order of local id
	received []time.Time  // when the current attempt of a node, once it is ready, last sent a message
	waits    map[int]bool // the nodes that have never been ready, by local id
	asks     []ask        // for metrics, in order of local id
	seq      uint64       // of the newest request for metrics
}

// node is a node of the plan with what belongs to all of its attempts.
type node struct {
	placement.Node
	socket      *socket // nil: none
	incarnation uint64
	proc        *proc     // while it runs
	farewell    *exec.Cmd // of its last process, while that is sent; nil: none is
	retired     bool      // it is not started again
}

type exited struct {
	index int
	exit  exit
}

// Phase describes what a node is doing.
type Phase string

// The phases of a node.
const (
	Waiting  Phase = "waiting"  // for its first start
	Starting Phase = "starting" // has not announced that it is ready
	Running  Phase = "running"
	Backoff  Phase = "back-off" // failed, and will be started again
	Ended    Phase = "ended"    // with success, stopped, or never started
	Failed   Phase = "failed"   // for the last time
)

// State is the state of a node.
type State struct {
	ID       int
	Labels   []string // as planned
	Phase    Phase
	PID      int // of the current or last process; 0: none
	Restarts int
	Status   control.Status // the last one received
	StatusAt time.Time      // when; zero: never
}

// New checks the configuration. It starts nothing and touches nothing; the
// error joins all faults.
func New(cfg Config) (*Launcher, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Launcher{
		cfg:    cfg,
		exits:  make(chan exited),
		parted: make(chan parted),
		ready:  make(chan struct{}),
		waits:  map[int]bool{},
		out: &output{
			format: cfg.Env.LogFormat, now: time.Now, dir: cfg.LogDir,
			stdout: asStream(cfg.Stdout, cfg.Env.LogFormat), stderr: asStream(cfg.Stderr, cfg.Env.LogFormat),
		},
	}
	var ids []int
	for i, n := range cfg.Plan.Local() {
		l.waits[i] = true
		ids = append(ids, n.ID)
		l.nodes = append(l.nodes, &node{Node: n})
		l.states = append(l.states, State{ID: n.ID, Labels: n.Labels, Phase: Waiting})
	}
	l.received = make([]time.Time, len(ids))
	l.asks = make([]ask, len(ids))
	l.core = newCore(cfg, ids, cfg.Plan.Topology == placement.Alone)
	l.core.shared = cfg.Plan.Shared() && cfg.Plan.Topology != placement.Alone
	l.core.replaced = cfg.Replaced && cfg.Env.AutoRecover
	return l, nil
}

// Snapshot returns the states of the nodes, in order of local id.
func (l *Launcher) Snapshot() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]State(nil), l.states...)
}

// Run starts the nodes and returns when all have ended. When ctx ends that is
// as if SIGTERM had come. The error says why nothing was started.
func (l *Launcher) Run(ctx context.Context) (Result, error) {
	if err := l.prepare(ctx); err != nil {
		return Result{}, err
	}
	defer l.watcher.finish()
	l.began = time.Now()
	l.core.begin(l.began, l.cfg.StartupInterval)
	l.loop(ctx)
	l.endFarewells()
	l.waiters.Wait()
	result := l.core.result()
	if text := result.restarts(); text != "" {
		l.out.log("INFO", text)
	}
	l.out.flush(l.cfg.Signals)
	return result, nil
}

// prepare does all that can fail before the first start.
func (l *Launcher) prepare(ctx context.Context) error {
	if l.cfg.LogDir != "" {
		if err := safefile.MkdirAll(l.cfg.LogDir, 0o755); err != nil {
			return fmt.Errorf("log folder: %w", err)
		}
	}
	sockets, plan, err := listen(ctx, l.cfg.Plan)
	if err != nil {
		return err
	}
	l.watcher, err = startWatcher(l.cfg.Watcher, l.cfg.Environ, func() {
		l.out.log("WARN", "the watcher of this launcher has ended: if the launcher is killed, its nodes may continue to run")
	})
	if err != nil {
		for _, s := range sockets {
			s.close()
		}
		return fmt.Errorf("start the watcher: %w", err)
	}
	for _, s := range sockets {
		l.watcher.send(watchSocket, s.addr)
	}
	l.plan = plan
	for i, n := range plan.Local() {
		l.nodes[i].Node = n
		l.nodes[i].socket = sockets[n.ID]
	}
	return nil
}

// loop gives events to the rules and performs their actions.
func (l *Launcher) loop(ctx context.Context) {
	stopped, ready := ctx.Done(), l.ready
	sayReady := func() {
		ready = nil
		l.out.log("INFO", fmt.Sprintf("job %s: %d ready after %v", l.cfg.Plan.Job, len(l.nodes),
			time.Since(l.began).Round(time.Millisecond)))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !l.core.done() {
		if at := l.core.next(); !at.IsZero() {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
			l.reportReceived()
			l.do(l.core.tick(time.Now()))
		case <-ready:
			sayReady()
		case e := <-l.exits:
			select {
			case <-ready: // before the end of the last one
				sayReady()
			default:
			}
			l.nodes[e.index].proc = nil
			l.reached(e.index, nil)
			l.do(l.core.exited(time.Now(), e.index, e.exit))
		case p := <-l.parted:
			l.hasParted(p)
		case sig := <-l.cfg.Signals:
			if s, ok := sig.(syscall.Signal); ok {
				l.do(l.core.received(time.Now(), s))
			}
		case <-stopped:
			stopped = nil
			l.do(l.core.received(time.Now(), syscall.SIGTERM))
		}
	}
}

// reportReceived passes to the core when each node last sent a message.
func (l *Launcher) reportReceived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, at := range l.received {
		l.core.answered(i, at)
	}
}

func (l *Launcher) do(actions []action) {
	for _, a := range actions {
		switch a.do {
		case start:
			l.start(a.node)
		case sendSignal:
			if p := l.nodes[a.node].proc; p != nil {
				p.signal(a.signal)
			}
		case kill:
			if p := l.nodes[a.node].proc; p != nil {
				p.kill()
			}
		case restart:
			l.change(a.node, func(s *State) { s.Phase = Backoff })
		case retire:
			phase := Ended
			if l.core.nodes[a.node].verdict == control.Failure {
				phase = Failed
			}
			l.change(a.node, func(s *State) { s.Phase = phase })
			l.nodes[a.node].retired = true
			l.nodes[a.node].free()
		case logNote:
			l.out.log("WARN", a.note)
		case lose:
			l.lose(a.node, a.note, a.final)
		case part:
			l.sendFarewell(a.node, a.note, a.final)
		}
	}
}

// lose announces the end of a node's process to the other nodes.
func (l *Launcher) lose(i int, reason string, final bool) {
	m := l.nodes[i].lost(reason, final)
	for _, other := range l.nodes {
		if p := other.proc; p != nil {
			p.write(m, promptly)
		}
	}
}

// start starts the current attempt of a node. Every start ends in exactly one
// send on exits.
func (l *Launcher) start(i int) {
	n := l.nodes[i]
	l.cutFarewell(n)
	attempt := l.core.nodes[i].attempt
	n.incarnation = control.NextIncarnation(n.incarnation, time.Now())
	l.mu.Lock()
	l.received[i] = time.Time{}
	l.mu.Unlock()
	log := l.out.open(n.ID, attempt, strings.Join(n.Labels, ","))
	p, err := startProc(spec{
		command: l.cfg.Command, workDir: l.cfg.WorkDir, environ: l.cfg.Environ,
		env: l.env(n, attempt), socket: n.socket, watcher: l.watcher,
	}, log, func(m control.Message) { l.receive(i, log, m) })
	if err != nil {
		log.close()
		l.waiters.Go(func() {
			l.exits <- exited{i, exit{code: 1, err: fmt.Errorf("start: %w", err), role: log.Role()}}
		})
		return
	}
	n.proc = p
	l.reached(i, p)
	l.change(i, func(s *State) {
		s.Phase, s.PID, s.Restarts = Starting, p.cmd.Process.Pid, attempt
	})
	if l.cfg.StatusInterval > 0 {
		p.write(control.Message{Type: control.TypeInterval, Interval: l.cfg.StatusInterval}, promptly)
	}
	l.waiters.Go(func() { l.exits <- exited{i, p.wait()} })
}

// env is the environment of one attempt of a node, without its file descriptors.
func (l *Launcher) env(n *node, attempt int) control.Env {
	e := l.cfg.Env
	e.JobID, e.Topology, e.Nodes = l.cfg.Plan.Job, l.cfg.Plan.Topology, l.cfg.Plan.Expected
	e.NodeID, e.LocalID = n.ID, n.LocalID
	e.Listen, e.Advertise, e.Attach, e.Labels = n.Listen, n.Advertise, n.Attach, n.Labels
	e.Attempt, e.Incarnation = attempt, n.incarnation
	if e.AutoRecover {
		e.Retries = max(l.cfg.MaxRetries-attempt, 0)
		if l.cfg.Replaced {
			e.Retries = max(e.Retries, 1)
		}
	}
	if plan := l.plan; plan.BusListen != "" {
		e.Bus, e.BusAuth = plan.Bus, control.BusAuthJob
	}
	if e.Dir != "" {
		if abs, err := filepath.Abs(e.Dir); err == nil {
			e.Dir = abs
		}
	}
	return e
}

// receive handles a message of a node. It waits for nothing: a node whose messages
// are not read would pass for one that is silent.
func (l *Launcher) receive(i int, log *nodeLog, m control.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch m.Type {
	case control.TypeReady:
		l.states[i].Phase, l.received[i] = Running, now
		if l.waits[i] {
			delete(l.waits, i)
			if len(l.waits) == 0 {
				close(l.ready)
			}
		}
	case control.TypeStatus:
		if m.Status.Role != "" {
			log.setRole(m.Status.Role)
		}
		l.states[i].Status, l.states[i].StatusAt = *m.Status, now
	case control.TypeMetrics:
		l.receiveMetrics(i, *m.Metrics)
	}
	if !l.received[i].IsZero() {
		l.received[i] = now
	}
}

func (l *Launcher) change(i int, f func(*State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.states[i])
}
