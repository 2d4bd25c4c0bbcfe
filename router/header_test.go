package router

import (
	"log/slog"
	"testing"
)

type headed struct{ Buffer }

func (headed) Header() []byte { return []byte("trace") }

// TestHeadersAreNotSentToPeersWithoutThem sends to a peer whose hello announces headers, and to one
// of a version that did not have them.
func TestHeadersAreNotSentToPeersWithoutThem(t *testing.T) {
	r, err := New(Config{Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := r.Channel(Spec{Name: "e", Headers: true}, nil); err != nil {
		t.Fatal(err)
	}
	for node, features := range map[int][]string{7: r.hello(purposeJoin).Features, 8: nil, 9: {"else"}} {
		s, err := r.admit(hello{Node: node, Incarnation: 1, Features: features})
		if err != nil {
			t.Fatal(err)
		}
		o := s.outs[0]
		o.listens = true
		for _, size := range []int{1, 100 << 10} {
			if send(o, headed{make(Bytes, size)}) != sent {
				t.Fatal("not sent")
			}
		}
		headers, messages := 0, 0
		for _, seg := range s.log.segs {
			for b := seg.buf; len(b) > 0; {
				h, err := parseHeader(b, r.cfg.ChunkBytes)
				if err != nil {
					t.Fatal(err)
				}
				switch h.typ {
				case frameMsgHeader:
					headers++
				case frameData, frameChunk:
					messages++
				}
				b = b[min(headerBytes+h.body, len(b)):]
			}
		}
		if want := map[int]int{7: 2}[node]; headers != want || messages != 2 {
			t.Errorf("sent node.%d %d headers and %d messages, want %d and 2", node, headers, messages, want)
		}
	}
}
