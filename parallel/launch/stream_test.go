package launch

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// reader is a writer whose reader can be paused, slow, or gone.
type reader struct {
	mu     sync.Mutex
	paused chan struct{} // writes wait until it is closed; nil: it reads
	slow   time.Duration // for each line
	err    error
	lines  []string
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	paused, slow := r.paused, r.slow
	r.mu.Unlock()
	if paused != nil {
		<-paused
	}
	if slow > 0 {
		<-time.After(slow)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	r.lines = append(r.lines, string(p))
	return len(p), nil
}

// pause makes it stop reading until the returned function is called.
func (r *reader) pause() (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan struct{})
	r.paused = c
	return func() {
		r.mu.Lock()
		r.paused = nil
		r.mu.Unlock()
		close(c)
	}
}

// kib is a line of one KiB with a number.
func kib(i int) []byte { return fmt.Appendf(nil, "%06d%s\n", i, strings.Repeat("x", 1<<10-7)) }

// took is how long f takes.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func TestStreamLosesNothingWhereItsReaderIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{slow: streamPatience - time.Millisecond}
		s := NewStream(r, "text")
		for i := range 300 {
			if n, err := s.Write(kib(i)); n != 1<<10 || err != nil {
				t.Fatal(n, err)
			}
			if s.bytes > streamBytes {
				t.Fatalf("%d bytes wait", s.bytes)
			}
		}
		s.Flush(nil)
		if n, why := s.Dropped(); len(r.lines) != 300 || n != 0 || why != nil {
			t.Errorf("%d lines, %d dropped, %v", len(r.lines), n, why)
		}
		for i, line := range r.lines {
			if line != string(kib(i)) {
				t.Fatalf("line %d: %.20q", i, line)
			}
		}
	})
}

func TestStreamDropsWhereItsReaderIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		resume := r.pause()
		s := NewStream(r, "text")
		if d := took(func() {
			for i := range 256 {
				_, _ = s.Write(kib(i))
			}
		}); d != 0 {
			t.Errorf("to fill it takes %v", d)
		}
		if d := took(func() { _, _ = s.Write(kib(256)) }); d != streamPatience {
			t.Errorf("the first excess line waits %v", d)
		}
		if d := took(func() {
			for i := range 1000 {
				_, _ = s.Write(kib(257 + i))
			}
		}); d != 0 {
			t.Errorf("the lines after that wait %v", d)
		}
		if d := took(func() { s.Flush(nil) }); d != 0 {
			t.Errorf("Flush waits %v", d)
		}
		if n, why := s.Dropped(); n != 1257 || why != nil { // with those that wait
			t.Errorf("%d dropped, %v", n, why)
		}
		resume()
		synctest.Wait()
		s.TryWrite([]byte("next\n"))
		s.Flush(nil)
		want := "ditask: 1001 lines are missing here, as nothing read them for 3s; the files of --log-dir have all lines\n"
		if len(r.lines) != 258 || r.lines[255] != string(kib(255)) || r.lines[256] != want || r.lines[257] != "next\n" {
			t.Errorf("%d lines: %.200q", len(r.lines), r.lines[255:])
		}
		if n, why := s.Dropped(); n != 1001 || why != nil {
			t.Errorf("%d dropped, %v", n, why)
		}
	})
}

// The number of dropped lines is written where they are missing, also if lines come at once.
func TestStreamCountsDroppedLinesInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		resume := r.pause()
		s := NewStream(r, "json")
		for i := range 300 {
			_, _ = s.Write(kib(i))
		}
		r.mu.Lock()
		r.slow = time.Millisecond // from the second line on
		r.mu.Unlock()
		resume()
		synctest.Wait()
		<-time.After(time.Millisecond)
		synctest.Wait()
		for i := range 200 {
			_, _ = s.Write(kib(300 + i))
		}
		s.Flush(nil)
		if len(r.lines) != 256+1+200 || !strings.Contains(r.lines[256], `"level":"WARN","msg":"44 lines are missing here`) {
			t.Errorf("%d lines: %.100q", len(r.lines), r.lines[256])
		}
		s.TryWrite([]byte("x"))
		s.Flush(nil)
		if strings.Contains(r.lines[len(r.lines)-1], "missing") {
			t.Error("it is written twice")
		}
	})
}

