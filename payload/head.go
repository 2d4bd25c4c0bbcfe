package payload

import (
	"encoding/binary"
	"math"
)

// The major types of CBOR (RFC 8949, section 3.1).
const (
	majorUint = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorTag
)

// The initial bytes of the simple values and floats.
const (
	byteFalse     = 0xf4
	byteTrue      = 0xf5
	byteNull      = 0xf6
	byteUndefined = 0xf7
	byteHalf      = 0xf9
	byteSingle    = 0xfa
	byteDouble    = 0xfb
)

const (
	tagTimeText      = 0     // RFC 3339
	tagTimeEpoch     = 1     // seconds since 1970
	tagSelfDescribed = 55799 // "this is CBOR"; means nothing, and pads three bytes
)

// blockBytes is the minimum size of a tensor that is aligned and aliased.
const blockBytes = 4096

// appendHead appends the shortest head of a major type and its argument.
func appendHead(dst []byte, major byte, arg uint64) []byte {
	switch {
	case arg < 24:
		return append(dst, major<<5|byte(arg))
	case arg <= math.MaxUint8:
		return append(dst, major<<5|24, byte(arg))
	case arg <= math.MaxUint16:
		return append(dst, major<<5|25, byte(arg>>8), byte(arg))
	case arg <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(dst, major<<5|27), arg)
}

// appendWideHead appends a head of exactly size bytes: 2, 3, 5 or 9.
func appendWideHead(dst []byte, major byte, arg uint64, size int) []byte {
	switch size {
	case 2:
		return append(dst, major<<5|24, byte(arg))
	case 3:
		return append(dst, major<<5|25, byte(arg>>8), byte(arg))
	case 5:
		return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(dst, major<<5|27), arg)
}

// appendBlockHead appends the tag and the byte string head of a typed array of n bytes. For a large
// block it uses wider heads than needed, and if that is not enough a tag 55799 before them, so that
// the block starts at a multiple of align, counted from the start of the payload, which is offset
// bytes back.
func appendBlockHead(dst []byte, tag, n uint64, align, offset int) []byte {
	if n >= blockBytes && align > 1 {
		if self, tagSize, lenSize, ok := alignedHead(n, align, offset); ok {
			if self {
				dst = appendWideHead(dst, majorTag, tagSelfDescribed, 3)
			}
			dst = appendWideHead(dst, majorTag, tag, tagSize)
			return appendWideHead(dst, majorBytes, n, lenSize)
		}
	}
	dst = appendHead(dst, majorTag, tag)
	return appendHead(dst, majorBytes, n)
}

// alignedHead finds the shortest combination of heads that ends at a multiple
// of align. There is one for every block of less than 4 GiB.
func alignedHead(n uint64, align, offset int) (self bool, tagSize, lenSize int, ok bool) {
	lens := [...]int{3, 5, 9}
	fits := [...]bool{n <= math.MaxUint16, n <= math.MaxUint32, true}
	best := math.MaxInt
	for _, pad := range [...]int{0, 3} {
		for _, t := range [...]int{2, 3, 5, 9} {
			for i, l := range lens {
				total := pad + t + l
				if fits[i] && total < best && (offset+total)%align == 0 {
					best, self, tagSize, lenSize, ok = total, pad > 0, t, l, true
				}
			}
		}
	}
	return self, tagSize, lenSize, ok
}

// readHead reads the head at pos: its initial byte, its argument (for floats, their bits) and the
// position of the next byte. It refuses indefinite lengths.
func readHead(src []byte, pos int) (initial byte, arg uint64, next int, err error) {
	if pos >= len(src) {
		return 0, 0, pos, invalid(pos, "the input ends too early")
	}
	initial = src[pos]
	if info := initial & 31; info < 24 {
		return initial, uint64(info), pos + 1, nil
	}
	return readWideHead(src, pos)
}

func readWideHead(src []byte, pos int) (initial byte, arg uint64, next int, err error) {
	initial = src[pos]
	rest := src[pos+1:]
	switch info := initial & 31; {
	case info == 24 && len(rest) >= 1:
		if initial>>5 == 7 {
			return 0, 0, pos, invalid(pos, "an unassigned simple value")
		}
		return initial, uint64(rest[0]), pos + 2, nil
	case info == 25 && len(rest) >= 2:
		return initial, uint64(binary.BigEndian.Uint16(rest)), pos + 3, nil
	case info == 26 && len(rest) >= 4:
		return initial, uint64(binary.BigEndian.Uint32(rest)), pos + 5, nil
	case info == 27 && len(rest) >= 8:
		return initial, binary.BigEndian.Uint64(rest), pos + 9, nil
	case info == 31:
		return 0, 0, pos, invalid(pos, "an indefinite length")
	case info >= 28:
		return 0, 0, pos, invalid(pos, "a reserved initial byte 0x%02x", initial)
	}
	return 0, 0, pos, invalid(pos, "the input ends too early")
}

// skipSelf steps over tags 55799.
func skipSelf(src []byte, pos int) int {
	for pos+3 <= len(src) && src[pos] == 0xd9 && src[pos+1] == 0xd9 && src[pos+2] == 0xf7 {
		pos += 3
	}
	return pos
}

func isNull(initial byte) bool { return initial == byteNull || initial == byteUndefined }

// readCount checks the number of elements of an array or pairs of a map, each of which takes at
// least each bytes, against the remaining bytes and against limit.
func readCount(src []byte, pos, next int, n uint64, each, limit int) (int, error) {
	left := len(src) - next
	if n > uint64(left/each) {
		return 0, invalid(pos, "%d elements do not fit into the %d bytes that are left", n, left)
	}
	if n > uint64(limit) {
		return 0, invalid(pos, "%d elements; the limit is %d", n, limit)
	}
	return int(n), nil
}

// readBlock checks the length of a byte or text string against the remaining bytes, and returns its
// content and its end.
func readBlock(src []byte, pos, next int, n uint64) ([]byte, int, error) {
	if left := len(src) - next; n > uint64(left) {
		return nil, 0, invalid(pos, "a string of %d bytes where %d are left", n, left)
	}
	end := next + int(n)
	return src[next:end:end], end, nil
}
