package router

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// dialFunc is a transport that only dials.
type dialFunc func(ctx context.Context, addr string) (net.Conn, error)

func (dialFunc) Listen(context.Context, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}
func (dialFunc) Advertise(net.Listener) string { return "" }
func (f dialFunc) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return f(ctx, addr)
}

// leafOf is a leaf of a star whose hub is reached by dial, and its log.
func leafOf(t *testing.T, dial dialFunc) (*Router, *logtest.Buffer) {
	t.Helper()
	log := &logtest.Buffer{}
	r, err := New(Config{Node: 1, Topology: Star, Attach: []string{"hub"}, Transport: dial, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return r, log
}

// A leaf that cannot call the hub back logs why, but not when it is closed meanwhile.
func TestLeafThatCannotAnswerTheHubLogsIt(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, log := leafOf(t, func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") })
			r.answerRelay(relayMsg{Ticket: "t", From: 2})
			<-time.After(time.Second)
			if closed {
				_ = r.Close()
			}
			<-time.After(time.Minute)
			if said := strings.Contains(log.String(), `msg="cannot answer the hub" for=node.2 err="no route"`); said == closed {
				t.Errorf("closed %v: the log:\n%s", closed, log)
			}
			if n := r.answering.Load(); n != 0 {
				t.Errorf("%d answers are under way", n)
			}
			_ = r.Close()
		})
	}
}

// A hub that refuses an answer because no node waits for it any more is not a fault; any other refusal
// is. Neither is called again.
func TestLeafThatTheHubRefuses(t *testing.T) {
	for code, fault := range map[string]bool{RefuseRelay: false, RefuseToken: true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			r, log := leafOf(t, func(context.Context, string) (net.Conn, error) {
				calls++
				ours, theirs := net.Pipe()
				go func() {
					defer func() { _ = theirs.Close() }()
					var h hello
					if _, err := io.ReadFull(theirs, make([]byte, len(magic))); err == nil {
						_, _ = readMsg(theirs, &h)
						_, _ = writeMsg(theirs, nil, answer{Refuse: &refusal{code, "said the hub"}})
						_, _ = io.Copy(io.Discard, theirs) // the leaf hangs up
					}
				}()
				return ours, nil
			})
			r.answerRelay(relayMsg{Ticket: "t", From: 2})
			<-time.After(20 * time.Second)
			synctest.Wait()
			if strings.Contains(log.String(), "said the hub") != fault || calls != 1 {
				t.Errorf("%s: %d calls, the log:\n%s", code, calls, log)
			}
			_ = r.Close()
		})
	}
}

// A side that closes the connection after a hello may require TLS.
func TestHangUpWithoutTLSIsExplained(t *testing.T) {
	a, b := net.Pipe()
	_, _ = a.Close(), b.Close()
	for err, explained := range map[error]bool{io.EOF: true, syscall.ECONNRESET: true, os.ErrDeadlineExceeded: false} {
		got := explainNoAnswer(a, err)
		if strings.Contains(got.Error(), "if it wants TLS") != explained || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// Under Latest, a newer value replaces the one that is kept for late joiners.
func TestLatestKeepsOneValue(t *testing.T) {
	r := openRouter(t, Config{})
	ch, err := r.Channel(Spec{Name: "e", Delivery: Latest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.started.Store(true)
	older, newer := &counted{b: []byte("a")}, &counted{b: []byte("b")}
	for _, b := range []*counted{older, newer} {
		if _, err := ch.Send(t.Context(), b, nil); err != nil {
			t.Error(err)
		}
	}
	if older.refs.Load() != 0 || newer.refs.Load() != 1 {
		t.Errorf("the older one is kept %d times, the newer one %d times", older.refs.Load(), newer.refs.Load())
	}
}

// A control frame is as long as maxFrameBody at most. A longer one is this node's fault.
func TestControlFramesAreBounded(t *testing.T) {
	for text, fits := range map[string]bool{strings.Repeat("x", maxFrameBody-2): true, strings.Repeat("x", maxFrameBody-1): false} {
		r := openRouter(t, Config{})
		s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
		s.controlJSON(frameMembers, 0, text)
		if (r.failure == nil) != fits || (s.log.sent == 1) != fits {
			t.Errorf("%d bytes: %v, %d frames", len(text)+2, r.failure, s.log.sent)
		}
	}
}
