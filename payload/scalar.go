package payload

import (
	"encoding/binary"
	"math"
	"math/bits"
	"reflect"
	"unicode/utf8"
	"unsafe"
)

// coder writes and reads the values of one type.
type coder interface {
	// append appends the value at p. The payload starts at dst[base]; depth is the number of
	// further levels allowed. It takes from b the memory that decoding the value takes, besides the
	// place at p.
	append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error)
	// decode reads the item at pos into p and returns its end. It takes from b the memory that it
	// allocates, before it allocates it.
	decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool, b *budget) (int, error)
	// minBytes is a lower bound of the encoded size, at least 1.
	minBytes() int
	// plain reports whether the value can be read without knowing its type.
	plain() bool
	// schema writes the shape.
	schema(w *schemaWriter)
}

// traits are the constant properties of a coder.
type traits struct {
	min     int
	generic bool
}

func (t *traits) minBytes() int { return max(t.min, 1) }
func (t *traits) plain() bool   { return t.generic }

// scalar has the properties that all scalars share.
type scalar struct{}

func (scalar) minBytes() int { return 1 }
func (scalar) plain() bool   { return true }

type boolCoder struct{ scalar }

func (boolCoder) append(dst []byte, p unsafe.Pointer, _, _ int, _ *budget) ([]byte, error) {
	return appendBool(dst, *(*bool)(p)), nil
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, byteTrue)
	}
	return append(dst, byteFalse)
}

func (boolCoder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, _ *budget) (int, error) {
	if pos < len(src) && src[pos]|1 == byteTrue { // the two bytes differ in the last bit
		*(*bool)(p) = src[pos] == byteTrue
		return pos + 1, nil
	}
	initial, _, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if initial != byteFalse && initial != byteTrue {
		return pos, unexpected(pos, initial, "a boolean")
	}
	*(*bool)(p) = initial == byteTrue
	return next, nil
}

func (boolCoder) schema(w *schemaWriter) { w.WriteString("bool") }

// signedCoder codes the signed integers.
type signedCoder[T int | int8 | int16 | int32 | int64] struct{ scalar }

func (signedCoder[T]) append(dst []byte, p unsafe.Pointer, _, _ int, _ *budget) ([]byte, error) {
	return appendInt(dst, int64(*(*T)(p))), nil
}

func appendInt(dst []byte, v int64) []byte {
	if v < 0 {
		return appendHead(dst, majorNegative, uint64(^v))
	}
	return appendHead(dst, majorUint, uint64(v))
}

func (c signedCoder[T]) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, _ *budget) (int, error) {
	if pos < len(src) && src[pos] < 24 { // a small one is its own head
		*(*T)(p) = T(src[pos])
		return pos + 1, nil
	}
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	v := int64(arg)
	switch initial >> 5 {
	case majorUint:
	case majorNegative:
		v = ^v
	default:
		return pos, unexpected(pos, initial, "an "+c.word())
	}
	if arg > math.MaxInt64 || int64(T(v)) != v {
		return pos, invalid(pos, "an integer beyond the range of %s", c.word())
	}
	*(*T)(p) = T(v)
	return next, nil
}

func (signedCoder[T]) word() string             { return kindWord(reflect.TypeFor[T]().Kind()) }
func (c signedCoder[T]) schema(w *schemaWriter) { w.WriteString(c.word()) }

// unsignedCoder codes the unsigned integers.
type unsignedCoder[T uint | uint8 | uint16 | uint32 | uint64] struct{ scalar }

func (unsignedCoder[T]) append(dst []byte, p unsafe.Pointer, _, _ int, _ *budget) ([]byte, error) {
	return appendHead(dst, majorUint, uint64(*(*T)(p))), nil
}

func (c unsignedCoder[T]) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, _ *budget) (int, error) {
	if pos < len(src) && src[pos] < 24 { // a small one is its own head
		*(*T)(p) = T(src[pos])
		return pos + 1, nil
	}
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if initial>>5 != majorUint {
		return pos, unexpected(pos, initial, "a "+c.word())
	}
	if uint64(T(arg)) != arg {
		return pos, invalid(pos, "an integer beyond the range of %s", c.word())
	}
	*(*T)(p) = T(arg)
	return next, nil
}

func (unsignedCoder[T]) word() string             { return kindWord(reflect.TypeFor[T]().Kind()) }
func (c unsignedCoder[T]) schema(w *schemaWriter) { w.WriteString(c.word()) }

