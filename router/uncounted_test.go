package router

import (
	"testing"
	"testing/synctest"
)

// A send that waits for room at a peer that then leaves is counted as sent while it was
// away. A newer value of a Latest event is not missed: it is there when the peer is back.
func TestSendToAPeerThatLeavesMeanwhileIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.WindowMessages = 4 })
		g.r.started.Store(true)
		synctest.Wait() // it has declared the event, and listens
		ch := &Channel{g.r.channels[0]}
		for range 4 {
			if n, err := ch.Send(t.Context(), Bytes("x"), nil); n != 1 || err != nil {
				t.Error(n, err)
			}
		}
		sent := make(chan int, 1) // one result
		go func() {
			n, err := ch.Send(t.Context(), Bytes("x"), nil)
			if err != nil {
				t.Error(err)
			}
			sent <- n
		}()
		synctest.Wait()
		g.say(t, appendFrame(nil, frameLeave, 0, 0, nil))
		if n := <-sent; n != 0 {
			t.Errorf("%d peers were addressed", n)
		}
		st := g.r.Stats().Streams[0]
		if st.Sent != 5 || st.Away != 1 || st.Lost != 0 || st.InFlight != 4 {
			t.Errorf("%+v", st)
		}
		g.r.mu.Lock()
		s := g.r.peers[7]
		g.r.mu.Unlock()
		latest, err := g.r.Channel(Spec{Name: "l", Delivery: Latest}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.outs[latest.c.id].miss()
		if n := len(latest.c.absences); n != 0 {
			t.Errorf("%d peers miss values", n)
		}
	})
}

// A peer that has stopped listening since the sender has looked is not addressed.
func TestSendToAPeerThatListensNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		close(c.letGo)
		s, l := linked(t, c)
		s.outs[0].listens = false
		if got := send(s.outs[0], Bytes("x")); got != notSent || s.log.sent != 0 {
			t.Errorf("%d, %d frames", got, s.log.sent)
		}
		l.close()
		<-l.ended
	})
}
