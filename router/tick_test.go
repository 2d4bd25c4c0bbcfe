package router

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

func TestPausedProcessIsNotSilenceOfItsPeers(t *testing.T) {
	for _, test := range []struct{ between, want time.Duration }{
		{time.Second, 0},
		{1900 * time.Millisecond, 0},
		{2 * time.Second, time.Second},
		{20 * time.Second, 19 * time.Second},
	} {
		if got := overslept(test.between, time.Second); got != test.want {
			t.Errorf("%v between two ticks: overslept %v, want %v", test.between, got, test.want)
		}
	}
}

// A connection is tested when nothing was written since the tick before the last, or the last test was
// more than two heartbeats ago; and received frames are acknowledged.
func TestFramesDueAtATick(t *testing.T) {
	const beat = 2 * time.Second // the heartbeat
	for name, c := range map[string]struct {
		quiet    int           // ticks without anything written, before this one
		tested   time.Duration // ago; 0: never
		received uint64
		ping     bool
	}{
		"never tested":       {0, 0, 0, true},
		"tested just now":    {0, beat, 0, false},
		"tested long ago":    {0, 2*beat + 1, 0, true},
		"two heartbeats ago": {0, 2 * beat, 0, false},
		"quiet":              {1, beat, 0, true},
		"frames have come":   {0, beat, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := newSlowConn()
				s, l := linked(t, conn) // its writer is in a call, and takes nothing up
				synctest.Wait()
				<-time.After(time.Second)
				now := s.r.clock()
				s.lastReceived.Store(now)
				s.mu.Lock()
				s.quietFor, s.pingedAt, s.ackDue = c.quiet, 0, false
				if c.tested > 0 {
					s.pingedAt = now - int64(c.tested)
				}
				s.mu.Unlock()
				s.received.Store(c.received)
				s.r.check(s, false)
				s.mu.Lock()
				if s.quietFor != c.quiet+1 || s.pingDue != 0 != c.ping || s.pingedAt == now != c.ping || s.ackDue != (c.received > 0) {
					t.Errorf("quiet for %d ticks, ping due %d, tested at %d of %d, acknowledgement due %v",
						s.quietFor, s.pingDue, s.pingedAt, now, s.ackDue)
				}
				s.mu.Unlock()
				l.close()
				close(conn.letGo)
				<-l.ended
			})
		})
	}
}

// A node that joins the job waits four times as long for a silent peer as one that is ready, and
// does not close its connection.
func TestNodeThatJoinsIsPatient(t *testing.T) {
	for name, c := range map[string]struct {
		silent    time.Duration
		joins     bool
		cut, lost bool
	}{
		"received": {5 * time.Second, false, false, false}, "silent": {5*time.Second + 1, false, true, false},
		"out of reach": {8*time.Second + 1, false, false, true}, "joins": {32 * time.Second, true, false, false},
		"joins for too long": {32*time.Second + 1, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := newSlowConn()
				s, l := linked(t, conn)
				<-time.After(time.Minute)
				s.lastReceived.Store(s.r.clock() - int64(c.silent))
				s.r.check(s, c.joins)
				s.mu.Lock()
				if cut, lost := l.closed && s.err == nil, s.err != nil; cut != c.cut || lost != c.lost {
					t.Errorf("cut %v, lost %v (%v)", cut, lost, s.err)
				}
				s.mu.Unlock()
				l.close()
				close(conn.letGo)
				<-l.ended
			})
		})
	}
}

// A node continues to join for the same time again, up to its limit.
func TestJoiningLastsAsLongAgain(t *testing.T) {
	for _, c := range []struct {
		took, since time.Duration
		want        bool
	}{
		{0, time.Second, false}, {2 * time.Second, time.Second, true}, {2 * time.Second, 3 * time.Second, false},
		{time.Hour, 31 * time.Second, true}, {time.Hour, 32 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{})
			if !r.joining(r.clock()) {
				t.Error("a node that is not ready does not join")
			}
			<-time.After(c.took)
			r.beenReady, r.readyAt = true, r.clock()
			<-time.After(c.since)
			if r.joining(r.clock()) != c.want {
				t.Errorf("%v after %v: %v", c.since, c.took, r.joining(r.clock()))
			}
		})
	}
}

// A node that is alone, and one that misses a lost one, log that after 10 s, and then each time after
// twice the time.
func TestRemindersBecomeRare(t *testing.T) {
	r := openRouter(t, Config{Expect: 3})
	var log logtest.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	r.beenReady = true
	begin := int64(time.Minute)
	r.was[1] = former{lostAt: begin, sayAt: begin + int64(logAfter)}
	r.was[2] = former{err: errWentAway}
	for s := range 90 {
		r.remind(begin + int64(s)*int64(time.Second))
	}
	for _, text := range []string{`"no other node of the job is connected" expected=2`, `"still without a node that was lost" peer=node.1`} {
		for _, long := range []string{"10s", "20s", "40s", "1m20s"} {
			if n := strings.Count(log.String(), fmt.Sprintf("%s for=%s\n", text, long)); n != 1 {
				t.Errorf("%d times %s for %s:\n%s", n, text, long, log.String())
			}
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 8 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

// pausingLog is a log whose first line takes that long.
func pausingLog(d time.Duration) *slog.Logger {
	var once sync.Once
	return slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		once.Do(func() { <-time.After(d) })
		return len(b), nil
	}), nil))
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A node that drains no longer logs which nodes are away, and one that has a peer again is not alone.
func TestRemindersEnd(t *testing.T) {
	var log logtest.Buffer
	r := openRouter(t, Config{Expect: 2})
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	r.beenReady = true
	at := func(s int) { r.remind(int64(s) * int64(time.Second)) }
	at(1)
	r.peers[1] = newSession(r, Peer{ID: 1}, nil)
	r.was[1] = former{lostAt: 1, sayAt: 1}
	at(20)
	delete(r.peers, 1)
	delete(r.was, 1)
	at(21)
	at(30)
	if log.String() != "" {
		t.Error(log.String())
	}
	if at(31); !strings.Contains(log.String(), "no other node of the job is connected\" expected=1 for=10s") {
		t.Error(log.String())
	}
	r.inDrain.Store(true)
	r.was[2] = former{lostAt: 1, sayAt: 1}
	if at(1000); strings.Count(log.String(), "\n") != 1 {
		t.Error(log.String())
	}
	r.inDrain.Store(false)
	r.beenReady = false
	delete(r.was, 2)
	at(2000)
	if at(3000); strings.Count(log.String(), "\n") != 1 {
		t.Errorf("not ready yet: %s", log.String())
	}
}
