package payload

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"unsafe"
)

// mapCoder codes maps, sorted by the bytes of their encoded keys (RFC 8949,
// section 4.2.1).
type mapCoder struct {
	traits
	typ        reflect.Type
	key, value coder
	limit      int
}

// pair is one entry of a map that is being encoded.
type pair struct {
	start, end int // of the encoded key in the scratch buffer
	value      unsafe.Pointer
}

func (m *mapCoder) append(dst []byte, p unsafe.Pointer, base, depth int, b *budget) ([]byte, error) {
	v := reflect.NewAt(m.typ, p).Elem()
	switch {
	case v.IsNil():
		return append(dst, byteNull), nil
	case depth == 0:
		return dst, refuse(tooDeep)
	case v.Len() > m.limit:
		return dst, refuse("%d entries; the limit is %d", v.Len(), m.limit)
	}
	b.take(m.memory(v.Len()))
	keys, pairs, err := m.sorted(v, b)
	if err != nil {
		return dst, err
	}
	dst = appendHead(dst, majorMap, uint64(len(pairs)))
	for _, e := range pairs {
		dst = append(dst, keys[e.start:e.end]...)
		if dst, err = m.value.append(dst, e.value, base, depth-1, b); err != nil {
			return dst, at(err, keySegment(keys[e.start:e.end]))
		}
	}
	return dst, nil
}

func (m *mapCoder) sorted(v reflect.Value, b *budget) (keys []byte, pairs []pair, err error) {
	key := reflect.New(m.typ.Key())
	values := reflect.MakeSlice(reflect.SliceOf(m.typ.Elem()), v.Len(), v.Len())
	pairs = make([]pair, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		key.Elem().SetIterKey(it)
		value := values.Index(len(pairs))
		value.SetIterValue(it)
		start := len(keys)
		if keys, err = m.key.append(keys, key.UnsafePointer(), 0, 0, b); err != nil {
			return nil, nil, err
		}
		pairs = append(pairs, pair{start, len(keys), value.Addr().UnsafePointer()})
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return bytes.Compare(keys[a.start:a.end], keys[b.start:b.end])
	})
	return keys, pairs, nil
}

func (m *mapCoder) decode(src []byte, pos int, p unsafe.Pointer, depth int, owned bool, b *budget) (int, error) {
	into := reflect.NewAt(m.typ, p).Elem()
	initial, arg, next, err := readHead(src, pos)
	switch {
	case err != nil:
		return pos, err
	case isNull(initial):
		into.SetZero()
		return next, nil
	case initial>>5 != majorMap:
		return pos, unexpected(pos, initial, "a map")
	case depth == 0:
		return pos, invalid(pos, tooDeep)
	}
	n, err := readCount(src, pos, next, arg, saturate(m.key.minBytes(), m.value.minBytes(), 1), m.limit)
	if err != nil {
		return pos, err
	}
	if !b.take(m.memory(n)) {
		return pos, b.exceeded(pos)
	}
	if into.Set(reflect.MakeMapWithSize(m.typ, n)); n == 0 {
		return next, nil
	}
	key, value := reflect.New(m.typ.Key()), reflect.New(m.typ.Elem())
	for i := range n {
		start := next
		if next, err = m.key.decode(src, start, key.UnsafePointer(), 0, false, b); err != nil {
			return next, at(err, "[key "+strconv.Itoa(i)+"]")
		}
		segment := src[start:next]
		value.Elem().SetZero()
		if next, err = m.value.decode(src, next, value.UnsafePointer(), depth-1, owned, b); err != nil {
			return next, at(err, keySegment(segment))
		}
		into.SetMapIndex(key.Elem(), value.Elem())
		if into.Len() != i+1 {
			return start, at(invalid(start, "a key that was there before"), keySegment(segment))
		}
	}
	return next, nil
}

// memory returns the memory of a map of n entries, and of the place where its entries are decoded.
func (m *mapCoder) memory(n int) int {
	key, value := m.typ.Key(), m.typ.Elem()
	memory := mapBytes(n, int(key.Size()), int(value.Size()))
	if n > 0 {
		memory += objectBytes(key) + objectBytes(value)
	}
	return memory
}

func (m *mapCoder) schema(w *schemaWriter) {
	if w.enter(m) {
		defer w.leave()
		w.WriteString("map[")
		m.key.schema(w)
		w.WriteString("]")
		m.value.schema(w)
	}
}

// keySegment returns the segment of a path for the entry of an encoded key.
func keySegment(encoded []byte) string {
	const shown = 64
	initial, arg, next, err := readHead(encoded, 0)
	switch {
	case err != nil:
		return "[?]"
	case initial>>5 == majorUint:
		return "[" + strconv.FormatUint(arg, 10) + "]"
	case initial>>5 == majorNegative:
		return "[" + strconv.FormatInt(^int64(arg), 10) + "]"
	case len(encoded)-next > shown:
		return "[" + strconv.Quote(string(encoded[next:next+shown])) + "...]"
	}
	return "[" + strconv.Quote(string(encoded[next:])) + "]"
}
