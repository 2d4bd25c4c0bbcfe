package payload

import (
	"math"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// anyCoder codes interfaces without methods: plain data, which can be read without knowing its
// type.
type anyCoder struct {
	scalar
	codec *Codec
}

func (a *anyCoder) append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error) {
	start := len(dst)
	dst, err := a.appendValue(dst, p, base, depth)
	if b != nil && err == nil {
		// The types after decoding follow from the bytes alone.
		memory, _ := dynamicBytes(dst, start)
		b.take(memory)
	}
	return dst, err
}

func (a *anyCoder) appendValue(dst []byte, p unsafe.Pointer, base, depth int) ([]byte, error) {
	switch v := (*(*any)(p)).(type) {
	case nil:
		return append(dst, byteNull), nil
	case bool:
		return appendBool(dst, v), nil
	case int:
		return appendInt(dst, int64(v)), nil
	case int64:
		return appendInt(dst, v), nil
	case float32:
		return appendFloat32(dst, math.Float32bits(v)), nil
	case float64:
		return appendFloat64(dst, math.Float64bits(v)), nil
	case string:
		return appendString(dst, v)
	case time.Time:
		return appendTime(dst, v)
	default:
		return a.appendOther(dst, reflect.ValueOf(v), base, depth)
	}
}

func (a *anyCoder) appendOther(dst []byte, v reflect.Value, base, depth int) ([]byte, error) {
	plan, err := a.codec.Plan(v.Type())
	if err != nil {
		return dst, &EncodeError{What: "what is in the interface cannot travel", Err: err}
	}
	if !plan.root.plain() {
		return dst, refuse("a %s in an interface cannot travel: it would arrive as another type", v.Type())
	}
	here := reflect.New(v.Type())
	here.Elem().Set(v)
	return plan.root.append(dst, here.UnsafePointer(), base, depth, nil)
}

func (a *anyCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, _ bool, b *budget) (int, error) {
	v, next, err := a.value(src, pos, depth, b)
	*(*any)(p) = v
	return next, err
}

func (a *anyCoder) value(src []byte, pos, depth int, b *budget) (any, int, error) {
	pos = skipSelf(src, pos)
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return nil, pos, err
	}
	if !b.take(boxBytes(initial, arg)) {
		return nil, pos, b.exceeded(pos)
	}
	switch initial >> 5 {
	case majorUint:
		if arg > math.MaxInt64 {
			return arg, next, nil
		}
		return int64(arg), next, nil
	case majorNegative:
		if arg > math.MaxInt64 {
			return nil, pos, invalid(pos, "an integer beyond the range of int64")
		}
		return ^int64(arg), next, nil
	case majorBytes:
		return decodeAs[[]byte](a, src, pos, b)
	case majorText:
		return decodeWith[string](stringCoder{}, src, pos, b)
	case majorArray:
		return a.array(src, pos, next, arg, depth, b)
	case majorMap:
		return a.mapping(src, pos, next, arg, depth, b)
	case majorTag:
		return a.tagged(src, pos, arg, b)
	}
	return simple(initial, arg, pos, next)
}

func simple(initial byte, arg uint64, pos, next int) (any, int, error) {
	switch initial {
	case byteFalse, byteTrue:
		return initial == byteTrue, next, nil
	case byteNull, byteUndefined:
		return nil, next, nil
	case byteHalf:
		return float32(halfFloat(uint16(arg))), next, nil
	case byteSingle:
		return math.Float32frombits(uint32(arg)), next, nil
	case byteDouble:
		return math.Float64frombits(arg), next, nil
	}
	return nil, pos, unexpected(pos, initial, "data")
}

func (a *anyCoder) array(src []byte, pos, next int, arg uint64, depth int, b *budget) (any, int, error) {
	if depth == 0 {
		return nil, pos, invalid(pos, tooDeep)
	}
	n, err := readCount(src, pos, next, arg, 1, a.codec.limits.MaxElements)
	if err != nil {
		return nil, pos, err
	}
	if !b.take(sliceBytes + product(n, anyBytes)) {
		return nil, pos, b.exceeded(pos)
	}
	values := make([]any, n)
	for i := range values {
		if values[i], next, err = a.value(src, next, depth-1, b); err != nil {
			return nil, next, at(err, index(i))
		}
	}
	return values, next, nil
}

func (a *anyCoder) mapping(src []byte, pos, next int, arg uint64, depth int, b *budget) (any, int, error) {
	if depth == 0 {
		return nil, pos, invalid(pos, tooDeep)
	}
	n, err := readCount(src, pos, next, arg, 2, a.codec.limits.MaxElements)
	if err != nil {
		return nil, pos, err
	}
	if n > 0 && src[next]>>5 <= majorNegative {
		return entries[int64](a, signedCoder[int64]{}, src, next, n, depth, b)
	}
	return entries[string](a, stringCoder{}, src, next, n, depth, b)
}

