// Package sharedmem is memory that processes of one host share, for payloads.
//
//	a, err := sharedmem.New(64 << 20) // the sender: one memory file, mapped once
//	s := a.Take(1 << 20)              // a segment; nil if there is no room
//	copy(s.Bytes(), payload)
//	s.Release()                       // when every receiver has had it
//
//	m, err := sharedmem.Open(ref, 64<<20) // a receiver, with the sender's a.Ref(): the same memory, read only
//	b, err := m.Hold(s.Offset(), n)
//	m.Drop()                              // when b is not used any more
//
// A memory file is in no folder, and ends with the last process that has it open or mapped. Another process of
// the same user and host opens it through /proc by its [Ref], which has a random name: a Ref of
// another host, or of another container, opens nothing. Its pages
// are taken with the first segment that has them, and kept: a segment that is used again costs a copy
// and no page fault. [Arena.Take] prefers low addresses, so that few pages are ever taken. Where the system has no more
// pages, Take returns nil: a write to a segment never fails.
//
// The receiver checks that the file is one that cannot shrink, so that no read of the
// mapping fails. It does not trust its content: a sender can write while a receiver reads. Other
// processes than the sender cannot write, as the file is sealed against that.
//
// All types are safe for concurrent use. Only Linux on amd64 and arm64 has such memory; elsewhere
// New and Open return [ErrUnsupported].
package sharedmem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
)

// ErrUnsupported is returned where the system has no sealed memory files.
var ErrUnsupported = errors.New("no shared memory on this system")

// ErrElsewhere is returned for memory that this process cannot reach: its process is on another host, in another container, of
// another user, or has ended.
var ErrElsewhere = errors.New("the memory is not one of this host that this process may open")

// Ref is how a process reaches the memory file of another one.
type Ref struct {
	PID  int    `json:"pid"` // of the process that has it
	FD   int    `json:"fd"`  // its descriptor there
	Name string `json:"name"`
}

// MaxBytes is the largest memory file.
const MaxBytes = 1 << 30

// page is the alignment of segments.
const page = 4096

// extent is a run of free bytes.
type extent struct{ off, n int }

// Arena is a memory file of this process, from which it takes segments. The owner calls Close;
// the memory is unmapped when all segments have been released, too.
type Arena struct {
	file *os.File
	ref  Ref
	mem  []byte

	mu     sync.Mutex
	free   []extent // by offset; no two touch each other
	taken  int      // segments
	used   int      // bytes of them
	most   int      // bytes up to the highest address that was ever taken
	sure   int      // bytes from the first one on that have their pages
	bound  int      // bytes that may be taken: all, until the system refuses pages
	closed bool
}

// New makes a memory file of so many bytes, a multiple of 4096 and at most [MaxBytes], and maps it.
// It takes no memory yet.
func New(bytes int) (*Arena, error) {
	if bytes <= 0 || bytes > MaxBytes || bytes%page != 0 {
		return nil, fmt.Errorf("shared memory of %d bytes: want a multiple of %d up to %d", bytes, page, MaxBytes)
	}
	ref := Ref{PID: os.Getpid(), Name: "ditask-" + rand.Text()}
	f, mem, err := create(ref.Name, bytes)
	if err != nil {
		return nil, err
	}
	ref.FD = int(f.Fd())
	return &Arena{file: f, ref: ref, mem: mem, free: []extent{{0, bytes}}, bound: bytes}, nil
}

// Ref is how other processes reach the memory. It is valid until Close.
func (a *Arena) Ref() Ref { return a.ref }

// Take returns a segment of n bytes, or nil if there is no room for it, or no memory.
func (a *Arena) Take(n int) *Segment {
	s, from := a.take(n)
	if s == nil || from >= s.off+s.room {
		return s
	}
	err := reserve(a.file, from, s.off+s.room-from) // without the mutex: a release does not wait for the system
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.bound = min(a.bound, a.sure)
		a.release(s)
		return nil
	}
	a.most = max(a.most, s.off+s.room)
	if s.off <= a.sure {
		a.sure = max(a.sure, s.off+s.room)
	}
	return s
}

// take is Take without the pages: those from there on may be missing.
func (a *Arena) take(n int) (s *Segment, from int) {
	room := roundUp(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	if n <= 0 || a.closed {
		return nil, 0
	}
	for i := range a.free {
		e := &a.free[i]
		if e.n < room {
			continue
		}
		if e.off+room > a.bound {
			return nil, 0
		}
		s = &Segment{arena: a, off: e.off, room: room, b: a.mem[e.off : e.off+n : e.off+n]}
		if e.off, e.n = e.off+room, e.n-room; e.n == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		a.taken++
		a.used += room
		return s, max(s.off, a.sure)
	}
	return nil, 0
}

func roundUp(n int) int { return (n + page - 1) &^ (page - 1) }

// Stats are the numbers of an arena at one moment.
type Stats struct {
	Segments int // taken and not released
	Used     int // bytes of them
	Most     int // bytes that have ever been taken at once, by their highest address: the memory that is kept

	Refused bool // the system has refused memory: what is kept does not grow any more
}

// Stats counts.
func (a *Arena) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Stats{a.taken, a.used, a.most, a.bound < len(a.mem) && !a.closed}
}

