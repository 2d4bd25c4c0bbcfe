package router

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// link is one connection of a session. Its reader and writer end when the
// connection is closed; detach waits for both.
type link struct {
	s      *session
	conn   net.Conn
	try    tryWriter // nil if the connection has none
	reads  tryReader // the same
	dialed bool      // by this node
	wg     sync.WaitGroup
	ended  chan struct{} // closed when the reader has ended

	// The session's mutex guards these.
	writing bool // a goroutine is in a write call
	idle    bool // the writer waits
	full    bool // the system took less than it was given, perhaps but a part of a frame: the writer will see to it
	closed  bool
	bye     error  // the peer took leave
	why     error  // this side has closed it
	byeSay  string // leave to be taken of the peer
	ctl     []byte
	bufs    net.Buffers
}

// tryWriter is an optional method of a transport's connection to write at once what the
// system takes without waiting.
type tryWriter interface {
	// TryWrite writes what can be written without waiting. It returns the bytes
	// written, which may be 0.
	TryWrite(b []byte) (int, error)
}

// buffersWriter is an optional method of a transport's connection to write many buffers
// in one call, where it hides one that net.Buffers knows.
type buffersWriter interface {
	WriteBuffers(bufs *net.Buffers) (int64, error)
}

// writeLimit is about how many bytes one write call carries.
const writeLimit = 512 << 10

// attach makes conn the session's connection: the peer has received our frames
// up to number got. The session has no link.
func (s *session) attach(conn net.Conn, dialed bool, got uint64) (*link, error) {
	l := &link{s: s, conn: conn, dialed: dialed, ended: make(chan struct{})}
	l.try, _ = conn.(tryWriter)
	l.reads, _ = conn.(tryReader)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if !s.log.rewind(got) {
		return nil, fmt.Errorf("node.%d reports %d received frames, of %d sent and %d acknowledged", s.peer.ID, got, s.log.sent,
			s.log.done)
	}
	s.link = l
	s.links++
	s.lastReceived.Store(s.r.clock())
	s.ackDue = true
	for _, in := range s.ins { // totals may have been lost with the last link
		if !in.due {
			in.due = true
			s.credits = append(s.credits, in)
		}
	}
	l.wg.Add(2)
	s.r.wg.Add(2)
	go l.read()
	go l.write()
	return l, nil
}

// detach closes the session's connection, if it has one, and waits until its
// goroutines have ended. A reader must not call it.
func (s *session) detach() {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.cut(errRedialled)
		l.wg.Wait()
		<-l.ended
	}
}

var errRedialled = errors.New("the peer has dialled again")

// cut closes the connection, for a reason.
func (l *link) cut(why error) {
	l.s.mu.Lock()
	l.broke(why)
	l.s.mu.Unlock()
	_ = l.conn.Close() // without the mutex: TLS says goodbye, and may wait
}

// broke records that the connection is of no use, for a reason that the reader
// reports. It is to be closed. The mutex is held.
func (l *link) broke(why error) {
	if !l.closed {
		l.why, l.closed = why, true
	}
	l.s.wake.Broadcast()
}

// close closes the connection; the reader and the writer see it and end.
func (l *link) close() {
	l.s.mu.Lock()
	l.closed = true
	l.s.wake.Broadcast()
	l.s.mu.Unlock()
	_ = l.conn.Close()
}

// write is the writer: it sends what the session has, many frames to a call.
func (l *link) write() {
	defer l.s.r.wg.Done()
	defer l.wg.Done()
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for !l.closed && s.err == nil && (l.writing || !s.pendingWrite() && l.byeSay == "") {
			l.idle = true
			s.wake.Wait()
		}
		l.idle = false
		if l.closed || s.err != nil {
			return
		}
		if !s.pendingWrite() {
			l.writeBye()
			return // the peer closes the connection; closing it here could destroy what is under way
		}
		l.ctl = s.stage(l.ctl[:0], writeLimit)
		l.bufs = l.bufs[:0]
		if len(l.ctl) > 0 && !l.full {
			l.bufs = append(l.bufs, l.ctl)
		}
		n := s.log.gather(&l.bufs, writeLimit)
		if len(l.ctl) > 0 && l.full { // the log continues within a frame
			l.bufs = append(l.bufs, l.ctl)
		}
		s.quietFor = 0
		l.writing = true
		bufs := l.bufs // WriteTo moves the slice on
		s.mu.Unlock()
		err := l.writeAll(&bufs)
		if err != nil {
			l.cut(err)
		}
		s.mu.Lock()
		s.wireOut += uint64(n + len(l.ctl)) //nolint:gosec // not negative
		if err != nil {
			n = 0
		}
		l.full = false
		l.wrote(n)
	}
}

