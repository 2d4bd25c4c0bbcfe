package payload

import (
	"encoding"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// ownCoder codes types that write and parse their own bytes, as byte strings.
type ownCoder struct {
	scalar
	typ     reflect.Type
	appends bool // encoding.BinaryAppender
}

func (*ownCoder) plain() bool { return false }

// ownHead is the room before the bytes of a whole payload: tag 55799 and a length of 4 bytes, so
// that they start at byte 8.
const ownHead = 8

func (o *ownCoder) append(dst []byte, p unsafe.Pointer, base, _ int, b *budget) ([]byte, error) {
	start, room := len(dst), 1
	if start == base {
		room = ownHead
	}
	var head [ownHead]byte
	out, err := o.write(append(dst, head[:room]...), p)
	if err != nil {
		return dst, &EncodeError{What: "its own encoding failed", Err: err}
	}
	if len(out) < start+room {
		return dst, refuse("its own AppendBinary returned less than it was given")
	}
	n := len(out) - start - room
	b.take(n)
	if uint64(n) > math.MaxUint32 {
		return dst, refuse("its own encoding has %d bytes; no more than 4 GiB can travel", n)
	}
	if room == ownHead && n >= blockBytes {
		copy(out[start:], []byte{0xd9, 0xd9, 0xf7, majorBytes<<5 | 26})
		binary.BigEndian.PutUint32(out[start+4:], uint32(n))
		return out, nil
	}
	need := len(appendHead(head[:0], majorBytes, uint64(n)))
	if need > room {
		out = append(out, head[:need-room]...)
	}
	copy(out[start+need:], out[start+room:start+room+n])
	appendHead(out[:start], majorBytes, uint64(n))
	return out[:start+need+n], nil
}

func (o *ownCoder) write(dst []byte, p unsafe.Pointer) ([]byte, error) {
	v := reflect.NewAt(o.typ, p).Interface()
	if o.appends {
		return v.(encoding.BinaryAppender).AppendBinary(dst)
	}
	b, err := v.(encoding.BinaryMarshaler).MarshalBinary()
	return append(dst, b...), err
}

func (o *ownCoder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, b *budget) (int, error) {
	pos = skipSelf(src, pos)
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if initial>>5 != majorBytes {
		return pos, unexpected(pos, initial, "the byte string of a "+o.typ.String())
	}
	block, next, err := readBlock(src, pos, next, arg)
	if err != nil {
		return pos, err
	}
	if !b.take(len(block)) {
		return pos, b.exceeded(pos)
	}
	if err := unmarshal(reflect.NewAt(o.typ, p).Interface().(encoding.BinaryUnmarshaler), block); err != nil {
		return pos, &DecodeError{Offset: pos, What: "its own decoding failed", Err: err}
	}
	return next, nil
}

// unmarshal makes v decode block, which may hold any bytes: it returns a panic of v, such as for a
// wrong length, as an error.
func unmarshal(v encoding.BinaryUnmarshaler, block []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return v.UnmarshalBinary(block)
}

func (o *ownCoder) schema(w *schemaWriter) {
	name := o.typ.Name()
	if path := o.typ.PkgPath(); path != "" {
		name = path + "." + name
	}
	w.WriteString("binary(" + name + ")")
}
