package natsbus_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/router/natsbus"
)

// spy returns a client of the server without a transport, and its subscription of a subject.
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

// next returns the next message that a spy receives.
func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsgWithContext(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const (
	kindAccept = 2
	kindData   = 3
	kindAck    = 4
	kindReset  = 6
)

// message returns a message in the format of package broker's documentation.
func message(kind byte, offset, consumed uint64, body string) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kind}, 0)
	b = binary.LittleEndian.AppendUint64(b, offset)
	return append(binary.LittleEndian.AppendUint64(b, consumed), body...)
}

// tap learns the subjects of the ends of the first connection of a job, and sends to them.
type tap struct {
	nc                *nats.Conn
	sub               *nats.Subscription
	dialled, accepted string
}

func newTap(t *testing.T, s *server.Server, job string) *tap {
	t.Helper()
	nc, sub := spy(t, s, strings.ReplaceAll("ditask."+job+".conn.>", " ", "~20"))
	return &tap{nc: nc, sub: sub}
}

// ends receives the accept.
func (p *tap) ends(t *testing.T) {
	t.Helper()
	m := next(t, p.sub)
	if m.Data[0] != kindAccept {
		t.Fatalf("the first message is of kind %d", m.Data[0])
	}
	p.dialled, p.accepted = m.Subject, m.Reply
}