// writeBye ends the connection in order. The mutex is held, and is held again afterwards.
func (l *link) writeBye() {
	bye := appendFrame(nil, frameBye, 0, 0, []byte(l.byeSay))
	l.writing = true
	l.s.mu.Unlock()
	_, _ = l.conn.Write(bye)
	l.s.mu.Lock()
	l.wrote(0)
}

// wrote records the end of a write call that has written n bytes of the
// log. The mutex is held.
func (l *link) wrote(n int) {
	s := l.s
	l.writing = false
	if s.err != nil {
		s.log.free() // end has left it to the writing goroutine
	} else {
		s.wrote(n)
	}
	if l.closed {
		s.wake.Broadcast() // the reader waits for this
	}
}

// writeAll writes bufs, in one call if the connection can.
func (l *link) writeAll(bufs *net.Buffers) error {
	var err error
	if w, ok := l.conn.(buffersWriter); ok {
		_, err = w.WriteBuffers(bufs)
	} else {
		_, err = bufs.WriteTo(l.conn)
	}
	return err
}

// writeNow writes one run of frames without waiting, in place of the writer, if
// there is nothing else to write. The mutex is held, and is held again
// afterwards.
func (l *link) writeNow() {
	s := l.s
	if s.ackDue || s.seenDue || s.releaseDue || s.pingDue != 0 || s.pongDue != 0 || len(s.credits) > 0 || len(s.bulks) > 0 {
		s.signal()
		return
	}
	l.bufs = l.bufs[:0]
	if s.log.gather(&l.bufs, 1); len(l.bufs) != 1 {
		s.signal()
		return
	}
	n := len(l.bufs[0])
	s.quietFor = 0
	l.writing = true
	s.mu.Unlock()
	k, err := l.try.TryWrite(l.bufs[0])
	if err != nil {
		l.cut(err)
	}
	s.mu.Lock()
	l.full = k < n
	s.wireOut += uint64(k) //nolint:gosec // not negative
	l.wrote(k)
	if s.pendingWrite() || l.byeSay != "" || l.closed || s.err != nil {
		l.idle = false
		s.wake.Broadcast()
	}
}

// read is the reader: it takes frames off the connection until that ends.
func (l *link) read() {
	s := l.s
	defer s.r.wg.Done()
	err := l.readFrames()
	if fault := s.copyAll(); fault != nil { // what has arrived is received
		s.endCopies()
		err = fault
	}
	l.close()
	l.wg.Done()
	s.mu.Lock()
	for l.writing { // else its place in the log would be taken for the next link's
		s.wake.Wait()
	}
	if s.link == l && l.bye == nil { // after a leave the link stays: Gone waits for its end
		s.link = nil
		s.wakeWaiting() // a sender that was too far ahead of the writer may fill the window
	}
	switch {
	case l.bye != nil:
		err = l.bye
	case l.why != nil:
		err = l.why
	}
	s.mu.Unlock()
	s.r.linkEnded(s, err)
	close(l.ended) // after the reason is set: the dialling side reads it
}

