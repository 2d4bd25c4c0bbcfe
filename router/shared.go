package router

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ditask/ditask/messaging"
	"github.com/ditask/ditask/router/sharedmem"
)

// Messages in shared memory.
//
// A node has one memory file, an arena, and its hello describes how another process of the host opens it. A peer that has
// mapped it answers with frameMapped, once for the session, and from then
// on a large message is a frame that says where in the arena the payload is. Each such message is a claim of
// the peer's on the payload, until the peer's frameRelease or the end of the session. Both frames
// are sequenced, so that claims are exact over a cut.

const (
	// sharedBytes is the least payload that goes by shared memory.
	sharedBytes = 64 << 10
	// maxRelease is the number of claims that one frameRelease ends.
	maxRelease = maxFrameBody / 8
)

// Memory is a place for a payload, from [Channel.Lend].
type Memory = messaging.Memory

// tryReader is an optional interface of a transport's connection to read what has arrived.
type tryReader interface {
	// TryRead reads without waiting. It returns 0 if nothing has come, and [io.EOF] at the end.
	TryRead(b []byte) (int, error)
}

// ownMemory is a router's arena. It is made with the first hello that offers it.
type ownMemory struct {
	once  sync.Once
	arena atomic.Pointer[sharedmem.Arena] // nil: there is none
	err   error

	sharers  atomic.Int32  // sessions with a peer that has mapped it
	messages atomic.Uint64 // sent by it, counted once for each peer
	bytes    atomic.Uint64 // of them

	full, refused, over atomic.Uint64 // messages that went by the sockets: see SharedStats

	received      atomic.Uint64 // messages that came by the memory of peers
	receivedBytes atomic.Uint64 // of them

	mu       sync.Mutex
	withheld map[int][]withheld // by node id
	looked   int64              // when reclaim did last, by the router's clock
}

// withheld is a payload that a peer had when it was lost. The peer's process may still run, and read it.
type withheld struct {
	incarnation uint64
	process     *sharedmem.Mapping // the peer's memory, which identifies that process; nil: not known
	payload     Buffer
}

// withhold keeps the memory that a lost peer claims out of use until its process is known to have
// ended.
func (m *ownMemory) withhold(peer Peer, process *sharedmem.Mapping, claims map[uint64]Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range claims {
		if m.withheld == nil {
			m.withheld = map[int][]withheld{}
		}
		m.withheld[peer.ID] = append(m.withheld[peer.ID], withheld{peer.Incarnation, process, b})
	}
}

// ended gives back what was withheld for the process of a node, in this incarnation or an older one, as it has ended.
func (m *ownMemory) ended(id int, incarnation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveBack(id, func(w withheld) bool { return w.incarnation <= incarnation })
}

// giveBack gives back what is withheld for a node, where over reports true. The mutex is held.
func (m *ownMemory) giveBack(id int, over func(withheld) bool) {
	rest := slices.DeleteFunc(m.withheld[id], func(w withheld) bool {
		if !over(w) {
			return false
		}
		w.payload.Release()
		return true
	})
	if len(rest) > 0 {
		m.withheld[id] = rest
	} else {
		delete(m.withheld, id)
	}
}

// reclaimEvery is the least time between two looks at the processes of lost peers.
const reclaimEvery = time.Second

// reclaim gives back what is withheld for processes of this host that have ended: the end of one that another launcher
// has started may not be reported. It reports whether there was any.
func (m *ownMemory) reclaim(now int64) (some bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.withheld) == 0 || now-m.looked < int64(reclaimEvery) {
		return false
	}
	m.looked = now
	over := map[*sharedmem.Mapping]bool{nil: false}
	for id := range m.withheld {
		m.giveBack(id, func(w withheld) bool {
			ended, known := over[w.process]
			if !known {
				ended = w.process.Ended()
				over[w.process] = ended
			}
			some = some || ended
			return ended
		})
	}
	return some
}

