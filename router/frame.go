package router

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A frame is a header of 8 bytes and a body. The header: the body's length (4
// bytes), the frame's type (1), flags (1), the sender's number of the event
// (2); little-endian. See docs/wire.md.
type frameType uint8

// Sequenced frames are counted, kept until acknowledged, and sent again after a
// cut. The others carry totals, so that a repeated or lost one does no harm.
const (
	frameData      frameType = 1 + iota // version u64, payload
	frameChunk                          // version u64, total u64, offset u64, piece
	frameDeclare                        // JSON declaration; flag 1: the sender listens
	frameListen                         // flag 1: the sender listens, 0: no longer
	frameMembers                        // JSON []Member
	frameReady                          // the sender is ready; flag 1: it had been before it met the receiver
	frameSeen                           // the sender has seen our Ready, and sent its newest values
	frameBarrier                        // JSON barrierMsg; flag 1: all nodes have entered the round
	frameFin                            // the sender will send nothing more
	frameRelay                          // JSON relayMsg
	frameMsgHeader                      // what goes beside the sender's next message of the event
	frameLeave                          // flag 0: send no more messages, I leave; 1: no more messages come
	frameDone                           // the sender has done its part of the job
	frameListening                      // u64: the receiver's event is sent to it from the message after this number on
	frameFarewell                       // JSON Farewell: the process of a node has ended
	frameMapped                         // the sender has mapped the receiver's memory
	frameShared                         // version u64, total u64, offset u64: a message in the sender's memory
	frameRelease                        // numbers u64 of messages in the receiver's memory that the sender does not use any more
	frameSequencedEnd
)

const (
	frameAck    frameType = 75 + iota // u64: sequenced frames received
	frameCredit                       // messages u64, bytes u64: consumed
	framePing                         // u64: the sender's clock
	framePong                         // u64: the ping's
	frameBye                          // reason in words
)

const (
	headerBytes = 8
	dataHead    = headerBytes + 8
	chunkHead   = headerBytes + 24

	// inlineBytes is the largest payload that is copied into the log; a larger
	// one is referred to.
	inlineBytes = 32 << 10
	// maxFrameBody bounds every frame but a chunk; it fits the reader's buffer.
	maxFrameBody = 60 << 10
	readBytes    = 64 << 10
	segmentBytes = 64 << 10

	// MaxHeaderBytes is the longest header of a message. A longer one is left out.
	MaxHeaderBytes = 1 << 10

	maxNode     = 1<<20 - 1
	maxChannels = 1 << 14

	// Bounds of the state that this node keeps of a peer, besides messages.
	maxName     = 255      // bytes of the name of an event or a barrier
	maxBarriers = 1 << 16  // names
	maxRound    = 1 << 62  // of a barrier: no node gets there, and nothing wraps
	maxDeclared = 16 << 20 // bytes of declarations
	maxPeers    = 1 << 12  // nodes, unless more are expected
	maxTickets  = 1 << 12  // pipes between leaves in the making
	flagOn      = 1
)

func (t frameType) sequenced() bool { return t >= frameData && t < frameSequencedEnd }

var le = binary.LittleEndian

func putHeader(b []byte, body int, t frameType, flags uint8, channel uint16) {
	le.PutUint32(b, uint32(body)) //nolint:gosec // bounded by ChunkBytes
	b[4] = byte(t)
	b[5] = flags
	le.PutUint16(b[6:], channel)
}

// appendFrame appends a whole frame with a small body.
func appendFrame(dst []byte, t frameType, flags uint8, channel uint16, body []byte) []byte {
	var h [headerBytes]byte
	putHeader(h[:], len(body), t, flags, channel)
	return append(append(dst, h[:]...), body...)
}

// header is a decoded frame header.
type header struct {
	body    int
	typ     frameType
	flags   uint8
	channel uint16
}

var errBadFrame = errors.New("malformed frame")

// parseHeader decodes b[:headerBytes] and checks every bound that can be
// checked before the body is there.
func parseHeader(b []byte, chunkBytes int) (header, error) {
	n := le.Uint32(b)
	h := header{typ: frameType(b[4]), flags: b[5], channel: le.Uint16(b[6:])}
	limit := uint32(maxFrameBody)
	least := uint32(0)
	switch h.typ {
	case frameData:
		least = dataHead - headerBytes
	case frameChunk:
		least = chunkHead - headerBytes
		limit = uint32(chunkBytes) + least //nolint:gosec // validated by Config
	case frameAck, framePing, framePong, frameListening:
		least, limit = 8, 8
	case frameCredit:
		least, limit = 16, 16
	case frameMsgHeader:
		least, limit = 1, MaxHeaderBytes
	case frameShared:
		least, limit = chunkHead-headerBytes, chunkHead-headerBytes
	case frameRelease:
		least = 8
	case frameListen, frameReady, frameSeen, frameFin, frameLeave, frameDone, frameMapped:
		limit = 0
	case frameDeclare, frameMembers, frameBarrier, frameRelay, frameFarewell, frameBye:
	default:
		return h, fmt.Errorf("%w: type %d", errBadFrame, b[4])
	}
	if n < least || n > limit {
		return h, fmt.Errorf("%w: type %d has a body of %d bytes, want %d to %d", errBadFrame, b[4], n, least, limit)
	}
	h.body = int(n)
	return h, nil
}
