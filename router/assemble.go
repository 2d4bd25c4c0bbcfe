package router

import (
	"slices"
	"sync"
)

// Memory for messages whose chunks are arriving. A stream reserves up to twice the bytes that have
// arrived, and while the bounds of the peer and of the node allow, up to growth times as much, because
// that spares copies. A message that finds no room below the bounds is received nevertheless.
const (
	growth    = 16        // times what has arrived of a message
	peerAhead = 128 << 20 // bytes for all unfinished messages of one peer: two of 64 MiB
	nodeAhead = 512 << 20 // bytes for those of all peers
)

// Buffers of messages are used again for the next ones of the same peer.
const (
	spareBuffers = 16        // so many of one peer
	spareBytes   = 8 << 20   // none larger than this
	peerSpares   = 32 << 20  // bytes of one peer: four of the largest
	nodeSpares   = 256 << 20 // bytes of all peers
)

// begin begins a message of total bytes with its first chunk.
func (in *inStream) begin(version uint64, total int) error {
	in.asmTotal = total
	in.asmSkip = in.receiver(version) == nil
	if !in.arrive(total) {
		return in.overrun()
	}
	return nil
}

// grow makes room for another n bytes.
func (in *inStream) grow(n int) {
	need := in.asmHave + n
	if need <= len(in.asm) {
		return
	}
	size := min(in.asmTotal, 2*need)
	if in.asm == nil && in.reserve(in.asmTotal-size) {
		if in.asm = in.s.spares.take(in.asmTotal); in.asm != nil {
			return
		}
	}
	if most := min(in.asmTotal, growth*need); in.reserve(most - size) {
		size = most
	}
	larger := make([]byte, size)
	copy(larger, in.asm[:in.asmHave])
	in.asm = larger
}

// reserve sets to n the number of bytes that the stream reserves ahead of the data. It reports false,
// and changes nothing, if they are too many for the peer or the node.
func (in *inStream) reserve(n int) bool {
	more := n - in.ahead
	if more == 0 {
		return true
	}
	s := in.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false // end has given back what there was
	}
	sum := s.r.ahead.Add(int64(more))
	if more > 0 && (sum > nodeAhead || s.ahead+more > peerAhead) {
		s.r.ahead.Add(-int64(more))
		return false
	}
	s.ahead += more
	in.ahead = n
	return true
}

// assembled takes the whole message. It is nil if this node did not listen to it.
func (in *inStream) assembled() []byte {
	b := in.asm
	in.asm, in.asmHave, in.asmTotal = nil, 0, 0
	in.reserve(0)
	return b
}

// Recycle keeps the memory of a payload for the next message, or returns it to the peer that owns it.
func (in *inStream) Recycle(payload []byte) {
	if !in.s.recycleShared(payload) {
		in.s.spares.put(payload)
	}
}

// spares are the buffers of one peer that wait for messages.
type spares struct {
	r     *Router
	mu    sync.Mutex
	all   [][]byte // oldest first
	bytes int
	over  bool // the session has ended
}

// put keeps b, in place of the oldest ones if there are too many.
func (s *spares) put(b []byte) {
	n := cap(b)
	if n > spareBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	for len(s.all) == spareBuffers || s.bytes+n > peerSpares {
		s.remove(0)
	}
	if s.r.spareBytes.Add(int64(n)) > nodeSpares {
		s.r.spareBytes.Add(-int64(n))
		return
	}
	s.all = append(s.all, b)
	s.bytes += n
}

// take returns a buffer for n bytes, or nil. It has room for four times as many at most.
func (s *spares) take(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range slices.Backward(s.all) {
		if cap(b) >= n && cap(b) <= 4*n {
			s.remove(i)
			return b[:n]
		}
	}
	return nil
}

// remove drops the buffer at i. The mutex is held.
func (s *spares) remove(i int) {
	n := cap(s.all[i])
	s.bytes -= n
	s.r.spareBytes.Add(-int64(n))
	copy(s.all[i:], s.all[i+1:])
	s.all[len(s.all)-1] = nil
	s.all = s.all[:len(s.all)-1]
}

// end drops all buffers for good.
func (s *spares) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.spareBytes.Add(-int64(s.bytes))
	s.all, s.bytes, s.over = nil, 0, true
}