// withheldBytes is how many bytes are withheld: a payload counts for each peer that had it.
func (m *ownMemory) withheldBytes() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.withheld {
		for _, w := range all {
			n += len(w.payload.Bytes())
		}
	}
	return n
}

// memory returns the arena; nil if there is none.
func (r *Router) memory() *sharedmem.Arena {
	m := &r.mem
	m.once.Do(func() {
		a, err := sharedmem.New(r.cfg.SharedBytes)
		if m.err = err; err != nil {
			r.log.Debug("no shared memory: payloads go by the sockets", "err", err)
			return
		}
		m.arena.Store(a)
	})
	return m.arena.Load()
}

// closeMemory ends the arena, after all sessions.
func (r *Router) closeMemory() {
	r.mem.once.Do(func() {})
	r.mem.mu.Lock()
	ids := slices.Collect(maps.Keys(r.mem.withheld))
	r.mem.mu.Unlock()
	for _, id := range ids { // nothing writes to the memory any more
		r.mem.ended(id, math.MaxUint64)
	}
	if a := r.mem.arena.Load(); a != nil {
		_ = a.Close()
	}
}

// offerMemory adds to a hello how the other end of conn reaches this node's memory. direct says that no hub is in between; a server
// is not, if the connection is a socket.
func (r *Router) offerMemory(h *hello, conn net.Conn, direct bool) {
	network := conn.LocalAddr().Network()
	if !direct || r.cfg.SharedBytes == 0 || network != "unix" && network != "tcp" {
		return
	}
	if a := r.memory(); a != nil {
		ref := a.Ref()
		h.Memory = &ref
	}
}

// takeMemory maps the memory of the peer, if both offer theirs and this process can open it, and announces that to the peer. A session does
// that once; the mapping lasts as long as the session.
func (s *session) takeMemory(mine, theirs hello) {
	if mine.Memory == nil || theirs.Memory == nil || s.theirs.Load() != nil {
		return
	}
	m, err := sharedmem.Open(*theirs.Memory, s.r.cfg.SharedBytes)
	if err != nil {
		s.r.log.Debug("payloads of this peer come by the socket, not in shared memory", "peer", fmt.Sprintf("node.%d", s.peer.ID), "err", err)
		return
	}
	s.useMemory(m)
}

// claims are what a peer has not released of this node's memory. The session's mutex guards them.
type claims struct {
	on    bool              // the peer has mapped the memory
	next  uint64            // number of the newest claim
	held  map[uint64]Buffer // by number
	bytes int               // of them
}

// mapped records that the peer has mapped this node's memory.
func (s *session) mapped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.r.mem.arena.Load()
	if a == nil {
		return fmt.Errorf("%w: shared memory that was not offered", errBadFrame)
	}
	if s.err != nil || s.claims.on {
		return nil
	}
	s.claims.on, s.claims.held = true, map[uint64]Buffer{}
	s.sharing.Store(true)
	s.r.mem.sharers.Add(1)
	return nil
}

// segment returns where in this node's memory payload is, if it can go to the peer by it. A peer that holds
// more than half of the memory gets the next message by the socket. The mutex is held.
func (o *outStream) segment(payload Buffer) (*sharedmem.Segment, bool) {
	c, mem := &o.s.claims, &o.s.r.mem
	n := len(payload.Bytes())
	if !c.on || n < sharedBytes {
		return nil, false
	}
	m, ok := payload.(interface{ Memory() Memory })
	if !ok {
		return nil, false
	}
	arena := mem.arena.Load()
	seg, ok := m.Memory().(*sharedmem.Segment)
	switch {
	case ok && seg.Of(arena) && (c.bytes == 0 || c.bytes+n <= o.s.r.cfg.SharedBytes/2):
		return seg, true
	case ok && seg.Of(arena):
		mem.over.Add(1)
	case arena.Stats().Refused:
		mem.refused.Add(1)
	default:
		mem.full.Add(1)
	}
	return nil, false
}

