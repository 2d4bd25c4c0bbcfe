package payload

import (
	"encoding/binary"
	"math/bits"
	"reflect"
	"strconv"
	"unsafe"
)

// sliceHeader is the memory of a slice of any type.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// The tags of the typed arrays (RFC 8746, section 2.1) are 0b010_f_s_e_ll:
// float, signed, little-endian, and the width. An uint8 needs no tag at all.
const (
	tagTyped        = 0b010_00000
	tagTypedFloat   = 0b000_10000
	tagTypedSigned  = 0b000_01000
	tagTypedLittle  = 0b000_00100
	tagTypedUint8   = tagTyped
	tagTypedClamped = tagTyped | tagTypedLittle // uint8, of pixels
)

// numbers is the memory of a tensor: the common part of slices and arrays.
type numbers struct {
	element coder
	word    string // of an element, in schemas
	tag     uint64 // little-endian; tagTypedUint8 for bytes, which travel without it
	tagBig  uint64 // big-endian
	size    int    // bytes of an element on the wire
	memory  int    // bytes of an element here: less for int on a 32-bit host
	signed  bool
	swap    bool // the host is big-endian
	max     int  // Limits.MaxBytes
}

// newNumbers describes tensors of elements of type t; ok is false if t is not
// a number.
func newNumbers(t reflect.Type, element coder, c *Codec) (n numbers, ok bool) {
	n = numbers{element: element, memory: int(t.Size()), size: int(t.Size()), swap: c.swap, max: c.limits.MaxBytes}
	n.tag = tagTyped
	switch t.Kind() {
	case reflect.Int, reflect.Uint:
		n.size = 8
		n.signed = t.Kind() == reflect.Int
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.signed = true
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
	case reflect.Float32, reflect.Float64:
		n.tag |= tagTypedFloat
	default:
		return n, false
	}
	width := uint64(bits.TrailingZeros(uint(n.size)))
	if n.tag&tagTypedFloat != 0 {
		width-- // the narrowest float has two bytes
	}
	n.tag |= width
	if n.signed {
		n.tag |= tagTypedSigned
	}
	n.tagBig = n.tag
	if n.size > 1 {
		n.tag |= tagTypedLittle
	}
	var w schemaWriter
	element.schema(&w)
	n.word = w.String()
	return n, true
}

// appendBlock appends the count elements at data.
func (t *numbers) appendBlock(dst []byte, data unsafe.Pointer, count, base int) ([]byte, error) {
	if count > t.max/t.size {
		return dst, refuse("a tensor of %d x %s; the limit is %d bytes", count, t.word, t.max)
	}
	if t.tag == tagTypedUint8 {
		dst = appendHead(dst, majorBytes, uint64(count))
	} else {
		dst = appendBlockHead(dst, t.tag, uint64(count*t.size), t.size, len(dst)-base)
	}
	if t.memory != t.size {
		return t.appendWidened(dst, data, count), nil
	}
	dst = append(dst, unsafe.Slice((*byte)(data), count*t.size)...)
	if t.swap {
		swapBytes(dst[len(dst)-count*t.size:], t.size)
	}
	return dst, nil
}

// appendWidened appends integers of 4 bytes as 8.
func (t *numbers) appendWidened(dst []byte, data unsafe.Pointer, count int) []byte {
	for i := range count {
		p := unsafe.Add(data, i*t.memory)
		v := uint64(*(*uint32)(p))
		if t.signed {
			v = uint64(int64(*(*int32)(p)))
		}
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// found describes the item that represents a tensor: null, a block of raw numbers, or a plain array
// of count items that starts at next.
type found struct {
	null  bool
	block []byte // nil for a plain array
	swap  bool   // the block's bytes are not in the order of this host
	count int
	next  int
}

func (t *numbers) find(src []byte, pos int) (f found, err error) {
	pos = skipSelf(src, pos)
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return f, err
	}
	switch {
	case isNull(initial):
		return found{null: true, next: next}, nil
	case initial>>5 == majorArray:
		f.next = next
		f.count, err = readCount(src, pos, next, arg, 1, t.max)
		return f, err
	case initial>>5 == majorBytes && t.tag == tagTypedUint8:
		return t.findBlock(src, pos, next, arg, f)
	case initial>>5 != majorTag:
		return f, unexpected(pos, initial, "a tensor of "+t.word)
	}
	clamped := t.tag == tagTypedUint8 && arg == tagTypedClamped
	if arg != t.tag && arg != t.tagBig && !clamped {
		return f, invalid(pos, "tag %d where a tensor of %s, tag %d, belongs", arg, t.word, t.tag)
	}
	f.swap = t.size > 1 && (arg == t.tagBig) != t.swap
	pos = next
	if initial, arg, next, err = readHead(src, pos); err != nil {
		return f, err
	}
	if initial>>5 != majorBytes {
		return f, unexpected(pos, initial, "the byte string of a tensor")
	}
	return t.findBlock(src, pos, next, arg, f)
}

func (t *numbers) findBlock(src []byte, pos, next int, n uint64, f found) (found, error) {
	var err error
	if f.block, f.next, err = readBlock(src, pos, next, n); err != nil {
		return f, err
	}
	if len(f.block)%t.size != 0 {
		return f, invalid(pos, "%d bytes are not a whole number of %s", n, t.word)
	}
	f.count = len(f.block) / t.size
	return f, nil
}

// aliases reports whether the value can alias the block.
func (t *numbers) aliases(f found) bool {
	return len(f.block) >= blockBytes && !f.swap && t.memory == t.size &&
		uintptr(unsafe.Pointer(unsafe.SliceData(f.block)))%uintptr(t.size) == 0
}

// fill writes the elements of f, which is not null, to data.
func (t *numbers) fill(src []byte, f found, data unsafe.Pointer) (int, error) {
	if f.block == nil {
		return t.fillPlain(src, f, data)
	}
	if t.memory != t.size {
		return t.fillNarrowed(f, data)
	}
	dst := unsafe.Slice((*byte)(data), len(f.block))
	copy(dst, f.block)
	if f.swap {
		swapBytes(dst, t.size)
	}
	return f.next, nil
}

func (t *numbers) fillPlain(src []byte, f found, data unsafe.Pointer) (int, error) {
	pos := f.next
	for i := range f.count {
		var err error
		if pos, err = t.element.decode(src, pos, unsafe.Add(data, i*t.memory), 0, false, nil); err != nil {
			return pos, at(err, index(i))
		}
	}
	return pos, nil
}

// fillNarrowed writes integers of 8 bytes as 4.
func (t *numbers) fillNarrowed(f found, data unsafe.Pointer) (int, error) {
	order := binary.ByteOrder(binary.LittleEndian)
	if f.swap != t.swap {
		order = binary.BigEndian
	}
	for i := range f.count {
		v := order.Uint64(f.block[8*i:])
		if (t.signed && int64(v) != int64(int32(v))) || (!t.signed && v != uint64(uint32(v))) {
			return f.next, at(invalid(f.next-len(f.block)+8*i, "an integer beyond the range of this host's int"), index(i))
		}
		*(*uint32)(unsafe.Add(data, i*t.memory)) = uint32(v)
	}
	return f.next, nil
}

// swapBytes reverses the bytes of each element.
func swapBytes(b []byte, size int) {
	switch size {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			binary.LittleEndian.PutUint16(b, binary.BigEndian.Uint16(b))
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.LittleEndian.PutUint32(b, binary.BigEndian.Uint32(b))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, binary.BigEndian.Uint64(b))
		}
	}
}

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

