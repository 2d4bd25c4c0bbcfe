package launch

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// walker gives the rules random events.
type walker struct {
	*script
	rnd    *rand.Rand
	cfg    Config
	alive  map[int]bool
	starts map[int]int
	first  *int      // the node whose failure ended the job
	blames bool      // it blamed another
	told   time.Time // when all were asked to end
}

func newWalker(t *testing.T, seed uint64) *walker {
	r := rand.New(rand.NewPCG(seed, 1))
	cfg := Config{
		MaxRetries: 1 + r.IntN(4), Backoff: time.Duration(1+r.IntN(2000)) * time.Millisecond,
		MaxBackoff: time.Duration(1+r.IntN(5)) * time.Second, Environ: []string{},
	}
	cfg.Env.AutoRecover, cfg.Env.Grace = r.IntN(2) == 0, time.Duration(1+r.IntN(20))*time.Second
	cfg.ensureDefaults()
	ids := make([]int, 1+r.IntN(5))
	for i := range ids {
		ids[i] = 10 + i
	}
	w := &walker{rnd: r, cfg: cfg, alive: map[int]bool{}, starts: map[int]int{}}
	w.script = &script{t: t, c: newCore(cfg, ids, r.IntN(8) == 0), now: time.Unix(1000, 0)}
	w.c.begin(w.now, time.Duration(r.IntN(3))*100*time.Millisecond)
	return w
}

// obey performs the actions of the rules, and checks that each is possible.
func (w *walker) obey(actions []action) error {
	for _, a := range actions {
		switch a.do {
		case start:
			if w.alive[a.node] {
				return fmt.Errorf("node %d is started, and runs", a.node)
			}
			if w.starts[a.node]++; w.starts[a.node] > 1+w.cfg.MaxRetries || w.starts[a.node] > 1 && !w.cfg.Env.AutoRecover {
				return fmt.Errorf("node %d is started for the %d. time, with %d retries", a.node, w.starts[a.node], w.cfg.MaxRetries)
			}
			if w.c.phase != running {
				return fmt.Errorf("node %d is started in phase %d", a.node, w.c.phase)
			}
			w.alive[a.node] = true
		case sendSignal, kill:
			if !w.alive[a.node] {
				return fmt.Errorf("an end was asked of node %d, which does not run", a.node)
			}
		case retire:
			if w.alive[a.node] {
				return fmt.Errorf("node %d is retired, and runs", a.node)
			}
		}
	}
	return nil
}

// end ends a node, in any of the possible ways.
func (w *walker) end(i int) error {
	delete(w.alive, i)
	n := w.c.nodes[i]
	exits := []exit{
		won, wonWithAll, {}, {code: 1 + w.rnd.IntN(100)}, killedBy(syscall.SIGKILL), killedBy(syscall.SIGSEGV),
		killedBy(syscall.SIGTERM), {code: 75}, {code: 130}, {code: 143},
		said(control.Success, 0, n.id, ""), said(control.Failure, 1, n.id, "own"), said(control.Failure, 1, 10+w.rnd.IntN(5), "blames"),
		said(control.Preempted, 75, n.id, ""), {code: 1, err: errors.New("cannot start")},
	}
	e := exits[w.rnd.IntN(len(exits))]
	was := w.c.phase
	actions := w.c.exited(w.now, i, e)
	if was < stopping && w.c.phase >= stopping && w.c.nodes[i].verdict == control.Failure {
		w.first, w.blames = new(n.id), e.outcome != nil && e.outcome.Kind == control.Failure && e.outcome.Node != n.id
	}
	return w.obey(actions)
}

// live makes events happen until the job is done.
func (w *walker) live() error {
	for range 10_000 {
		if err := w.obey(w.c.tick(w.now)); err != nil {
			return err
		}
		if w.c.done() {
			return nil
		}
		if w.c.phase >= stopping && w.told.IsZero() {
			w.told = w.now
		}
		running := slices.Sorted(maps.Keys(w.alive))
		next := w.c.next()
		switch what := w.rnd.IntN(20); {
		case w.c.phase == killing && len(running) > 0: // no process survives that
			delete(w.alive, running[0])
			if err := w.obey(w.c.exited(w.now, running[0], killedBy(syscall.SIGKILL))); err != nil {
				return err
			}
		case what == 0:
			if err := w.obey(w.c.received(w.now, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[w.rnd.IntN(3)])); err != nil {
				return err
			}
		case what < 8 && len(running) > 0:
			if err := w.end(running[w.rnd.IntN(len(running))]); err != nil {
				return err
			}
		case !next.IsZero(): // time passes, up to the next that is due
			w.now = w.now.Add(time.Duration(w.rnd.Int64N(int64(max(next.Sub(w.now), 1)) + 1)))
			if what > 15 {
				w.now = next
			}
		default:
			w.now = w.now.Add(time.Second)
			if len(running) == 0 {
				return errors.New("nothing runs, nothing is due, and the job is not done")
			}
		}
	}
	return errors.New("the job is not done")
}

// judge checks the properties that hold at the end of every job.
func (w *walker) judge() error {
	if len(w.alive) > 0 {
		return fmt.Errorf("done, and %v run", w.alive)
	}
	r := w.c.result()
	for i, n := range r.Nodes {
		if n.Restarts != max(w.starts[i]-1, 0) || n.Restarts > w.cfg.MaxRetries {
			return fmt.Errorf("node %d was started %d times and restarted %d: at most %d", n.ID, w.starts[i], n.Restarts, w.cfg.MaxRetries)
		}
	}
	switch {
	case (r.Kind == control.Failure) != (r.First != nil):
		return fmt.Errorf("%s, and the first failure is %+v", r.Kind, r.First)
	case r.Kind == control.Failure && r.ExitCode() == 0, r.Kind == control.Success && r.ExitCode() != 0:
		return fmt.Errorf("%s, and exit code %d", r.Kind, r.ExitCode())
	case w.first != nil && r.First == nil:
		return fmt.Errorf("node %d ended the job, and no failure is reported", *w.first)
	case w.first != nil && !w.blames && r.First.Node != *w.first:
		return fmt.Errorf("node %d failed by itself first, and node %d is reported", *w.first, r.First.Node)
	}
	if limit := w.cfg.Env.Grace; !w.told.IsZero() && w.now.Sub(w.told) > limit {
		return fmt.Errorf("it took %v after asking the nodes to end, with %v of grace", w.now.Sub(w.told), limit)
	}
	return nil
}

// TestRulesHoldWhateverHappens runs many jobs whose nodes end in all ways, with
// signals at any time: every node ends, none is restarted too often or while it
// runs, the first failure is kept, and the job ends within the grace period.
func TestRulesHoldWhateverHappens(t *testing.T) {
	for seed := range uint64(20_000) {
		w := newWalker(t, seed)
		err := w.live()
		if err == nil {
			err = w.judge()
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%+v\n%+v", seed, err, w.cfg, w.c)
		}
	}
}
