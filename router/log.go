package router

import (
	"fmt"
	"net"
	"sync"
)

// sendLog has the frames that one session has sent and the peer has not acknowledged:
// sequenced frames in segments. Small frames are copied into segments of 2 to 64
// KiB; a chunk is a segment of its own that refers to its payload. The writer's
// place in the log moves forward with what it writes, and back when a new
// connection takes over. The session's mutex guards it.
type sendLog struct {
	segs []*segment // segs[0] is the oldest that is not wholly acknowledged
	next int        // index in segs of the segment to write next
	off  int        // bytes of segs[next] that are written
	todo int        // bytes that are not written
	sent uint64     // number of the newest sequenced frame
	done uint64     // number of the newest acknowledged one
	ctl  int        // bytes of control frames in segs, which no window bounds
	size int        // of the newest segment's buffer: firstBytes << size
}

// maxControlLog is the number of bytes of control frames that a peer may leave unacknowledged. The
// largest run of them comes when two nodes meet: 16 MiB of declarations, as many rounds of
// barriers and the members, 40 MiB in all. Later the frames that say whether this node
// listens are the most: 8 million of them may be sent while a peer does not run.
const maxControlLog = 64 << 20

// overdue returns an error if the peer leaves more unacknowledged than an honest one.
func (l *sendLog) overdue() error {
	if l.ctl <= maxControlLog {
		return nil
	}
	return fmt.Errorf("%w: %d bytes of control frames are not acknowledged, want %d at most", errBadFrame, l.ctl, maxControlLog)
}

// segment is a run of whole frames.
type segment struct {
	buf         []byte // frames, or one chunk's header
	ext         []byte // the chunk's piece of its payload
	keep        Buffer // holds ext
	first, last uint64 // numbers of the frames within
	ends        bool   // the chunk is its message's last, or the frame is a message in memory
	ctl         int    // bytes of control frames
	head        [chunkHead]byte
}

func (s *segment) size() int { return len(s.buf) + len(s.ext) }

// segmentPools recycle segments with a buffer: of firstBytes, and each of twice the one before, up to
// segmentBytes.
var segmentPools [segmentSizes]sync.Pool

// The buffers of segments grow with what a peer has not acknowledged. With full-size segments for all,
// many peers that exchange little would take most of a node's memory.
const (
	segmentSizes = 6
	firstBytes   = segmentBytes >> (segmentSizes - 1) // 2 KiB
)

// newSegment returns a segment with a buffer of firstBytes << size.
func newSegment(size int) *segment {
	if s, ok := segmentPools[size].Get().(*segment); ok {
		return s
	}
	return &segment{buf: make([]byte, 0, firstBytes<<size)}
}

// chunkPool recycles segments without one.
var chunkPool = sync.Pool{New: func() any { return new(segment) }}

func (s *segment) free() {
	if s.keep != nil {
		s.keep.Release()
		*s = segment{}
		chunkPool.Put(s)
		return
	}
	size := sizeFor(cap(s.buf))
	*s = segment{buf: s.buf[:0]}
	segmentPools[size].Put(s)
}

// sizeFor is the size of the smallest buffer that has room for n bytes.
func sizeFor(n int) (size int) {
	for firstBytes<<size < n {
		size++
	}
	return size
}

// room returns the open segment if it has n bytes left, or a new one: twice as large as a full one
// before it.
func (l *sendLog) room(n int) *segment {
	if k := len(l.segs); k == 0 {
		l.size = 0
	} else if s := l.segs[k-1]; s.keep == nil {
		if cap(s.buf)-len(s.buf) >= n {
			return s
		}
		l.size = min(l.size+1, segmentSizes-1)
	}
	s := newSegment(max(l.size, sizeFor(n)))
	s.first = l.sent + 1
	l.segs = append(l.segs, s)
	return s
}

// frame appends a sequenced frame with a small body.
func (l *sendLog) frame(t frameType, flags uint8, channel uint16, body []byte) {
	s := l.room(headerBytes + len(body))
	s.buf = appendFrame(s.buf, t, flags, channel, body)
	if t != frameMsgHeader {
		s.ctl += headerBytes + len(body)
		l.ctl += headerBytes + len(body)
	}
	l.todo += headerBytes + len(body)
	l.sent++
	s.last = l.sent
}

// data appends a message of at most inlineBytes.
func (l *sendLog) data(channel uint16, version uint64, payload []byte) {
	s := l.room(dataHead + len(payload))
	n := len(s.buf)
	s.buf = s.buf[:n+dataHead]
	putHeader(s.buf[n:], 8+len(payload), frameData, 0, channel)
	le.PutUint64(s.buf[n+headerBytes:], version)
	s.buf = append(s.buf, payload...)
	l.todo += dataHead + len(payload)
	l.sent++
	s.last = l.sent
}

// chunk appends one piece of a message. It keeps payload.
func (l *sendLog) chunk(channel uint16, version uint64, payload Buffer, off, n int) {
	s := chunkPool.Get().(*segment)
	total := payload.Bytes()
	s.buf = s.head[:]
	putHeader(s.buf, chunkHead-headerBytes+n, frameChunk, 0, channel)
	le.PutUint64(s.buf[headerBytes:], version)
	le.PutUint64(s.buf[headerBytes+8:], uint64(len(total)))
	le.PutUint64(s.buf[headerBytes+16:], uint64(off)) //nolint:gosec // not negative
	s.ext = total[off : off+n]
	payload.Retain()
	s.keep = payload
	l.sent++
	s.first, s.last = l.sent, l.sent
	s.ends = off+n == len(total)
	l.segs = append(l.segs, s)
	l.todo += s.size()
}