// tensorCoder codes slices of numbers.
type tensorCoder struct {
	traits
	numbers
}

func (t *tensorCoder) append(dst []byte, p unsafe.Pointer, base, _ int, b *budget) ([]byte, error) {
	h := (*sliceHeader)(p)
	if h.data == nil {
		return append(dst, byteNull), nil
	}
	b.take(h.len * t.memory)
	return t.appendBlock(dst, h.data, h.len, base)
}

func (t *tensorCoder) decode(src []byte, pos int, p unsafe.Pointer, _ int, owned bool, b *budget) (int, error) {
	f, err := t.find(src, pos)
	if err != nil {
		return pos, err
	}
	h := (*sliceHeader)(p)
	if f.null {
		*h = sliceHeader{}
		return f.next, nil
	}
	if owned && t.aliases(f) {
		*h = sliceHeader{unsafe.Pointer(unsafe.SliceData(f.block)), f.count, f.count}
		return f.next, nil
	}
	if !b.take(product(f.count, t.memory)) {
		return pos, b.exceeded(pos)
	}
	if len(f.block) > 0 && !f.swap && t.memory == t.size {
		// append, unlike make, does not clear the memory that it copies to.
		fresh := append([]byte(nil), f.block...)
		*h = sliceHeader{unsafe.Pointer(unsafe.SliceData(fresh)), f.count, f.count}
		return f.next, nil
	}
	if f.count > t.max/t.memory {
		return pos, invalid(pos, "a tensor of %d x %s; the limit is %d bytes", f.count, t.word, t.max)
	}
	fresh := make([]byte, f.count*t.memory)
	*h = sliceHeader{unsafe.Pointer(unsafe.SliceData(fresh)), f.count, f.count}
	return t.fill(src, f, h.data)
}

func (t *tensorCoder) schema(w *schemaWriter) { w.WriteString("[]" + t.word) }

// tensorArrayCoder codes arrays of numbers.
type tensorArrayCoder struct {
	traits
	numbers
	len  int
	head string // the beginning of a small block, if its bytes are equal in memory and on the wire
}

// prepare makes the head of a small block.
func (t *tensorArrayCoder) prepare() {
	n := t.len * t.size
	if t.memory != t.size || t.swap || t.tag == tagTypedUint8 || n >= blockBytes {
		return
	}
	t.head = string(appendHead(appendHead(nil, majorTag, t.tag), majorBytes, uint64(n)))
}

func (t *tensorArrayCoder) append(dst []byte, p unsafe.Pointer, base, _ int, _ *budget) ([]byte, error) {
	if t.head != "" {
		dst = append(dst, t.head...)
		return append(dst, unsafe.Slice((*byte)(p), t.len*t.size)...), nil
	}
	return t.appendBlock(dst, p, t.len, base)
}

func (t *tensorArrayCoder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, _ *budget) (int, error) {
	if n, end := t.len*t.size, pos+len(t.head)+t.len*t.size; t.head != "" && end <= len(src) && string(src[pos:pos+len(t.head)]) == t.head {
		copy(unsafe.Slice((*byte)(p), n), src[end-n:end])
		return end, nil
	}
	f, err := t.find(src, pos)
	if err != nil {
		return pos, err
	}
	if f.null {
		return pos, invalid(pos, "null where %d numbers belong", t.len)
	}
	if f.count != t.len {
		return pos, invalid(pos, "%d numbers where %d belong", f.count, t.len)
	}
	return t.fill(src, f, p)
}

func (t *tensorArrayCoder) schema(w *schemaWriter) {
	w.WriteString(index(t.len) + t.word)
}