// kindWord is the name of a kind in schemas, where int has 64 bits.
func kindWord(k reflect.Kind) string {
	switch k {
	case reflect.Int:
		return "int64"
	case reflect.Uint:
		return "uint64"
	}
	return k.String()
}

type float32Coder struct{ scalar }

func (float32Coder) append(dst []byte, p unsafe.Pointer, _, _ int, _ *budget) ([]byte, error) {
	return appendFloat32(dst, *(*uint32)(p)), nil
}

// appendFloat32 takes the bits of the number, which preserves NaNs.
func appendFloat32(dst []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, byteSingle), v)
}

func (float32Coder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, _ *budget) (int, error) {
	if len(src)-pos >= 5 && src[pos] == byteSingle {
		*(*uint32)(p) = binary.BigEndian.Uint32(src[pos+1:])
		return pos + 5, nil
	}
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if initial == byteSingle {
		*(*uint32)(p) = uint32(arg)
		return next, nil
	}
	wide, err := asFloat64(pos, initial, arg)
	if err != nil {
		return pos, err
	}
	narrow := float32(wide)
	if math.IsInf(float64(narrow), 0) && !math.IsInf(wide, 0) {
		return pos, invalid(pos, "%g is beyond the range of float32", wide)
	}
	*(*float32)(p) = narrow
	return next, nil
}

func (float32Coder) schema(w *schemaWriter) { w.WriteString("float32") }

type float64Coder struct{ scalar }

func (float64Coder) append(dst []byte, p unsafe.Pointer, _, _ int, _ *budget) ([]byte, error) {
	return appendFloat64(dst, *(*uint64)(p)), nil
}

// appendFloat64 takes the bits of the number, which preserves NaNs.
func appendFloat64(dst []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, byteDouble), v)
}

func (float64Coder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, _ *budget) (int, error) {
	if len(src)-pos >= 9 && src[pos] == byteDouble {
		*(*uint64)(p) = binary.BigEndian.Uint64(src[pos+1:])
		return pos + 9, nil
	}
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if initial == byteDouble {
		*(*uint64)(p) = arg
		return next, nil
	}
	v, err := asFloat64(pos, initial, arg)
	if err != nil {
		return pos, err
	}
	*(*float64)(p) = v
	return next, nil
}

func (float64Coder) schema(w *schemaWriter) { w.WriteString("float64") }

// asFloat64 returns the number in a head: a float of any width, or an integer that a float64
// represents exactly, as some languages write whole numbers.
func asFloat64(pos int, initial byte, arg uint64) (float64, error) {
	switch initial {
	case byteHalf:
		return halfFloat(uint16(arg)), nil
	case byteSingle:
		return float64(math.Float32frombits(uint32(arg))), nil
	case byteDouble:
		return math.Float64frombits(arg), nil
	}
	switch major := initial >> 5; {
	case major > majorNegative:
		return 0, unexpected(pos, initial, "a float")
	case bits.Len64(arg) > 53:
		return 0, invalid(pos, "an integer that no float64 holds exactly")
	case major == majorNegative:
		return -1 - float64(arg), nil
	}
	return float64(arg), nil
}

// halfFloat returns the number in an IEEE 754 binary16.
func halfFloat(h uint16) float64 {
	exponent, mantissa := int(h>>10)&31, float64(h&1023)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(mantissa, -24)
	case 31:
		if v = math.Inf(1); mantissa != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(mantissa+1024, exponent-25)
	}
	if h>>15 != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

type stringCoder struct{ scalar }

func (stringCoder) append(dst []byte, p unsafe.Pointer, _, _ int, b *budget) ([]byte, error) {
	b.take(len(*(*string)(p)))
	return appendString(dst, *(*string)(p))
}

func appendString(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return dst, refuse("a string that is not UTF-8 cannot travel; use []byte")
	}
	return append(appendHead(dst, majorText, uint64(len(s))), s...), nil
}

func (stringCoder) decode(src []byte, pos int, p unsafe.Pointer, _ int, _ bool, b *budget) (int, error) {
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return pos, err
	}
	if initial>>5 != majorText {
		return pos, unexpected(pos, initial, "a text string")
	}
	text, next, err := readBlock(src, pos, next, arg)
	if err != nil {
		return pos, err
	}
	if !utf8.Valid(text) {
		return pos, invalid(pos, "a text string that is not UTF-8")
	}
	if !b.take(len(text)) {
		return pos, b.exceeded(pos)
	}
	*(*string)(p) = string(text)
	return next, nil
}

func (stringCoder) schema(w *schemaWriter) { w.WriteString("string") }
