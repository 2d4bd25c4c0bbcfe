package router

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// A few farewells of one node are received at once, and then one a second. One goroutine checks them.
func TestR7AFloodOfFarewells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{Node: 0, Expect: 4})
		peer := admitted(t, r, 1, 1)
		sent := func() uint64 { peer.mu.Lock(); defer peer.mu.Unlock(); return peer.log.sent }
		unlock := r.lockPeer(3) // a handshake continues
		before := sent()
		for i := range uint64(1000) {
			r.applyFarewell(Farewell{Node: 3, Incarnation: i + 1, Reason: "exit code 3"}, 2)
		}
		if n := sent() - before; n != newsBurst {
			t.Errorf("%d farewells are passed on", n)
		}
		synctest.Wait()
		r.mu.Lock()
		if len(r.hearsay) != 1 || r.hearsay[3].Incarnation != newsBurst || r.locks[3].users != 2 {
			t.Errorf("%d, %+v", len(r.hearsay), r.hearsay[3])
		}
		r.mu.Unlock()
		unlock()
		synctest.Wait()
		r.mu.Lock()
		if len(r.hearsay) != 0 || r.was[3].incarnation != newsBurst || !r.was[3].hearsay {
			t.Errorf("%d, %+v", len(r.hearsay), r.was[3])
		}
		r.mu.Unlock()
		for range 5 {
			<-time.After(time.Second / newsPerSecond)
			before := sent()
			for i := range uint64(10) {
				r.applyFarewell(Farewell{Node: 3, Incarnation: 1000 + uint64(r.clock()) + i, Reason: "exit code 3"}, 2)
			}
			if n := sent() - before; n != 1 {
				t.Errorf("%d farewells are passed on in a second", n)
			}
		}
	})
}

// A peer that answers after its farewell has arrived is still running, and its true farewell is received later.
// A peer that does not answer is lost after a second.
func TestR7AFarewellOfAPeerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		r, err := New(Config{Expect: 3, Transport: noTransport{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s := admitted(t, r, 1, 5)
		mine, theirs := net.Pipe()
		l, err := s.attach(mine, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		var answers sync.WaitGroup
		pings := make(chan uint64, 100)
		answers.Go(func() {
			defer close(pings)
			for {
				var head [headerBytes]byte
				if _, err := io.ReadFull(theirs, head[:]); err != nil {
					return
				}
				body := make([]byte, le.Uint32(head[:]))
				if _, err := io.ReadFull(theirs, body); err != nil {
					return
				}
				if frameType(head[4]) == framePing {
					pings <- le.Uint64(body)
				}
			}
		})
		<-time.After(time.Second)
		early := uint64(r.clock()) - 1
		r.applyFarewell(Farewell{Node: 1, Incarnation: 9, Reason: "exit code 3", Final: true}, 2)
		asked := <-pings
		pong := func(v uint64) {
			if _, err := theirs.Write(appendU64(nil, framePong, 0, v)); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if pong(early); len(r.hearsay) != 1 {
			t.Error("an answer to an older question is accepted")
		}
		if pong(asked); len(r.hearsay) != 0 || r.peers[1] != s || r.failure != nil {
			t.Errorf("it has answered: %+v, %v", r.was[1], r.failure)
		}
		if !strings.Contains(log.String(), `msg="a node announced the end of another one, which answers" `+
			`from=node.2 peer=node.1 reason="exit code 3"`) {
			t.Error(log.String())
		}
		r.applyFarewell(Farewell{Node: 1, Incarnation: 9, Reason: "passed on by another one"}, 0)
		if len(r.hearsay) != 0 {
			t.Error("a farewell that has just been rejected is checked again")
		}
		<-time.After(goneWithin + 1)
		other := admitted(t, r, 2, 1)
		sent := func() uint64 { other.mu.Lock(); defer other.mu.Unlock(); return other.log.sent }
		before, began := sent(), time.Now()
		r.applyFarewell(Farewell{Node: 1, Incarnation: 5, Reason: "killed"}, 0)
		if synctest.Wait(); sent() != before {
			t.Error("a doubtful farewell is passed on")
		}
		<-l.ended
		if synctest.Wait(); sent() != before+1 {
			t.Error("a confirmed farewell is not passed on")
		}
		if took := time.Since(began); took != goneWithin || !strings.Contains(fmt.Sprint(r.was[1].err), "killed") {
			t.Errorf("lost after %v: %v", took, r.was[1].err)
		}
		_ = theirs.Close()
		answers.Wait()
		_ = r.Close()
	})
}

// A node is admitted although another node has reported the end of a newer incarnation.
func TestR7AFarewellOfANodeThatWasNotMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{Expect: 3})
		r.applyFarewell(Farewell{Node: 1, Incarnation: 9, Reason: "exit code 3"}, 2)
		r.Gone(Farewell{Node: 2, Incarnation: 9, Reason: "exit code 3"})
		synctest.Wait()
		for _, c := range []struct {
			id          int
			incarnation uint64
			code        string
		}{{1, 8, ""}, {1, 9, RefuseLost}, {1, 10, ""}, {2, 8, RefuseStale}, {2, 9, RefuseLost}, {2, 10, ""}} {
			code := ""
			if _, no := r.find(hello{Node: c.id, Incarnation: c.incarnation}); no != nil {
				code = no.Code
			}
			if code != c.code {
				t.Errorf("%+v: %s", c, code)
			}
		}
	})
}

// TestAFarewellIsAnsweredBeforeItIsReceived: a farewell may end the node that receives it, and the
// answer with it.
func TestAFarewellIsAnsweredBeforeItIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		ours, theirs := net.Pipe()
		done := make(chan error, 1) // one result
		go func() {
			_, err := r.answerFarewell(ours, hello{Node: 3, Incarnation: 2, Farewell: &Farewell{Reason: "exit code 3", Final: true}})
			done <- err
		}()
		synctest.Wait()
		received := func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.farewells[3].incarnation == 2
		}
		if received() {
			t.Error("it is received before it is answered")
		}
		var w welcome
		if _, err := readMsg(theirs, &w); err != nil || w.Refuse != nil {
			t.Errorf("answer %+v, %v", w, err)
		}
		if err := <-done; err != nil || !received() {
			t.Errorf("%v, received: %v", err, received())
		}
		// A farewell is received even if its sender has ended.
		_ = theirs.Close()
		if _, err := r.answerFarewell(ours, hello{Node: 4, Incarnation: 2, Farewell: &Farewell{Reason: "exit code 3"}}); err == nil {
			t.Error("an answer over a closed connection is no error")
		}
		if r.mu.Lock(); r.farewells[4].incarnation != 2 {
			t.Error("a farewell is lost with its answer")
		}
		r.mu.Unlock()
	})
}
