package router

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// FuzzAnswer answers a node that dials: whatever the answer, the node gets no peer without the token,
// and the call ends.
func FuzzAnswer(f *testing.F) {
	reply := func(parts ...any) []byte {
		var out []byte
		for _, p := range parts {
			body, err := json.Marshal(p)
			if err != nil {
				f.Fatal(err)
			}
			out = append(le.AppendUint32(out, uint32(len(body))), body...)
		}
		return out
	}
	other := json.RawMessage(`{"protocol":1,"job":"j","node":0,"incarnation":"1","nonce":"AA==",` +
		`"limits":{"window_messages":16384,"window_bytes":8388608,"chunk_bytes":262144}}`)
	f.Add(reply(answer{Hello: other, Proof: make([]byte, 32)}, welcome{Got: 1}))
	f.Add(reply(answer{Hello: json.RawMessage(`null`)}))
	f.Add(reply(answer{Refuse: &refusal{RefuseToken, "no"}}))
	f.Add([]byte("\x15\x03\x03\x00\x02\x02\x28"))
	f.Add([]byte("\xff\xff\x00\x00{"))
	r, err := New(Config{Job: "j", Token: []byte("secret"), Node: 1, Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = r.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		mine, theirs := net.Pipe()
		_ = mine.SetDeadline(time.Now().Add(5 * time.Second))
		received := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, theirs); close(received) }()
		go func() { _, _ = theirs.Write(b); _ = theirs.Close() }()
		if l, err := r.callJoin(mine, nil, false); err == nil || l != nil {
			t.Fatal("it has joined")
		}
		_ = mine.Close()
		<-received
	})
}

// FuzzMessages decodes each message of the handshake, also those that only a node with the token can
// send.
func FuzzMessages(f *testing.F) {
	for _, text := range []string{
		`{"protocol":1,"job":"j","node":1,"incarnation":"5","addrs":["mem://1"],"labels":["a"],"nonce":"AAEC",` +
			`"purpose":"relay","target":2,"ticket":"x",` +
			`"limits":{"window_messages":16384,"window_bytes":8388608,"chunk_bytes":262144}}`,
		`{"hello":{"protocol":1},"proof":"AAEC"}`, `{"refuse":{"code":"token","reason":"no"}}`, `{"proof":"AAEC","known":true,"got":"7"}`,
		`{"node":1,"incarnation":"5","purpose":"farewell","farewell":{"reason":"killed","final":true}}`,
		`{"got":"18446744073709551615"}`, `[[[[[[[[[[[[[[[[`, `{"got":"-1"}`, `{"node":1e999}`,
	} {
		f.Add([]byte(text))
	}
	r, err := New(Config{Job: "j", Node: 1, Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = r.Close() })
	f.Fuzz(func(_ *testing.T, text []byte) {
		whole := append(le.AppendUint32(nil, uint32(len(text))), text...)
		read := func(v any) bool {
			_, err := readMsg(bytes.NewReader(whole), v)
			return err == nil
		}
		var h hello
		if read(&h) && r.acceptable(h) == nil {
			_, _ = r.find(h)
		}
		var p proof
		if read(&p) {
			_ = remember(nil, p)
		}
		read(new(answer))
		read(new(welcome))
	})
}