// inject sends a message to an end, with the end's number in it.
func (p *tap) inject(t *testing.T, subject string, raw []byte) {
	t.Helper()
	if len(raw) >= 9 {
		id, err := strconv.ParseUint(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(raw[1:], id)
	}
	if err := p.nc.Publish(subject, raw); err != nil {
		t.Fatal(err)
	}
}

// TestYoungConnectionsAreProbed: both ends send an unrequested message, so that the loss of the
// last message is noticed.
func TestYoungConnectionsAreProbed(t *testing.T) {
	s := plain(t, server.Options{})
	_, sub := spy(t, s, "ditask.job.conn.>")
	pair(t, natsbus.Config{URL: s.ClientURL()})
	ends := map[string]bool{}
	for len(ends) < 2 {
		if m := next(t, sub); m.Data[0] == kindAck {
			ends[m.Reply] = true
		}
	}
}

// TestDialIsRepeated: the first message may have been lost.
func TestDialIsRepeated(t *testing.T) {
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
	if first, second := next(t, sub), next(t, sub); first.Reply != second.Reply || !bytes.Equal(first.Data, second.Data) {
		t.Errorf("the dials are for the connections %s and %s", first.Reply, second.Reply)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "bus://node.5: no answer over nats://127.0.0.1:") ||
		!errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestResetIsNotAnswered: two ends without a connection would otherwise answer each other
// without end.
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
	data := message(kindData, 0, 0, "x")
	data[1], data[2] = 12345%256, 12345/256
	unknown := inbox[:strings.LastIndexByte(inbox, '.')] + ".12345"
	for _, m := range []struct {
		reply string
		raw   []byte
	}{{"ditask.job.conn.spy.1", message(kindReset, 0, 0, "")}, {"ditask.other.conn.spy.2", message(kindData, 0, 0, "x")},
		{"ditask.job.conn.spy.3", data}} {
		if err := nc.PublishRequest(unknown, m.reply, m.raw); err != nil {
			t.Fatal(err)
		}
	}
	if m := next(t, sub); m.Subject != "ditask.job.conn.spy.3" {
		t.Errorf("the first answer goes to %s", m.Subject)
	}
	cancel()
	<-ended
}

// TestUnauthenticatedClientsAreNotAccepted: a dial whose reply subject is not an end
// of a connection of this job is not answered.
func TestUnauthenticatedClientsAreNotAccepted(t *testing.T) {
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
	if _, err := c.Dial(soon(t), "bus://node.7"); err != nil { // it is served after the unauthenticated one
		t.Fatal(err)
	}
	if err := nc.Publish("elsewhere", []byte("the end")); err != nil {
		t.Fatal(err)
	}
	if m := next(t, sub); string(m.Data) != "the end" {
		t.Errorf("an unauthenticated dial is answered: %q", m.Data)
	}
	_ = l.Close()
}

// TestOnlyThePeerAccepts: an answer cannot redirect the connection.
func TestOnlyThePeerAccepts(t *testing.T) {
	s := plain(t, server.Options{})
	nc, _ := spy(t, s, "ditask.job.dial.6")
	_, err := nc.Subscribe("ditask.job.dial.5", func(m *nats.Msg) {
		raw := message(kindAccept, 0, 2, "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00elsewhere.>.....")
		copy(raw[1:9], m.Data[25:33]) // the number of the dialler's end
		_ = nc.PublishRequest(m.Reply, "elsewhere", raw)
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t, natsbus.Config{URL: s.ClientURL()}).Dial(soon(t), "bus://node.5")
	if err == nil || !strings.Contains(err.Error(), `malformed message: inbox "elsewhere.>`) {
		t.Error(err)
	}
}

func TestBacklogOfAListener(t *testing.T) {
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
	for i := range 1024 - 1 {
		binary.LittleEndian.PutUint64(raw[25:], uint64(i+1)) // the number of the dialler's end
		if err := nc.PublishRequest("ditask.job.dial.0", fmt.Sprint("ditask.job.conn.spy.", i), raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Dial(soon(t), "bus://node.0"); err == nil ||
		!strings.Contains(err.Error(), "connection refused: too many wait to be accepted") {
		t.Fatalf("one more than the backlog: %v", err)
	}
	_ = l.Close()
	_ = first.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that was not accepted, after the end of the listener: %v", err)
	}
}

// TestPeerThatViolatesTheProtocolIsLost: the error names the violation.
func TestPeerThatViolatesTheProtocolIsLost(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for want, raw := range map[string][][]byte{
		"16777215 bytes consumed of 0":   {message(kindAck, 0, 16777215, "")},
		"147968 bytes over the window":   {message(kindData, 0, 0, big), message(kindData, 200<<10, 0, big)},
		"bytes 1 to 2 are missing: NATS": {message(kindData, 0, 0, "x"), message(kindData, 2, 0, "x")},
	} {
		s := plain(t, server.Options{})
		tap := newTap(t, s, "job")
		a, b := pair(t, natsbus.Config{URL: s.ClientURL(), Nodes: 1000})
		tap.ends(t)
		for _, m := range raw {
			tap.inject(t, tap.accepted, m)
		}
		for _, c := range []net.Conn{a, b} { // b last: reading would return room to a
			if _, err := io.ReadAll(c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v fails with %v, want %s", c.LocalAddr(), err, want)
			}
		}
	}
}

// TestOldNodesAreRefused: a node of version 1 of the protocol receives an error from a node of this version, and the other way round.
func TestOldNodesAreRefused(t *testing.T) {
	const want = "refused: another version of ditask: the other node speaks version 1 of the broker protocol, and this node version 2"
	s := plain(t, server.Options{})
	c := open(t, natsbus.Config{URL: s.ClientURL()})
	if _, err := c.Listen(soon(t), "bus://node.0"); err != nil {
		t.Fatal(err)
	}
	nc, sub := spy(t, s, "ditask.job.conn.OLD.*")
	hello := append(append([]byte{1}, make([]byte, 16)...), "\x01\x00\x00\x10\x00ditask job node.1"...)
	if err := nc.PublishRequest("ditask.job.dial.0", "ditask.job.conn.OLD.DIAL", hello); err != nil {
		t.Fatal(err)
	}
	m := next(t, sub)
	if m.Data[0] != kindReset || binary.LittleEndian.Uint64(m.Data[1:]) != 0 || !strings.HasPrefix(string(m.Data[17:]), want) {
		t.Errorf("an old dialler is answered %q", m.Data)
	}
	_, err := nc.Subscribe("ditask.job.dial.5", func(m *nats.Msg) {
		// This is how version 1 reads the message.
		if m.Data[0] == 1 && binary.LittleEndian.Uint64(m.Data[1:]) == 0 && m.Data[17] == 2 && len(m.Data[17:]) <= 5+200 {
			_ = nc.Publish(m.Reply, append(append([]byte{kindReset}, make([]byte, 16)...), "refused: malformed message: version 2, this is 1"...))
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Dial(soon(t), "bus://node.5"); err == nil ||
		!strings.Contains(err.Error(), "refused: malformed message: version 2, this is 1") {
		t.Errorf("a dial of an old listener: %v", err)
	}
}

func TestTokensOfJobsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, job := range []string{"a", "a.b", "a~2eb", "a_b", "a-b", "a b", "a*", "a>", "ä"} {
		got := natsbus.Subject(job)
		if strings.ContainsAny(got, ".*> ") || seen[got] != "" {
			t.Errorf("%q gives %q, as %q does", job, got, seen[got])
		}
		seen[got] = job
	}
}

func TestWindowsOfAllPeersStayBelowTheServersLimit(t *testing.T) {
	for _, n := range []int{2, 24, 64, 180} {
		if all := open(t, natsbus.Config{URL: "nats://h:1", Nodes: n}).Window() * (n - 1); all > 64<<20 {
			t.Errorf("%d nodes: %d bytes", n, all)
		}
	}
}

// TestLeastPayload: a server with exactly the smallest max_payload can be used.
func TestLeastPayload(t *testing.T) {
	s := plain(t, server.Options{MaxPayload: 4096})
	a, b := pair(t, natsbus.Config{URL: s.ClientURL()})
	go func() { _, _ = a.Write(make([]byte, 100_000)) }()
	if _, err := io.ReadFull(b, make([]byte, 100_000)); err != nil {
		t.Error(err)
	}
}
