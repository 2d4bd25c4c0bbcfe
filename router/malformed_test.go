package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A frame that a peer may not send ends its part in the job, with the reason.
func TestR7ForbiddenFrames(t *testing.T) {
	leaf := func(c *Config) { c.Topology, c.Attach = Star, []string{"hub"} }
	small := func(c *Config) { c.ChunkBytes, c.MaxMessageBytes = inlineBytes, inlineBytes+1 }
	piece := make([]byte, inlineBytes)
	u64 := func(t frameType, channel uint16, v ...uint64) []byte { return appendU64(nil, t, channel, v...) }
	text := func(t frameType, channel uint16, body string) []byte {
		return appendFrame(nil, t, 0, channel, []byte(body))
	}
	for name, c := range map[string]struct {
		edit   func(*Config)
		frames [][]byte
		why    string
	}{
		"declaration":           {nil, [][]byte{text(frameDeclare, 1, "{")}, "malformed frame: declaration: "},
		"number of declaration": {nil, [][]byte{text(frameDeclare, 2, `{"name":"f","fingerprint":"0"}`)}, `event "f" has number 2, want 1`},
		"members":               {nil, [][]byte{text(frameMembers, 0, "{")}, "malformed frame: members: "},
		"barrier":               {nil, [][]byte{text(frameBarrier, 0, "{")}, "malformed frame: barrier: "},
		"relay in a mesh":       {nil, [][]byte{text(frameRelay, 0, "{}")}, "no leaf of a star"},
		"relay":                 {leaf, [][]byte{text(frameRelay, 0, "{")}, "malformed frame: relay: "},
		"farewell":              {nil, [][]byte{text(frameFarewell, 0, "{")}, "malformed frame: farewell: "},
		"listen":                {nil, [][]byte{text(frameListen, 1, "")}, "event number 1 is not declared"},
		"data":                  {nil, [][]byte{text(frameData, 1, "12345678")}, "event number 1 is not declared"},
		"header":                {nil, [][]byte{text(frameMsgHeader, 1, "x")}, "event number 1 is not declared"},
		"chunk": {nil, [][]byte{appendFrame(nil, frameChunk, 0, 1, make([]byte, chunkHead))},
			"event number 1 is not declared"},
		"acknowledgement":   {nil, [][]byte{u64(frameAck, 0, 1000)}, "1000 frames acknowledged of"},
		"room for no event": {nil, [][]byte{u64(frameCredit, 1, 0, 0)}, "room for event number 1 that was never sent"},
		"room for messages": {nil, [][]byte{u64(frameCredit, 0, 1, 0)}, "room for event number 0 that was never sent"},
		"room for bytes":    {nil, [][]byte{u64(frameCredit, 0, 0, 1)}, "room for event number 0 that was never sent"},
		"type":              {nil, [][]byte{text(99, 0, "")}, "type 99"},
		"a large message":   {small, [][]byte{chunk(1, inlineBytes+2, 0, piece)}, "a message of 32770 bytes is over the limit of 32769"},
		"an empty chunk":    {small, [][]byte{chunk(1, 5, 0, nil)}, "a chunk of 0 bytes at 0 of 5"},
		"a second half":     {small, [][]byte{chunk(1, inlineBytes+1, inlineBytes, []byte{1})}, "have 0 of 0"},
		"another total": {small, [][]byte{chunk(1, inlineBytes+1, 0, piece), chunk(1, inlineBytes, inlineBytes, []byte{1})},
			"at 32768 of 32768, have 32768 of 32769"},
		"another place": {small, [][]byte{chunk(1, inlineBytes+1, 0, piece[1:]), chunk(1, inlineBytes+1, inlineBytes, []byte{1})},
			"have 32767 of 32769"},
		"more than all": {small, [][]byte{chunk(1, 5, 0, piece[:6])}, "a chunk of 6 bytes at 0 of 5"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, c.edit)
				for _, f := range c.frames {
					g.say(t, f)
				}
				if why := g.lost(); !strings.Contains(why, c.why) || !strings.Contains(why, errBadFrame.Error()) {
					t.Errorf("%s, want %s", why, c.why)
				}
			})
		})
	}
}

