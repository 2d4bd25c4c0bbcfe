package payload

import (
	"math"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// anyCoder codes interfaces without methods: plain data, read without knowing
// its type.
type anyCoder struct {
	scalar
	codec *Codec
}

func (a *anyCoder) append(dst []byte, p unsafe.Pointer, base, depth int) ([]byte, error) {
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
	return plan.root.append(dst, here.UnsafePointer(), base, depth)
}

func (a *anyCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, _ bool) (int, error) {
	v, next, err := a.value(src, pos, depth)
	*(*any)(p) = v
	return next, err
}

func (a *anyCoder) value(src []byte, pos, depth int) (any, int, error) {
	pos = skipSelf(src, pos)
	initial, arg, next, err := readHead(src, pos)
	if err != nil {
		return nil, pos, err
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
		return decodeAs[[]byte](a, src, pos)
	case majorText:
		return decodeWith[string](stringCoder{}, src, pos)
	case majorArray:
		return a.array(src, pos, next, arg, depth)
	case majorMap:
		return a.mapping(src, pos, next, arg, depth)
	case majorTag:
		return a.tagged(src, pos, arg)
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

func (a *anyCoder) array(src []byte, pos, next int, arg uint64, depth int) (any, int, error) {
	if depth == 0 {
		return nil, pos, invalid(pos, tooDeep)
	}
	n, err := readCount(src, pos, next, arg, 1, a.codec.limits.MaxElements)
	if err != nil {
		return nil, pos, err
	}
	values := make([]any, n)
	for i := range values {
		if values[i], next, err = a.value(src, next, depth-1); err != nil {
			return nil, next, at(err, index(i))
		}
	}
	return values, next, nil
}

func (a *anyCoder) mapping(src []byte, pos, next int, arg uint64, depth int) (any, int, error) {
	if depth == 0 {
		return nil, pos, invalid(pos, tooDeep)
	}
	n, err := readCount(src, pos, next, arg, 2, a.codec.limits.MaxElements)
	if err != nil {
		return nil, pos, err
	}
	if n > 0 && src[next]>>5 <= majorNegative {
		return entries[int64](a, signedCoder[int64]{}, src, next, n, depth)
	}
	return entries[string](a, stringCoder{}, src, next, n, depth)
}

func entries[K comparable](a *anyCoder, keys coder, src []byte, pos, n, depth int) (any, int, error) {
	values := make(map[K]any, n)
	for i := range n {
		start := pos
		var key K
		var err error
		if pos, err = keys.decode(src, start, unsafe.Pointer(&key), 0, false); err != nil {
			return nil, pos, at(err, "[key "+strconv.Itoa(i)+"]")
		}
		segment := src[start:pos]
		if _, twice := values[key]; twice {
			return nil, start, at(invalid(start, "a key that was there before"), keySegment(segment))
		}
		if values[key], pos, err = a.value(src, pos, depth-1); err != nil {
			return nil, pos, at(err, keySegment(segment))
		}
	}
	return values, pos, nil
}

func (a *anyCoder) tagged(src []byte, pos int, tag uint64) (any, int, error) {
	switch tag {
	case tagTimeText, tagTimeEpoch:
		return decodeWith[time.Time](timeCoder{}, src, pos)
	case tagTypedUint8, tagTypedClamped:
		return decodeAs[[]uint8](a, src, pos)
	case 65, 69:
		return decodeAs[[]uint16](a, src, pos)
	case 66, 70:
		return decodeAs[[]uint32](a, src, pos)
	case 67, 71:
		return decodeAs[[]uint64](a, src, pos)
	case 72:
		return decodeAs[[]int8](a, src, pos)
	case 73, 77:
		return decodeAs[[]int16](a, src, pos)
	case 74, 78:
		return decodeAs[[]int32](a, src, pos)
	case 75, 79:
		return decodeAs[[]int64](a, src, pos)
	case 81, 85:
		return decodeAs[[]float32](a, src, pos)
	case 82, 86:
		return decodeAs[[]float64](a, src, pos)
	}
	return nil, pos, invalid(pos, "tag %d is not known here", tag)
}

// decodeAs decodes the item at pos as a tensor type.
func decodeAs[T any](a *anyCoder, src []byte, pos int) (any, int, error) {
	plan, err := a.codec.Plan(reflect.TypeFor[T]())
	if err != nil {
		return nil, pos, invalid(pos, "%v", err)
	}
	return decodeWith[T](plan.root, src, pos)
}

func decodeWith[T any](c coder, src []byte, pos int) (any, int, error) {
	var v T
	next, err := c.decode(src, pos, unsafe.Pointer(&v), 0, false)
	if err != nil {
		return nil, next, err
	}
	return v, next, nil
}

func (a *anyCoder) schema(w *schemaWriter) { w.WriteString("any") }