// readFrames parses what comes. The buffer holds several small frames, or the
// head of a chunk, whose body is read to its place without a copy.
func (l *link) readFrames() error {
	s := l.s
	buf := make([]byte, readBytes)
	r, w := 0, 0
	for {
		for w-r >= headerBytes {
			h, err := parseHeader(buf[r:], s.r.cfg.ChunkBytes)
			if err != nil {
				return err
			}
			if h.typ == frameChunk {
				if w-r < chunkHead {
					break
				}
				used, err := l.readChunk(h, buf[r:w], buf)
				if err != nil {
					return err
				}
				r += used
				continue
			}
			if w-r < headerBytes+h.body {
				break
			}
			if err := s.receive(l, h, buf[r+headerBytes:r+headerBytes+h.body]); err != nil {
				return err
			}
			r += headerBytes + h.body
		}
		if r == w {
			r, w = 0, 0
			s.caughtUp()
		} else if r > 0 {
			w = copy(buf, buf[r:w])
			r = 0
		}
		n, err := l.more(buf[w:])
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		w += n
		s.wireIn.Add(uint64(n)) //nolint:gosec // not negative
		s.lastReceived.Store(s.r.clock())
	}
}

// more reads what comes next. While messages are being copied, it looks for that after each piece and does not wait.
func (l *link) more(b []byte) (int, error) {
	for len(l.s.copies) > 0 {
		if err := l.s.copyPiece(); err != nil {
			return 0, err
		}
		if l.reads == nil {
			continue
		}
		if n, err := l.reads.TryRead(b); n > 0 || err != nil {
			return n, err
		}
	}
	return l.conn.Read(b)
}

// readChunk takes one chunk whose head is in b, with the beginning of its body; it returns
// how much of b it has used. buf is free when all of b is used.
func (l *link) readChunk(h header, b, buf []byte) (int, error) {
	s := l.s
	version, total, off := le.Uint64(b[headerBytes:]), le.Uint64(b[headerBytes+8:]), le.Uint64(b[headerBytes+16:])
	n := h.body - (chunkHead - headerBytes)
	in, err := s.turn(h.channel)
	if err != nil {
		return 0, err
	}
	if total > uint64(s.r.cfg.MaxMessageBytes) { //nolint:gosec // positive
		return 0, fmt.Errorf("%w: event %q: a message of %d bytes is over the limit of %d", errBadFrame, in.decl.Name, total,
			s.r.cfg.MaxMessageBytes)
	}
	if off == 0 && in.asmTotal == 0 {
		if err := in.begin(version, int(total)); err != nil { //nolint:gosec // bounded above
			return 0, err
		}
	}
	if off != uint64(in.asmHave) || total != uint64(in.asmTotal) || n > in.asmTotal-in.asmHave || n == 0 { //nolint:gosec // not negative
		return 0, fmt.Errorf("%w: event %q: a chunk of %d bytes at %d of %d, have %d of %d", errBadFrame, in.decl.Name, n, off, total,
			in.asmHave, in.asmTotal)
	}
	var dst []byte
	if !in.asmSkip {
		in.grow(n)
		dst = in.asm[in.asmHave : in.asmHave+n]
	}
	have := min(n, len(b)-chunkHead)
	copy(dst, b[chunkHead:])
	if err := l.readRest(dst, have, n, buf); err != nil {
		return 0, err
	}
	in.asmHave += n
	s.gotFrame(headerBytes + h.body)
	if in.asmHave == in.asmTotal {
		payload := in.assembled()
		if in.asmSkip {
			in.discard(int(total)) //nolint:gosec // bounded above
			return min(chunkHead+n, len(b)), nil
		}
		taken, err := s.deliver(in, version, payload, true)
		if err != nil {
			return 0, err
		}
		if !taken {
			in.Recycle(payload)
		}
	}
	return min(chunkHead+n, len(b)), nil
}

// readRest reads n bytes, of which have are read already, into dst; or, if that is nil, into
// buf over and over again.
func (l *link) readRest(dst []byte, have, n int, buf []byte) error {
	for have < n {
		to := buf[:min(len(buf), n-have)]
		if dst != nil {
			to = dst[have:]
		}
		k, err := l.conn.Read(to)
		if k == 0 && err != nil {
			return err
		}
		have += k
		l.s.wireIn.Add(uint64(k)) //nolint:gosec // not negative
		l.s.lastReceived.Store(l.s.r.clock())
	}
	return nil
}

// sendBye lets the writer tell the peer that this node leaves, after all that is
// to be written. The peer then closes the connection.
func (l *link) sendBye(reason string) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.byeSay = cutReason(reason)
	l.s.ackDue = true // what has arrived is not lost
	l.s.wake.Broadcast()
}
