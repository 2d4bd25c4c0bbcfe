package serve

import (
	"container/list"
	"net/http"
	"sync"
	"time"
)

// session is the memory of the policy of one episode. While a request has it, state and fresh are that request's.
type session struct {
	name  string
	state []float32
	fresh bool // it is to begin at zero
	busy  bool
	used  time.Time
}

// sessions holds the open sessions, the most recently used one in front.
type sessions struct {
	size int // values of a state; 0: the policy has no memory
	most int
	idle time.Duration
	now  func() time.Time

	mu     sync.Mutex
	byName map[string]*list.Element
	order  *list.List
	idled  uint64 // ended because they were idle
	pushed uint64 // ended because others were begun
}

func newSessions(c *Config, size int) *sessions {
	return &sessions{size: size, most: c.MaxSessions, idle: c.SessionIdle, now: c.Now, byName: map[string]*list.Element{}, order: list.New()}
}

// take gives a job its sessions, all or none.
func (t *sessions) take(j *job) *fault {
	j.states = j.states[:0]
	switch {
	case t.size == 0 && len(j.sessions) > 0:
		return invalid("session", "the policy has no memory, and so no sessions: leave it out")
	case t.size == 0 && j.reset:
		return invalid("reset", "the policy has no memory, and so nothing to reset: leave it out")
	case t.size > 0 && len(j.sessions) == 0:
		return invalid("session", `the policy has memory: give each episode a name, "session", and "reset": true with its first observation`)
	case t.size == 0:
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	for _, name := range j.sessions {
		s, f := t.one(name, j.reset)
		if f != nil {
			t.release(j.states)
			j.states = j.states[:0]
			return f
		}
		s.busy = true
		j.states = append(j.states, s)
	}
	return nil
}

// one finds a session, or begins it.
func (t *sessions) one(name string, reset bool) (*session, *fault) {
	if e := t.byName[name]; e != nil {
		s := e.Value.(*session) //nolint:forcetypeassert // there is nothing else in the list
		if s.busy {
			return nil, &fault{http.StatusConflict, codeSessionBusy, "session " + quoted(name),
				"another request uses the session now: send the next observation of an episode after the action for the one before"}
		}
		t.order.MoveToFront(e)
		s.used = t.now()
		return s, nil
	}
	if !reset {
		return nil, &fault{http.StatusConflict, codeSession, "session " + quoted(name), "it is not here: it was not begun, or it was " +
			"idle for more than " +
			t.idle.String() + ", or so many others were begun that it had to go: begin the episode anew with \"reset\": true"}
	}
	if len(t.byName) >= t.most && !t.push() {
		return nil, &fault{http.StatusTooManyRequests, codeBusy, "session " + quoted(name), "all sessions are in use by requests under way: " +
			"try again, or start the server with a greater --max-sessions"}
	}
	s := &session{name: name, state: make([]float32, t.size), fresh: true, used: t.now()}
	t.byName[name] = t.order.PushFront(s)
	return s, nil
}

// push ends the session that was used longest ago, of those that no request has.
func (t *sessions) push() bool {
	for e := t.order.Back(); e != nil; e = e.Prev() {
		if s := e.Value.(*session); !s.busy { //nolint:forcetypeassert // there is nothing else in the list
			t.end(e, s)
			t.pushed++
			return true
		}
	}
	return false
}

// expire ends the sessions that were idle for too long.
func (t *sessions) expire() {
	now := t.now()
	for e := t.order.Back(); e != nil; {
		s, before := e.Value.(*session), e.Prev() //nolint:forcetypeassert // there is nothing else in the list
		if now.Sub(s.used) <= t.idle {
			return
		}
		if !s.busy {
			t.end(e, s)
			t.idled++
		}
		e = before
	}
}

func (t *sessions) end(e *list.Element, s *session) {
	t.order.Remove(e)
	delete(t.byName, s.name)
}

// give takes the sessions of a job back. Those that were begun and never acted in are ended.
func (t *sessions) give(j *job) {
	if len(j.states) == 0 {
		return
	}
	t.mu.Lock()
	t.release(j.states)
	t.mu.Unlock()
	clear(j.states)
	j.states = j.states[:0]
}

// release is give, with the lock held.
func (t *sessions) release(states []*session) {
	for _, s := range states {
		s.busy = false
		if e := t.byName[s.name]; s.fresh && e != nil {
			t.end(e, s)
		}
	}
}

// counts are for the metrics.
func (t *sessions) counts() (live int, idled, pushed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byName), t.idled, t.pushed
}