// putShared puts a message into the log that is in seg. The mutex is held.
func (o *outStream) putShared(version uint64, payload Buffer, seg *sharedmem.Segment) {
	c := &o.s.claims
	payload.Retain()
	c.next++
	c.held[c.next] = payload
	c.bytes += len(payload.Bytes())
	o.s.log.shared(o.ch.id, version, payload, seg.Offset())
	m := &o.s.r.mem
	m.messages.Add(1)
	m.bytes.Add(uint64(len(payload.Bytes())))
}

// release ends claims of the peer's. It returns an error for one that the peer does not have.
func (s *session) release(numbers []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil
	}
	if len(numbers)%8 != 0 {
		return fmt.Errorf("%w: %d bytes of numbers", errBadFrame, len(numbers))
	}
	for ; len(numbers) > 0; numbers = numbers[8:] {
		n := le.Uint64(numbers)
		b, ok := s.claims.held[n]
		if !ok {
			return fmt.Errorf("%w: shared memory %d is released, which the peer does not have", errBadFrame, n)
		}
		delete(s.claims.held, n)
		s.claims.bytes -= len(b.Bytes())
		b.Release()
	}
	return nil
}

// endClaims ends the peer's claims on this node's memory. The mutex is held.
func (s *session) endClaims() {
	c := &s.claims
	if !c.on {
		return
	}
	var process *sharedmem.Mapping
	if theirs := s.theirs.Load(); theirs != nil {
		process = theirs.m
	}
	s.r.mem.withhold(s.peer, process, c.held)
	if s.processOver {
		s.r.mem.ended(s.peer.ID, s.peer.Incarnation)
	}
	c.on, c.held, c.bytes = false, nil, 0
	s.sharing.Store(false)
	s.r.mem.sharers.Add(-1)
}

// processEnded records that the peer reads no memory of this node any more.
func (s *session) processEnded() {
	s.mu.Lock()
	s.processOver = true
	s.mu.Unlock()
}

// Lend returns memory for a payload of n bytes that a following Send is to take to peers of this host, in a Buffer
// with a method Memory that returns it. It returns nil if there is none, or no peer that listens would use it.
func (c *Channel) Lend(n int) Memory {
	r := c.c.r
	if n < sharedBytes || n > r.cfg.MaxMessageBytes || r.mem.sharers.Load() == 0 {
		return nil
	}
	if !slices.ContainsFunc(c.c.targets.Load().out, func(o *outStream) bool { return o.s.sharing.Load() }) {
		return nil
	}
	seg := r.mem.arena.Load().Take(n)
	if seg == nil && r.mem.reclaim(r.clock()) {
		seg = r.mem.arena.Load().Take(n)
	}
	if seg == nil {
		return nil // not a nil *sharedmem.Segment, which is no nil Memory
	}
	return seg
}

// Borrow reports whether deliver gives back every payload that it takes, and never writes to it: see [Message.Lent].
func (c *Channel) Borrow(on bool) { c.c.borrows.Store(on) }

// peerMemory is the memory of a peer, as this node has it.
type peerMemory struct {
	m    *sharedmem.Mapping
	next uint64 // number of the newest message in it; the reader owns it

	mu       sync.Mutex
	held     []hold
	released []byte // numbers to be sent
	bytes    int    // of what they stand for
}

// hold is a message that is in use here.
type hold struct {
	first  *byte
	number uint64
}

// useMemory makes m the memory of the peer.
func (s *session) useMemory(m *sharedmem.Mapping) {
	s.mu.Lock()
	if s.err != nil || s.theirs.Load() != nil {
		s.mu.Unlock()
		m.Close()
		return
	}
	s.theirs.Store(&peerMemory{m: m})
	s.mu.Unlock()
	s.control(frameMapped, 0, 0, nil)
}

