package router

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// FuzzFrames sends frames to a session of a known peer: whatever they are, the link ends with an error
// or continues, without a panic or much memory.
func FuzzFrames(f *testing.F) {
	r, err := New(Config{Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler), MaxMessageBytes: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = r.Close() })
	ch, err := r.Channel(Spec{Name: "e"}, func(m *Message) error { m.Credit.Return(1, len(m.Payload)); return nil })
	if err != nil {
		f.Fatal(err)
	}
	ch.Listen(true)
	declare := appendFrame(nil, frameDeclare, flagOn, 0, []byte(`{"name":"e","delivery":"reliable","fingerprint":"0"}`))
	data := appendFrame(nil, frameData, 0, 0, append(le.AppendUint64(nil, 1), "hello"...))
	chunk := appendFrame(nil, frameChunk, 0, 0, append(le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, 2), 4), 0), "four"...))
	f.Add(append(append(append([]byte{}, declare...), data...), chunk...))
	f.Add(append(append(append([]byte{}, declare...), appendFrame(nil, frameMsgHeader, 0, 0, []byte("trace"))...), data...))
	f.Add(appendU64(nil, frameAck, 0, 1))
	f.Add(appendU64(nil, frameCredit, 0, 1, 1))
	f.Add(appendU64(nil, framePing, 0, 7))
	f.Add(appendFrame(nil, frameMembers, 0, 0, []byte(`[{"id":-1,"incarnation":"5"}]`)))
	f.Add(appendFrame(nil, frameBye, 0, 0, []byte("bye")))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := r.admit(hello{Node: 7, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := net.Pipe()
		l, err := s.attach(mine, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_ = theirs.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = theirs.Write(b)
		_ = theirs.Close()
		<-l.ended
		r.lose(s, ErrLost)
		r.mu.Lock()
		delete(r.was, 7)
		r.failure = nil
		r.lost = nil
		r.joins = paces{} // each input is a join
		r.mu.Unlock()
	})
}

// noTransport makes no connections.
type noTransport struct{ Transport }

func (noTransport) Dial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("nobody there")
}