// Close closes the memory file. Take returns nil from now on.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	return errors.Join(a.file.Close(), a.unmap())
}

// unmap unmaps the memory when nothing uses it. The mutex is held.
func (a *Arena) unmap() error {
	if !a.closed || a.taken > 0 || a.mem == nil {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return unmap(mem)
}

// give takes back the n bytes at off. The mutex is held.
func (a *Arena) give(off, n int) {
	i, _ := slices.BinarySearchFunc(a.free, off, func(e extent, off int) int { return e.off - off })
	after := i < len(a.free) && a.free[i].off == off+n
	before := i > 0 && a.free[i-1].off+a.free[i-1].n == off
	switch {
	case before && after:
		a.free[i-1].n += n + a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	case before:
		a.free[i-1].n += n
	case after:
		a.free[i].off, a.free[i].n = off, a.free[i].n+n
	default:
		a.free = slices.Insert(a.free, i, extent{off, n})
	}
}

// Segment is a part of an [Arena]. Its owner calls Release once.
type Segment struct {
	arena *Arena
	off   int
	room  int // bytes that are taken
	b     []byte
}

// Bytes returns the memory. It is not cleared.
func (s *Segment) Bytes() []byte { return s.b }

// Offset is the position of the segment in its memory file.
func (s *Segment) Offset() int { return s.off }

// Of reports whether the segment is a part of a.
func (s *Segment) Of(a *Arena) bool { return s != nil && s.arena == a }

// Fit frees the bytes beyond the first n.
func (s *Segment) Fit(n int) {
	a := s.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	s.b = s.b[:n:n]
	if room := roundUp(max(n, 1)); room < s.room {
		a.give(s.off+room, s.room-room)
		a.used -= s.room - room
		s.room = room
	}
}

// Release gives the segment back. Nothing uses its memory any more.
func (s *Segment) Release() {
	s.arena.mu.Lock()
	defer s.arena.mu.Unlock()
	s.arena.release(s)
}

// release gives a segment back. The mutex is held.
func (a *Arena) release(s *Segment) {
	if s.room == 0 {
		panic("sharedmem: a segment is released twice")
	}
	a.give(s.off, s.room)
	a.taken--
	a.used -= s.room
	s.room, s.b = 0, nil
	_ = a.unmap() // cannot fail for a mapping that is whole
}

// Mapping is the memory file of another process, which this one can only read. The owner calls
// Close; the memory is unmapped when nothing holds any of it, too.
type Mapping struct {
	pid   int
	start string // when the process began, of which the system uses the number again

	mem []byte

	mu     sync.Mutex
	held   int
	closed bool
}

// Open maps the memory file of another process. It returns an error that wraps [ErrElsewhere] if this process cannot reach it, and
// an error for a file that is no sealed memory file, or is larger than most bytes. A page that the other process has not
// written is taken when this one reads it, so the whole file may count as memory of this process.
func Open(ref Ref, most int) (*Mapping, error) {
	start, mem, err := openShared(ref, most)
	if err != nil {
		return nil, err
	}
	return &Mapping{pid: ref.PID, start: start, mem: mem}, nil
}

// Ended reports whether the process whose memory this is has ended and its parent knows that; false if /proc is not there any more.
func (m *Mapping) Ended() bool {
	start, err := startOf(m.pid)
	if errors.Is(err, os.ErrNotExist) {
		_, err = startOf(os.Getpid())
	}
	return err == nil && start != m.start
}

// Size is the size of the memory file in bytes.
func (m *Mapping) Size() int { return len(m.mem) }

// ErrRange is returned for memory that is not within the memory file, or that has been unmapped.
var ErrRange = errors.New("beyond the shared memory")

// Hold returns the n bytes at off, with no capacity beyond. They stay mapped until Drop. The sender may change them.
// A write to them is a fault: see [runtime/debug.SetPanicOnFault].
func (m *Mapping) Hold(off, n uint64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := uint64(len(m.mem))
	if m.closed || off > size || n > size-off {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", ErrRange, n, off, size)
	}
	m.held++
	return m.mem[off : off+n : off+n], nil
}

// ErrUnreadable is returned for memory that the system cannot read: the other process has not written it, and there are no pages left,
// or they are broken.
var ErrUnreadable = errors.New("the shared memory cannot be read")

// Copy copies memory that Hold has returned to dst, as the function copy does. Where it cannot be read, that is an error, and
// not the end of this process.
func Copy(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v", ErrUnreadable, fault)
		}
	}()
	copy(dst, src)
	return nil
}

// Drop ends one Hold.
func (m *Mapping) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held--
	m.unmap()
}

// Close unmaps the memory as soon as nothing holds any of it. Hold fails from now on.
func (m *Mapping) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.unmap()
}

// unmap unmaps the memory when nothing uses it. The mutex is held.
func (m *Mapping) unmap() {
	if m.closed && m.held == 0 && m.mem != nil {
		mem := m.mem
		m.mem = nil
		_ = unmap(mem) // cannot fail for a mapping that is whole
	}
}
