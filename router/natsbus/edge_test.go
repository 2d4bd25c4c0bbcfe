package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/router/natsbus"
)

// spy is a client of the server that is no carrier, and hears a subject.
func spy(t *testing.T, s *server.Server, subject string) (*nats.Conn, *nats.Subscription) {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return nc, sub
}

// next is the next message that a spy hears.
func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsgWithContext(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestYoungConnectionsAreProbed: both ends say something without being asked, so that
// the loss of the last message is noticed.
func TestYoungConnectionsAreProbed(t *testing.T) {
	s := plain(t, server.Options{})
	_, sub := spy(t, s, "ditask.job.conn.>")
	pair(t, natsbus.Config{URL: s.ClientURL()})
	ends := map[string]bool{}
	for len(ends) < 2 {
		if m := next(t, sub); natsbus.IsAck(m.Data) {
			ends[m.Reply] = true
		}
	}
}

// TestSilentNodeIsAskedAgain: a message to it may have been lost.
func TestSilentNodeIsAskedAgain(t *testing.T) {
	s := plain(t, server.Options{})
	_, sub := spy(t, s, "ditask.job.dial.5")
	c := open(t, natsbus.Config{URL: s.ClientURL()})
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Dial(ctx, "bus://node.5")
		ended <- err
	}()
	if first, second := next(t, sub), next(t, sub); first.Reply == second.Reply {
		t.Errorf("both ask for the connection %s", first.Reply)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "bus://node.5: no answer over nats://127.0.0.1:") || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestResetIsNotAnswered: two ends that know nothing of each other would answer for
// as long as they live.
func TestResetIsNotAnswered(t *testing.T) {
	s := plain(t, server.Options{})
	_, dials := spy(t, s, "ditask.job.dial.5")
	nc, sub := spy(t, s, "ditask.job.conn.spy.*")
	c := open(t, natsbus.Config{URL: s.ClientURL()})
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	ended := make(chan struct{})
	go func() { _, _ = c.Dial(ctx, "bus://node.5"); close(ended) }()
	inbox := next(t, dials).Reply
	unknown := inbox[:strings.LastIndexByte(inbox, '.')] + ".unknown"
	for _, m := range []struct {
		reply string
		raw   []byte
	}{{"ditask.job.conn.spy.reset", natsbus.ResetMessage()}, {"ditask.other.conn.spy.data", natsbus.DataMessage(1, "x")}, {"ditask.job.conn.spy.data", natsbus.DataMessage(1, "x")}} {
		if err := nc.PublishRequest(unknown, m.reply, m.raw); err != nil {
			t.Fatal(err)
		}
	}
	if m := next(t, sub); m.Subject != "ditask.job.conn.spy.data" {
		t.Errorf("the first answer goes to %s", m.Subject)
	}
	cancel()
	<-ended
}

// TestStrangersAreNotAccepted: a dial that wants its answer elsewhere than at the end
// of a connection of this job is not answered.
func TestStrangersAreNotAccepted(t *testing.T) {
	s := plain(t, server.Options{})
	nc, sub := spy(t, s, "elsewhere")
	_, dials := spy(t, s, "ditask.job.dial.7")
	c := open(t, natsbus.Config{URL: s.ClientURL()})
	l, err := c.Listen(soon(t), "bus://node.7")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Dial(soon(t), "bus://node.7"); err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("ditask.job.dial.7", "elsewhere", next(t, dials).Data); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Dial(soon(t), "bus://node.7"); err != nil { // it is heard after the stranger
		t.Fatal(err)
	}
	if err := nc.Publish("elsewhere", []byte("the end")); err != nil {
		t.Fatal(err)
	}
	if m := next(t, sub); string(m.Data) != "the end" {
		t.Errorf("a stranger is answered: %q", m.Data)
	}
	_ = l.Close()
}

// TestStrangersDoNotAccept: nor is the answer to a dial taken from elsewhere.
func TestStrangersDoNotAccept(t *testing.T) {
	s := plain(t, server.Options{})
	nc, _ := spy(t, s, "ditask.job.dial.6")
	_, err := nc.Subscribe("ditask.job.dial.5", func(m *nats.Msg) {
		_ = nc.PublishRequest(m.Reply, "elsewhere", natsbus.AcceptMessage())
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t, natsbus.Config{URL: s.ClientURL()}).Dial(soon(t), "bus://node.5")
	if err == nil || !strings.Contains(err.Error(), `accepted by "elsewhere"`) {
		t.Error(err)
	}
}

func TestListenerKeepsAndRefusesWhoWaits(t *testing.T) {
	s := plain(t, server.Options{})
	l, err := open(t, natsbus.Config{URL: s.ClientURL()}).Listen(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	nc, dials := spy(t, s, "ditask.job.dial.0")
	c := open(t, natsbus.Config{URL: s.ClientURL()})
	first, err := c.Dial(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	raw := next(t, dials).Data
	for i := range natsbus.Backlog - 1 {
		if err := nc.PublishRequest("ditask.job.dial.0", fmt.Sprint("ditask.job.conn.spy.", i), raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Dial(soon(t), "bus://node.0"); err == nil || !strings.Contains(err.Error(), "connection refused: too many wait to be accepted") {
		t.Fatalf("one more than the backlog: %v", err)
	}
	_ = l.Close()
	_ = first.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that nobody has accepted, after the end of the listener: %v", err)
	}
}

// TestPeerThatBreaksTheRulesIsLost: the reason says which rule.
func TestPeerThatBreaksTheRulesIsLost(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for want, raw := range map[string][][]byte{
		"16777215 consumed of 0":               {append([]byte{4, 1, 0, 0, 0, 0, 0, 0, 0}, 255, 255, 255, 0, 0, 0, 0, 0)},
		"410112 bytes over the window":         {natsbus.DataMessage(1, big), natsbus.DataMessage(2, big)},
		"message 3 came where 2 was due: NATS": {natsbus.DataMessage(1, "x"), natsbus.DataMessage(3, "x")},
	} {
		a, b := pair(t, natsbus.Config{URL: plain(t, server.Options{}).ClientURL(), Nodes: 1000})
		natsbus.Quiet(a)
		for _, m := range raw {
			if err := natsbus.Inject(a, false, m); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []net.Conn{a, b} { // b last: reading would return room to a
			if _, err := io.ReadAll(c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v fails with %v, want %s", c.LocalAddr(), err, want)
			}
		}
	}
}

// TestLeastPayload: a server that takes messages of just enough bytes is of use.
func TestLeastPayload(t *testing.T) {
	s := plain(t, server.Options{MaxPayload: 4096})
	a, b := pair(t, natsbus.Config{URL: s.ClientURL()})
	go func() { _, _ = a.Write(make([]byte, 100_000)) }()
	if _, err := io.ReadFull(b, make([]byte, 100_000)); err != nil {
		t.Error(err)
	}
}