// The largest message is received in chunks, with its header.
func TestLargestMessageIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.ChunkBytes, c.MaxMessageBytes = inlineBytes, inlineBytes+1 })
		var got []string
		g.r.channels[0].deliver = func(m *Message) error {
			got = append(got, fmt.Sprintf("%d %d bytes %s %v", m.Version, len(m.Payload), m.Header, m.Takable))
			m.Credit.Return(1, len(m.Payload))
			return nil
		}
		g.say(t, appendFrame(nil, frameMsgHeader, 0, 0, []byte("beside")))
		g.say(t, chunk(1, inlineBytes+1, 0, make([]byte, inlineBytes)))
		g.say(t, chunk(1, inlineBytes+1, inlineBytes, []byte{1}))
		g.say(t, data(2))
		synctest.Wait()
		if want := []string{"1 32769 bytes beside true", "2 5 bytes  false"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A listener's error ends this node's part in the job, and names the event and the sender.
func TestListenersErrorEndsTheNodesPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		full := errors.New("the disk is full")
		g.r.channels[0].deliver = func(*Message) error { return full }
		g.say(t, data(1))
		synctest.Wait()
		if err := g.r.failure; !errors.Is(err, full) || !strings.HasPrefix(err.Error(), `event "e" from node.7: `) {
			t.Error(err)
		}
	})
}

// A payload that is not of the event's type ends the part of its sender in the job, which is
// named with the event and the message, and not that of this node.
func TestR7PayloadThatDoesNotDecodeEndsItsSender(t *testing.T) {
	for name, frame := range map[string][]byte{
		"small": data(1),
		"large": chunk(1, inlineBytes, 0, make([]byte, inlineBytes)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, nil)
				var changes []Change
				g.r.Watch(func(c Change) { changes = append(changes, c) })
				g.r.channels[0].deliver = func(*Message) error { return fmt.Errorf("%w: at byte 0", ErrPayload) }
				g.say(t, frame)
				if why := g.lost(); why != `malformed frame: event "e", message 1: the payload does not decode: at byte 0` {
					t.Error(why)
				}
				synctest.Wait()
				if len(changes) != 1 || changes[0].Kind != Lost || changes[0].Peer.ID != 7 || !errors.Is(changes[0].Err, ErrPayload) ||
					g.r.failure != nil {
					t.Errorf("%+v, failure %v", changes, g.r.failure)
				}
			})
		})
	}
}

// partner is a second router with the same token; the test performs its side of a handshake.
func partner(t *testing.T, node int) *Router {
	return openRouter(t, Config{Job: "j", Token: []byte("secret"), Node: node, Logger: slog.New(slog.DiscardHandler)})
}

// A node that dials checks each answer, also of a node that has the token.
func TestR7AnswersOfAListenerAreChecked(t *testing.T) {
	hub := partner(t, 2)
	good, err := json.Marshal(hub.hello(""))
	if err != nil {
		t.Fatal(err)
	}
	framed := func(body string) []byte { return append(le.AppendUint32(nil, uint32(len(body))), body...) }
	for name, c := range map[string]struct {
		hello string
		then  []byte // after its hello
		code  string // of the refusal; "" for none
		why   string
	}{
		"no hello":            {`5`, nil, "", "malformed frame"},
		"another job":         {strings.Replace(string(good), `"job":"j"`, `"job":"k"`, 1), nil, RefuseJob, "belongs to job"},
		"no welcome":          {string(good), nil, "", "EOF"},
		"half a welcome":      {string(good), []byte("\x05\x00\x00\x00{"), "", "unexpected EOF"},
		"no JSON":             {string(good), framed("{"), "", "malformed frame"},
		"a refusal":           {string(good), framed(`{"refuse":{"code":"limits","reason":"abc"}}`), RefuseLimits, "abc"},
		"frames never sent":   {string(good), framed(`{"got":"5"}`), "", "reports 5 received frames, of "},
		"too long a message":  {string(good), []byte("\x01\x40\x00\x00"), "", "a handshake message of 16385 bytes"},
		"an alert of TLS":     {string(good), []byte("\x15\x03\x03\x00"), "", "the other side speaks TLS"},
		"a handshake of TLS":  {string(good), []byte("\x16\x03\x01\x00"), "", "the other side speaks TLS"},
		"an alert, not of it": {string(good), []byte("\x15\x02\x03\x00"), "", "a handshake message of "},
	} {
		t.Run(name, func(t *testing.T) {
			r := partner(t, 1)
			mine, theirs := net.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = theirs.Close() }()
				var h hello
				if _, err := io.ReadFull(theirs, make([]byte, len(magic))); err != nil {
					return
				}
				said, err := readMsg(theirs, &h)
				if err != nil {
					return
				}
				both := conversation{client: said, server: []byte(c.hello)}
				_, _ = writeMsg(theirs, nil, answer{Hello: json.RawMessage(c.hello), Proof: hub.prove("listen", both)})
				var p proof
				if _, err := readMsg(theirs, &p); err == nil {
					_, _ = theirs.Write(c.then)
				}
			}()
			l, err := r.callJoin(mine, nil, false)
			_ = mine.Close()
			<-ended
			if l != nil || err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %s", err, c.why)
			}
			no, ok := errors.AsType[*RefusedError](err)
			if ok != (c.code != "") || ok && no.Code != c.code {
				t.Errorf("%#v, want code %q", err, c.code)
			}
		})
	}
}

