package task

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// tornCodec finds payloads that another process changes while they are decoded.
type tornCodec struct{ PayloadCodec }

func (tornCodec) Decode(src []byte, _ any, _ bool) error {
	_ = src[len(src)-1+int(src[0])] // the fault of a decoder that reads a length twice
	return nil
}

// Any failure to decode memory of another process is an error that names its sender. For other
// payloads it remains a panic: the decoder has a fault.
func TestLentPayloadThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ev := NewEvent[[]byte]("bytes")
		tk := jobOf(t, 1, nil)[0]
		ev.On(tk, func(context.Context, []byte) error { return nil }, Borrowed())
		p, err := ev.subscription(tk.en)
		must(t, err)
		p.codec = tornCodec{p.codec}
		var l ledger
		in := Inbound{From: 7, Version: 3, Payload: bytes.Repeat([]byte{1}, lendBytes), Credit: &l, Takable: true, Lent: true}
		err = p.deliver(&in)
		bad, ok := errors.AsType[*PayloadError](err)
		if !ok || bad.Node != 7 || bad.Version != 3 || !strings.Contains(bad.Err.Error(), "changed while it is decoded") {
			t.Errorf("%v", err)
		}
		if len(l.recycled) != 1 || l.returned != 1 {
			t.Errorf("%d payloads recycled, %d returned", len(l.recycled), l.returned)
		}
		defer func() {
			if recover() == nil {
				t.Error("a fault of the decoder is hidden")
			}
		}()
		in.Lent = false
		_ = p.deliver(&in)
	})
}

// Memory of another process is returned once, after the listeners. A listener that keeps the payload and was added meanwhile
// receives a copy.
func TestLentPayloadIsGivenBack(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ev := NewEvent[[]byte]("bytes")
			tk := jobOf(t, 1, nil)[0]
			gate := make(chan struct{})
			var kept [][]byte
			evA.On(tk, func(context.Context, int) error { <-gate; return nil })
			ev.On(tk, func(_ context.Context, b []byte) error {
				if b[0] != 9 {
					t.Errorf("received %d", b[0])
				}
				return nil
			}, Borrowed())
			must(t, evA.Emit(t.Context(), tk, 1))
			synctest.Wait()
			p, err := ev.subscription(tk.en)
			must(t, err)
			var l ledger
			memory := bytes.Repeat([]byte{9}, lendBytes)
			must(t, p.deliver(&Inbound{From: 1, Version: 1, Payload: memory, Credit: &l, Takable: true, Lent: true}))
			if late {
				ev.On(tk, func(_ context.Context, b []byte) error { kept = append(kept, b); return nil })
			}
			if len(l.recycled) != 0 {
				t.Error("returned before it was received")
			}
			close(gate)
			synctest.Wait()
			if len(l.recycled) != 1 || l.returned != 1 || &l.recycled[0][0] != &memory[0] {
				t.Errorf("%d payloads recycled, %d returned", len(l.recycled), l.returned)
			}
			memory[0] = 1 // the sender uses it again
			if late && (len(kept) != 1 || kept[0][0] != 9) {
				t.Errorf("kept %d", len(kept))
			}
		})
	}
}