// receiveShared takes a message that is in the peer's memory. Where the listeners borrow, they have that memory itself, else a
// copy: a large one is made in pieces, between which the reader takes what else has come.
func (s *session) receiveShared(h header, body []byte) error {
	in, err := s.turn(h.channel)
	if err != nil {
		return err
	}
	version, total, off := le.Uint64(body), le.Uint64(body[8:]), le.Uint64(body[16:])
	pm := s.theirs.Load()
	switch {
	case pm == nil:
		return fmt.Errorf("%w: event %q: a message in shared memory, of which there is none", errBadFrame, in.decl.Name)
	case total < sharedBytes || total > uint64(s.r.cfg.MaxMessageBytes): //nolint:gosec // positive
		return fmt.Errorf("%w: event %q: a message of %d bytes in shared memory, want %d to %d",
			errBadFrame, in.decl.Name, total, sharedBytes, s.r.cfg.MaxMessageBytes)
	case in.asmTotal != 0:
		return fmt.Errorf("%w: event %q: a message within the chunks of another", errBadFrame, in.decl.Name)
	}
	b, err := pm.hold(off, total)
	if err != nil {
		if s.ended() {
			return nil // it has been counted as lost
		}
		return fmt.Errorf("%w: event %q: %w", errBadFrame, in.decl.Name, err)
	}
	s.gotFrame(headerBytes + len(body))
	s.r.mem.received.Add(1)
	s.r.mem.receivedBytes.Add(total)
	if ch := in.receiver(version); ch != nil && ch.borrows.Load() {
		if !in.arrive(len(b)) {
			s.recycleShared(b)
			return in.overrun()
		}
		return s.deliverLent(in, version, b)
	}
	if err := in.begin(version, len(b)); err != nil {
		s.recycleShared(b)
		return err
	}
	if in.asmSkip {
		in.asmTotal = 0
		s.recycleShared(b)
		in.discard(len(b))
		return nil
	}
	in.copies = copying{version, b}
	s.copies = append(s.copies, in)
	if len(b) <= s.r.cfg.ChunkBytes {
		return s.copyFirst(in)
	}
	return nil
}

// deliverLent delivers the peer's memory itself.
func (s *session) deliverLent(in *inStream, version uint64, b []byte) error {
	in.msg.Lent = true
	taken, err := s.deliver(in, version, b, true)
	in.msg.Lent = false
	if !taken || err != nil {
		s.recycleShared(b)
	}
	return err
}

// copying is a message that is being copied out of the peer's memory; from is nil if none is.
type copying struct {
	version uint64
	from    []byte
}

// copyPiece copies the next piece of the message whose turn it is.
func (s *session) copyPiece() error {
	in := s.copies[0]
	n := min(s.r.cfg.ChunkBytes, in.asmTotal-in.asmHave)
	in.grow(n)
	if err := sharedmem.Copy(in.asm[in.asmHave:in.asmHave+n], in.copies.from[in.asmHave:in.asmHave+n]); err != nil {
		return fmt.Errorf("%w: event %q: %w", errBadFrame, in.decl.Name, err)
	}
	in.asmHave += n
	s.copies = append(s.copies[:0], s.copies[1:]...)
	if in.asmHave < in.asmTotal {
		s.copies = append(s.copies, in)
		return nil
	}
	version := in.copies.version
	s.recycleShared(in.copies.from)
	in.copies = copying{}
	payload := in.assembled()
	taken, err := s.deliver(in, version, payload, true)
	if !taken && err == nil {
		in.Recycle(payload)
	}
	return err
}

// copyFirst copies what is left of one message, before anything else of its event is taken.
func (s *session) copyFirst(in *inStream) error {
	for in.copies.from != nil {
		i := slices.Index(s.copies, in)
		s.copies[0], s.copies[i] = s.copies[i], s.copies[0]
		if err := s.copyPiece(); err != nil {
			return err
		}
	}
	return nil
}

// copyAll copies what is left of all messages.
func (s *session) copyAll() error {
	for len(s.copies) > 0 {
		if err := s.copyPiece(); err != nil {
			return err
		}
	}
	return nil
}