// The launcher's own lines never wait, and have a reserve.
func TestStreamWritesOwnLinesWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		resume := r.pause()
		s := NewStream(r, "text")
		for i := range 256 {
			_, _ = s.Write(kib(i))
		}
		if d := took(func() {
			for i := range 65 {
				s.TryWrite(kib(1000 + i))
			}
		}); d != 0 {
			t.Errorf("it waits %v", d)
		}
		if n, _ := s.Dropped(); n != 1 {
			t.Errorf("%d dropped, want the one beyond the reserve", n)
		}
		resume()
		synctest.Wait()
		if len(r.lines) != 256+64+1 || r.lines[319] != string(kib(1063)) {
			t.Errorf("%d lines", len(r.lines))
		}
	})
}

// The output that remains at the end of a process does not wait, and is not dropped for a slow reader.
func TestStreamDoesNotWaitAtTheEndOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{slow: time.Second}
		s := NewStream(r, "text")
		for i := range 256 {
			_, _ = s.Write(kib(i))
		}
		ended := make(chan struct{})
		began := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			for i := range 10 {
				s.put(kib(256+i), ended)
			}
		})
		synctest.Wait()
		close(ended)
		waiting.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("it takes %v", d)
		}
		s.Flush(nil)
		if n, _ := s.Dropped(); n != 0 || len(r.lines) != 266 {
			t.Errorf("%d lines, %d dropped", len(r.lines), n)
		}
		r.mu.Lock()
		r.slow = 0
		r.mu.Unlock()
		resume := r.pause()
		for i := range 256 {
			_, _ = s.Write(kib(i))
		}
		<-time.After(streamPatience)
		s.put(kib(1), ended)
		if n, _ := s.Dropped(); n != 257 || s.lost != 1 {
			t.Errorf("a paused reader: %d dropped", n)
		}
		resume()
		synctest.Wait()
	})
}

func TestStreamWhoseReaderIsGone(t *testing.T) {
	for _, gone := range []error{&os.PathError{Err: syscall.EPIPE}, syscall.EIO, os.ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			r := &reader{err: gone}
			resume := r.pause()
			s := NewStream(r, "text")
			for i := range 10 {
				_, _ = s.Write(kib(i))
			}
			resume()
			s.Flush(nil)
			_, _ = s.Write(kib(10))
			s.TryWrite(kib(11))
			if n, why := s.Dropped(); n != 12 || !errors.Is(why, gone) || len(s.lines) > 0 || s.writing {
				t.Errorf("%d dropped, %v", n, why)
			}
		})
	}
}

// A full disk may have room again.
func TestStreamGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{err: syscall.ENOSPC}
		s := NewStream(r, "text")
		_, _ = s.Write(kib(0))
		s.Flush(nil)
		r.err = nil
		_, _ = s.Write(kib(1))
		s.Flush(nil)
		if n, why := s.Dropped(); n != 1 || !errors.Is(why, syscall.ENOSPC) || len(r.lines) != 2 ||
			!strings.HasPrefix(r.lines[0], "ditask: 1 lines are missing here, as they could not be written: no space left on device;") {
			t.Errorf("%d dropped, %v, %.100q", n, why, r.lines)
		}
	})
}

// The line with the number of dropped ones does not count itself, and the number is kept when
// it cannot be written.
func TestStreamCountsDroppedLinesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{err: syscall.ENOSPC}
		s := NewStream(r, "text")
		for i := range 10 {
			_, _ = s.Write(kib(i))
			s.Flush(nil)
		}
		if n, _ := s.Dropped(); n != 10 {
			t.Errorf("%d dropped, want 10", n)
		}
		r.err = nil
		_, _ = s.Write(kib(10))
		s.Flush(nil)
		if len(r.lines) != 2 || !strings.HasPrefix(r.lines[0], "ditask: 10 lines are missing here") {
			t.Errorf("%.100q", r.lines)
		}
	})
}

func TestStreamFlushEndsWithASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{}
		resume := r.pause()
		s := NewStream(r, "text")
		_, _ = s.Write(kib(0))
		signals := make(chan os.Signal, 1)
		time.AfterFunc(time.Second, func() { signals <- os.Interrupt })
		if d := took(func() { s.Flush(signals) }); d != time.Second {
			t.Errorf("it takes %v", d)
		}
		if d := took(func() { s.Flush(nil) }); d != streamPatience-time.Second {
			t.Errorf("without an end it takes %v", d)
		}
		resume()
		synctest.Wait()
	})
}
