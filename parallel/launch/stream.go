package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// The bounds of a Stream: bytes of lines that wait to be written, the room on top of
// that which only the launcher's own lines may use, and how long one write may take
// before the reader counts as paused.
const (
	streamBytes    = 256 << 10
	streamReserve  = 64 << 10
	streamPatience = 3 * time.Second
)

// Stream writes lines to a writer whose reader may be slow, paused or gone: a terminal
// after Ctrl-S, a pager, a hung connection, the pipe to a program that has ended.
// Lines are written in order, each by one call of the writer's Write.
//
// A slow reader slows Write down: 256 KiB of lines wait at most, and no line is lost. A
// reader that has not taken a line for 3 s is paused: as long as that lasts, lines for
// which there is no room are dropped and counted, and nothing waits. When it reads
// again, a line at the place of those that were dropped says how many they were. When
// it is gone, everything is dropped and counted.
//
// A Stream is safe for concurrent use. It has one goroutine while there is something
// to write, which ends by itself unless a call of the writer's Write does not return.
type Stream struct {
	w      io.Writer
	format string // of the launcher's own lines

	mu      sync.Mutex
	lines   []queued      // to be written, in order; the first one is being written
	bytes   int           // of lines
	writing bool          // the goroutine runs
	since   time.Time     // when the current write began
	room    chan struct{} // closed when half of the room is free; nil: nothing waits for it
	dropped int           // lines since the last report
	lost    int           // lines that were dropped in all
	failed  error         // why the last line was lost; nil: the reader was paused
	gone    error         // why the reader will not come back
}

// queued is a line, or several, that waits to be written.
type queued struct {
	text    []byte
	missing int // not 0: it says how many lines were dropped, and is none that counts itself
}

// NewStream returns a Stream over w. format is that of the lines that the Stream adds:
// text or json. It starts nothing.
func NewStream(w io.Writer, format string) *Stream { return &Stream{w: w, format: format} }

// asStream is w itself, if it is a Stream.
func asStream(w io.Writer, format string) *Stream {
	if s, ok := w.(*Stream); ok {
		return s
	}
	return NewStream(w, format)
}

// Write takes whole lines. It waits for room while the reader is slow, for 3 s at most
// while it is paused. It reports no error: see [Stream.Dropped].
func (s *Stream) Write(lines []byte) (int, error) {
	s.put(lines, nil)
	return len(lines), nil
}

// TryWrite takes whole lines and never waits: they are dropped where there is no room.
func (s *Stream) TryWrite(lines []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != nil || !s.fits(lines, streamBytes+streamReserve) {
		s.drop(nil)
		return
	}
	s.accept(lines)
}

// put is Write, but does not wait once hurry is closed: what a process has left when it
// has ended is little, and takes its place beyond the bound.
func (s *Stream) put(lines []byte, hurry <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hurried := false; ; hurried = s.await(hurry, nil) {
		switch {
		case s.gone != nil:
			s.drop(nil)
			return
		case s.fits(lines, streamBytes), hurried && !s.paused():
			s.accept(lines)
			return
		case s.paused():
			s.drop(nil)
			return
		}
	}
}

// fits reports whether there is room. The mutex is held.
func (s *Stream) fits(lines []byte, limit int) bool {
	return s.bytes == 0 || s.bytes+len(lines) <= limit
}

// paused reports whether the current write has lasted too long. The mutex is held.
func (s *Stream) paused() bool { return s.writing && time.Since(s.since) >= streamPatience }

// drop counts a line that is not written, because of err or because the reader is paused.
// The mutex is held.
func (s *Stream) drop(err error) {
	s.dropped++
	s.lost++
	s.failed = err
}

// accept appends lines, after the note of those that were dropped before. The mutex is
// held.
func (s *Stream) accept(lines []byte) {
	if s.dropped > 0 && !s.paused() {
		s.note()
	}
	s.add(queued{text: append([]byte(nil), lines...)})
}

// note appends the line with the number of dropped lines. The mutex is held.
func (s *Stream) note() {
	why := fmt.Sprintf("nothing read them for %v", streamPatience)
	if s.failed != nil {
		why = fmt.Sprintf("they could not be written: %v", s.failed)
	}
	text := fmt.Sprintf("%d lines are missing here, as %s; the files of --log-dir have all lines", s.dropped, why)
	line := queued{ownLine(s.format, time.Now(), "WARN", text), s.dropped}
	s.dropped = 0
	s.add(line)
}

func (s *Stream) add(line queued) {
	s.lines = append(s.lines, line)
	s.bytes += len(line.text)
	if !s.writing {
		s.writing, s.since = true, time.Now()
		go s.write()
	}
}

// write writes the waiting lines, and ends when none waits.
func (s *Stream) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.lines) > 0 {
		line := s.lines[0]
		s.since = time.Now()
		s.mu.Unlock()
		_, err := s.w.Write(line.text)
		s.mu.Lock()
		s.lines[0] = queued{}
		s.lines = s.lines[1:]
		s.bytes -= len(line.text)
		s.wrote(line, err)
	}
	s.writing = false
	s.wake()
}

// wrote records how the write of a line ended. The mutex is held.
func (s *Stream) wrote(line queued, err error) {
	switch {
	case isGone(err):
		s.gone = err
		s.unwritten(err, append(s.lines, line)...)
		s.lines, s.bytes = nil, 0
	case err != nil: // such as a full disk, which may have room again
		s.unwritten(err, line)
	case s.dropped > 0 && len(s.lines) == 0:
		s.note()
	}
	if s.bytes <= streamBytes/2 {
		s.wake()
	}
}

// unwritten counts lines that could not be written. The mutex is held.
func (s *Stream) unwritten(err error, lines ...queued) {
	s.failed = err
	for _, line := range lines {
		if line.missing > 0 {
			s.dropped += line.missing
		} else {
			s.drop(err)
		}
	}
}

// isGone reports whether a write failed because its reader will never read again.
func isGone(err error) bool {
	for _, gone := range []error{syscall.EPIPE, syscall.EIO, io.ErrClosedPipe, os.ErrClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// wake lets those continue that wait. The mutex is held.
func (s *Stream) wake() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// await waits until there may be room, the reader may be paused, hurry is closed, or a
// signal comes on stop; it reports whether it was one of the last two. The mutex is
// held, and is held again afterwards.
func (s *Stream) await(hurry <-chan struct{}, stop <-chan os.Signal) bool {
	if s.room == nil {
		s.room = make(chan struct{})
	}
	room, late := s.room, time.NewTimer(streamPatience-time.Since(s.since))
	s.mu.Unlock()
	defer s.mu.Lock()
	defer late.Stop()
	select {
	case <-room:
		return false
	case <-late.C:
		return false
	case <-hurry:
	case <-stop:
	}
	return true
}

// Flush returns when all lines are written, when the reader is paused, or when a signal
// comes on stop, which may be nil.
func (s *Stream) Flush(stop <-chan os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stopped := false; s.writing && !s.paused() && !stopped; {
		stopped = s.await(nil, stop)
	}
}

// Dropped is the number of lines that were not written, with those that wait while the reader is
// paused, and why the last one was not: nil if the reader was only paused.
func (s *Stream) Dropped() (lines int, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused() {
		n := s.lost
		for _, line := range s.lines {
			if line.missing == 0 {
				n++
			}
		}
		return n, nil
	}
	return s.lost, cmp.Or(s.gone, s.failed)
}