// endCopies drops what is left of all messages, after a fault of the peer's.
func (s *session) endCopies() {
	for _, in := range s.copies {
		s.recycleShared(in.copies.from)
		in.copies = copying{}
	}
	s.copies = nil
}

func (s *session) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// hold takes a message in use.
func (p *peerMemory) hold(off, n uint64) ([]byte, error) {
	b, err := p.m.Hold(off, n)
	if err != nil {
		return nil, err
	}
	p.next++
	p.mu.Lock()
	p.held = append(p.held, hold{unsafe.SliceData(b), p.next})
	p.mu.Unlock()
	return b, nil
}

// recycleShared ends the use of a message in the peer's memory. It reports false if b is none. The
// peer learns of it when this comes to a quarter of a window, or with the next credit.
func (s *session) recycleShared(b []byte) bool {
	pm := s.theirs.Load()
	if pm == nil {
		return false
	}
	first := unsafe.SliceData(b)
	pm.mu.Lock()
	i := slices.IndexFunc(pm.held, func(h hold) bool { return h.first == first })
	if i < 0 {
		pm.mu.Unlock()
		return false
	}
	pm.released = le.AppendUint64(pm.released, pm.held[i].number)
	pm.held = slices.Delete(pm.held, i, i+1)
	pm.bytes += len(b)
	due := pm.bytes >= s.r.cfg.WindowBytes/4
	pm.mu.Unlock()
	pm.m.Drop()
	if due {
		s.mu.Lock()
		s.releaseDue = true
		s.signal()
		s.mu.Unlock()
	}
	return true
}

// stageReleases puts into the log what was released of the peer's memory. The mutex is held.
func (s *session) stageReleases() {
	s.releaseDue = false
	pm := s.theirs.Load()
	if pm == nil {
		return
	}
	pm.mu.Lock()
	defer pm.mu.Unlock()
	for len(pm.released) > 0 {
		n := min(len(pm.released), 8*maxRelease)
		s.log.frame(frameRelease, 0, 0, pm.released[:n])
		pm.released = pm.released[:copy(pm.released, pm.released[n:])]
	}
	pm.bytes = 0
}

// unreleased reports whether some releases were not sent to the peer. The mutex is held.
func (s *session) unreleased() bool {
	pm := s.theirs.Load()
	if pm == nil {
		return false
	}
	pm.mu.Lock()
	defer pm.mu.Unlock()
	return len(pm.released) > 0
}

// SharedStats are the numbers of messages in memory that this node shares with peers of its host.
type SharedStats struct {
	Segments int // payloads that are in this node's memory now
	Used     int // bytes of them, in whole pages
	Kept     int // bytes of memory that this node keeps for payloads
	Withheld int // bytes of payloads that peers had when they were lost, whose processes may still run; counted for each of them

	Sent, SentBytes         uint64 // messages to peers, counted for each of them
	Received, ReceivedBytes uint64 // messages in the memory of peers

	// Messages of 64 KiB or more that went by the sockets to peers that share the memory, counted for each of them.
	Full    uint64 // as there was no room in it
	Over    uint64 // as the peer has half of it
	Refused uint64 // as the system refuses memory
}

func (r *Router) sharedStats() SharedStats {
	r.mem.reclaim(r.clock())
	m := &r.mem
	st := SharedStats{
		Sent: m.messages.Load(), SentBytes: m.bytes.Load(), Received: m.received.Load(), ReceivedBytes: m.receivedBytes.Load(),
		Full: m.full.Load(), Over: m.over.Load(), Refused: m.refused.Load(), Withheld: m.withheldBytes(),
	}
	if a := m.arena.Load(); a != nil {
		now := a.Stats()
		st.Segments, st.Used, st.Kept = now.Segments, now.Used, now.Most
	}
	return st
}

// validShared judges Config.SharedBytes.
func validShared(n int) bool {
	return n >= 0 && n <= sharedmem.MaxBytes && n%4096 == 0
}