// shared appends a message that is at off in this node's memory. It keeps payload.
func (l *sendLog) shared(channel uint16, version uint64, payload Buffer, off int) {
	s := chunkPool.Get().(*segment)
	s.buf = s.head[:]
	putHeader(s.buf, chunkHead-headerBytes, frameShared, 0, channel)
	le.PutUint64(s.buf[headerBytes:], version)
	le.PutUint64(s.buf[headerBytes+8:], uint64(len(payload.Bytes())))
	le.PutUint64(s.buf[headerBytes+16:], uint64(off)) //nolint:gosec // not negative
	payload.Retain()
	s.keep = payload
	l.sent++
	s.first, s.last = l.sent, l.sent
	s.ends = true
	l.segs = append(l.segs, s)
	l.todo += s.size()
}

// unwritten reports whether anything waits for the writer.
func (l *sendLog) unwritten() bool { return l.todo > 0 }

// gather appends what is to be written next to bufs, up to limit bytes or a
// little more, and returns how many bytes that is.
func (l *sendLog) gather(bufs *net.Buffers, limit int) int {
	total, off := 0, l.off
	for i := l.next; i < len(l.segs) && total < limit; i++ {
		s := l.segs[i]
		if off < len(s.buf) {
			*bufs = append(*bufs, s.buf[off:])
			if len(s.ext) > 0 {
				*bufs = append(*bufs, s.ext)
			}
		} else if rest := s.ext[off-len(s.buf):]; len(rest) > 0 {
			*bufs = append(*bufs, rest)
		}
		total += s.size() - off
		off = 0
	}
	return total
}

// wrote moves the writer's place n bytes on.
func (l *sendLog) wrote(n int) {
	l.todo -= n
	for n > 0 {
		rest := l.segs[l.next].size() - l.off
		if n < rest {
			l.off += n
			return
		}
		n -= rest
		if l.next == len(l.segs)-1 { // stay at the end of the open segment
			l.off += rest
			return
		}
		l.next++
		l.off = 0
	}
}

// ack records that the peer has received the frames up to number n, and frees
// them. writing says that the writer has segments in its hands. It reports false
// for a number that was never sent.
func (l *sendLog) ack(n uint64, writing bool) bool {
	if n > l.sent {
		return false
	}
	if n > l.done {
		l.done = n
		l.trim(writing)
	}
	return true
}

// trim frees the acknowledged segments that the writer has passed, and the open one too when it holds
// nothing more to send.
func (l *sendLog) trim(writing bool) {
	i := 0
	for i < l.next && l.segs[i].last <= l.done {
		i++
	}
	if k := len(l.segs); !writing && i == k-1 && l.next == i && l.segs[i].last <= l.done && l.off == l.segs[i].size() {
		i, l.off = k, 0
	}
	if i == 0 {
		return
	}
	for _, s := range l.segs[:i] {
		l.ctl -= s.ctl
		s.free()
	}
	l.segs = append(l.segs[:0], l.segs[i:]...)
	clear(l.segs[len(l.segs):cap(l.segs)])
	l.next = max(l.next-i, 0)
}

// rewind moves the writer's place to the frame after number n, the last that
// the peer has received. It reports false if that frame is not in the log.
func (l *sendLog) rewind(n uint64) bool {
	if n < l.done || !l.ack(n, false) {
		return false
	}
	l.next, l.off, l.todo = 0, 0, 0
	for l.next < len(l.segs) && l.segs[l.next].last <= n {
		l.next++
	}
	for _, s := range l.segs[l.next:] {
		l.todo += s.size()
	}
	if l.next == len(l.segs) {
		if l.next > 0 {
			l.next--
			l.off = l.segs[l.next].size()
		}
		return true
	}
	s := l.segs[l.next]
	for seq := s.first; seq <= n; seq++ {
		l.off += headerBytes + int(le.Uint32(s.buf[l.off:]))
	}
	l.todo -= l.off
	return true
}

// undelivered is the number of messages in the log that the peer has not
// acknowledged.
func (l *sendLog) undelivered() int {
	n := 0
	for _, s := range l.segs {
		if s.last > l.done {
			n += l.unackedIn(s)
		}
	}
	return n
}

func (l *sendLog) unackedIn(s *segment) int {
	if s.keep != nil {
		if s.ends {
			return 1
		}
		return 0
	}
	n, seq := 0, s.first
	for off := 0; off < len(s.buf); seq++ {
		if seq > l.done && frameType(s.buf[off+4]) == frameData {
			n++
		}
		off += headerBytes + int(le.Uint32(s.buf[off:]))
	}
	return n
}

// free drops everything.
func (l *sendLog) free() {
	for _, s := range l.segs {
		s.free()
	}
	l.segs, l.next, l.off, l.todo, l.ctl = nil, 0, 0, 0, 0
}
