package gym

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// answers returns a process that is only the pipe of its answers, and the end to which they are written.
func answers(t *testing.T) (*process, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	p := &process{ended: make(chan struct{})}
	if err := p.listen(r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.answer.Close() })
	return p, w
}

func TestAnswerInParts(t *testing.T) {
	p, w := answers(t)
	if _, err := w.WriteString("\x01\x00\x00\x00\x03"); err != nil {
		t.Fatal(err)
	}
	next := time.AfterFunc(5*time.Millisecond, func() {
		_, _ = w.WriteString("\x00\x00\x00ab")
		time.AfterFunc(5*time.Millisecond, func() { _, _ = w.WriteString("c") })
	})
	defer next.Stop()
	if payload, status, err := p.read(time.Hour); string(payload) != "abc" || status != statusFault || err != nil {
		t.Errorf("%q, %d, %v", payload, status, err)
	}
}

// TestAnswerThatDoesNotCome ends a wait at its deadline, also one that has passed, and at the end of the process while another one
// holds the pipe.
func TestAnswerThatDoesNotCome(t *testing.T) {
	p, w := answers(t)
	for _, limit := range []time.Duration{-time.Hour, -2 * time.Millisecond, 0, time.Millisecond, waitMost + time.Millisecond} {
		if _, _, err := p.read(limit); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v: %v", limit, err)
		}
	}
	close(p.ended)
	if _, _, err := p.read(time.Hour); !errors.Is(err, errGone) {
		t.Error(err)
	}
	if _, err := w.Write(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if _, status, err := p.read(time.Hour); err != nil || status != statusOK {
		t.Errorf("what is in the pipe after the end: %d, %v", status, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.read(time.Hour); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