// A node that listens checks each message after a caller's hello, also of a caller that has the token.
func TestR7ProofsOfACallerAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		purpose string
		closing bool   // the node that listens
		then    string // after the answer; "" for nothing
		said    string // the node's answer
		err     string
	}{
		"it hangs up":                 {purposeJoin, false, "", "", "no proof of node.1: EOF"},
		"it has thought better of it": {purposeJoin, false, "connected", "", ""},
		"no JSON":                     {purposeJoin, false, "\x01\x00\x00\x00{", "", "no proof of node.1: malformed frame"},
		"half a proof":                {purposeJoin, false, "\x05\x00\x00\x00{", "", "no proof of node.1: unexpected EOF"},
		"another purpose":             {"tea", false, "proof", `purpose \"tea\"`, "protocol"},
		"closing":                     {purposeJoin, true, "proof", "node.2 is closing", ""},
		"no such ticket":              {purposeAnswer, false, "proof", "the ticket has expired", ""},
		"no such target":              {purposeRelay, false, "proof", "node.0 is not connected to the hub, node.2", ""},
		"frames never sent":           {purposeJoin, false, "proof 5", "were out of touch for longer than 8s", "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, r := partner(t, 2), partner(t, 1)
			hub.closed = c.closing
			mine, theirs := net.Pipe()
			var said []byte
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				h, pr, err := r.callHello(mine, r.hello(c.purpose), nil)
				switch {
				case err != nil || h.Node != 2:
					t.Errorf("the answer: %+v, %v", h, err)
				case c.then == "connected":
					_, _ = writeMsg(mine, nil, proof{Proof: pr, Refuse: &refusal{RefuseDuplicate, "connected already"}})
				case c.then == "proof":
					_, _ = writeMsg(mine, nil, proof{Proof: pr})
				case c.then == "proof 5":
					_, _ = writeMsg(mine, nil, proof{Proof: pr, Got: 5})
				default:
					_, _ = mine.Write([]byte(c.then))
				}
				if strings.HasPrefix(c.then, "proof") {
					said, _ = io.ReadAll(mine)
				}
				_ = mine.Close()
			}()
			_ = theirs.SetDeadline(time.Now().Add(10 * time.Second)) // only a fault takes that long
			kept, err := hub.answer(theirs, nil)
			_ = theirs.Close()
			<-ended
			hub.closed = false
			if kept || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v, want %q", kept, err, c.err)
			}
			if !strings.Contains(string(said), c.said) {
				t.Errorf("said %q, want %q", said, c.said)
			}
		})
	}
}

// A large payload that a listener has taken is its own: the next message does not use the same memory.
func TestTakenPayloadStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.ChunkBytes, c.MaxMessageBytes = inlineBytes, inlineBytes+1 })
		var taken [][]byte
		g.r.channels[0].deliver = func(m *Message) error {
			taken, m.Taken = append(taken, m.Payload), true
			m.Credit.Return(1, len(m.Payload))
			return nil
		}
		for i := range byte(2) {
			g.say(t, chunk(uint64(i)+1, inlineBytes, 0, bytes.Repeat([]byte{i}, inlineBytes)))
		}
		synctest.Wait()
		if len(taken) != 2 || taken[0][0] != 0 || taken[1][0] != 1 {
			t.Errorf("%d payloads, or the second is in the place of the first", len(taken))
		}
	})
}