func entries[K comparable](a *anyCoder, keys coder, src []byte, pos, n, depth int, b *budget) (any, int, error) {
	var key K
	if !b.take(entriesBytes(n, int(unsafe.Sizeof(key)))) {
		return nil, pos, b.exceeded(pos)
	}
	values := make(map[K]any, n)
	for i := range n {
		start := pos
		var err error
		if pos, err = keys.decode(src, start, unsafe.Pointer(&key), 0, false, b); err != nil {
			return nil, pos, at(err, "[key "+strconv.Itoa(i)+"]")
		}
		segment := src[start:pos]
		if _, twice := values[key]; twice {
			return nil, start, at(invalid(start, "a key that was there before"), keySegment(segment))
		}
		if values[key], pos, err = a.value(src, pos, depth-1, b); err != nil {
			return nil, pos, at(err, keySegment(segment))
		}
	}
	return values, pos, nil
}

func (a *anyCoder) tagged(src []byte, pos int, tag uint64, b *budget) (any, int, error) {
	switch tag {
	case tagTimeText, tagTimeEpoch:
		return decodeWith[time.Time](timeCoder{}, src, pos, b)
	case tagTypedUint8, tagTypedClamped:
		return decodeAs[[]uint8](a, src, pos, b)
	case 65, 69:
		return decodeAs[[]uint16](a, src, pos, b)
	case 66, 70:
		return decodeAs[[]uint32](a, src, pos, b)
	case 67, 71:
		return decodeAs[[]uint64](a, src, pos, b)
	case 72:
		return decodeAs[[]int8](a, src, pos, b)
	case 73, 77:
		return decodeAs[[]int16](a, src, pos, b)
	case 74, 78:
		return decodeAs[[]int32](a, src, pos, b)
	case 75, 79:
		return decodeAs[[]int64](a, src, pos, b)
	case 81, 85:
		return decodeAs[[]float32](a, src, pos, b)
	case 82, 86:
		return decodeAs[[]float64](a, src, pos, b)
	}
	return nil, pos, invalid(pos, "tag %d is not known here", tag)
}

// decodeAs decodes the item at pos as a tensor type.
func decodeAs[T any](a *anyCoder, src []byte, pos int, b *budget) (any, int, error) {
	plan, err := a.codec.Plan(reflect.TypeFor[T]())
	if err != nil {
		return nil, pos, invalid(pos, "%v", err)
	}
	return decodeWith[T](plan.root, src, pos, b)
}

func decodeWith[T any](c coder, src []byte, pos int, b *budget) (any, int, error) {
	var zero T
	if !b.take(int(unsafe.Sizeof(zero))) {
		return nil, pos, b.exceeded(pos)
	}
	v := new(T)
	next, err := c.decode(src, pos, unsafe.Pointer(v), 0, false, b)
	if err != nil {
		return nil, next, err
	}
	// An interface that holds a string, a slice or a time points to it: v is that target, so no
	// copy is made.
	boxed := any(zero)
	(*[2]unsafe.Pointer)(unsafe.Pointer(&boxed))[1] = unsafe.Pointer(v)
	return boxed, next, nil
}

// boxBytes returns the memory of a number that an interface holds.
func boxBytes(initial byte, arg uint64) int {
	switch initial >> 5 {
	case majorUint:
		if arg <= math.MaxUint8 {
			return 0 // the runtime has static values for these
		}
		return word
	case majorNegative:
		return word
	}
	switch initial {
	case byteHalf, byteSingle, byteDouble:
		return word
	}
	return 0
}

// entriesBytes returns the memory of a map that an interface holds, and of the place where its keys
// are decoded.
func entriesBytes(n, key int) int { return mapBytes(n, key, anyBytes) + key }

// dynamicBytes returns the memory that decoding the item at pos as an any takes, and the end of the
// item. append must have written the item.
func dynamicBytes(src []byte, pos int) (memory, next int) {
	pos = skipSelf(src, pos)
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return 0, len(src)
	}
	n := int(arg) // a length, or not used
	switch initial >> 5 {
	case majorBytes:
		return sliceBytes + n, next + n
	case majorText:
		return stringBytes + n, next + n
	case majorArray:
		return dynamicItems(src, next, n, sliceBytes+product(n, anyBytes))
	case majorMap:
		key := stringBytes
		if n > 0 && src[next]>>5 <= majorNegative {
			key = word
		}
		return dynamicItems(src, next, 2*n, entriesBytes(n, key)) // its keys as items: slightly too much
	case majorTag:
		if arg != tagTimeText {
			return dynamicBytes(src, next) // a typed array: its byte string
		}
		_, arg, next, _ = readHead(src, next)
		end := next + int(arg)
		return timeBytes + zoneBytes(src[next:end]), end
	}
	return boxBytes(initial, arg), next
}

// dynamicItems returns the memory of n items and of their container.
func dynamicItems(src []byte, pos, n, memory int) (int, int) {
	for range n {
		var item int
		item, pos = dynamicBytes(src, pos)
		memory += item
	}
	return memory, pos
}

func (a *anyCoder) schema(w *schemaWriter) { w.WriteString("any") }
